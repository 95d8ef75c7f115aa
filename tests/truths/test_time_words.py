"""The time words of a query: both languages, days with 23 and 25 hours, what is no time, any text at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_gamma.truths.time_words import find_times

SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2026, 9, 16, 10, 30, tzinfo=SHANGHAI)  # a Wednesday


def at(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=SHANGHAI) if text else None


@pytest.mark.parametrize(
    ("query", "start", "end", "rest"),
    [
        ("errors of yesterday", "2026-09-15", "2026-09-16", "errors"),
        ("昨天的错误", "2026-09-15", "2026-09-16", "错误"),
        ("the day before yesterday", "2026-09-14", "2026-09-15", ""),
        ("前天 部署", "2026-09-14", "2026-09-15", "部署"),
        ("this week", "2026-09-14", "2026-09-21", ""),
        ("上周的报告", "2026-09-07", "2026-09-14", "报告"),
        ("report last month", "2026-08-01", "2026-09-01", "report"),
        ("去年", "2025-01-01", "2026-01-01", ""),
        ("what happened last night", "2026-09-15T18:00", "2026-09-16T06:00", "what happened"),
        ("昨晚", "2026-09-15T18:00", "2026-09-16T06:00", ""),
        ("今早", "2026-09-16T04:00", "2026-09-16T12:00", ""),
        ("this morning", "2026-09-16T04:00", "2026-09-16T12:00", ""),
        ("今天上午", "2026-09-16T04:00", "2026-09-16T12:00", ""),
        ("yesterday afternoon", "2026-09-15T12:00", "2026-09-15T18:00", ""),
        ("三天前", "2026-09-13", "2026-09-14", ""),
        ("５天前", "2026-09-11", "2026-09-12", ""),
        ("2 hours ago", "2026-09-16T08:00", "2026-09-16T09:00", ""),
        ("2 小时前", "2026-09-16T08:00", "2026-09-16T09:00", ""),
        ("last Monday", "2026-09-14", "2026-09-15", ""),
        ("deploy on Tuesday", "2026-09-15", "2026-09-16", "deploy"),
        ("上周五", "2026-09-11", "2026-09-12", ""),
        ("周三", "2026-09-16", "2026-09-17", ""),
        ("星期天", "2026-09-13", "2026-09-14", ""),
        ("Tuesday last week", "2026-09-08", "2026-09-09", ""),
        ("in March 2026", "2026-03-01", "2026-04-01", ""),
        ("May 7, 2023", "2023-05-07", "2023-05-08", ""),
        ("7 May 2023", "2023-05-07", "2023-05-08", ""),
        ("2026-09-11", "2026-09-11", "2026-09-12", ""),
        ("9月11日", "2026-09-11", "2026-09-12", ""),
        ("2026年9月", "2026-09-01", "2026-10-01", ""),
        ("二〇二六年九月", "2026-09-01", "2026-10-01", ""),
        ("去年12月25日", "2025-12-25", "2025-12-26", ""),
        ("25/12/2025", "2025-12-25", "2025-12-26", ""),
        ("in 2022", "2022-01-01", "2023-01-01", ""),
        ("between 3 and 5 pm yesterday", "2026-09-15T15:00", "2026-09-15T17:00", ""),
        ("昨天下午三点到五点", "2026-09-15T15:00", "2026-09-15T17:00", ""),
        ("errors since 09:00", "2026-09-16T09:00", None, "errors"),
        ("从昨天以来", "2026-09-15", None, ""),
        ("before March", None, "2026-03-01", ""),
        ("昨天之前", None, "2026-09-15", ""),
        ("2022年之前", None, "2022-01-01", ""),
        ("from Monday to Wednesday", "2026-09-14", "2026-09-17", ""),
        ("9月1号至5号", "2026-09-01", "2026-09-06", ""),
        ("周一到周三", "2026-09-14", "2026-09-17", ""),
        ("from May 7 to May 9, 2023", "2023-05-07", "2023-05-10", ""),
        ("昨晚两点", "2026-09-16T01:30", "2026-09-16T02:30", ""),
        ("2026-09-11T08:00:00Z", "2026-09-11T15:30", "2026-09-11T16:30", ""),
        ("上周日志", "2026-09-07", "2026-09-14", "日志"),
        ("今天前端报错", "2026-09-16", "2026-09-17", "前端报错"),
    ],
)
def test_a_time_word_names_its_range(query: str, start: str | None, end: str | None, rest: str) -> None:
    found = find_times(query, NOW)
    assert (found.start, found.end) == (at(start), at(end))
    assert found.rest.removesuffix(" of") == rest
    assert not found.latest


@pytest.mark.parametrize(
    ("query", "length"),
    [
        ("errors in the last 24 h", timedelta(hours=24)),
        ("past 3 days", timedelta(days=3)),
        ("last 30 minutes", timedelta(minutes=30)),
        ("the last hour", timedelta(hours=1)),
        ("最近24小时", timedelta(hours=24)),
        ("最近２４小时", timedelta(hours=24)),
        ("近三天", timedelta(days=3)),
        ("過去一週", timedelta(weeks=1)),
        ("过去一周", timedelta(weeks=1)),
        ("半小时内", timedelta(minutes=30)),
        ("最近一个月", timedelta(days=31)),
    ],
)
def test_so_much_time_until_now_holds_this_very_instant(query: str, length: timedelta) -> None:
    found = find_times(query, NOW)
    assert found.start == NOW - length
    assert found.end is not None and NOW < found.end < NOW + timedelta(seconds=1)
    assert not found.latest


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("latest deploy", "deploy"),
        ("the newest alert", "alert"),
        ("most recent error", "error"),
        ("where is she now?", "where is she ?"),
        ("currently open", "open"),
        ("最近的错误", "错误"),
        ("最新版本", "版本"),
        ("现在的状态", "状态"),
        ("目前天气", "天气"),
    ],
)
def test_what_is_newest_is_asked_for_without_a_range(query: str, rest: str) -> None:
    found = find_times(query, NOW)
    assert (found.latest, found.rest, found.start, found.end) == (True, rest, None, None)


@pytest.mark.parametrize(
    "query",
    [
        "may I go", "march forward", "the second one", "mon cher", "The Sun", "know the nowhere man", "11/09",
        "in May Smith came home", "in 2000 ms", "at most 3", "last 5 deploys", 
        "三点建议", "每周一", "五月天", "三个月亮", "now.md",
        "2026-13-45", "0000-00-00", "version 1.2.3", "10.0.0.1", "last 99999999999999 days ago", "",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_time_stays_among_the_words(query: str) -> None:
    found = find_times(query, NOW)
    assert (found.start, found.end, found.rest) == (None, None, query)


def test_a_local_day_has_as_many_hours_as_the_zone_gives_it() -> None:
    for day, hours in (("2026-03-09", 23), ("2026-11-02", 25)):
        found = find_times("yesterday", datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=NEW_YORK))
        assert found.start is not None and found.end is not None
        assert found.end.astimezone(UTC) - found.start.astimezone(UTC) == timedelta(hours=hours)
        assert found.start.tzinfo is NEW_YORK


def test_the_last_hours_are_real_hours_when_the_clocks_are_moved() -> None:
    now = datetime(2026, 11, 1, 12, tzinfo=NEW_YORK)
    found = find_times("last 24 hours", now)
    assert found.start is not None
    assert now.astimezone(UTC) - found.start.astimezone(UTC) == timedelta(hours=24)
    assert found.start.hour == 13


PIECES = st.sampled_from(
    [
        "last",
        "past",
        "3",
        "99999",
        "days",
        "ago",
        "昨天",
        "最近",
        "三",
        "天",
        "前",
        "点",
        "到",
        "下午",
        "May",
        "7",
        "2023",
        "-",
        ":",
        "pm",
        "since",
        "before",
        "周",
        "一",
        "月",
        "年",
        "2026-09-11",
        "and",
        "between",
        "十",
        "百",
        "null",
        "�",
        "\x00",
        "9999-12-31",
        "0001-01-01",
        "12:60",
        "31",
        "Feb",
        "29",
    ]
)


@given(
    st.one_of(
        st.text(st.characters()), st.lists(PIECES, max_size=12).map(" ".join), st.lists(PIECES).map("".join)
    )
)
@example("二" * 10_000)
@example("last " * 2000)
@example("最近" * 5000)
@example("\ud800\x00昨天")
def test_any_text_is_read_and_its_range_runs_forward(query: str) -> None:
    for now in (NOW, datetime(1, 1, 1, 5, tzinfo=SHANGHAI), datetime(9999, 12, 31, 23, tzinfo=NEW_YORK)):
        found = find_times(query, now)
        if found.start is not None and found.end is not None and now is NOW:
            assert found.start.astimezone(UTC) <= found.end.astimezone(UTC)
        assert len(found.rest) <= len(query)
