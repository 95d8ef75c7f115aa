"""The file memory.db: its schema, its migrations, one connection that writes and some that read.

SQLite in WAL mode: readers never wait for the writer, several processes may hold the file (the daemon and
a gateway of its own), and a killed process loses nothing that was committed.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernel_gamma.errors import SettingsError, StoreDamaged, StoreFull, TruthError
from kernel_gamma.queries import load_queries

__all__ = ["MIGRATIONS", "Connection", "Database", "Row"]

Row = tuple[Any, ...]
_READERS = 4
"""Connections that may read at once; a further reader waits for one."""
_WAIT_SEC = 30
_LOOK_SEC = 0.01
_WRITER_CACHE_KB = 32_000
_READER_CACHE_KB = 8_000

_FIRST_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE prefixes (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, truths INTEGER NOT NULL DEFAULT 0,
    last_seq INTEGER NOT NULL DEFAULT 0, last_ms INTEGER NOT NULL DEFAULT 0);
CREATE TABLE truths (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, category INTEGER NOT NULL, description TEXT NOT NULL,
    value TEXT NOT NULL, at INTEGER NOT NULL, written INTEGER NOT NULL, version INTEGER NOT NULL,
    locked INTEGER NOT NULL, trust TEXT NOT NULL, level TEXT, link INTEGER, snippets INTEGER NOT NULL,
    fold INTEGER NOT NULL);
CREATE INDEX truths_category ON truths (category, id);
CREATE INDEX truths_fold ON truths (fold, id);
CREATE TABLE versions (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, category INTEGER NOT NULL, description TEXT NOT NULL,
    value TEXT NOT NULL, at INTEGER NOT NULL, written INTEGER NOT NULL, version INTEGER NOT NULL,
    locked INTEGER NOT NULL, trust TEXT NOT NULL, level TEXT, link INTEGER);
CREATE INDEX versions_key ON versions (key, version);
CREATE TABLE chain (link INTEGER PRIMARY KEY, id INTEGER NOT NULL, sha256 BLOB NOT NULL);
CREATE TABLE snippets (
    id INTEGER PRIMARY KEY, place INTEGER NOT NULL UNIQUE, part INTEGER NOT NULL, length INTEGER NOT NULL);
CREATE TABLE ladder (id INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE words USING fts5 (
    text, who, cat, content = '', columnsize = 0, detail = column, tokenize = 'ascii');
CREATE TABLE feedback (
    key TEXT NOT NULL, terms TEXT NOT NULL, query TEXT NOT NULL, relevant INTEGER NOT NULL,
    by TEXT NOT NULL, at INTEGER NOT NULL);
CREATE INDEX feedback_key ON feedback (key);
CREATE TABLE pages (page TEXT PRIMARY KEY, mark TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE page_keys (page TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (page, key)) WITHOUT ROWID;
CREATE INDEX page_keys_key ON page_keys (key);
CREATE TABLE vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL UNIQUE, vector BLOB NOT NULL);
CREATE TABLE awaited (id INTEGER PRIMARY KEY);
"""


def _first_schema(db: sqlite3.Connection) -> None:
    for statement in _FIRST_SCHEMA.split(";"):  # executescript would end the transaction
        db.execute(statement)


MIGRATIONS: tuple[tuple[str, Callable[[sqlite3.Connection], None]], ...] = (
    ("2026-12 first schema", _first_schema),
)
"""Applied once each, in order, each in a transaction of its own, and recorded; only forward."""


class Connection:
    """Named statements of store.sql on one SQLite connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self._sql = load_queries("kernel_gamma.truths", "store.sql")

    def run(self, name: str, *values: object) -> int:
        """Execute a named statement; returns the last row id."""
        return self.db.execute(self._sql[name], values).lastrowid or 0

    def run_many(self, name: str, rows: list[Row]) -> None:
        """Execute a named statement for each row."""
        self.db.executemany(self._sql[name], rows)

    def one(self, name: str, *values: object) -> Row | None:
        """The first row of a named query."""
        row: Row | None = self.db.execute(self._sql[name], values).fetchone()
        return row

    def all(self, name: str, *values: object) -> list[Row]:
        """All rows of a named query."""
        return self.db.execute(self._sql[name], values).fetchall()

    def each(self, name: str, *values: object) -> Iterator[Row]:
        """Rows of a named query as they are asked for."""
        return iter(self.db.execute(self._sql[name], values))


class Database:
    """Open with `Database.open`; safe to use from several threads."""

    def __init__(self, path: Path, *, full: bool) -> None:
        self.path = path
        self._full = full
        self._writing = threading.Lock()
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._readers = threading.Semaphore(_READERS)
        self._writer: Connection | None = None

    @classmethod
    def open(cls, path: Path, *, full: bool = False) -> Database:
        """Open or create; migrate an older file. `full`: every commit is on the disk before it returns.

        Raises StoreDamaged, StoreFull, SettingsError when a newer version wrote it.
        """
        database = cls(path, full=full)
        with database._errors():
            database._writer = Connection(database._connect(_WRITER_CACHE_KB))
            database._migrate(database._writer)
        return database

    def _connect(self, cache_kb: int) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, cached_statements=128, timeout=_WAIT_SEC
        )
        _into_wal(db)
        db.execute(f"PRAGMA synchronous = {'FULL' if self._full else 'NORMAL'}")
        db.execute(f"PRAGMA cache_size = -{cache_kb}")
        db.execute("PRAGMA wal_autocheckpoint = 4000")
        db.execute("PRAGMA journal_size_limit = 67108864")
        db.execute("PRAGMA temp_store = MEMORY")
        return db

    def _migrate(self, writer: Connection) -> None:
        (version,) = writer.db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise SettingsError(
                str(self.path),
                "version",
                f"written by a newer kernel-gamma (schema {version}, this one knows {len(MIGRATIONS)})",
                "upgrade, or restore a backup that this version wrote",
            )
        for number, (name, migrate) in enumerate(MIGRATIONS, 1):
            if number <= version:
                continue
            with self._transaction(writer):
                (now,) = writer.db.execute("PRAGMA user_version").fetchone()
                if now >= number:  # another process was faster
                    continue
                migrate(writer.db)
                writer.db.execute(f"PRAGMA user_version = {number}")
                writer.run("set_meta", f"migration {number}", name)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One write transaction: all of it or nothing. One thread at a time, other processes wait too."""
        with self._writing, self._errors():
            if self._writer is None:
                raise TruthError(f"{self.path}: the store is closed")
            with self._transaction(self._writer):
                yield self._writer

    @contextmanager
    def _transaction(self, writer: Connection) -> Iterator[None]:
        writer.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            writer.db.execute("COMMIT")
        except BaseException:
            if writer.db.in_transaction:  # a full disk has rolled back already
                writer.db.execute("ROLLBACK")
            raise

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the store for as long as it is held."""
        with self._readers, self._errors():
            if self._writer is None:
                raise TruthError(f"{self.path}: the store is closed")
            try:
                reader = self._idle.get_nowait()
            except queue.Empty:
                reader = Connection(self._connect(_READER_CACHE_KB))
            reader.db.execute("BEGIN")
            try:
                yield reader
            finally:
                reader.db.execute("ROLLBACK")
                self._idle.put(reader)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name in ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"):
                raise StoreFull(f"{self.path}: {error}; free some space") from error
            if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ")) or (
                not name and "decode to UTF-8" in str(error)
            ):
                raise StoreDamaged(f"{self.path}: {error}") from error
            raise TruthError(f"{self.path}: {error}") from error
        except sqlite3.IntegrityError as error:
            raise TruthError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreDamaged(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Close every connection; calls that come later fail with a sentence."""
        with self._writing:
            if self._writer is not None:
                self._writer.db.close()
                self._writer = None
            while not self._idle.empty():
                self._idle.get_nowait().db.close()


def _into_wal(db: sqlite3.Connection) -> None:
    """Several processes may open a new file at once: SQLite does not wait for this lock by itself."""
    until = time.monotonic() + _WAIT_SEC
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") != "SQLITE_BUSY" or time.monotonic() > until:
                raise
            time.sleep(_LOOK_SEC)
