"""What a search is after: words, a time, folders, what the task weighs. Pure.

A standard word for a category ("errors", "报警") asks for its records too: beside other words they count
more, and where nothing but a time stands beside it they come first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from kernel_gamma.contracts.truths import Search, TaskType
from kernel_gamma.truths.rows import micros
from kernel_gamma.truths.terms import QueryTerm, normal, query_terms, word_count
from kernel_gamma.truths.time_words import find_times

__all__ = ["CATEGORY_WORDS", "TASK_CATEGORIES", "Need", "in_its_time", "need_of"]

TASK_CATEGORIES: Mapping[TaskType, Sequence[str]] = {
    "ops_debug": ("error", "alert", "incident", "inspection", "metrics", "performance"),
    "dev_deploy": ("deploy", "operation", "spec", "decision"),
    "decision_analysis": ("decision", "risk", "result", "spec"),
    "content_creation": ("style", "brand", "template", "diary", "memory"),
    "general_query": (),
    "emergency_block": ("incident", "alert", "error"),
}
"""Of equals, records of these categories come first for the task (dual-channel.md, the assembler's table)."""

CATEGORY_WORDS: Mapping[str, str] = {
    "error": "errors?|错误|錯誤|报错|報錯",
    "alert": "alerts?|alarms?|报警|報警|告警|警报|警報",
    "incident": "incidents?|事故|故障",
    "inspection": "inspections?|巡检|巡檢",
    "operation": "operations?|操作",
    "deploy": "deploys|deployments?|部署",
    "decision": "decisions?|决定|決定|决策|決策",
    "risk": "risks?|风险|風險",
    "task": "tasks?|任务|任務",
    "diary": "diary|diaries|日记|日記",
}
"""Category -> its standard words, English (whole words) and Chinese, as a pattern."""

_NAMING = {
    category: re.compile(
        "|".join(rf"(?<![a-z0-9_]){w}(?![a-z0-9_])" if w.isascii() else w for w in words.split("|"))
    )
    for category, words in CATEGORY_WORDS.items()
}
_ASKED = """
show list find get give see tell look every record records
列出 显示 顯示 查看 看看 查询 查詢 所有 全部 记录 記錄 出了
"""
_ASKING = frozenset(_ASKED.split())
"""Beside the name of a category they ask for nothing more."""

_QUESTION_WORDS = 4
"""A query of fewer words is a search for these words; a longer one is a question."""


@dataclass(frozen=True, slots=True)
class Need:
    """A parsed search."""

    text: str
    """The query without its time words."""
    terms: tuple[QueryTerm, ...]
    start: datetime | None
    end: datetime | None
    """Records outside are not considered at all."""
    wished: tuple[datetime, datetime] | None
    """A time that the query's words name: records outside count half."""
    latest: bool
    """The query asks for what is newest."""
    question: bool
    """Long enough that what stands around its words may be the answer."""
    preferred: frozenset[str]
    """Categories that the task type weighs more."""
    named: tuple[str, ...] = ()
    """Categories that words of the query name."""
    nothing_but_names: bool = False
    """But for a time nothing else stands in the query."""


def need_of(search: Search, now: datetime) -> Need:
    """Parse a search; `now` is aware, in the mind's zone."""
    times = find_times(search.query, now)
    # "what happened yesterday" asks for a time and nothing else
    timeless = times.start is None and times.end is None
    terms = tuple(query_terms(times.rest, alone=timeless))
    start, end, wished = search.start, search.end, None
    if times.start is not None or times.end is not None:
        first = times.start or datetime.min.replace(tzinfo=now.tzinfo)
        last = times.end or datetime.max.replace(tzinfo=now.tzinfo)
        if terms:
            wished = (first, last)
        else:  # nothing but a time was asked for
            start = max(filter(None, (start, times.start)), key=micros, default=None)
            end = min(filter(None, (end, times.end)), key=micros, default=None)
    named, others = _named(times.rest)
    return Need(
        text=times.rest,
        terms=terms,
        start=start,
        end=end,
        wished=wished,
        latest=times.latest,
        question=len(terms) >= _QUESTION_WORDS and word_count(times.rest) > _QUESTION_WORDS,
        preferred=frozenset(TASK_CATEGORIES[search.task_type]) if search.task_type else frozenset(),
        named=named,
        nothing_but_names=bool(named) and not others,
    )


def in_its_time(need: Need) -> Need:
    """The same with the time its words name as a range: nothing outside it is considered."""
    if need.wished is None:
        return need
    start = max(filter(None, (need.start, need.wished[0])), key=micros)
    end = min(filter(None, (need.end, need.wished[1])), key=micros)
    return replace(need, start=start, end=end, wished=None)


def _named(query: str) -> tuple[tuple[str, ...], bool]:
    """(categories that a query without its times names, whether it asks for anything else)."""
    text = normal(query)
    named = []
    for category, words in _NAMING.items():
        text, count = words.subn(" ", text)
        if count:
            named.append(category)
    others = any(term.written not in _ASKING for term in query_terms(text, alone=False)) if named else True
    return tuple(named), others
