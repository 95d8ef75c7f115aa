"""Finding the past again: words and CJK bigrams, weighed by how rare they are. Pure."""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from operator import add

from kernel_gamma.contracts.ports import Snippet
from kernel_gamma.words import EMOJI, SIGNS, WORD

__all__ = ["Piece", "Search", "instant", "normal", "paragraphs", "questions", "sections", "standing", "terms"]

# These classes are large: each takes milliseconds to compile, so it is done here and nowhere else.
_TERM = re.compile(rf"({WORD}+)|([{SIGNS}]+)|([{EMOJI}])")
_WORDS = re.compile(f"{WORD}+")
_ASCII_WORD = re.compile("[a-z0-9]+")
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

    def normal_text(self) -> str:
        """All that may match."""
        return normal(f"{self.context}\n{self.snippet.heading}\n{self.snippet.text}")


def normal(text: str) -> str:
    """One form for what reads the same: full-width and half-width, upper and lower case."""
    return unicodedata.normalize("NFKC", text).casefold()


def terms(query: str) -> list[str]:
    """What a query asks for: words, overlapping bigrams of CJK runs (a lone character as it is),
    emoji; each once. Of a very long query an even sample."""
    found = list(dict.fromkeys(questions(query)))
    every = -(-len(found) // _MAX_TERMS) or 1
    return found[::every]


def questions(query: str) -> Iterator[str]:
    """Every term a query asks for, in its order; the same may come again."""
    text = normal(query)
    if text.isascii():
        yield from _ASCII_WORD.findall(text)
        return
    for word, run, emoji in _TERM.findall(text):
        if len(run) > 1:
            yield from _bigrams(run)
        else:
            yield word or run or emoji


def standing(piece: Piece) -> set[str]:
    """Every term by which a query may find `piece`: of a CJK run the characters too."""
    text = piece.normal_text()
    if text.isascii():
        return set(_ASCII_WORD.findall(text))
    found: set[str] = set()
    for word, run, emoji in _TERM.findall(text):
        if run:
            found.update(run, _bigrams(run))
        else:
            found.add(word or emoji)
    return found


def _bigrams(run: str) -> Iterator[str]:
    return map(add, run, islice(run, 1, None))


class Search:
    """Takes pieces one by one and keeps the best: memory is bounded by the query, not the past."""

    def __init__(self, query: str, limit: int) -> None:
        self._limit = limit
        self._terms = terms(query)
        self._words = {number for number, term in enumerate(self._terms) if _WORDS.match(term)}
        self._counts = [0] * len(self._terms)
        self._pieces = 0
        # Pieces that match the same terms score the same: of each such set the newest suffice.
        self._newest: dict[int, list[tuple[float, int, Snippet]]] = {}

    @property
    def can_match(self) -> bool:
        """Whether the query asks for anything at all."""
        return bool(self._terms) and self._limit > 0

    def add(self, piece: Piece) -> None:
        """Consider one piece; of equal time, a later one counts as newer."""
        self._pieces += 1
        matched = 0
        for number in self._held_by(piece.normal_text()):
            self._counts[number] += 1
            matched |= 1 << number
        if matched:
            newest = self._newest.setdefault(matched, [])
            heapq.heappush(newest, (piece.when, self._pieces, piece.snippet))
            if len(newest) > self._limit:
                heapq.heappop(newest)

    def _held_by(self, text: str) -> list[int]:
        """Which terms stand in a normal text; a word only as a whole word."""
        held = [number for number, term in enumerate(self._terms) if term in text]
        if self._words.isdisjoint(held):
            return held
        words = set((_ASCII_WORD if text.isascii() else _WORDS).findall(text))
        return [n for n in held if n not in self._words or self._terms[n] in words]

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
