"""What comes to mind at a few words: an index from every term to the pieces it stands in. Pure.

What a query costs does not grow with the past: its rarest terms alone are asked for, and of the
places where they stand a bounded number is looked at, those put last first.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice

from kernel_gamma.contracts.ports import Snippet
from kernel_gamma.self_stream.search import Piece, questions, standing

__all__ = ["Index"]

_QUESTIONS = 192
"""Of a query as many terms are looked up."""
_RAREST = 24
"""And as many of those that stand anywhere are asked for."""
_LOOKED_AT = 1000
"""Places at which one query looks, of all its terms together."""


class Index:
    """Pieces in the order in which their pages were put, found by the terms that stand in them."""

    def __init__(self) -> None:
        self._next = 0
        self._pages: dict[str, range] = {}
        # The numbers of a page's pieces are a range and never used again: so every row is sorted.
        self._pieces: dict[int, Piece] = {}
        self._rows: dict[str, list[int]] = {}

    def put(self, page: str, pieces: Iterable[Piece]) -> None:
        """Hold these pieces of `page` instead of those held before."""
        self.drop(page)
        first = self._next
        for number, piece in enumerate(pieces, first):
            self._pieces[number] = piece
            for term in standing(piece):
                if row := self._rows.get(term):
                    row.append(number)
                else:
                    self._rows[term] = [number]
            self._next = number + 1
        self._pages[page] = range(first, self._next)

    def drop(self, page: str) -> None:
        """Forget `page` without a trace."""
        numbers = self._pages.pop(page, range(0))
        found: set[str] = set()
        for number in numbers:
            found |= standing(self._pieces.pop(number))
        for term in found:
            row = self._rows[term]
            start = bisect_left(row, numbers.start)
            del row[start : bisect_left(row, numbers.stop, start)]
            if not row:
                del self._rows[term]

    def best(self, query: str, limit: int) -> list[Snippet]:
        """The best first: by the idf mass of the query's rarest terms they hold, ties by what was put
        last; no text twice."""
        scores = self._scores(query) if limit > 0 else {}
        ranked = sorted(scores, reverse=True)
        ranked.sort(key=scores.__getitem__, reverse=True)  # stable: equals stay newest first
        distinct: dict[tuple[str, str], Snippet] = {}
        for number in ranked:
            snippet = self._pieces[number].snippet
            distinct.setdefault((snippet.heading, snippet.text), snippet)
            if len(distinct) == limit:
                break
        return list(distinct.values())

    def _scores(self, query: str) -> dict[int, float]:
        """Piece → idf mass matched, of the pieces that hold the rarest of the terms asked for."""
        asked = dict.fromkeys(islice(questions(query), _QUESTIONS))
        rows = sorted(filter(None, map(self._rows.get, asked)), key=len)
        scores: dict[int, float] = {}
        known = scores.get
        left = _LOOKED_AT
        for row in rows[:_RAREST]:
            rarity = math.log1p((len(self._pieces) - len(row) + 0.5) / (len(row) + 0.5))
            for number in row if len(row) <= left else row[-left:]:
                scores[number] = known(number, 0.0) + rarity
            left -= len(row)
            if left <= 0:
                break
        return scores
