"""Channel B of one prompt: what the memory store holds on a task, fenced, in rank order, within its budget.

Pure but for the store that is handed in. What is asked, in this order:

1. each record whose key the task names;
2. the task's words in the categories of its type, as far back as the type's hours, or any time where the
   task itself names a time;
3. where that window holds nothing that answers well, the same words without a limit of time: the cause of
   today's failure may have been found in spring;
4. the newest of the window, where words cannot tell what is needed: always for an emergency, else when
   nothing was found for a task of a word or two ("any errors?").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from kernel_gamma.context.fences import Count
from kernel_gamma.context.recalled import folded_line, recalled_piece, said_by, without_key_words
from kernel_gamma.contracts.context import Piece, TaskRule
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.ports import TruthStore
from kernel_gamma.contracts.truths import (
    KEY,
    RESERVED_KEYS,
    TASK_TYPES,
    Finding,
    Found,
    Search,
    TaskType,
)
from kernel_gamma.errors import TruthError
from kernel_gamma.truths.terms import index_terms, query_terms
from kernel_gamma.truths.time_words import find_times
from kernel_gamma.words import SIGNS

__all__ = ["LEAST_SIMILARITY", "LEAST_TERMS", "Retrieved", "dynamic_pieces", "weights_of"]

LEAST_SIMILARITY = 0.2
"""A record must hold a fifth of the query's weight. Below that it shares an everyday word or two with a task
of ten; what answers such a task holds its rare words, which weigh several times as much."""
LEAST_TERMS = 0.4
"""Or so large a part of the query's terms, whatever they weigh: in a store full of disk failures the words
"disk" and "failure" weigh next to nothing, and a word that stands nowhere ("please") weighs most."""
_PAIRED = 0.6
"""Of a Chinese query, which is cut into pairs of signs, so much is asked of these: every other pair joins the
end of one word to the beginning of the next and stands nowhere. Measured on questions and paragraphs in both
languages, the same share of answers is found then, and as much is kept out where there is none."""
_OF_BEST = 0.4
"""And it must be so much as similar as the best: beside a record that says it all, one that says a fifth of
it is noise."""
_BESIDE = 0.5
"""What holds no word of the task, only stands beside what does, must be nearer: right behind it."""
_ANSWERED = 0.5
"""A window whose best record holds less of the query than half is too little: older ones are looked at."""
_OLDER = 0.8
"""So much counts the similarity of what lies outside the window: of equals the recent ones come first."""
_LIMIT = 24
"""Records that are looked at; 2,000 tokens hold about fifteen."""
_ID_CHARS = 6
"""A word with a digit in it that is so long names one thing: a session, an instance, a digest."""
_NAME_CHARS = 3
"""Shorter Latin words in a Chinese task are abbreviations that much is called by."""
_NEWEST = 8
_FEW_WORDS = 2
_MOST_NAMED = 20
"""Lookups; hosts and files look like keys too."""
_READ_CHARS = 4000
"""Of a task; the store reads no more of a query."""
_AUDITED_CHARS = 200
_SHARE = 3
"""One record takes at most this part of the budget, one that is asked for by its key half of it."""
_LEAST_TOKENS = 60
"""When less is left nothing more is tried: a fence alone takes about forty."""
_NAMED = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_SIGN = re.compile(rf"[{SIGNS}]")
_COURTESIES = re.compile(
    "请问|请(?![求假示愿])|麻烦[你您]|帮我|帮忙|能不能|可不可以|能否|可否|是不是|会不会|有没有|看看|看一下|查一下"
    "|一下|为什么|为何|怎么回事|怎么|什么|告诉我|给我|我们|你们|[你您]|(?<!目)的(?![确士])|[吗呢]"
)
"""What a Chinese task says besides its matter, taken out before pairs of signs are made of it; of an English
one the search itself drops such words."""
_NO_ROOM = "no room in the budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """What Channel B brings to one prompt."""

    pieces: tuple[Piece, ...] = ()
    """The best first, ranks from 1."""
    lost: tuple[tuple[str, str], ...] = ()
    """(key, reason) of records that were ranked and are not among the pieces."""
    queries: tuple[Mapping[str, Json], ...] = ()
    """For the audit, one entry a question: `query`, `categories`, `start`, `end` (RFC 3339 or null), `hits`
    (records that match), `kept` and `tokens`; `error` where the store could not answer."""


def dynamic_pieces(
    store: TruthStore,
    rule: TaskRule,
    task: str,
    *,
    now: datetime,
    budget: int,
    count: Count,
    language: Language,
) -> Retrieved:
    """What the store holds on a task of this type: in tokens at most `budget`, and the type's own budget.

    `now` is aware, in the mind's zone. `language` is that of the line beside folded records; what is found
    does not depend on it. A store that cannot answer raises nothing here: there are no pieces then, and the
    last query says why.
    """
    room = min(budget, rule.dynamic_budget)
    if room <= 0:
        return Retrieved()
    asking = _Asking(store, rule, task[:_READ_CHARS], now, room, count, language)
    try:
        asking.ask()
    except TruthError as error:
        for entry in asking.queries:
            entry |= {"kept": 0, "tokens": 0}
        asking.queries[-1]["error"] = str(error)
        return Retrieved(queries=tuple(asking.queries))
    taken = {piece.source for piece in asking.pieces}
    return Retrieved(
        pieces=tuple(replace(piece, rank=number) for number, piece in enumerate(asking.pieces, 1)),
        lost=tuple(item for item in asking.lost.items() if item[0] not in taken),
        queries=tuple(asking.queries),
    )


def weights_of(rule: TaskRule) -> TaskType | None:
    """Whose weights a search for this type takes: of `like`, else its own where it is one of the six."""
    return rule.like or next((name for name in TASK_TYPES if name == rule.name), None)


class _Ranked(NamedTuple):
    found: Found
    entry: dict[str, Json]
    """Of the query that found it."""
    rank: float
    """Its similarity, less for what lies outside the window."""


class _Asking:
    """The questions of one prompt, and what came of them."""

    def __init__(
        self,
        store: TruthStore,
        rule: TaskRule,
        task: str,
        now: datetime,
        room: int,
        count: Count,
        language: Language,
    ) -> None:
        self.pieces: list[Piece] = []
        self.lost: dict[str, str] = {}
        self.queries: list[dict[str, Json]] = []
        self._best = 0.0
        """Of the last search: the best similarity among what no prompt holds yet."""
        self._store, self._rule, self._task = store, rule, task
        self._query = " ".join(_COURTESIES.sub(" ", task).split()) or task
        self._count, self._language = count, language
        self._room, self._budget = room, room
        self._times = find_times(self._query, now)
        self._timed = self._times.start is not None or self._times.end is not None
        self._since = None if self._timed else _hours_before(now, rule.hours)
        self._words = [term.written for term in query_terms(self._times.rest)]
        self._terms = {term.term for term in query_terms(_NAMED.sub(" ", self._times.rest))}
        """Without those of keys, which tell of one record and not of others that may answer."""
        pairs = sum(_SIGN.match(term) is not None for term in self._terms)
        self._strict = 1 - (1 - _PAIRED) * pairs / max(1, len(self._terms))

    def ask(self) -> None:
        """Ask all that this task asks. Raises TruthError; the last query is the one that failed."""
        for key in _keys_in(self._task):
            self._get(key)
        found = self._find() if self._task.strip() else False
        if not found or self._best < _ANSWERED * self._strict:
            found = self._find_names() or found
        if self._rule.sign or not (found or self.pieces or len(self._words) > _FEW_WORDS):
            self._list_newest()

    def _get(self, key: str) -> None:
        """Ask for a record by its key; it is cut around the other words of the task."""
        entry = self._entry(key, ())
        truth = self._store.get(key)
        if truth is None:  # a host, a file, a number: much has dots in it
            self.queries.remove(entry)
            return
        most = min(self._room, max(self._budget // 2, _LEAST_TOKENS))
        entry["hits"] = 1
        self._keep(
            key, recalled_piece(truth, said_by(truth), self._words, most=most, count=self._count), entry
        )

    def _find(self) -> bool:
        """Search for the task's words and keep what answers best; whether anything does."""
        ranked = self._search(self._since)
        enough = _ANSWERED * self._strict
        if self._since is not None and (
            max((one.rank for one in ranked), default=0.0) < enough
            or not self._tells_of_what_is_named(ranked)
        ):
            known = {one.found.truth.key for one in ranked}
            older = self._search(None, weight=_OLDER)
            ranked += [one for one in older if one.found.truth.key not in known]
            # what holds an identifier that the task names tells of that one thing, wherever it lies
            ranked.sort(key=lambda one: (not self._tells_of_what_is_named([one]), -one.rank))
        taken = {piece.source for piece in self.pieces}
        fresh = [one for one in ranked if one.found.truth.key not in taken]
        best = self._best = max((one.found.similarity for one in fresh), default=0.0)
        answered = len(fresh) < len(ranked)
        for one in fresh:
            similarity = one.found.similarity
            if similarity >= _OF_BEST * best and self._answers(one.found, best):
                answered = True
                self._take(one.found, one.entry, score=similarity)
            else:
                self.lost.setdefault(
                    one.found.truth.key, f"too little of the task: similarity {similarity:.2f}"
                )
        return answered

    def _tells_of_what_is_named(self, ranked: Sequence[_Ranked]) -> bool:
        """Whether an identifier that the task names stands in what was found; true where it names none."""
        named = {term for term in self._terms if len(term) >= _ID_CHARS and any(map(str.isdigit, term))}
        return not named or any(named.intersection(index_terms(one.found.excerpt)) for one in ranked)

    def _find_names(self) -> bool:
        """Search for the Latin words of a Chinese task alone: names and numbers are the same in both
        languages, and the record may be in the other one. Whether anything answers."""
        terms = query_terms(_NAMED.sub(" ", self._times.rest))
        names = [term for term in terms if not _SIGN.match(term.term) and len(term.term) >= _NAME_CHARS]
        if not names or len(names) == len(terms):
            return False
        self._query = " ".join(term.written for term in names)
        self._terms = {term.term for term in names}
        self._strict = 1.0
        return self._find()

    def _answers(self, found: Found, best: float) -> bool:
        """Whether a record holds enough of the task to be no noise."""
        if not found.why.get("lexical", 1.0):
            return found.similarity >= _BESIDE * best
        if found.similarity >= LEAST_SIMILARITY * self._strict:
            return True
        held = len(self._terms.intersection(index_terms(found.excerpt)))
        return held >= LEAST_TERMS * self._strict * len(self._terms)

    def _search(self, since: datetime | None, weight: float = 1.0) -> list[_Ranked]:
        """Ask for the task's words, from a moment on; what was found, the best first."""
        entry = self._entry(self._query, self._rule.categories, since)
        finding = self._store.search(
            Search(
                query=self._query,
                categories=self._rule.categories,
                start=since,
                limit=_LIMIT,
                task_type=weights_of(self._rule),
                counted=False,
            )
        )
        self._enter(entry, finding)
        return [_Ranked(found, entry, found.similarity * weight) for found in finding.results]

    def _list_newest(self) -> None:
        """Ask for the newest of the window, whatever they say."""
        start = self._times.start if self._timed else self._since
        end = self._times.end
        entry = self._entry("", self._rule.categories, start, end)
        asked = Search(categories=self._rule.categories, start=start, end=end, limit=_NEWEST, counted=False)
        finding = self._store.search(asked)
        self._enter(entry, finding)
        for found in finding.results:
            self._take(found, entry, score=None)

    def _enter(self, entry: dict[str, Json], finding: Finding) -> None:
        entry["hits"] = finding.total
        entry["start"], entry["end"] = _time(finding.start), _time(finding.end)
        for key, reason in finding.left_out:
            self.lost.setdefault(key, reason)

    def _take(self, found: Found, entry: dict[str, Json], *, score: float | None) -> None:
        """Keep a record if it fits; what is larger than what is left is cut to fit."""
        truth = found.truth
        if any(piece.source == truth.key for piece in self.pieces):
            return
        piece = None
        if self._room >= _LEAST_TOKENS:
            most = min(self._room, max(self._budget // _SHARE, _LEAST_TOKENS))
            said = without_key_words(found.excerpt, truth.key)
            line = folded_line(found.count, found.first, found.last, self._language)
            piece = recalled_piece(truth, said, self._words, most=most, count=self._count, line=line)
        if piece is not None:
            piece = replace(piece, count=found.count, score=score)
        self._keep(truth.key, piece, entry)

    def _keep(self, key: str, piece: Piece | None, entry: dict[str, Json]) -> None:
        if piece is None:
            self.lost.setdefault(key, _NO_ROOM)
            return
        self.pieces.append(piece)
        self._room -= piece.tokens
        entry["kept"] = _number(entry["kept"]) + 1
        entry["tokens"] = _number(entry["tokens"]) + piece.tokens

    def _entry(
        self,
        query: str,
        categories: Sequence[str],
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> dict[str, Json]:
        entry: dict[str, Json] = {
            "query": query if len(query) <= _AUDITED_CHARS else f"{query[: _AUDITED_CHARS - 1]}…",
            "categories": [*categories],
            "start": _time(start),
            "end": _time(end),
            "hits": 0,
            "kept": 0,
            "tokens": 0,
        }
        self.queries.append(entry)
        return entry


def _keys_in(task: str) -> list[str]:
    """Keys that a task may name, in its order, each once."""
    found = dict.fromkeys(match[0] for match in _NAMED.finditer(task))
    return [key for key in found if KEY.match(key) and key not in RESERVED_KEYS][:_MOST_NAMED]


def _hours_before(now: datetime, hours: float | None) -> datetime | None:
    """So many hours before `now`, whatever summer time does; None where time has no limit."""
    if hours is None:
        return None
    try:
        return (now.astimezone(UTC) - timedelta(hours=hours)).astimezone(now.tzinfo)
    except OverflowError:  # before the calendar begins
        return None


def _time(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment is not None else None


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0
