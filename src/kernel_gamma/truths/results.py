"""After ranking: near-duplicates folded, excerpts cut, within the budget, and a word on what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from kernel_gamma.contracts.truths import SELF_CATEGORIES, Found, Search, Truth
from kernel_gamma.truths.candidates import Scope
from kernel_gamma.truths.database import Connection
from kernel_gamma.truths.excerpts import excerpt
from kernel_gamma.truths.folding import Folder
from kernel_gamma.truths.keys import prefixes_of
from kernel_gamma.truths.rows import foldable, found_by, moment

__all__ = ["MOST_LEFT_OUT", "Results", "Weighed"]

MOST_LEFT_OUT = 200
_EXCERPT_CHARS = 700
_LABEL_TOKENS = 24
_TRIED = 8
"""Once as many results found no room, smaller ones further down are not looked for."""
_WINDOW_CHARS = 2400
_PLACES = 60


@dataclass(slots=True)
class Weighed:
    """One record that was read whole."""

    truth: Truth
    fold: int
    score: float
    text: str
    lexical: float
    around: float
    meaning: float = 0.0
    verdict: int = 0
    """Of equals, what people found relevant for such a query comes first."""


class Results:
    """Makes results of weighed records."""

    def __init__(self, zone: tzinfo, count_tokens: Callable[[str], int] | None) -> None:
        """Without `count_tokens` tokens are estimated."""
        self._zone = zone
        self._count_tokens = count_tokens or _estimated_tokens

    def choose(
        self,
        connection: Connection,
        search: Search,
        scope: Scope,
        weighed: Iterable[Weighed],
        words: Sequence[str],
    ) -> tuple[list[Found], list[tuple[str, str]]]:
        """The results: near-duplicates folded, excerpts cut, within the budget; and what was left out."""
        results: list[Found] = []
        left_out: list[tuple[str, str]] = []
        folder, shown = Folder(), list[str]()
        left, too_large = search.token_budget, 0
        for one in weighed:
            if len(results) >= search.limit:
                if len(left_out) < MOST_LEFT_OUT and words:
                    left_out.append((one.truth.key, "beyond the limit"))
                    continue
                break
            if left is not None and (too_large >= _TRIED or left < _LABEL_TOKENS):
                if len(left_out) >= MOST_LEFT_OUT:
                    break
                left_out.append((one.truth.key, "no room in the budget"))
                continue
            text = one.text or found_by(one.truth.key, one.truth.description, one.truth.value)
            if search.fold:
                group, opened = folder.add(
                    foldable(one.truth.key, text), one.truth.timestamp, _family(one.truth)
                )
                if not opened:
                    left_out.append((one.truth.key, f"says the same as {shown[group]}"))
                    continue
                shown.append(one.truth.key)
            found = self._result(connection, search, scope, one, text, words)
            if left is not None:
                if found.tokens > left:
                    left_out.append((one.truth.key, "no room in the budget"))
                    too_large += 1
                    continue
                left -= found.tokens
            results.append(found)
        return results, left_out

    def _result(
        self,
        connection: Connection,
        search: Search,
        scope: Scope,
        one: Weighed,
        text: str,
        words: Sequence[str],
    ) -> Found:
        found = Found(
            truth=one.truth,
            similarity=round(min(1.0, one.score), 4),
            excerpt=excerpt(_window(text, words), words, _EXCERPT_CHARS),
            why={
                "lexical": round(one.lexical, 4),
                "around": round(one.around, 4),
                "meaning": round(one.meaning, 4),
            },
        )
        if search.fold and one.truth.category not in SELF_CATEGORIES:
            count, first, last = connection.one(
                "alike", one.fold, scope.first, scope.last, scope.since, scope.until
            ) or (1, 0, 0)
            if count > 1:
                zone = self._zone
                found = replace(found, count=count, first=moment(first, zone), last=moment(last, zone))
        if search.token_budget is not None:
            tokens = self._count_tokens(found.excerpt) + _LABEL_TOKENS
            found = replace(found, tokens=tokens)
        return found


def _window(text: str, words: Sequence[str]) -> str:
    """Of a long text the stretch that holds most of the words: cutting an excerpt of it all takes long."""
    if len(text) <= _WINDOW_CHARS:
        return text
    folded = text.lower()
    if len(folded) != len(text):  # some letters are longer in lower case: places would not fit
        folded = text
    places: list[tuple[int, str]] = []
    for word in words:
        at = folded.find(word)
        while at >= 0 and len(places) < _PLACES:
            places.append((at, word))
            at = folded.find(word, at + _WINDOW_CHARS // 4)
    best = max(
        (start for start, _ in places),
        key=lambda start: len({w for at, w in places if start <= at < start + _WINDOW_CHARS // 2}),
        default=0,
    )
    start = max(0, best - _WINDOW_CHARS // 4)
    return text[start : start + _WINDOW_CHARS]


def _family(truth: Truth) -> str:
    return prefixes_of(truth.key)[-1]


def _estimated_tokens(text: str) -> int:
    """Where no tokenizer is at hand: a Chinese sign 0.65, other text a quarter token a character."""
    wide = sum(character > "\u2e80" for character in text)
    return int(wide * 0.65 + (len(text) - wide) * 0.27) + 1
