"""The bus's memory: one SQLite file in WAL mode, one connection, statements from ledger.sql.

It knows what was accepted, delivered, committed and spent. It holds nothing that cannot be lost without
losing events: every file it speaks of stands in its queue until it is finished.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from kernel_gamma.bus.files import place_of
from kernel_gamma.errors import Fenced, SettingsError, Stop

__all__ = ["MIGRATIONS", "Ledger", "LedgerDamaged"]

Row = tuple[Any, ...]


class LedgerDamaged(Exception):
    """The file is no readable SQLite database; `str()` says which."""


_FIRST_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, name BLOB NOT NULL, path BLOB NOT NULL,
    origin TEXT NOT NULL, state TEXT NOT NULL, trust TEXT NOT NULL, file_id TEXT, trace_id TEXT,
    session_key TEXT, accepted_at REAL NOT NULL, expires_at REAL, commit_n INTEGER,
    final BLOB, outcome TEXT);
CREATE INDEX files_name ON files (name);
CREATE INDEX files_trace ON files (trace_id) WHERE trace_id IS NOT NULL;
CREATE TABLE lookup (id TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (id, seq)) WITHOUT ROWID;
CREATE TABLE deliveries (
    node TEXT NOT NULL, seq INTEGER NOT NULL, status TEXT NOT NULL DEFAULT 'waiting', batch_id TEXT,
    attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0,
    solo INTEGER NOT NULL DEFAULT 0, next_try REAL, error TEXT, started_at REAL, ended_at REAL,
    PRIMARY KEY (seq, node)) WITHOUT ROWID;
CREATE INDEX deliveries_open ON deliveries (node, seq)
    WHERE status IN ('waiting', 'retry');
CREATE TABLE commits (
    n INTEGER PRIMARY KEY, batch_id TEXT NOT NULL UNIQUE, node TEXT NOT NULL, trace_id TEXT,
    at REAL NOT NULL, plan TEXT, members TEXT NOT NULL, files TEXT NOT NULL, passages TEXT NOT NULL,
    outputs TEXT NOT NULL, applied INTEGER NOT NULL DEFAULT 0, synced INTEGER NOT NULL DEFAULT 0);
CREATE INDEX commits_unsynced ON commits (n) WHERE synced = 0;
CREATE TABLE passages (
    passage_id TEXT PRIMARY KEY, commit_n INTEGER NOT NULL, page TEXT NOT NULL,
    offset INTEGER NOT NULL, length INTEGER NOT NULL, sha256 TEXT NOT NULL, heading TEXT NOT NULL,
    kind TEXT NOT NULL, at REAL NOT NULL, batch_id TEXT NOT NULL, trace_id TEXT,
    put_back INTEGER NOT NULL DEFAULT 0, block TEXT) WITHOUT ROWID;
CREATE TABLE claims (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, expires_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX claims_expiry ON claims (expires_at);
CREATE TABLE journal (
    batch_id TEXT NOT NULL, step TEXT NOT NULL, node TEXT NOT NULL, kind TEXT NOT NULL, trace_id TEXT,
    started_at REAL NOT NULL, ended_at REAL, result TEXT, day TEXT, role TEXT, model TEXT,
    prompt_tokens INTEGER, completion_tokens INTEGER, cached_tokens INTEGER, cost REAL,
    PRIMARY KEY (batch_id, step)) WITHOUT ROWID;
CREATE TABLE usage (
    day TEXT PRIMARY KEY, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, cost REAL NOT NULL) WITHOUT ROWID;
"""


def _first_schema(db: sqlite3.Connection) -> None:
    for statement in _FIRST_SCHEMA.split(";"):  # executescript would end the transaction
        db.execute(statement)


def _deaths_and_bytes(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE deliveries ADD COLUMN waits INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE files ADD COLUMN sha256 TEXT")


def _spending_by_node_and_rule(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE spending (day TEXT NOT NULL, node TEXT NOT NULL, role TEXT NOT NULL,"
        " rule TEXT NOT NULL, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,"
        " completion_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, cost REAL NOT NULL,"
        " PRIMARY KEY (day, node, role, rule)) WITHOUT ROWID"
    )
    db.execute(
        "INSERT INTO spending SELECT day, node, coalesce(role, ''), '', count(*),"
        " total(prompt_tokens), total(completion_tokens), total(cached_tokens), total(cost)"
        " FROM journal WHERE day IS NOT NULL GROUP BY day, node, coalesce(role, '')"
    )


MIGRATIONS: tuple[tuple[str, Callable[[sqlite3.Connection], None]], ...] = (
    ("2026-11 first schema", _first_schema),
    ("2026-12 deaths while the model is asked; the bytes of what was set aside", _deaths_and_bytes),
    ("2026-12 what was spent, by node, role and rhythm rule", _spending_by_node_and_rule),
)
"""Applied once each, in order, each in a transaction of its own, and recorded; only forward."""


@cache
def _statements() -> dict[str, str]:
    text = (files("kernel_gamma.bus") / "ledger.sql").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in re.split(r"(?m)^-- name: ", text)[1:]:
        name, _, rest = block.partition("\n")
        found[name.strip()] = "\n".join(x for x in rest.splitlines() if not x.startswith("--")).strip()
    return found


def _connect(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        timeout=10,
    )


def _connect_to_look(path: Path) -> sqlite3.Connection:
    """Also where nothing can be written: a read-only or full disk has no place for SQLite's `-shm` file.

    Without it only a ledger that was closed in order can be read, and nobody writes it meanwhile.
    """
    db = _connect(path, "mode=ro")
    try:
        db.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        db.close()
        write_ahead = path.with_name(f"{path.name}-wal")
        if write_ahead.exists() and write_ahead.stat().st_size:
            raise
        db = _connect(path, "mode=ro&immutable=1")
    except sqlite3.Error:
        db.close()
        raise
    return db


class Ledger:
    """Open with `Ledger.open`. Not thread-safe: one thread at a time, the writer sees to it."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._sql = _statements()
        self._full = False
        self.path = path
        self._place: tuple[int, int] | None = None
        self.boot = 0
        """Our fence number; 0 while the ledger is only read."""
        self.serial = 0
        """Counts transactions, so that a job can tell whether it shares one with an earlier job."""

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Ledger:
        """Open or create.

        Raises LedgerDamaged, Stop when it cannot be used now, SettingsError when a newer version wrote it.
        """
        try:
            db = _connect_to_look(path) if read_only else _connect(path, "mode=rwc")
            ledger = cls(db, path)
            if not read_only:
                # Only heeded in a new file: pages that pruning has freed can go back to the file system.
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                # Every page written costs two system calls; a page that many transactions touch is
                # written back once per checkpoint, so checkpoints are rare.
                db.execute("PRAGMA wal_autocheckpoint = 4000")
                db.execute("PRAGMA journal_size_limit = 67108864")
            ledger._migrate(read_only)
            ledger._place = place_of(path)
        except sqlite3.OperationalError as error:
            if read_only:
                raise LedgerDamaged(f"{path}: {error}") from error
            # A full disk, a lock, a missing permission: the file itself may be well.
            raise Stop(f"{path}: {error}; free some space or make it writable, then start again") from error
        except sqlite3.DatabaseError as error:
            raise LedgerDamaged(f"{path}: {error}") from error
        return ledger

    def _migrate(self, read_only: bool) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise SettingsError(
                str(self.path),
                "version",
                f"written by a newer kernel-gamma (schema {version})",
                "upgrade, or restore",
            )
        if read_only:
            return
        for number, (name, migrate) in enumerate(MIGRATIONS, 1):
            if number > version:
                with self.transaction(full=True):
                    migrate(self._db)
                    self._db.execute(f"PRAGMA user_version = {number}")
                    self.run("set_meta", f"migration {number}", name)

    def take_over(self) -> int:
        """Raise the boot number: commits of any older process are refused from here on."""
        with self.transaction(full=True):
            row = self.one("fence")
            self.boot = (int(row[0]) if row else 0) + 1
            self.run("set_meta", "boot", str(self.boot))
        return self.boot

    @contextmanager
    def transaction(self, *, full: bool) -> Iterator[None]:
        """One write transaction; `full` = fsynced before it returns. Raises Fenced if another took over."""
        if full != self._full:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full
        self._db.execute("BEGIN IMMEDIATE")
        self.serial += 1
        try:
            if self.boot:
                self._check_fence()
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has rolled back already
                self._db.execute("ROLLBACK")
            raise

    def check_place(self) -> None:
        """Raises Fenced when the file is not at its path any more: another daemon may have begun anew."""
        try:
            found = place_of(self.path)
        except OSError:
            return  # it cannot be looked at just now, which says nothing
        if found != self._place:
            raise Fenced(
                f"{self.path}: it was {'replaced' if found else 'removed'} while this daemon ran on it;"
                " start again, and what is still pending is taken up"
            )

    def _check_fence(self) -> None:
        self.check_place()
        row = self.one("fence")
        if row is None or int(row[0]) != self.boot:
            raise Fenced(f"{self.path}: another daemon has taken over this mind")

    def run(self, name: str, *values: object) -> int:
        """Execute a named statement; returns the last row id."""
        return self._db.execute(self._sql[name], values).lastrowid or 0

    def run_many(self, name: str, rows: Sequence[Row]) -> None:
        """Execute a named statement for each row."""
        self._db.executemany(self._sql[name], rows)

    def one(self, name: str, *values: object) -> Row | None:
        """The first row of a named query."""
        row: Row | None = self._db.execute(self._sql[name], values).fetchone()
        return row

    def all(self, name: str, *values: object) -> list[Row]:
        """All rows of a named query."""
        return self._db.execute(self._sql[name], values).fetchall()

    def close(self) -> None:
        """Close the connection; nothing is pending outside transactions."""
        self._db.close()
