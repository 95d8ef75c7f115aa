"""Channel B in SQLite: versions, locks, the hash chain, listings and retrieval behind one port."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from kernel_gamma.contracts.ports import Clock
from kernel_gamma.contracts.truths import (
    KEY,
    Finding,
    NewTruth,
    Search,
    Truth,
    VerifyReport,
    category_of,
    check_category,
)
from kernel_gamma.contracts.ulid import encode_ulid
from kernel_gamma.errors import BadTruth
from kernel_gamma.truths.chain import Broken, Link, first_broken
from kernel_gamma.truths.database import Connection, Database, Row
from kernel_gamma.truths.excerpts import TEXT_VERSION
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.retrieval import Retrieval
from kernel_gamma.truths.rows import micros, truth_of
from kernel_gamma.truths.semantic import Semantic
from kernel_gamma.truths.terms import TERMS_VERSION, query_terms
from kernel_gamma.truths.tombstones import TOMBSTONES, sealed_by_tombstones, tombstones
from kernel_gamma.truths.writing import Limits, Writing

__all__ = ["COUNT_BOUND", "SqliteTruths", "open_truths"]

COUNT_BOUND = 10_000
"""Matches are counted exactly up to here."""
_EACH = 500
_INDEX_VERSION = "index version"


def open_truths(
    path: Path,
    clock: Clock,
    *,
    retention: Retention | None = None,
    full: bool = False,
    limits: Limits | None = None,
    semantic: Semantic | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> SqliteTruths:
    """Open memory.db, or create it. `full`: what is acknowledged survives a power cut.

    Raises StoreDamaged, StoreFull, SettingsError when a newer version wrote it.
    """
    database = Database.open(path, full=full)
    store = SqliteTruths(
        database, clock, retention or Retention.default(), limits or Limits(), semantic, count_tokens
    )
    store.settle_index()
    return store


class SqliteTruths:
    """The TruthStore port over one memory.db. Safe to use from several threads and processes."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        retention: Retention,
        limits: Limits,
        semantic: Semantic | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.database = database
        self.retention = retention
        self._clock = clock
        self._limits = limits
        self._retrieval = Retrieval(
            clock, retention, bound=COUNT_BOUND, semantic=semantic, count_tokens=count_tokens
        )

    # ---- writing

    def upsert(self, truth: NewTruth) -> Truth:
        """Write one: a new key at version 1, a standing one at its next version, the old one is kept.

        Raises TruthLocked, VersionConflict, BadTruth, StoreFull, StoreDamaged.
        """
        with self.database.write() as connection:
            writing = self._writing(connection)
            key = writing.put(truth)
            writing.finish()
            row = connection.one("truth_by_key", key)
        assert row is not None
        return truth_of(row, self._clock.zone)

    def upsert_many(self, truths: Sequence[NewTruth]) -> list[str]:
        """Write all of them in one transaction, or none; returns their keys in order. Raises as upsert."""
        with self.database.write() as connection:
            writing = self._writing(connection)
            keys = [writing.put(truth) for truth in truths]
            writing.finish()
        return keys

    def record_all(self, truths: Sequence[NewTruth]) -> None:
        """Write those whose keys do not stand yet, in one transaction; the others are left as they are."""
        with self.database.write() as connection:
            writing = self._writing(connection)
            for truth in truths:
                if truth.key is None or not writing.knows(truth.key):
                    writing.put(truth, receipt=True)
            writing.finish()

    def put_own(self, truths: Sequence[NewTruth], gone: Sequence[str] = ()) -> None:
        """Write the index of the mind's own past, which keeps no versions, and take `gone` keys out."""
        with self.writing_own() as (_, writing):
            for key in gone:
                writing.remove(key)
            for truth in truths:
                writing.put(truth, own=True, keep_versions=False)

    @contextmanager
    def writing_own(self) -> Iterator[tuple[Connection, Writing]]:
        """One transaction of whoever keeps the index of the mind's own past; see self_index."""
        with self.database.write() as connection:
            writing = self._writing(connection)
            yield connection, writing
            writing.finish()

    def delete(
        self, keys: Sequence[str], *, before: datetime | None = None, by: str = "", why: str = ""
    ) -> int:
        """Take truths with all their versions out, in one transaction; returns how many there were.

        For retention and an approved forget: what may go is the caller's to know. Of what has links in the
        hash chain a tombstone stays, with `by` and `why` (see tombstones.py); a tombstone itself cannot be
        deleted: BadTruth. With `before` those stay that were locked, have links, or are of that time or
        later, when the transaction begins.
        """
        keys = [key for key in keys if KEY.match(key)]
        for key in keys:
            if category_of(key) == TOMBSTONES:
                raise BadTruth(f"{key} says what was forgotten; without it the hash chain would not hold")
        by, why = (said.encode("utf-8", "replace").decode() for said in (by, why))
        with self.database.write() as connection:
            writing = self._writing(connection)
            gone = 0
            for key in keys:
                row = connection.one("standing", key)
                if row is None:
                    continue
                links = connection.all("links_of", key)
                if before is not None and (row[2] or links or row[6] >= micros(before)):
                    continue
                gone += writing.remove(key)
                connection.run("drop_feedback", key)
                for stone in tombstones(key, links, by=by, why=why):
                    writing.put(stone, receipt=True)
            writing.finish()
        return gone

    def unlock(self, key: str) -> bool:
        """Take the lock off; False when there is no such truth. Only the command line calls it."""
        if not KEY.match(key):
            return False
        with self.database.write() as connection:
            found = connection.one("standing", key) is not None
            connection.run("lock", key, 0)
        return found

    def feedback(self, key: str, query: str, *, relevant: bool, by: str = "") -> bool:
        """Remember a judgement, which weighs in later searches; False when there is no such truth."""
        terms = " ".join(sorted({term.term for term in query_terms(query)}))
        if not KEY.match(key):
            return False
        query = query.encode("utf-8", "replace").decode()[:2000]
        by = by.encode("utf-8", "replace").decode()[:100]
        with self.database.write() as connection:
            if connection.one("standing", key) is None:
                return False
            at = micros(self._clock.now())
            connection.run("add_feedback", key, terms, query, int(relevant), by, at)
        return True

    def _writing(self, connection: Connection) -> Writing:
        now = self._clock.now()
        milliseconds = int(now.timestamp() * 1000)
        return Writing(
            connection,
            now=micros(now),
            retention=self.retention,
            new_ulid=lambda: encode_ulid(milliseconds, os.urandom(10)),
            limits=self._limits,
        )

    # ---- reading

    def get(self, key: str, version: int | None = None) -> Truth | None:
        """The newest version, or the one asked for; None when there is none."""
        if not KEY.match(key):
            return None
        with self.database.read() as connection:
            row = connection.one("truth_by_key", key)
            if row is not None and version is not None and row[7] != version:
                old = connection.all("versions_by_key", key)
                row = next((found for found in old if found[7] == version), None)
        return truth_of(row, self._clock.zone) if row else None

    def versions(self, key: str) -> list[Truth]:
        """Every kept version of a key, oldest first."""
        if not KEY.match(key):
            return []
        with self.database.read() as connection:
            rows = connection.all("versions_by_key", key)
            if (row := connection.one("truth_by_key", key)) is not None:
                rows.append(row)
        return [truth_of(row, self._clock.zone) for row in rows]

    def page(self, *, limit: int, offset: int = 0, category: str | None = None) -> tuple[int, list[Truth]]:
        """(total, truths), newest first. `category` may be a longer key prefix; ValueError if it is none."""
        with self.database.read() as connection:
            if category is None:
                (total,) = connection.one("count_truths") or (0,)
                rows = connection.all("page_all", limit, offset)
            else:
                total, rows = self._page_of(connection, check_category(category), limit, offset)
        return total, [truth_of(row, self._clock.zone) for row in rows]

    def _page_of(
        self, connection: Connection, category: str, limit: int, offset: int
    ) -> tuple[int, list[tuple[object, ...]]]:
        folder = connection.one("prefix_by_name", category)
        if category == category_of(category):
            if folder is None:
                return 0, []
            return folder[1], connection.all("page_category", folder[0], limit, offset)
        first, last = f"{category}.", f"{category}/"
        (total,) = connection.one("count_prefix", first, last, COUNT_BOUND) or (0,)
        return total, connection.all("page_prefix", first, last, limit, offset)

    def recent(self, *, limit: int, category: str | None = None) -> list[Truth]:
        """The newest by timestamp. Without a category: none of those that come only when asked for."""
        if category is not None:
            return self.page(limit=limit, category=category)[1]
        found = self._retrieval.search(self.database, Search(limit=limit, fold=False))
        return [one.truth for one in found.results]

    def categories(self) -> dict[str, int]:
        """Category -> number of truths, most first."""
        with self.database.read() as connection:
            return dict(connection.all("categories"))

    def each(self, category: str | None = None) -> Iterator[Truth]:
        """Every standing truth, oldest first; read in portions, so writers are not held up."""
        with self.database.read() as connection:
            folder = connection.one("prefix_by_name", category) if category else (None,)
        if folder is None:
            return
        after = -1
        while True:
            with self.database.read() as connection:
                if category:
                    rows = connection.all("each_of_category", folder[0], after, _EACH)
                else:
                    rows = connection.all("each", after, _EACH)
            if not rows:
                return
            after = rows[-1][0]
            for row in rows:
                yield truth_of(row, self._clock.zone)

    def search(self, search: Search) -> Finding:
        """Retrieval: see docs/memory.md."""
        return self._retrieval.search(self.database, search)

    # ---- keeping

    def verify(self) -> VerifyReport:
        """Walk the hash chain from its first link; the first record that does not fit ends the walk."""
        with self.database.read() as connection:
            forgotten = sealed_by_tombstones(row[0] for row in connection.each("tombstones"))
            gone: list[int] = []
            found = first_broken(_links(connection.each("chain"), gone), forgotten)
            if isinstance(found, Broken):
                return VerifyReport(
                    ok=False,
                    links=found.checked,
                    broken_link=found.link,
                    broken_key=found.key,
                    reason=found.reason,
                    forgotten=sum(link < found.link for link in gone),
                )
            row = connection.one("unlinked", found)
        if row is not None:
            reason = "the link of the record is missing"
            return VerifyReport(
                ok=False,
                links=found,
                broken_link=row[1],
                broken_key=row[0],
                reason=reason,
                forgotten=len(gone),
            )
        return VerifyReport(ok=True, links=found, forgotten=len(gone))

    def settle_index(self) -> None:
        """Build the index anew when it was made with other terms or texts than ours."""
        with self.database.read() as connection:
            row = connection.one("get_meta", _INDEX_VERSION)
            (count,) = connection.one("count_truths") or (0,)
        version = f"{TERMS_VERSION}.{TEXT_VERSION}"
        if row is not None and row[0] == version:
            return
        if count:
            self.reindex()
        with self.database.write() as connection:
            connection.run("set_meta", _INDEX_VERSION, version)

    def reindex(self) -> int:
        """Build the search index anew from the truths, in one transaction; returns how many there are."""
        with self.database.write() as connection:
            return self._writing(connection).index_again()

    def close(self) -> None:
        """Close every connection."""
        self.database.close()


def _links(rows: Iterable[Row], gone: list[int]) -> Iterator[Link]:
    """Rows of the query `chain` as links; the numbers of those without a record are added to `gone`."""
    for link, sha256, key, version, description, at, value in rows:
        if key is None:
            gone.append(link)
        category = None if key is None else category_of(key)
        yield Link(link, sha256, key, version, category, description, at, value)
