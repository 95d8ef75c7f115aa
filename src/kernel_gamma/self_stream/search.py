"""Finding the past again: words and CJK bigrams, weighed by how rare they are. Pure."""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from kernel_gamma.contracts.ports import Snippet
from kernel_gamma.self_stream.words import EMOJI, SIGNS, WORD

__all__ = ["Piece", "Search", "instant", "normal", "paragraphs", "sections", "terms"]

_TERM = re.compile(rf"([{SIGNS}]+)|([{EMOJI}])|({WORD}+)")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*)$", re.MULTILINE)
_BLANK = re.compile(r"\n[ \t\r]*\n")
_MAX_TERMS = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that may be found."""

    snippet: Snippet
    when: float
    """Seconds since the epoch; the newest of equals comes first."""
    context: str = ""
    """Words that count as part of it although they do not stand in it: the topic of its page."""


def normal(text: str) -> str:
    """One form for what reads the same: full-width and half-width, upper and lower case."""
    return unicodedata.normalize("NFKC", text).casefold()


def terms(query: str) -> list[str]:
    """What a query asks for: words, overlapping bigrams of CJK runs (a lone character as it is),
    emoji; each once. Of a very long query an even sample."""
    found: dict[str, None] = {}
    for run, emoji, word in _TERM.findall(normal(query)):
        if len(run) > 1:
            found.update((run[i : i + 2], None) for i in range(len(run) - 1))
        else:
            found[run or emoji or word] = None
    every = -(-len(found) // _MAX_TERMS) or 1
    return list(found)[::every]


class Search:
    """Takes pieces one by one and keeps the best: memory is bounded by the query, not the past."""

    def __init__(self, query: str, limit: int) -> None:
        self._limit = limit
        self._tests = [_test(term) for term in terms(query)]
        self._counts = [0] * len(self._tests)
        self._pieces = 0
        # Pieces that match the same terms score the same: of each such set the newest suffice.
        self._newest: dict[int, list[tuple[float, int, Snippet]]] = {}

    @property
    def can_match(self) -> bool:
        """Whether the query asks for anything at all."""
        return bool(self._tests) and self._limit > 0

    def add(self, piece: Piece) -> None:
        """Consider one piece; of equal time, a later one counts as newer."""
        self._pieces += 1
        text = normal(f"{piece.context}\n{piece.snippet.heading}\n{piece.snippet.text}")
        matched = 0
        for number, test in enumerate(self._tests):
            if test(text):
                self._counts[number] += 1
                matched |= 1 << number
        if matched:
            newest = self._newest.setdefault(matched, [])
            heapq.heappush(newest, (piece.when, self._pieces, piece.snippet))
            if len(newest) > self._limit:
                heapq.heappop(newest)

    def best(self) -> list[Snippet]:
        """The best first: idf mass matched / idf mass asked, ties by newest; no text twice."""
        rarity = [math.log1p((self._pieces - n + 0.5) / (n + 0.5)) for n in self._counts]
        asked = sum(rarity)
        ranked = sorted(
            (
                (sum(r for i, r in enumerate(rarity) if matched >> i & 1) / asked, when, order, snippet)
                for matched, newest in self._newest.items()
                for when, order, snippet in newest
            ),
            key=lambda entry: entry[:3],
            reverse=True,
        )
        distinct: dict[tuple[str, str], Snippet] = {}
        for _, _, _, snippet in ranked:
            distinct.setdefault((snippet.heading, snippet.text), snippet)
        return list(distinct.values())[: self._limit]


def _test(term: str) -> Callable[[str], bool]:
    """Whether a normal text holds `term`; a word only as a whole word."""
    if not re.match(WORD, term):
        return lambda text: term in text
    whole = re.compile(rf"(?<!{WORD}){re.escape(term)}(?!{WORD})")
    return lambda text: term in text and whole.search(text) is not None


def sections(text: str) -> Iterator[tuple[str, str]]:
    """(heading, text) of every part of a page that holds text."""
    heading, start = "", 0
    for match in _HEADING.finditer(text):
        if part := text[start : match.start()].strip():
            yield heading, part
        heading, start = match[1].strip(), match.end()
    if part := text[start:].strip():
        yield heading, part


def paragraphs(parts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The sections, paragraph by paragraph."""
    for heading, text in parts:
        for paragraph in _BLANK.split(text):
            if paragraph.strip():
                yield heading, paragraph.strip()


def instant(time: str) -> float:
    """Seconds since the epoch of `2026-11-30 10:30:05 +08:00`; 0 for what is no time."""
    try:
        return datetime.fromisoformat("".join(time.rsplit(" ", 1))).timestamp()
    except ValueError:
        return 0.0
