"""The past in pieces: keys that follow a piece wherever it goes, times, what is damaged or no page at all."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.contracts.ports import PastEntry
from kernel_gamma.contracts.truths import check_key
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.self_stream.stream import NOW

ZONE = timezone(timedelta(hours=8))
TEA = "我在厨房给小明泡了龙井，他说很香。"
RAIN = "I heard the rain begin and closed the window."
ARCHIVE = "stream/archive/2026-11-30.md"


def put(root: Path, page: str, text: str | bytes) -> Path:
    path = root / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def block(time: str, text: str) -> str:
    return f"## {time}\n\n{text}\n\n"


def entries(root: Path, page: str) -> list[PastEntry]:
    found = PastFiles(root, ZONE).entries(page)
    assert len({entry.key for entry in found}) == len(found)
    for entry in found:
        check_key(entry.key)
        assert entry.page == page
    return found


def test_a_passage_keeps_its_key_when_it_moves_to_the_archive(tmp_path: Path) -> None:
    put(tmp_path, NOW, block("2026-11-30 10:30:05 +08:00", RAIN) + block("2026-11-30 11:00:00 +08:00", TEA))
    put(tmp_path, ARCHIVE, block("2026-11-30 10:30:05 +08:00", RAIN))
    here, there = entries(tmp_path, NOW), entries(tmp_path, ARCHIVE)
    assert [entry.text for entry in here] == [RAIN, TEA]
    assert here[0].key == there[0].key == f"stream.20261130T023005Z.{sha256(RAIN.encode()).hexdigest()[:12]}"
    assert here[0].timestamp == datetime(2026, 11, 30, 2, 30, 5, tzinfo=UTC)
    assert here[0].heading == "2026-11-30 10:30:05 +08:00"
    assert (here[0].level, there[0].level) == ("L1", "L2")


def test_line_ends_and_a_byte_order_mark_change_no_key(tmp_path: Path) -> None:
    text = block("2026-11-30 10:30:05 +08:00", TEA)
    put(tmp_path, NOW, text)
    put(tmp_path, ARCHIVE, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert entries(tmp_path, NOW)[0].key == entries(tmp_path, ARCHIVE)[0].key


@pytest.mark.parametrize(
    "time", ["2026-13-45 10:30:05 +08:00", "0001-01-01 00:00:00 +08:00", "9999-12-31 23:59:59 -05:00"]
)
def test_a_heading_that_is_no_time_gives_the_day_of_the_archive(tmp_path: Path, time: str) -> None:
    put(tmp_path, ARCHIVE, "Earlier that day I slept.\n\n" + block(time, TEA))
    above, told = entries(tmp_path, ARCHIVE)
    assert above.timestamp == told.timestamp == datetime(2026, 11, 30, 12, tzinfo=ZONE)
    assert above.key.startswith("stream.20261130.")
    assert (above.heading, told.heading, told.text) == ("", time, TEA)


def test_what_stands_above_the_first_heading_of_now_keeps_its_key_while_the_page_grows(
    tmp_path: Path,
) -> None:
    bridge = "早些时候我和小明聊了很久。\n\n"
    path = put(tmp_path, NOW, bridge)
    (before,) = entries(tmp_path, NOW)
    path.write_text(bridge + block("2026-11-30 10:30:05 +08:00", TEA))
    assert entries(tmp_path, NOW)[0] == before
    assert before.timestamp is None


def test_a_diary_page_is_told_section_by_section_with_the_time_of_its_heading(tmp_path: Path) -> None:
    put(
        tmp_path,
        "diary/2026-11-30.md",
        "# 2026-11-30\n\n## 22:05\n\n下雨了。\n\n我想家。\n\n"
        "## Evening 9:07\n\nTea.\n\n## 夜里\n\n睡不着。\n",
    )
    found = entries(tmp_path, "diary/2026-11-30.md")
    day = datetime(2026, 11, 30, tzinfo=ZONE)
    assert [(entry.heading, entry.text) for entry in found] == [
        ("22:05", "下雨了。\n\n我想家。"),
        ("Evening 9:07", "Tea."),
        ("夜里", "睡不着。"),
    ]
    assert [entry.timestamp for entry in found] == [
        day.replace(hour=22, minute=5),
        day.replace(hour=9, minute=7),
        day.replace(hour=12),
    ]
    for entry in found:
        assert re.fullmatch(r"diary\.2026-11-30\.[0-9a-f]{12}", entry.key)
        assert entry.level == "L2"


def test_the_day_of_a_diary_is_that_of_the_minds_zone(tmp_path: Path) -> None:
    put(tmp_path, "diary/2026-07-01.md", "## 23:30\n\nlate\n")
    (entry,) = PastFiles(tmp_path, ZoneInfo("America/New_York")).entries("diary/2026-07-01.md")
    assert entry.timestamp == datetime(2026, 7, 2, 3, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("**2026-11-30 10:30** Alice likes tea.", datetime(2026, 11, 30, 10, 30, tzinfo=ZONE)),
        ("2026-11-30: Alice likes tea.", datetime(2026, 11, 30, 12, tzinfo=ZONE)),
        ("- 2026年3月7日，小明搬家了。", datetime(2026, 3, 7, 12, tzinfo=ZONE)),
        ("（2026/3/7 9:05）小明搬家了。", datetime(2026, 3, 7, 9, 5, tzinfo=ZONE)),
        ("2026-02-31 is no day.", None),
        ("2026-11-305 is a number.", None),
        ("Alice was born on 2001-02-03.", None),
        ("小明喜欢茉莉花茶。", None),
    ],
)
def test_a_memory_that_begins_with_a_date_has_it(
    tmp_path: Path, written: str, moment: datetime | None
) -> None:
    put(tmp_path, "memories/tea.md", f"# Tea\n\n{written}\n")
    (entry,) = entries(tmp_path, "memories/tea.md")
    assert (entry.heading, entry.text, entry.timestamp, entry.level) == ("Tea", written, moment, "L3")
    assert re.fullmatch(r"memory\.tea\.[0-9a-f]{12}", entry.key)


def test_memories_are_paragraphs_under_their_headings(tmp_path: Path) -> None:
    put(tmp_path, "memories/alice.md", "# Alice\n\nShe lives in Dublin.\n\nTea.\n\n## 家人\n\nTea.\n")
    found = entries(tmp_path, "memories/alice.md")
    assert [(e.heading, e.text) for e in found] == [
        ("Alice", "She lives in Dublin."),
        ("Alice", "Tea."),
        ("家人", "Tea."),
    ]


def test_pages_of_any_name_have_keys_of_their_own(tmp_path: Path) -> None:
    names = [
        "tea",
        "茶",
        "咖啡",
        "о чае",
        "tea.time",
        "tea time",
        "Tea",
        "a" * 200,
        "topic_1a2b3c4d",
        "1a2b3c4d",
        "--",
    ]
    keys = set()
    for name in names:
        put(tmp_path, f"memories/{name}.md", "the same words\n")
        (entry,) = entries(tmp_path, f"memories/{name}.md")
        assert entry.key.count(".") == 2
        keys.add(entry.key)
    assert len(keys) == len(names)
    assert any(key.startswith("memory.tea_time_") for key in keys)


def test_a_page_named_like_a_made_up_key_shares_none(tmp_path: Path) -> None:
    mark = sha256("茶".encode()).hexdigest()[:8]
    keys = set()
    for name in ("茶", mark):
        put(tmp_path, f"memories/{name}.md", "the same words\n")
        keys.update(entry.key for entry in entries(tmp_path, f"memories/{name}.md"))
    assert len(keys) == 2


def test_a_name_that_is_no_utf_8_is_read_and_has_a_key(tmp_path: Path) -> None:
    put(tmp_path, "memories/ok.md", "one\n")
    (tmp_path / os.fsdecode(b"memories/\xff\xfe.md")).write_text("two\n")
    past = PastFiles(tmp_path, ZONE)
    texts = [entry.text for page in past.marks() for entry in past.entries(page)]
    assert sorted(texts) == ["one", "two"]


def test_the_same_text_twice_in_a_page_stands_twice(tmp_path: Path) -> None:
    put(tmp_path, NOW, block("2026-11-30 10:30:05 +08:00", TEA) * 3)
    put(tmp_path, "memories/t.md", "Tea.\n\nTea.\n")
    for page, count in ((NOW, 3), ("memories/t.md", 2)):
        keys = [entry.key for entry in entries(tmp_path, page)]
        assert keys == [keys[0], *(f"{keys[0]}-{n}" for n in range(2, count + 1))]


def test_damaged_bytes_are_replaced_and_the_rest_is_read(tmp_path: Path) -> None:
    put(tmp_path, NOW, block("2026-11-30 10:30:05 +08:00", TEA).encode() + b"\xff\x00\xe8\x8c tail\n")
    (entry,) = entries(tmp_path, NOW)
    assert entry.text.startswith(TEA)
    assert entry.text.endswith("tail")
    assert "\0" not in entry.text


def test_a_text_without_end_is_cut_and_none_of_it_lost(tmp_path: Path) -> None:
    long = "长" * 250_000
    put(tmp_path, "memories/long.md", long)
    found = entries(tmp_path, "memories/long.md")
    assert len(found) == 3
    assert "".join(entry.text for entry in found) == long


def test_marks_name_every_page_of_the_past_and_nothing_else(tmp_path: Path) -> None:
    pages = {NOW, ARCHIVE, "diary/2026-11-30.md", "memories/茶.md", "memories/alice.md"}
    for page in pages:
        put(tmp_path, page, "x\n")
    for other in (
        "state.md",
        "diary/notes.md",
        "diary/2026-02-31.md",
        "memories/.hidden.md",
        "memories/a.txt",
        "memories/deep/b.md",
        ".history/x.md",
        "stream/archive/old.md",
    ):
        put(tmp_path, other, "x\n")
        assert entries(tmp_path, other) == []
    past = PastFiles(tmp_path, ZONE)
    assert set(past.marks()) == pages
    assert set(past.marks({NOW, "state.md", "memories/茶.md", "memories/gone.md"})) == {NOW, "memories/茶.md"}
    assert past.marks()[NOW] == past.marks([NOW])[NOW]


def test_a_mark_differs_after_a_save(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, "one\n")
    past = PastFiles(tmp_path, ZONE)
    first = past.marks()[NOW]
    assert past.marks()[NOW] == first
    path.write_text("longer\n")
    assert past.marks()[NOW] != first


def test_links_within_are_followed_and_what_is_no_page_is_empty(tmp_path: Path) -> None:
    root, outside = tmp_path / "self", tmp_path / "secret.md"
    outside.write_text("not mine\n")
    put(root, "memories/tea.md", "Tea.\n")
    (root / "memories/also.md").symlink_to("tea.md")
    (root / "memories/out.md").symlink_to(outside)
    (root / "memories/folder.md").mkdir()
    os.mkfifo(root / "memories/fifo.md")
    past = PastFiles(root, ZONE)
    assert set(past.marks()) == {"memories/tea.md", "memories/also.md"}
    assert [entry.text for entry in past.entries("memories/also.md")] == ["Tea."]
    for page in ("out", "folder", "fifo", "missing"):
        assert past.entries(f"memories/{page}.md") == []
        assert past.marks([f"memories/{page}.md"]) == {}


@pytest.mark.parametrize(
    "page", ["", "memories/", "memories/../../x.md", "memories/a\0.md", "/etc/passwd", "memories/a"]
)
def test_names_that_are_no_page_hold_nothing(tmp_path: Path, page: str) -> None:
    past = PastFiles(tmp_path, ZONE)
    assert past.entries(page) == []
    assert past.marks([page]) == {}


def test_an_empty_self_has_no_past(tmp_path: Path) -> None:
    assert PastFiles(tmp_path / "nowhere", ZONE).marks() == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_page_that_may_not_be_read_is_an_error_not_an_empty_page(tmp_path: Path) -> None:
    put(tmp_path, "memories/a.md", "x\n").chmod(0)
    past = PastFiles(tmp_path, ZONE)
    assert "memories/a.md" in past.marks()
    with pytest.raises(PermissionError):
        past.entries("memories/a.md")
