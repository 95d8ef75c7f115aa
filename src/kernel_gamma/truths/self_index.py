"""The index of the self: the mind's own past as `stream.`, `diary.` and `memory.` truths, for searches.

The Markdown pages stay the truth. The index follows them: whoever changed a page, and however, its marks
differ, it is read again, and what differs from the index is put or taken out. All of it can be thrown away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kernel_gamma.contracts.ports import Clock, Past, PastEntry
from kernel_gamma.contracts.truths import SELF_CATEGORIES, Level, NewTruth
from kernel_gamma.truths.database import Connection
from kernel_gamma.truths.rows import micros, moment
from kernel_gamma.truths.store import SqliteTruths
from kernel_gamma.truths.writing import Writing

__all__ = ["Changes", "SelfIndex"]

_CUTTING = 1
"""Grows when the same page gives other entries: pages taken in with another number are read again."""
_CHUNK = 1000
"""Entries written in one transaction: others wait for it, for about a second."""
_ROUNDS = 3
_RANK: Mapping[Level, int] = {"L1": 1, "L2": 2, "L3": 3}

_Mark = tuple[int, int, int]
_Column = str | bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """What a refresh came to, counted in entries."""

    added: int = 0
    moved: int = 0
    """Already known ones that stand at another level or on another page now."""
    removed: int = 0
    unread: tuple[str, ...] = ()
    """Pages that could not be read: left as they were, and tried again next time."""

    def __bool__(self) -> bool:
        return bool(self.added or self.moved or self.removed)


@dataclass(frozen=True, slots=True)
class _Page:
    """A page that differs from what the index took in."""

    name: str
    mark: _Mark | None
    """As it stands, looked at before it is read; None when it was not to be seen."""
    before: str | None
    """The mark the index has of it; None when it has none."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Some entries of a page."""

    page: _Page
    entries: list[PastEntry]
    keys: frozenset[str] | None
    """With the last part all keys of the page."""


@dataclass(slots=True)
class _Tally:
    """What one refresh has done so far."""

    kept: Mapping[str, int]
    """Times (microseconds) of keys that were taken out only to be put again."""
    added: int = 0
    moved: int = 0
    removed: int = 0
    unread: list[str] = field(default_factory=list)
    again: set[str] = field(default_factory=set)
    """Pages that hold a key whose text another page took with it."""
    given_up: set[str] = field(default_factory=set)
    """Those keys."""


class SelfIndex:
    """Keeps the mind's own past in a store. Keeps nothing itself: any process may refresh at any time."""

    def __init__(self, store: SqliteTruths, past: Past, clock: Clock) -> None:
        self._store = store
        self._past = past
        self._clock = clock

    def refresh(self, pages: Collection[str] | None = None) -> Changes:
        """Take in what was saved: look at all pages of the past, or only at `pages` (relative to self/).

        Where nothing changed nothing is read. Raises StoreFull, StoreDamaged, TruthError.
        """
        return self._refresh(pages, {})

    def rebuild(self) -> int:
        """Throw the index away and read every page anew; returns how many entries stand.

        Memories without a date keep the time at which they were first seen, if the store still knows it.
        """
        with self._store.writing_own() as (connection, _):
            connection.run("forget_marks")
        kept: dict[str, int] = {}
        for category in sorted(SELF_CATEGORIES):
            while gone := self._take_out_some(category):
                kept.update(gone)
        self._refresh(None, kept)
        standing = self._store.categories()
        return sum(standing.get(category, 0) for category in SELF_CATEGORIES)

    def _take_out_some(self, category: str) -> dict[str, int]:
        """Take some entries out, with their times; empty when there are no more."""
        with self._store.writing_own() as (connection, writing):
            folder = connection.one("prefix_by_name", category)
            rows = connection.all("keys_of_category", folder[0], _CHUNK) if folder else []
            for key, _ in rows:
                writing.remove(key)
        return dict(rows)

    def _refresh(self, pages: Collection[str] | None, kept: Mapping[str, int]) -> Changes:
        tally = _Tally(kept)
        for _ in range(_ROUNDS):
            tally.again.clear()
            for parts in self._chunks(self._changed(pages), tally):
                with self._store.writing_own() as (connection, writing):
                    chunk = _Chunk(connection, writing, tally, self._clock)
                    for part in parts:
                        chunk.take_in(part)
            if not tally.again:
                break
            pages = frozenset(tally.again)
        return Changes(tally.added, tally.moved, tally.removed, tuple(sorted(set(tally.unread))))

    def _changed(self, pages: Collection[str] | None) -> list[_Page]:
        """The pages that differ from what the index has of them.

        Sorted, and so the archive stands before now.md: what moved is there already when it leaves here.
        """
        marks = self._past.marks(pages)
        with self._store.database.read() as connection:
            if pages is None:
                before = {_name(column): mark for column, mark in connection.all("pages")}
            else:
                rows = ((page, connection.one("mark_of_page", _column(page))) for page in pages)
                before = {page: row[0] for page, row in rows if row is not None}
        found = (_Page(name, marks.get(name), before.get(name)) for name in sorted({*marks, *before}))
        return [page for page in found if page.mark is None or page.before != _written(page.mark)]

    def _chunks(self, pages: Iterable[_Page], tally: _Tally) -> Iterator[list[_Part]]:
        """The pages read, in portions for one transaction each."""
        parts: list[_Part] = []
        count = 0
        for page in pages:
            try:
                entries = self._past.entries(page.name)
            except OSError:
                tally.unread.append(page.name)
                continue
            for part in _parts(page, entries):
                if parts and count + len(part.entries) > _CHUNK:
                    yield parts
                    parts, count = [], 0
                parts.append(part)
                count += len(part.entries)
        if parts:
            yield parts


class _Chunk:
    """One transaction: what stands is compared and changed within it, so other processes may do the same."""

    def __init__(self, connection: Connection, writing: Writing, tally: _Tally, clock: Clock) -> None:
        self._db = connection
        self._writing = writing
        self._tally = tally
        self._clock = clock
        self._now: dict[str, tuple[Level | None, str]] = {}
        """Keys that were put or taken out here: their level and the page that tells them. What was put
        stands in no table before the end."""

    def take_in(self, part: _Part) -> None:
        """Make the index hold what a page holds, unless somebody else has seen to the page meanwhile."""
        page, column = part.page, _column(part.page.name)
        stored = self._db.one("mark_of_page", column)
        if (stored[0] if stored else None) != page.before:
            return
        known: dict[str, Level | None] = dict(self._db.all("keys_of_page", column))
        for entry in part.entries:
            level = self._level_of(entry.key, known)
            if level is None or _RANK[entry.level] > _RANK[level]:
                self._put(entry, page, moved=level is not None)
            if entry.key not in known:
                self._db.run("add_page_key", column, entry.key)
        if part.keys is None:
            return
        for key in known:
            if key not in part.keys:
                self._leave(key, page.name)
        if part.keys or page.mark:
            self._db.run("save_mark", column, _written(page.mark) if page.mark else "")
        else:
            self._db.run("drop_page", column)

    def _level_of(self, key: str, known: Mapping[str, Level | None]) -> Level | None:
        if key in self._now:
            return self._now[key][0]
        if key in known:
            return known[key]
        row = self._db.one("told_by", key)
        return row[0] if row else None

    def _put(self, entry: PastEntry, page: _Page, *, moved: bool) -> None:
        shown = _shown(entry.page)
        new = NewTruth(
            key=entry.key,
            value={"page": shown, "heading": entry.heading, "text": entry.text},
            timestamp=entry.timestamp or self._first_seen(entry.key, page.mark),
            level=entry.level,
        )
        self._writing.put(new, own=True, keep_versions=False)
        self._now[entry.key] = entry.level, shown
        if moved or entry.key in self._tally.given_up:
            self._tally.moved += 1
        else:
            self._tally.added += 1

    def _first_seen(self, key: str, mark: _Mark | None) -> datetime:
        """The time a key stands with, else the time its page was saved."""
        at = self._tally.kept.get(key)
        if at is None and (row := self._db.one("told_by", key)) is not None:
            at = row[1]
        if at is not None:
            return moment(at, UTC)
        now = self._clock.now()
        try:
            saved = moment(mark[2] // 1000, UTC) if mark else now
        except (OverflowError, ValueError):  # a file system that tells nonsense
            return now
        return saved if micros(saved) >= 0 else now

    def _leave(self, key: str, page: str) -> None:
        """A page holds a key no more. If others do, it is theirs to tell."""
        self._db.run("drop_page_key", _column(page), key)
        holders = [_name(column) for (column,) in self._db.all("pages_holding", key)]
        if holders and self._teller_of(key) != _shown(page):
            return
        removed = self._writing.remove(key)
        self._now[key] = None, ""
        if holders:
            self._db.run("forget_marks_holding", key)
            self._tally.again.update(holders)
            self._tally.given_up.add(key)
        else:
            self._tally.removed += removed

    def _teller_of(self, key: str) -> str:
        """The page whose entry stands under a key."""
        if key in self._now:
            return self._now[key][1]
        row = self._db.one("told_by", key)
        told = json.loads(row[2]) if row else None
        return str(told.get("page")) if isinstance(told, dict) else ""


def _parts(page: _Page, entries: list[PastEntry]) -> Iterator[_Part]:
    keys = frozenset(entry.key for entry in entries)
    last = max(len(entries) - 1, 0) // _CHUNK
    for number in range(last + 1):
        some = entries[number * _CHUNK : (number + 1) * _CHUNK]
        yield _Part(page, some, keys if number == last else None)


def _written(mark: _Mark) -> str:
    return f"{_CUTTING} {mark[0]} {mark[1]} {mark[2]}"


def _shown(page: str) -> str:
    """A page's name for readers: one that is no UTF-8 must not reach a prompt as it is."""
    return os.fsencode(page).decode("utf-8", "replace")


def _column(page: str) -> _Column:
    """A page's name for the database: its bytes when they are no UTF-8."""
    raw = os.fsencode(page)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _name(column: _Column) -> str:
    return column if isinstance(column, str) else os.fsdecode(column)
