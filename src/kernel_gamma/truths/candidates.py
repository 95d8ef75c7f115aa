"""From a need to the index rows worth ranking: a bounded number of them, however many there are.

Per term the newest rows in which it stands, and the newest in which two of the rarest terms stand together:
without the pairs old evidence drowns among the new. FTS5 orders nothing here but by row; scores are ours.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import combinations
from typing import TypedDict

from kernel_gamma.contracts.truths import KEY, Level
from kernel_gamma.truths.database import Connection
from kernel_gamma.truths.keys import prefixes_of
from kernel_gamma.truths.ranking import rarity
from kernel_gamma.truths.rows import FIRST_MICROS, LAST_MICROS, SPAN, micros, row_id
from kernel_gamma.truths.terms import MOST_QUERY_TERMS, QueryTerm
from kernel_gamma.truths.writing import CUT, PLACE_BITS, ROWS, RUNG

__all__ = ["Candidates", "Scope", "collect", "scope_of"]

_NEWEST = 500
_LOOKED_THROUGH = 640
_LOOKED_THROUGH_FILED = 600
"""So many rows of an expression are sifted by their folders: FTS5 does it slowly, it reads the whole list of
a folder's rows for a term that stands here and there. Where too few are kept, FTS5 does it still."""
_CROWDED = 2
_MOST_FOLDERS = 2000
_PLACED = 1000
"""Rows whose places are looked up, of all that were taken."""
_PAIRED = 6
_ASKED_FOR = 96
_GLANCE = 32
_SLACK = 1 << (SPAN + 10)
"""About a second: a crowded millisecond reaches into the next ones. Times are compared exactly there."""
_ENDLESS = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a search looks: ids (which are times), folders, and levels of the mind's own past."""

    first: int
    last: int
    """No record of the time lies outside; a few that lie inside are of another: `since` and `until` tell."""
    since: int
    until: int
    """The time to the microsecond, inclusive."""
    only: tuple[int, ...] | None
    """Numbers of folders; None = all but `without`; empty = nowhere."""
    without: tuple[int, ...]
    levels: tuple[Level, ...] = ()
    """Empty = any. They go with `only`."""
    under: tuple[str, ...] = ()
    """Key prefixes that say more than `only`, the folders they lie in; empty = `only` says it all."""
    hidden: tuple[str, ...] = ()
    """Asked-only prefixes with a dot in them: `without` has their numbers."""

    @property
    def sure(self) -> tuple[int, int]:
        """Between these ids every record is of the time: a crowded millisecond does not reach so far."""
        first = self.first + _SLACK if self.first > 0 else 0
        return first, (self.last - _SLACK - 1 if self.last < _ENDLESS else _ENDLESS)

    def narrowed(self, start: datetime, end: datetime) -> Scope:
        """The part of it that lies in a time."""
        since, until = max(self.since, micros(start)), min(self.until, micros(end))
        return replace(self, **_between(since, until))

    def holds(self, key: str, at: int) -> bool:
        """Whether a record of its folders lies in it, by its key and time."""
        return self.since <= at <= self.until and (not self.under or _lies_under(key, self.under))

    @property
    def filed(self) -> str:
        """An FTS5 expression for all that lies in `only` and is of the levels."""
        folders = f"cat:({' OR '.join(f'c{n}' for n in self.only or ())})"
        return f"{folders} AND cat:({' OR '.join(self.levels)})" if self.levels else folders

    def within(self, expression: str) -> str:
        """An FTS5 expression for the terms, held to the folders."""
        if self.only is not None:
            return f"({expression}) AND {self.filed}"
        if self.without:
            return f"({expression}) NOT cat:({' OR '.join(f'c{n}' for n in self.without)})"
        return expression


def scope_of(
    connection: Connection,
    *,
    categories: Sequence[str],
    levels: Sequence[Level] = (),
    asked_only: Iterable[str],
    start: datetime | None,
    end: datetime | None,
) -> Scope:
    """The scope of a search. `asked_only`: prefixes that come only when a category names them."""
    only: tuple[int, ...] | None = None
    without: tuple[int, ...] = ()
    under: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    if categories:
        only, under = _filed_under(connection, categories)
    else:
        rows = [(name, connection.one("prefix_by_name", name)) for name in asked_only]
        without = tuple(row[0] for _, row in rows if row and row[1] > 0)
        hidden = tuple(name for name, row in rows if row and row[1] > 0 and "." in name)
    since = micros(start) if start is not None else FIRST_MICROS
    until = micros(end) if end is not None else LAST_MICROS
    return Scope(
        **_between(since, until),
        only=only,
        without=without,
        levels=tuple(levels),
        under=under,
        hidden=hidden,
    )


class _Times(TypedDict):
    first: int
    last: int
    since: int
    until: int


def _between(since: int, until: int) -> _Times:
    first = row_id(since) if since > FIRST_MICROS else 0
    last = row_id(until) + _SLACK if until < LAST_MICROS else _ENDLESS
    return {"first": first, "last": last, "since": since, "until": until}


def _filed_under(
    connection: Connection, categories: Sequence[str]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The folders that hold the categories, and their names where a folder holds more than was named."""
    folders: dict[int, None] = {}
    names: list[str] = []
    more = False
    for name in dict.fromkeys(name.rstrip(".") for name in categories):
        if not KEY.match(name):
            continue
        row = connection.one("prefix_by_name", name)
        if row is None:  # a time, or deeper than keys are filed
            holding = prefixes_of(f"{name}.")[-1]
            row = connection.one("prefix_by_name", holding) if holding != name else None
            more = more or row is not None
        if row is not None:
            folders[row[0]] = None
            names.append(name)
        if "." in name and connection.one("standing", name) is not None:  # a key of that very name
            itself = connection.one("prefix_by_name", prefixes_of(name)[-1])
            if itself is not None:
                folders[itself[0]] = None
                names.append(name)
                more = True
    return tuple(folders), tuple(dict.fromkeys(names)) if more else ()


def _lies_under(key: str, names: Iterable[str]) -> bool:
    return any(f"{key}.".startswith(f"{name}.") for name in names)


@dataclass(slots=True)
class Candidates:
    """What stands where."""

    terms: tuple[QueryTerm, ...]
    """Those that were looked up."""
    weights: list[float]
    """Of each term, by how rare it is."""
    rows: dict[int, int] = field(default_factory=dict)
    """Place -> bits of the terms that stand there."""
    lengths: dict[int, int] = field(default_factory=dict)
    cut: bool = False
    """Some truths have several index rows."""
    mean_length: float = 0.0
    whole: bool = True
    """No term stands in more rows than were looked at."""
    wished: dict[int, int] = field(default_factory=dict)
    """Of the rows those of a wished time."""


def collect(
    connection: Connection, terms: Sequence[QueryTerm], scope: Scope, wished: Scope | None = None
) -> Candidates:
    """The rows worth ranking for these terms, at most MOST_QUERY_TERMS of which are looked up: the rarest.

    `wished`: a narrower scope whose rows must be among them, however old they are.
    """
    made, cut = connection.one("get_meta", ROWS), connection.one("get_meta", CUT)
    rows = max(int(made[0]) if made else 0, 1)
    sieve = _Sieve(connection, scope)
    terms = _rarest(connection, terms, scope, rows)
    found = Candidates(tuple(terms), weights=[0.0] * len(terms), cut=cut is not None)
    ids: dict[int, int] = {}
    full: list[bool] = []
    for number, term in enumerate(terms):
        oldest, taken = _take(sieve, ids, [number], _quoted(term), scope)
        full.append(taken >= _NEWEST)
        holding = float(taken) if not full[-1] else _estimate(connection, rows, oldest, taken, scope)
        found.weights[number] = rarity(rows, holding)
    found.whole = not any(full)
    if wished is not None and any(full):
        for number, term in enumerate(terms):
            if full[number]:
                _take(sieve, ids, [number], _quoted(term), wished)
    rare = sorted(range(len(terms)), key=lambda number: -found.weights[number])[:_PAIRED]
    for one, other in combinations(sorted(rare), 2):
        if full[one] or full[other]:
            both = f"{_quoted(terms[one])} AND {_quoted(terms[other])}"
            _take(sieve, ids, [one, other], both, scope)
    _place(sieve, found, ids, wished)
    if found.lengths:
        found.mean_length = sum(found.lengths.values()) / len(found.lengths)
    return found


def _rarest(
    connection: Connection, terms: Sequence[QueryTerm], scope: Scope, rows: int
) -> Sequence[QueryTerm]:
    """Of a long query the rarest terms, in its order; of an endless one an even sample is asked for."""
    if len(terms) <= MOST_QUERY_TERMS:
        return terms
    terms = terms[:: -(-len(terms) // _ASKED_FOR)]
    holding: list[float] = []
    for term in terms:
        within = scope.within(_quoted(term))
        taken = connection.all("matching_rows", within, scope.first, scope.last, _GLANCE)
        full = len(taken) >= _GLANCE
        holding.append(_estimate(connection, rows, taken[-1][0], len(taken), scope) if full else len(taken))
    order = sorted(range(len(terms)), key=lambda number: holding[number] or rows)[:MOST_QUERY_TERMS]
    return [terms[number] for number in sorted(order)]


def _quoted(term: QueryTerm) -> str:
    return f'text:"{term.term}"'


class _Sieve:
    """The newest rows of an expression that lie in the folders of a scope."""

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self._db = connection
        self._filed = scope.only is not None
        self._folders: frozenset[int] | None = frozenset()
        """Of `only` or of `without`, with all that lie in them; None = FTS5 is to look after them."""
        self._places: dict[int, tuple[int, int]] = {}
        numbers = scope.without if scope.only is None else scope.only
        if numbers:
            listed = connection.all("folders_under", f"[{','.join(map(str, numbers))}]")
            folders = frozenset(row[0] for row in listed)
            # a level is no folder: FTS5 alone knows it
            self._folders = None if scope.levels or len(folders) > _MOST_FOLDERS else folders

    def newest(self, expression: str, scope: Scope) -> list[int]:
        """At most 500, the newest first. `scope`: the one it was made for, or a shorter time of it."""
        if self._folders is not None and not self._folders and not self._filed:
            return self._matching(expression, scope, _NEWEST)
        if self._folders is not None and (self._filed or not self._crowded(expression, scope)):
            most = _LOOKED_THROUGH_FILED if self._filed else _LOOKED_THROUGH
            taken = self._matching(expression, scope, most)
            if len(taken) < most or not self._filed:
                kept = self._sifted(taken)
                if len(taken) < most or len(kept) >= _NEWEST:
                    return kept[:_NEWEST]
                self._folders = None  # most rows lie elsewhere: of the next terms too
        return self._matching(scope.within(expression), scope, _NEWEST)

    def places(self, ids: Iterable[int]) -> Iterable[tuple[int, int, int]]:
        """(row, place, length) of those that stand."""
        ids = list(ids)
        self._look_up(ids)
        known = self._places.get
        return [(id_, *found) for id_ in ids if (found := known(id_)) is not None]

    def _crowded(self, expression: str, scope: Scope) -> bool:
        """Whether its rows stand close together: FTS5 reads the folder's list no further than they go."""
        glance = self._matching(expression, scope, _GLANCE)
        if len(glance) < _GLANCE:
            return False
        (after,) = self._db.one("rungs_from", glance[0]) or (0,)
        (passed,) = self._db.one("rungs_from", glance[-1]) or (0,)
        return bool(passed - after <= _CROWDED)

    def _matching(self, expression: str, scope: Scope, most: int) -> list[int]:
        rows = self._db.all("matching_rows", expression, scope.first, scope.last, most)
        return [id_ for (id_,) in rows]

    def _sifted(self, ids: Sequence[int]) -> list[int]:
        self._look_up(ids)
        known, folders, filed = self._places.get, self._folders or (), self._filed
        return [
            id_
            for id_ in ids
            if (found := known(id_)) is not None and ((found[0] >> PLACE_BITS) in folders) is filed
        ]

    def _look_up(self, ids: Iterable[int]) -> None:
        missing = [id_ for id_ in ids if id_ not in self._places]
        if missing:
            missing.sort()
            numbers = f"[{','.join(map(str, missing))}]"
            for id_, place, length in self._db.all("places_of_rows", numbers):
                self._places[id_] = place, length


def _take(
    sieve: _Sieve,
    ids: dict[int, int],
    numbers: Sequence[int],
    expression: str,
    scope: Scope,
) -> tuple[int, int]:
    """Add the newest rows of an expression to `ids` (row -> bits); returns the oldest taken, and how many."""
    bits = 0
    for number in numbers:
        bits |= 1 << number
    taken = sieve.newest(expression, scope)
    known = ids.get
    for id_ in taken:
        ids[id_] = known(id_, 0) | bits
    return (taken[-1] if taken else 0), len(taken)


def _place(sieve: _Sieve, found: Candidates, ids: dict[int, int], wished: Scope | None) -> None:
    """Find out where the weightiest rows stand; looking all of them up would cost more than all the rest."""
    held: dict[int, float] = {}
    for bits in set(ids.values()):
        held[bits] = sum(weight for bit, weight in enumerate(found.weights) if bits >> bit & 1)
    best = _heaviest(ids, held, _PLACED)
    first, last = (wished.first, wished.last) if wished is not None else (1, 0)
    inside = {id_: bits for id_, bits in ids.items() if first <= id_ <= last}
    best.update(_heaviest(inside, held, _PLACED))
    for id_, place, length in sieve.places(sorted(best)):
        found.rows[place] = ids[id_]
        found.lengths[place] = length
        if first <= id_ <= last:
            found.wished[place] = ids[id_]


def _heaviest(ids: Mapping[int, int], held: Mapping[int, float], most: int) -> set[int]:
    if len(ids) <= most:
        return set(ids)
    return {id_ for _, id_ in heapq.nlargest(most, [(held[bits], id_) for id_, bits in ids.items()])}


def _estimate(connection: Connection, rows: int, oldest: int, taken: int, scope: Scope) -> float:
    """In how many of all rows a term stands, of which the newest `taken` go back to `oldest`."""
    (newer,) = connection.one("rungs_from", oldest) or (0,)
    if scope.last < _ENDLESS:
        (beyond,) = connection.one("rungs_from", scope.last) or (0,)
        newer -= beyond
    passed = max((newer + 0.5) * RUNG, taken)
    return float(min(rows, taken * rows / passed))
