"""What folds and what must not: times, numbers and ids are noise, words, names and facts are not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.truths.folding import Folder, FoldItem, fold, mask, names_joined

T = datetime(2026, 9, 11, 8, tzinfo=UTC)


def counts(*texts: str, family: str = "error.disk") -> list[int]:
    return [group.count for group in fold(FoldItem(text, T, family) for text in texts)]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("2026-09-11T08:00:00.123+08:00 up", "<t> up"),
        ("Sep  9 06:06:20 host sshd[24200]: ok", "<t> host sshd[<n>]: ok"),
        ("于2026年9月11日重启", "于<t>重启"),
        ("从 10.0.0.1:8080 到 fe80::1", "从 <ip> 到 <ip>"),
        ("耗时３２秒, 12.5%", "耗时<n>秒, <n>%"),
        ("id 123e4567-e89b-12d3-a456-426614174000 done", "id <n> done"),
        ("id 01ARZ3NDEKTSV4RRFFQ69G5FAV done", "id <n> done"),
        ("at 0xdeadBEEF sha 9f86d081884c7d65", "at <n> sha <n>"),
        ("blk_3847293847 on web-01, db1", "blk_<n> on web-01, db1"),
        ("HTTP 500 after 3 tries", "HTTP 500 after <n> tries"),
        ("状态码：404，第3次", "状态码：404，第<n>次"),
        ("facade decade", "facade decade"),
    ],
)
def test_what_changes_from_case_to_case_is_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_of_facts_only_dates_with_a_time_of_day_are_masked() -> None:
    assert (
        mask("born 2001-05-07, room 12, seen 2026-09-11 08:00", numbers=False)
        == "born 2001-05-07, room 12, seen <t>"
    )


def test_records_that_differ_in_times_and_numbers_count_as_one() -> None:
    folder = Folder()
    zone = ZoneInfo("Asia/Shanghai")
    for hour in (3, 1, 2):
        moment = (T + timedelta(hours=hour)).astimezone(zone)
        folder.add(f"{moment.isoformat()} 磁盘 sda 使用率 {hour * 7}%，来自 10.0.0.1:{hour}", moment, "alert")
    (group,) = folder.groups
    assert (group.representative, group.count, group.members) == (0, 3, [0, 1, 2])
    assert (group.first, group.last) == (T + timedelta(hours=1), T + timedelta(hours=3))


def test_the_hour_told_twice_has_a_first_and_a_last() -> None:
    zone = ZoneInfo("America/New_York")
    early = datetime(2026, 11, 1, 1, 30, tzinfo=zone)
    late = datetime(2026, 11, 1, 1, 10, tzinfo=zone, fold=1)
    (group,) = fold([FoldItem("ping", late), FoldItem("ping", early)])
    assert (group.first, group.last) == (early, late)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the link to the store in the second hall of the old building is {} since {}", ("up", "down")),
        ("nightly backup of the customers to the remote vault ended with {} after {} s", ("error", "ok")),
        ("connection from alpha to the broker of billing at {} lost {} times again", ("web-01", "web-02")),
        ("connection from alpha to the broker of billing at {} lost {} times again", ("srv2", "srv3")),
        ("disk full on {} after {} s", ("web-01", "web-02")),
        ("{} 的磁盘已满，用时{}秒", ("主机01", "主机02")),
        ("{} lost {} packets", ("10.0.0.1", "10.0.0.2")),
        ("{} lost {} packets", ("fe80::1", "fe80::2")),
        ("昨夜对客户数据进行的备份到远端保险库的任务结果为{}，一共耗时{}秒，请查看", ("正常", "异常")),
    ],
)  # fmt: skip
def test_records_with_different_words_never_fold(one: str, other: tuple[str, str]) -> None:
    assert counts(*(one.format(word, number) for word in other for number in (1, 22))) == [2, 2]


@pytest.mark.parametrize(
    "text",
    [
        "web-01 runs at {}% of {} ms, pid {}",
        "节点{}个正常，主机01 用时 {} 秒，pid {}",
        "10.0.0.1:{} answered in {} s after {} tries",
        "job-{}4213 took {} s on [::1]:{}",
        "at 08:{}1:1{} disk sda {}%",
    ],
)
def test_times_counts_durations_shares_and_process_numbers_fold_beside_names(text: str) -> None:
    assert counts(*(text.format(n, n, n) for n in range(1, 5))) == [4]


def test_a_text_without_numbered_names_is_compared_as_it_is() -> None:
    for text in ("disk full", "12:34:56 std::vector 节点3个", "550e8400-e29b-41d4-a716-446655440000 v1.2"):
        assert names_joined(text) is text


def test_the_same_words_fold_when_little_but_punctuation_differs() -> None:
    text = "worker {} of the nightly import has read {} rows from the customer table and written {} files"
    assert counts(text.format(1, 2, 3), text.format("1 2", 2, 3) + ".") == [2]
    assert counts(text.format(1, 2, 3), "-" * 40 + text.format(1, 2, 3)) == [1, 1]
    assert counts("host alpha calls host beta through the gateway of the second hall",
                  "host beta calls host alpha through the gateway of the second hall") == [1, 1]  # fmt: skip


def test_a_short_fact_folds_only_inside_its_family() -> None:
    items = [FoldItem("the code is 4711", T, "task.door"),
             FoldItem("the code is 4712", T, "task.safe"),
             FoldItem("the code is 4713", T, "task.door")]  # fmt: skip
    assert [group.members for group in fold(items)] == [[0, 2], [1]]


@pytest.mark.parametrize("family", ["memory", "diary.2026", "stream"])
def test_numbers_of_the_minds_own_past_are_facts(family: str) -> None:
    assert counts("her birthday is May 7", "her birthday is May 9", family=family) == [1, 1]
    assert counts("她的生日是5月7日", "她的生日是5月9日", "她的生日是5月9日", family=family) == [1, 2]


def test_two_hundred_templates_fold_to_two_hundred_groups() -> None:
    verbs, things = ("opened", "closed", "lost", "found", "moved"), ("disk", "link", "page", "queue", "port")
    places = ("in the north hall", "in the south hall", "of the old shop", "of the new shop",
              "在一号机房", "在二号机房", "behind the gate", "before the gate")  # fmt: skip
    items = [
        FoldItem(f"{T + timedelta(seconds=n)} [{n * 37}] {thing} {verb} {place}, {n * 1.7:.2f} ms", T)
        for n in range(10) for place in places for verb in verbs for thing in things
    ]  # fmt: skip
    assert [group.count for group in fold(items)] == [10] * 200


@given(
    st.lists(
        st.text(st.characters(), max_size=60) | st.from_regex(r"[a1:. -]{0,60}", fullmatch=True), max_size=8
    )
)
def test_any_texts_fold_and_none_is_lost(texts: list[str]) -> None:
    groups = fold(FoldItem(text, T, "x") for text in texts + texts)
    assert sorted(member for group in groups for member in group.members) == list(range(2 * len(texts)))
    assert all(group.representative < len(texts) for group in groups)
    assert [group.representative for group in groups] == sorted(group.representative for group in groups)
