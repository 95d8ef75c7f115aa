"""A backup of a mind that may be alive: consistent, because its bus stands still while what moves is copied.

    standing still    both databases are pinned (a read transaction each), queues and pages are copied,
                      what never changes once it is written (done/, dead_letter/, old pages) is listed
    going on          the pinned databases are copied and checked, all is packed, the file is read again

So the copy is the mind of one moment: each event is in one place, each effect stands or is in the ledger.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import kernel_gamma
from kernel_gamma.backup.archive import BadBackup, Manifest, PackedFile, pack, read
from kernel_gamma.bus.ledger import MIGRATIONS
from kernel_gamma.bus.standstill import standstill
from kernel_gamma.configuration import Home
from kernel_gamma.settings import Settings

__all__ = ["take_backup"]

DATABASES = ("ledger.db", "memory.db")
_LEFT_OUT = frozenset({"logs", "metrics", "daemon.json", "daemon.lock", "flights.log"})
"""Of this process and this machine."""
_UNFINISHED = (".tmp", ".part", ".swp", "~", ".lock")
_SETTLED = frozenset({"done", "dead_letter", ".history"})
"""Folders whose files are written once and never changed."""
_OF_THE_HOME = ("config", "prompts")


@dataclass(slots=True)
class _Still:
    """What a standstill has found."""

    databases: dict[str, sqlite3.Connection] = field(default_factory=dict)
    copied: list[PackedFile] = field(default_factory=list)
    settled: list[PackedFile] = field(default_factory=list)


def take_backup(
    home: Path, settings: Settings, target: Path, now: datetime, *, with_config: bool = True
) -> Manifest:
    """Write a checked backup; `target` is complete or not there. Returns its manifest.

    Raises BadBackup when `target` is there or what was written cannot be read again, NoStandstill, OSError.
    """
    if os.path.lexists(target):
        raise BadBackup(f"{target}: is there already; name another file")
    data = Home(home).data_dir(settings)
    if not data.is_dir():
        raise BadBackup(f"{data}: there is no mind here yet, so there is nothing to back up")
    if target.resolve().is_relative_to(data.resolve()):
        raise BadBackup(f"{target}: lies in the folder that is backed up; name a file elsewhere")
    half = target.with_name(f".{target.name}.tmp")
    with suppress(FileNotFoundError):
        half.unlink()
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        parts = Path(folder)
        still = _Still()
        try:
            with standstill(data):
                _look(data, parts, still)
            copies = [_copy_database(name, db, parts) for name, db in still.databases.items()]
        finally:
            for db in still.databases.values():
                db.close()
        head = {
            "version": kernel_gamma.__version__,
            "mind": settings.mind,
            "time": now.isoformat(),
            "ledger_schema": len(MIGRATIONS),
        }
        of_home = _home_files(home) if with_config else iter(())
        try:
            pack(half, iter([*copies, *still.copied, *of_home, *still.settled]), head)
            manifest = read(half)
            half.rename(target)
        finally:
            with suppress(FileNotFoundError):
                half.unlink()
    return manifest


def _look(data: Path, parts: Path, still: _Still) -> None:
    for name in DATABASES:
        if (data / name).exists():
            still.databases[name] = _pinned(data / name)
    number = 0
    for path in _walk(data, ""):
        if _is_settled(path):
            continue
        copy = parts / str(number)
        number += 1
        try:
            shutil.copy2(data / path, copy, follow_symlinks=False)
        except FileNotFoundError:
            continue  # somebody outside took it: it is among what was taken, which is listed later
        still.copied.append(PackedFile(f"data/{path}", copy))
    settled = {path for path in _walk(data, "") if _is_settled(path)}
    still.settled = [PackedFile(f"data/{path}", data / path, may_vanish=True) for path in sorted(settled)]
    taken = {f"data/{path.replace('/done/', '/')}" for path in settled if path.startswith("outbox/")}
    still.copied = [file for file in still.copied if file.path not in taken]


def _is_settled(path: str) -> bool:
    return not _SETTLED.isdisjoint(path.split("/")[:-1]) and not path.startswith(
        ("self/stream", "self/diary")
    )


def _walk(root: Path, below: str) -> Iterator[str]:
    """Regular files, as paths below `root`; nothing unfinished, hidden or of this process alone."""
    try:
        with os.scandir(root / below) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in entries:
        path = f"{below}/{entry.name}".lstrip("/")
        if not below and (entry.name in _LEFT_OUT or entry.name.startswith(DATABASES)):
            continue
        if entry.name.startswith(".") and entry.name not in (".history", ".approved"):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path)
        elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(_UNFINISHED):
            yield path


def _home_files(home: Path) -> Iterator[PackedFile]:
    """Settings, prompts and the nodes and tools of the home; never .env, which holds keys."""
    for folder in _OF_THE_HOME:
        for path in _walk(home / folder, ""):
            yield PackedFile(f"home/{folder}/{path}", home / folder / path)
    for module in sorted(home.glob("*.py")):
        if module.is_file() and not module.is_symlink():
            yield PackedFile(f"home/{module.name}", module)


def _pinned(path: Path) -> sqlite3.Connection:
    """A connection that sees this moment until it is closed, whatever is written meanwhile."""
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return db


def _copy_database(name: str, db: sqlite3.Connection, parts: Path) -> PackedFile:
    copy = parts / name
    with closing(sqlite3.connect(copy)) as out:
        db.backup(out)
        (said,) = out.execute("PRAGMA quick_check(1)").fetchone()
        out.execute("PRAGMA journal_mode = DELETE")
    if said != "ok":
        raise BadBackup(f"{name}: is damaged ({said}); `kgamma doctor` tells more, `kgamma rebuild` mends it")
    return PackedFile(f"data/{name}", copy)
