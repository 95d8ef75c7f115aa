"""Truths out of a store and into one: JSON Lines for people and other programs, verified copies of the file.

A line of an export is one truth: `key`, `value`, `category`, `description`, `timestamp`, `version`, `locked`,
`trust`, `written_at`, `sha256`, `prev_sha256`, and on request `versions`, the older ones, oldest first.
Of a line to import `key` and `value` are needed; its time is now when there is none. Links of the hash chain
are not imported: the store that takes a record in seals it anew. The mind's own past (stream, diary, memory)
is neither exported nor imported, since it is an index of its pages.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, get_args

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import json_kind
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.contracts.truths import SELF_CATEGORIES, NewTruth, Truth, category_of, check_key
from kernel_gamma.errors import BadTruth, SettingsError, StoreDamaged, StoreFull, TruthLocked, VersionConflict
from kernel_gamma.queries import load_queries
from kernel_gamma.truths.chain import Broken, Link, first_broken
from kernel_gamma.truths.database import MIGRATIONS
from kernel_gamma.truths.rows import micros
from kernel_gamma.truths.store import SqliteTruths
from kernel_gamma.truths.tombstones import sealed_by_tombstones
from kernel_gamma.truths.writing import Limits

__all__ = ["CheckedCopy", "ImportReport", "backup", "check_copy", "export_jsonl", "import_jsonl"]

_BATCH = 200
_LARGEST_LINE = 64 << 20
_MOST_LISTED = 1000


@dataclass(slots=True)
class ImportReport:
    """What became of the lines of an import."""

    added: int = 0
    same: int = 0
    """Already there with the same content."""
    own_past: int = 0
    """Of the mind's own past: left out."""
    conflict_count: int = 0
    bad_count: int = 0
    conflicts: list[tuple[int, str]] = field(default_factory=list)
    """(line, key) of the first thousand whose key stands with another content: left as it stands."""
    bad: list[tuple[int, str]] = field(default_factory=list)
    """(line, what is wrong with it) of the first thousand that cannot be taken in."""

    def add_conflict(self, line: int, key: str) -> None:
        self.conflict_count += 1
        if len(self.conflicts) < _MOST_LISTED:
            self.conflicts.append((line, key))

    def add_bad(self, line: int, reason: str) -> None:
        self.bad_count += 1
        if len(self.bad) < _MOST_LISTED:
            self.bad.append((line, reason))


@dataclass(frozen=True, slots=True)
class CheckedCopy:
    """A file that was found to be a whole memory.db."""

    schema: int
    truths: int
    links: int
    """Of the hash chain, all of which fit."""
    forgotten: int = 0
    """Of these links as many are of forgotten records: a tombstone stands for them."""


# JSON Lines


def export_jsonl(store: SqliteTruths, out: BinaryIO, *, versions: bool = False) -> int:
    """Write every standing truth, oldest first, with its older versions if asked; returns how many.

    Others may write meanwhile: what came after the beginning may be among them or not.
    """
    count = 0
    for truth in store.each():
        if truth.category in SELF_CATEGORIES:
            continue
        line = _document(truth)
        if versions:
            line["versions"] = [_document(old) for old in store.versions(truth.key)[:-1]]
        out.write(_encode(line))
        count += 1
    return count


def _document(truth: Truth) -> dict[str, Json]:
    return {
        "key": truth.key,
        "value": truth.value,
        "category": truth.category,
        "description": truth.description,
        "timestamp": truth.timestamp.isoformat(),
        "version": truth.version,
        "locked": truth.locked,
        "trust": truth.trust,
        "written_at": truth.written_at.isoformat(),
        "sha256": truth.sha256,
        "prev_sha256": truth.prev_sha256,
    }


def _encode(line: Mapping[str, Json]) -> bytes:
    try:
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair stays the escape it was
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def import_jsonl(store: SqliteTruths, lines: Iterable[bytes], *, zone: tzinfo) -> ImportReport:
    """Take lines in; what is there with the same content is skipped, so a second run changes nothing.

    A key that stands with another content is a conflict and left alone. Bad lines are told by number and
    keep no other line from being taken. Times without an offset are of `zone`. Raises StoreFull and
    StoreDamaged; whole batches of lines before are in then, and the import can be run again.
    """
    importing = _Importing(store, zone)
    for number, raw in enumerate(lines, 1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if raw.strip():
            importing.take(number, raw)
    importing.flush()
    return importing.report


class _Importing:
    """One import: lines that are checked wait here for the next transaction."""

    def __init__(self, store: SqliteTruths, zone: tzinfo) -> None:
        self.report = ImportReport()
        self._store = store
        self._zone = zone
        self._waiting: dict[str, tuple[int, Sequence[NewTruth]]] = {}

    def take(self, number: int, raw: bytes) -> None:
        try:
            truths = _read_line(raw, self._zone)
        except ValueError as error:
            self.report.add_bad(number, str(error))
            return
        newest = truths[-1]
        key = str(newest.key)
        if category_of(key) in SELF_CATEGORIES:
            self.report.own_past += 1
            return
        if key in self._waiting:
            self.flush()
        if self._store.get(key) is None:
            self._waiting[key] = number, truths
            if len(self._waiting) >= _BATCH:
                self.flush()
        elif any(_is_same(newest, old) for old in self._store.versions(key)):
            self.report.same += 1
        else:
            self.report.add_conflict(number, key)

    def flush(self) -> None:
        """Write what waits: all together, and if something is in the way, line by line."""
        waiting = list(self._waiting.items())
        self._waiting.clear()
        try:
            self._store.upsert_many([truth for _, (_, truths) in waiting for truth in truths])
            self.report.added += len(waiting)
            return
        except (BadTruth, TruthLocked, VersionConflict):
            pass
        for key, (number, truths) in waiting:
            try:
                self._store.upsert_many(truths)
                self.report.added += 1
            except BadTruth as error:
                self.report.add_bad(number, str(error))
            except (TruthLocked, VersionConflict):  # somebody wrote it since we looked
                self.report.add_conflict(number, key)


def _is_same(new: NewTruth, old: Truth) -> bool:
    return (
        json.dumps(new.value, sort_keys=True) == json.dumps(old.value, sort_keys=True)
        and new.description == old.description
        and (new.timestamp is None or micros(new.timestamp) == micros(old.timestamp))
    )


def _read_line(raw: bytes, zone: tzinfo) -> list[NewTruth]:
    """The versions a line tells of, oldest first. Raises ValueError with a sentence."""
    if len(raw) > _LARGEST_LINE:
        raise ValueError(f"the line is longer than {_LARGEST_LINE} bytes")
    try:
        line = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("is nested too deeply to be read") from None
    if not isinstance(line, dict):
        raise ValueError(f"must be an object, is {json_kind(line)}")
    key, older = line.get("key"), line.get("versions", [])
    if not isinstance(key, str):
        raise ValueError("needs a key" if key is None else f"key: must be text, is {json_kind(key)}")
    check_key(key)
    if not isinstance(older, list) or not all(isinstance(old, dict) for old in older):
        raise ValueError("versions: must be a list of objects")
    versions = [_version(key, document, zone) for document in (*older, line)]
    locked = line.get("locked", False)
    if not isinstance(locked, bool):
        raise ValueError(f"locked: must be true or false, is {json_kind(locked)}")
    versions[-1] = replace(versions[-1], locked=locked or None)
    # the first must find no version: what somebody else wrote meanwhile is not written over
    versions[0] = replace(versions[0], expect_version=0)
    return versions


def _version(key: str, document: Mapping[str, Any], zone: tzinfo) -> NewTruth:
    if "value" not in document:
        raise ValueError("needs a value")
    description, trust = document.get("description", ""), document.get("trust", "unknown")
    if not isinstance(description, str):
        raise ValueError(f"description: must be text, is {json_kind(description)}")
    if len(description) > (longest := Limits().description_chars):
        raise ValueError(f"description: is longer than {longest} characters")
    if trust not in get_args(Trust):
        raise ValueError(f"trust: must be one of {', '.join(get_args(Trust))}")
    said = document.get("category", category_of(key))
    if said != category_of(key):
        raise ValueError(f"category: is {said}, but the key's is {category_of(key)}")
    timestamp = _moment(document.get("timestamp"), zone)
    return NewTruth(
        key=key, value=document["value"], description=description, timestamp=timestamp, trust=trust
    )


def _moment(said: object, zone: tzinfo) -> datetime | None:
    if said is None:
        return None
    try:
        found = datetime.fromisoformat(said if isinstance(said, str) else "")
    except ValueError:
        raise ValueError(f"timestamp: is no time like 2026-11-30T08:00:00+08:00: {said!r}") from None
    if not 1 < found.year < 9999:
        raise ValueError(f"timestamp: no year that can be kept: {found.year}")
    return found if found.tzinfo else found.replace(tzinfo=zone)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"is no JSON: {name}")


# Copies of the whole file


def backup(store: SqliteTruths, path: Path) -> CheckedCopy:
    """A consistent copy of the store while it is in use: complete and checked before it gets its name.

    Raises FileExistsError when the name is taken, and as check_copy; nothing is left behind then.
    """
    if path.exists() or path.is_symlink():
        raise FileExistsError(errno.EEXIST, "is there already; name another file", str(path))
    half = path.with_name(f".{path.name}.tmp")
    half.unlink(missing_ok=True)
    try:
        _copy(store, half)
        checked = check_copy(half)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        half.rename(path)
    finally:
        for leftover in ("", "-journal", "-wal", "-shm"):
            half.with_name(half.name + leftover).unlink(missing_ok=True)
    with suppress(OSError):  # some file systems have no folders to sync
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return checked


def _copy(store: SqliteTruths, half: Path) -> None:
    try:
        with closing(sqlite3.connect(half)) as target:
            with store.database.read() as connection:
                # in one step: a copy in several begins anew at every write of somebody else, for ever
                connection.db.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, readable where nothing can be written
    except StoreFull as error:
        raise StoreFull(f"{half.parent}: the disk is full; free some space") from error
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", "SQLITE_IOERR_WRITE"):
            raise StoreFull(f"{half.parent}: the disk is full; free some space") from error
        raise OSError(errno.EIO, f"cannot be written: {error}", str(half)) from error


def check_copy(path: Path) -> CheckedCopy:
    """Whether a file may take the place of memory.db: whole, of a schema we know, its chain unbroken.

    Raises StoreDamaged for what is no whole memory.db, SettingsError when a newer version wrote it, OSError
    when it cannot be read.
    """
    with path.open("rb"):  # the plain reason why a file cannot be read, which SQLite does not tell
        pass
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return _check(db, path)
    except sqlite3.Error as error:
        raise StoreDamaged(f"{path}: is no whole memory.db: {error}") from error


def _check(db: sqlite3.Connection, path: Path) -> CheckedCopy:
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    known = len(MIGRATIONS)
    if schema > known:
        problem = f"written by a newer kernel-gamma (schema {schema}, this one knows {known})"
        raise SettingsError(str(path), "version", problem, "upgrade, or choose an older copy")
    if not schema:
        raise StoreDamaged(f"{path}: is no memory.db: it has no schema")
    (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise StoreDamaged(f"{path}: is damaged: {verdict}")
    queries = load_queries("kernel_gamma.truths", "store.sql")
    forgotten = sealed_by_tombstones(row[0] for row in db.execute(queries["tombstones"]))
    gone: list[int] = []
    found = first_broken(_links(db, queries["chain"], gone), forgotten)
    if isinstance(found, Broken):
        where = f"link {found.link}" + (f" ({found.key})" if found.key else "")
        raise StoreDamaged(f"{path}: the hash chain breaks at {where}: {found.reason}")
    if (row := db.execute(queries["unlinked"], (found,)).fetchone()) is not None:
        raise StoreDamaged(f"{path}: the hash chain has lost link {row[1]} ({row[0]})")
    (truths,) = db.execute("SELECT count(*) FROM truths").fetchone()
    return CheckedCopy(schema, truths, found, len(gone))


def _links(db: sqlite3.Connection, query: str, gone: list[int]) -> Iterator[Link]:
    for link, sha256, key, version, description, at, value in db.execute(query):
        if key is None:
            gone.append(link)
        yield Link(link, sha256, key, version, category_of(key) if key else None, description, at, value)
