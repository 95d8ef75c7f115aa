"""The text of a record: flattened from JSON, cut into snippets, cut around a query's words. Pure.

All cuts fall between the same atoms: a word with what clings to it, or one Chinese, Japanese or Korean sign.
An atom is never cut, so no word, surrogate pair, combining sequence or emoji sequence is; only a run without
any border that is longer than any word (a digest, a picture in base64) is cut where characters allow it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.truths.terms import index_terms, normal
from kernel_gamma.words import SIGNS, WORD

__all__ = ["TEXT_VERSION", "cut_snippets", "excerpt", "marks", "searchable_text"]

TEXT_VERSION = 2
"""Grows when the same record gives another text: an index of another version is built anew."""

_MOST_BYTES = 200_000
_MOST_VALUES = 100_000
_MOST_NAME = 200
_UNNAMED = frozenset({"", "text", "content", "message", "summary", "body", "description"})
"""Fields whose name says nothing: their strings stand alone."""
_RECEIPT = frozenset({"trace_id", "node", "passage_id", "session_key"})
"""A record with all of them is a receipt of the daemon."""
_RECEIPT_IDS = _RECEIPT | {"action_id"}
_EVENT_IDS = frozenset({"id", "trace_id"})
_SET_ASIDE = frozenset({"path", "error", "detail", "node", "attempts", "time"})
"""What the receipt of a file in dead_letter/ holds, and mostly a trace_id."""
_BEGAN = frozenset({"version", "boot", "pid"})
"""What a receipt of a start holds."""

_JOIN = " … "
_LONGEST_WORD = 200
_SIGN_WORDS = 1 / 1.7
_BORDER = ",;:，、；：|"
_CLOSING = "。，、；：！？…）」』】》〉”’"
_ATOM = re.compile(
    rf"\s+|[{SIGNS}][{_CLOSING}]*|(?:[^\s{SIGNS}{_BORDER}]|[,:](?=[0-9]))+[{_BORDER}{_CLOSING}]*|[{_BORDER}]+"
)
_SENTENCE_END = re.compile(rf"\n+|[。！？；…]+[{_CLOSING}]*|[.!?]{{1,8}}[\"')\]]{{0,4}}(?=\s)")
_CLAUSE_END = re.compile(rf"[{_BORDER}。！？…]\s*\Z")
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*\Z")
_WORDS = re.compile(rf"{WORD}+")
_RUN = re.compile(rf"[{SIGNS}]")
_TELLING = re.compile(r"[0-9]|\b[A-Z][A-Za-z]*[A-Z0-9_]|(?<=[a-z,] )[A-Z][a-z]")
"""A number, an error code or constant, a name inside a sentence."""


def searchable_text(description: str, value: Json) -> str:
    """What a record says, one line a value, at most 200 kB of UTF-8: a string as it is where its field's name
    says nothing, else `name: value`, nested names joined with dots. List places are no names. Ids in the
    daemon's receipts are left out: every one of them holds several, and they are no words."""
    lines = [description] if description else []
    room = _MOST_BYTES - _size(description)
    for line in _lines(_without_ids(value)):
        room -= _size(line) + 1
        lines.append(line)
        if room < 0:
            break
    return _shortened("\n".join(lines)) if room < 0 else "\n".join(lines)


def _without_ids(value: Json) -> Json:
    """A receipt of the daemon without its ids, any other value as it is; what a tool was given stays."""
    if not isinstance(value, dict):
        return value
    if value.keys() == _BEGAN:
        return {"version": value["version"]}
    if value.keys() - {"trace_id"} == _SET_ASIDE:
        return {name: value[name] for name in ("path", "error", "detail")}
    if not value.keys() >= _RECEIPT:
        return value
    told = {name: each for name, each in value.items() if name not in _RECEIPT_IDS}
    events = told.get("events")
    if isinstance(events, (list, tuple)):
        told["events"] = [
            {name: each for name, each in event.items() if name not in _EVENT_IDS}
            if isinstance(event, dict)
            else event
            for event in events
        ]
    return told


def _lines(value: Json) -> Iterator[str]:
    waiting: list[tuple[str, Json]] = [("", value)]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return
        name, item = waiting.pop()
        if isinstance(item, dict):
            start = f"{name}." if name else ""
            named = [(f"{start}{_scalar(key)}"[-_MOST_NAME:], each) for key, each in item.items()]
            waiting.extend(reversed(named))
        elif isinstance(item, (list, tuple)):
            waiting.extend((name, each) for each in reversed(item))
        elif isinstance(item, str) and name.rpartition(".")[2] in _UNNAMED:
            if item:
                yield item
        else:
            yield f"{name}: {_scalar(item)}" if name else _scalar(item)


def _scalar(value: Json) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        return str(value)
    except ValueError:  # Python writes no integer of thousands of digits
        return hex(value)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _shortened(text: str) -> str:
    text = text[:_MOST_BYTES]
    while (over := _size(text) - _MOST_BYTES) > 0:
        text = text[: -max(1, over // 4)]
    return text


@dataclass(frozen=True, slots=True)
class _Piece:
    """text[start:end], without white space at its ends."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def excerpt(text: str, terms: Sequence[str], max_chars: int) -> str:
    """The pieces of `text` that answer best, in their order, joined with " … ", at most `max_chars` long.

    `terms` are words as the query has them, or index terms. A rare one counts more than one that stands in
    every sentence; among equals those with numbers, names and error codes win, then the earlier ones. Empty
    only if nothing fits without cutting a word.
    """
    text = text.strip()
    if len(text) <= max_chars:
        return text
    if max_chars <= 0:
        return ""
    most = min(max_chars, max(80, max_chars // 2))
    pieces = [
        piece for start, end in pairwise(_borders(text, most, len)) if (piece := _trimmed(text, start, end))
    ]
    chosen = _chosen(pieces, _scores(text, pieces, terms), max_chars)
    out: list[str] = []
    for before, number in pairwise([-1, *sorted(chosen)]):
        piece = pieces[number]
        if before >= 0:
            gap = text[pieces[before].end : piece.start]
            out.append(gap if before + 1 == number and len(gap) <= len(_JOIN) else _JOIN)
        out.append(text[piece.start : piece.end])
    return "".join(out)


def marks(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where (start, end) the words or terms of a query stand in an excerpt, in order: for showing them.

    English words of one stem are one word; Chinese, Japanese and Korean ones are found by their signs.
    """
    folded = "".join(normal(sign) if len(normal(sign)) == 1 else sign for sign in text)
    stems = set(words) | {stem for word in words if not _RUN.search(word) for stem in index_terms(word)}
    found = [(m.start(), m.end()) for m in _WORDS.finditer(folded) if not stems.isdisjoint(index_terms(m[0]))]
    for word in words:
        if _RUN.search(word):
            found.extend((m.start(), m.end()) for m in re.finditer(re.escape(normal(word)), folded))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _scores(text: str, pieces: Sequence[_Piece], terms: Sequence[str]) -> list[tuple[float, frozenset[str]]]:
    asked = {term: normal(term) for term in terms if term}
    stems = {term: frozenset(index_terms(term)) for term in asked}
    hits: list[frozenset[str]] = []
    for piece in pieces:
        said = text[piece.start : piece.end]
        folded, words = normal(said), set(index_terms(said))
        hits.append(
            frozenset(
                term
                for term, written in asked.items()
                if (
                    written in folded
                    if _RUN.search(written)
                    else term in words or not stems[term].isdisjoint(words)
                )
            )
        )
    often = {term: sum(term in hit for hit in hits) for term in asked}
    weights = {term: 1 + log((1 + len(pieces)) / (1 + count)) for term, count in often.items()}
    return [
        (sum(weights[term] for term in hit) + 0.2 * bool(_TELLING.search(text, piece.start, piece.end)), hit)
        for piece, hit in zip(pieces, hits, strict=True)
    ]


def _chosen(
    pieces: Sequence[_Piece], scores: Sequence[tuple[float, frozenset[str]]], max_chars: int
) -> set[int]:
    """First the best piece for each term, then what else hits one, then what stands beside, then the rest."""
    best = sorted(range(len(pieces)), key=lambda number: (-scores[number][0], number))
    hitting = [number for number in best if scores[number][1]]
    covered: set[str] = set()
    first = []
    for number in hitting:
        if not scores[number][1] <= covered and pieces[number].length <= max_chars:
            covered |= scores[number][1]
            first.append(number)
    chosen: set[int] = set()
    room = _take(pieces, [*first, *hitting], chosen, max_chars + len(_JOIN))
    beside = [number + step for number in sorted(chosen) for step in (1, -1)]
    _take(pieces, beside if chosen else range(len(pieces)), chosen, room)
    return chosen


def _take(pieces: Sequence[_Piece], numbers: Iterable[int], chosen: set[int], room: int) -> int:
    """Choose what fits, in the order given; returns the room that is left."""
    for number in numbers:
        if 0 <= number < len(pieces) and number not in chosen:
            cost = pieces[number].length + len(_JOIN)
            if cost <= room:
                chosen.add(number)
                room -= cost
    return room


def cut_snippets(text: str, max_words: int = 120) -> list[str]:
    """The text in snippets of at most so many words, cut where a paragraph, a sentence or a clause ends.

    A Chinese, Japanese or Korean sign counts as 1 / 1.7 word. None is empty; together they hold all of the
    text but white space between them. Only a single word that counts more is longer than the measure.
    """
    max_words = max(1, max_words)
    snippets: list[str] = []
    start = 0
    held = 0.0
    borders = _borders(text, max_words, _weight)
    for before, after in pairwise(borders):
        weight = _weight(text[before:after])
        ended = held >= max_words / 2 and _PARAGRAPH_END.search(text, max(start, before - 200), before)
        if held and (held + weight > max_words or ended):
            snippets.append(_cut(text, start, before))
            start, held = before, 0.0
        held += weight
    snippets.append(_cut(text, start, len(text)))
    return [snippet for snippet in snippets if snippet]


def _weight(text: str) -> float:
    return len(_WORDS.findall(text)) + len(_RUN.findall(text)) * _SIGN_WORDS


def _borders(text: str, most: float, measure: Callable[[str], float]) -> list[int]:
    """Places, 0 and len(text) among them; between them sentences or, of too long ones, clauses or words."""
    borders = [0]
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    for end in [*ends, len(text)]:
        start = borders[-1]
        if end > start and (end == len(text) or not _clings(text, end)):
            if measure(text[start:end]) > most:
                borders.extend(_within(text, start, end, most, measure))
            borders.append(end)
    return borders


def _within(text: str, start: int, end: int, most: float, measure: Callable[[str], float]) -> Iterator[int]:
    held = since_clause = 0.0
    clause = start
    before = start
    for after in _atom_ends(text, start, end):
        weight = measure(text[before:after])
        if held and held + weight > most:
            if clause > start and since_clause <= held / 2:
                yield clause
                start, held = clause, since_clause
            if held and held + weight > most:
                yield before
                start, held = before, 0.0
            clause, since_clause = start, held
        held += weight
        since_clause += weight
        if _CLAUSE_END.search(text, max(before, after - 8), after):
            clause, since_clause = after, 0.0
        before = after


def _atom_ends(text: str, start: int, end: int) -> Iterator[int]:
    last = start
    for match in _ATOM.finditer(text, start, end):
        after = match.end()
        if after < end and _clings(text, after):
            continue
        while after - last > _LONGEST_WORD:
            cut = last + _LONGEST_WORD
            while cut < after and _clings(text, cut):
                cut += 1
            if cut >= after:
                break
            yield cut
            last = cut
        if after < end:
            yield after
        last = after
    yield end


def _clings(text: str, place: int) -> bool:
    """Whether the characters before and after `place` are one sign to a reader."""
    after, before = text[place], text[place - 1]
    if after < "\u0300" or place == 0:
        return False
    return (
        before == "\u200d"
        or after == "\u200d"
        or unicodedata.category(after)[0] == "M"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\U0001f1e6" <= after <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff")
        or ("\udc00" <= after <= "\udfff" and "\ud800" <= before <= "\udbff")
    )


def _cut(text: str, start: int, end: int) -> str:
    piece = _trimmed(text, start, end)
    return text[piece.start : piece.end] if piece else ""


def _trimmed(text: str, start: int, end: int) -> _Piece | None:
    while start < end and text[start].isspace() and not (start + 1 < end and _clings(text, start + 1)):
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return _Piece(start, end) if end > start else None
