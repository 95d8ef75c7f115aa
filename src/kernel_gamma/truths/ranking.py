"""From postings to an order: what stands in a row, and what stands around it. Pure.

A row counts, per term of the query, with the best among itself and its neighbours (the rows before and
after it in the same folder), the neighbours discounted; the terms are summed. What answers a question is
often spread over adjacent rows: a question and its reply, a log line and its consequence.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "MOST_STRENGTH",
    "NEIGHBOURS",
    "Ranked",
    "judged",
    "neighbour_share",
    "raised",
    "rank",
    "rarity",
    "strength",
]

NEIGHBOURS: tuple[tuple[int, float], ...] = (
    (-1, 0.6),
    (-2, 0.54),
    (-3, 0.486),
    (1, 0.4),
    (2, 0.36),
    (3, 0.324),
)
"""(step, discount), the greatest first: the row before 0.6, the one after 0.4, x 0.9 a further row."""
_SELF_LOOKED_AT = 1000
"""Of all rows in which a term stands, as many of the best are ranked with their neighbours."""
_AROUND = 200
"""Around as many of the best, rows in which no term stands are ranked too."""
_RETURNED = 1200
_LENGTH_WEIGHT = 0.1
_RAISED = 1.5
_DAMPING = 0.5
_LENGTH_SHARE = 0.4
_OFTEN_SHARE = 0.6
_LONGEST = 4.0
"""Times the mean length: a text that is longer still is no less about what it says."""
MOST_STRENGTH = 1 / ((1 - _OFTEN_SHARE) + _OFTEN_SHARE / (1 + _DAMPING))
"""As strong as this is a text that says a term for ever; one that says it once, at mean length, has 1."""
_JUDGED = 0.1
"""Lifts what was judged relevant over what is as similar: near 1 a bent share hardly rises."""
_SHORT_ROW = 50.0
"""Words. Rows of a dialogue or a log are shorter: what answers lies spread over several of them."""


class Ranked(NamedTuple):
    """One row in the order."""

    place: int
    score: float
    """0-1: the share of the query's weight that it and its neighbours hold."""
    held: float
    """The share that it holds itself."""


def rarity(rows: int, holding: float) -> float:
    """The weight of a term that stands in `holding` of `rows` rows; never negative."""
    holding = min(holding, rows)
    return math.log1p((rows - holding + 0.5) / (holding + 0.5))


def rank(
    rows: Mapping[int, int],
    lengths: Mapping[int, int],
    weights: Sequence[float],
    *,
    around: bool,
    mean_length: float,
) -> list[Ranked]:
    """The best first. `rows`: place -> bits of the terms that stand there.

    `around`: neighbours count, and rows between them in which no term stands may be ranked as well. Without
    it a row counts by what it holds: who searches for a word wants the records that say it.
    """
    asked = sum(weights) or 1.0
    known: dict[int, float] = {0: 0.0}

    def weight_of(bits: int) -> float:
        found = known.get(bits)
        if found is None:
            found = sum(weight for bit, weight in enumerate(weights) if bits >> bit & 1)
            known[bits] = found
        return found

    targets = _targets(rows, weight_of, around=around)
    at = rows.get
    ranked: list[tuple[float, bool, int, int]] = []
    for place in targets:
        own = seen = at(place, 0)
        score = known.get(own)
        if score is None:
            score = weight_of(own)
        # written out: of thousands of rows most have no neighbour that says anything
        for near, discount in (
            ()
            if not around
            else (
                (at(place - 1), 0.6),
                (at(place - 2), 0.54),
                (at(place - 3), 0.486),
                (at(place + 1), 0.4),
                (at(place + 2), 0.36),
                (at(place + 3), 0.324),
            )
        ):
            if near and (fresh := near & ~seen):
                score += discount * weight_of(fresh)
                seen |= fresh
        length = lengths.get(place, 0)
        if length > mean_length:
            score *= _length_factor(length, mean_length)
        ranked.append((score / asked, own != 0, place, own))
    ranked.sort(reverse=True)
    return [Ranked(place, score, known[own] / asked) for score, _, place, own in ranked[:_RETURNED]]


def _targets(rows: Mapping[int, int], weight_of: Callable[[int], float], *, around: bool) -> Iterable[int]:
    """The places that are worth a closer look."""
    if len(rows) <= _SELF_LOOKED_AT and not around:
        return rows
    best = heapq.nlargest(_SELF_LOOKED_AT, [(weight_of(bits), place) for place, bits in rows.items()])
    targets: dict[int, None] = dict.fromkeys(place for _, place in best)
    if around:
        for _, place in best[:_AROUND]:
            for step, _ in NEIGHBOURS:
                targets.setdefault(place + step)
    return targets


def _length_factor(length: int, mean: float) -> float:
    """1 up to the mean length; a longer row says its words more thinly."""
    excess = length / mean - 1 if mean > 0 else 0.0
    return 1.0 if excess <= 0 else 1 / (1 + _LENGTH_WEIGHT * min(excess, 5.0))


def strength(
    counts: Mapping[str, int],
    terms: Sequence[tuple[str, float]],
    *,
    length: float,
    mean_length: float,
) -> tuple[float, float]:
    """(share held, strength) of one text for weighted terms, of 1.

    The share held says how much of the query's weight stands in the text at all; the strength also how
    often, dampened, and in how much other text. A text of mean length that says all terms once has 1 of both.
    """
    asked = sum(weight for _, weight in terms) or 1.0
    longer = min(length / max(mean_length, 1.0), _LONGEST)
    damp = _DAMPING * (1 - _LENGTH_SHARE + _LENGTH_SHARE * longer)
    held = often = 0.0
    for term, weight in terms:
        if count := counts.get(term, 0):
            held += weight
            often += weight * count / (count + damp)
    return held / asked, ((1 - _OFTEN_SHARE) * held + _OFTEN_SHARE * often) / asked * MOST_STRENGTH


def neighbour_share(mean_length: float) -> float:
    """How much neighbours count: all they have among short rows, less among whole paragraphs."""
    return min(1.0, _SHORT_ROW / mean_length) if mean_length > 0 else 1.0


def raised(score: float) -> float:
    """A score half as high again, bent so that a share stays a share."""
    return 1 - (1 - score) ** _RAISED if score <= 1 else score * _RAISED


def judged(score: float, relevant: int, irrelevant: int) -> float:
    """A score after people's judgements for such a query."""
    if relevant > irrelevant:
        return raised(score) + _JUDGED
    if irrelevant > relevant:
        return score * 0.5
    return score
