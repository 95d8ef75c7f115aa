"""What a search is after: words, a time, folders, what the task weighs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kernel_gamma.contracts.truths import Search, TaskType
from kernel_gamma.truths.rows import micros
from kernel_gamma.truths.terms import QueryTerm, query_terms, word_count
from kernel_gamma.truths.time_words import find_times

__all__ = ["TASK_CATEGORIES", "Need", "need_of"]

TASK_CATEGORIES: Mapping[TaskType, Sequence[str]] = {
    "ops_debug": ("error", "alert", "incident", "inspection", "metrics", "performance"),
    "dev_deploy": ("deploy", "operation", "spec", "decision"),
    "decision_analysis": ("decision", "risk", "result", "spec"),
    "content_creation": ("style", "brand", "template", "diary", "memory"),
    "general_query": (),
    "emergency_block": ("incident", "alert", "error"),
}
"""Of equals, records of these categories come first for the task (dual-channel.md, the assembler's table)."""

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
    return Need(
        text=times.rest,
        terms=terms,
        start=start,
        end=end,
        wished=wished,
        latest=times.latest,
        question=len(terms) >= _QUESTION_WORDS and word_count(times.rest) > _QUESTION_WORDS,
        preferred=frozenset(TASK_CATEGORIES[search.task_type]) if search.task_type else frozenset(),
    )
