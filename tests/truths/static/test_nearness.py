from __future__ import annotations

from kernel_gamma.truths.static.nearness import nearest

PAGES = {
    "disk-layout": "# Disk layout\n\nThe data lies on the second disk, the logs on the first.",
    "network": "# 网络结构\n\n网关在内网，端口 9120。The gateway listens on loopback.",
    "backup": "# Backups\n\nEach night the data goes to the second disk. 每晚备份一次。",
}


def test_a_page_is_touched_by_words_of_its_name_or_headings() -> None:
    assert nearest("how is the disk laid out?", PAGES)[0] == "disk-layout"
    assert nearest("画一张网络结构图", PAGES) == ["network"]
    assert nearest("restore a backup", PAGES) == ["backup"]


def test_many_words_of_its_text_touch_a_page_too() -> None:
    assert nearest("which gateway listens on loopback here?", PAGES) == ["network"]
    assert nearest("the gateway is slow", PAGES) == []


def test_what_says_nothing_touches_nothing() -> None:
    for text in ("", "the and of", "的了吗", "!?", "hello"):
        assert nearest(text, PAGES) == []
    assert nearest("disk", {}) == []


def test_the_only_page_is_found_by_its_heading() -> None:
    assert nearest("the disk", {"a": "# Disk"}) == ["a"]


def test_the_order_is_the_same_each_time() -> None:
    pages = {name: "# disk" for name in "dcab"} | {"e": "# other"}
    assert nearest("disk", pages) == ["a", "b", "c", "d"]
