"""How much of a context says the same again: the share of its lines that are near-duplicates."""

from __future__ import annotations

import re

from rapidfuzz import fuzz, process

__all__ = ["masked", "redundancy"]

_ALIKE = 97
_TAG = re.compile(r"</?(?:recalled|event|passage)\b[^>]*>")
_TIMES = frozenset({"## <t>"})
_MASKS = (
    (re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z| ?[+-]\d{2}:?\d{2})?"), "<t>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<a>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<h>"),
    (re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b", re.IGNORECASE), "<h>"),
    (re.compile(r"\d+"), "<n>"),
)


def masked(line: str) -> str:
    """`line` without what changes between instances of a template: times, addresses, digests, numbers."""
    for pattern, mark in _MASKS:
        line = pattern.sub(mark, line)
    return " ".join(line.casefold().split())


def redundancy(text: str) -> float:
    """Of the lines that say something (not tags of fences, not bare times), the share that say one again."""
    said = (_TAG.sub("", line).strip() for line in text.splitlines())
    lines = [plain for line in said if line and (plain := masked(line)) not in _TIMES]
    seen: set[str] = set()
    known: list[str] = []
    repeated = 0
    for line in lines:
        if line in seen or process.extractOne(line, known, scorer=fuzz.ratio, score_cutoff=_ALIKE):
            repeated += 1
        else:
            seen.add(line)
            known.append(line)
    return repeated / len(lines) if lines else 0.0
