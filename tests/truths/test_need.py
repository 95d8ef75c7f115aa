from __future__ import annotations

from datetime import timedelta

import pytest
from tests.fakes import START

from kernel_gamma.contracts.truths import TASK_TYPES, Search
from kernel_gamma.truths.need import CATEGORY_WORDS, TASK_CATEGORIES, in_its_time, need_of

DAY = START.replace(hour=0, minute=0, second=0, microsecond=0)


@pytest.mark.parametrize("query", ["startup failure yesterday", "昨天 启动失败"])
def test_a_time_beside_words_is_wished_for_and_a_time_alone_is_a_range(query: str) -> None:
    need = need_of(Search(query=query), START)
    assert need.wished is not None
    assert need.wished[0] == DAY - timedelta(days=1)
    assert (need.start, need.end) == (None, None)
    assert need.terms
    alone = need_of(Search(query="昨天"), START)
    assert alone.wished is None
    assert alone.start == DAY - timedelta(days=1)
    assert alone.end is not None and alone.end <= DAY
    assert alone.terms == ()


def test_a_time_word_never_widens_the_range_that_was_given() -> None:
    start = DAY - timedelta(hours=12)
    need = need_of(Search(query="yesterday", start=start), START)
    assert need.start == start
    need = need_of(Search(query="yesterday", end=start), START)
    assert need.end == start


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ("disk", False),
        ("disk failure", False),
        ("disk failure raid", False),
        ("磁盘", False),
        ("which disk failed in the raid controller", True),
        ("昨天的服务器为什么在启动的时候失败了", True),
    ],
)
def test_a_few_words_are_a_search_and_more_are_a_question(query: str, question: bool) -> None:
    assert need_of(Search(query=query), START).question is question


@pytest.mark.parametrize("query", ["latest deploy", "最新 部署"])
def test_a_query_may_ask_for_the_newest(query: str) -> None:
    assert need_of(Search(query=query), START).latest


def test_every_task_type_says_what_it_prefers() -> None:
    assert set(TASK_CATEGORIES) == set(TASK_TYPES)
    for task_type in TASK_TYPES:
        need = need_of(Search(query="disk", task_type=task_type), START)
        assert need.preferred == set(TASK_CATEGORIES[task_type])
    assert need_of(Search(query="disk"), START).preferred == frozenset()


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("errors today", "error"),
        ("show me all the errors of yesterday", "error"),
        ("今天的错误", "error"),
        ("列出今天的錯誤", "error"),
        ("alerts yesterday", "alert"),
        ("昨天的报警", "alert"),
        ("昨天有没有告警？", "alert"),
        ("incidents last week", "incident"),
        ("上周发生了什么事故", "incident"),
        ("巡检", "inspection"),
        ("latest deployments", "deploy"),
        ("昨天的日记", "diary"),
    ],
)
def test_a_word_for_a_category_names_it_and_nothing_else_need_stand_there(query: str, named: str) -> None:
    need = need_of(Search(query=query), START)
    assert (need.named, need.nothing_but_names) == ((named,), True)
    assert need.terms  # where the category holds nothing they are words like any other


@pytest.mark.parametrize("query", ["disk errors yesterday", "昨天磁盘的错误", "error code 500"])
def test_beside_other_words_a_category_is_named_but_asks_for_more(query: str) -> None:
    need = need_of(Search(query=query), START)
    assert (need.named, need.nothing_but_names) == (("error",), False)


@pytest.mark.parametrize(
    "query", ["", "disk full", "terror", "error_log x", "yesterday", "磁盘", "asterisks"]
)
def test_a_part_of_a_word_names_no_category(query: str) -> None:
    need = need_of(Search(query=query), START)
    assert (need.named, need.nothing_but_names) == ((), False)


def test_the_time_beside_a_category_becomes_a_range() -> None:
    need = in_its_time(need_of(Search(query="errors yesterday", end=START - timedelta(hours=20)), START))
    assert (need.start, need.wished) == (DAY - timedelta(days=1), None)
    assert need.end == START - timedelta(hours=20)
    plain = need_of(Search(query="errors"), START)
    assert in_its_time(plain) is plain


def test_every_category_has_words_of_both_languages() -> None:
    for words in CATEGORY_WORDS.values():
        assert {word.isascii() for word in words.split("|")} == {True, False}
