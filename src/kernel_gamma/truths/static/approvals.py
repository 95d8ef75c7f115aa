"""What was approved, from all places that know it: the lock, the files, the memory store.

Approved bytes lie in the store under `static.<slug>.<first 16 hex of their SHA-256>`, a copy of the lock
under `static.lock`. What is read from the store counts only if its SHA-256 is the approved one, and the copy
of the lock only in a version that this program wrote (`trust` owner: writers over HTTP are never that).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import structlog

from kernel_gamma.configuration import defaults_dir
from kernel_gamma.contracts.context import Drift
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock, TruthStore
from kernel_gamma.contracts.truths import NewTruth, Truth
from kernel_gamma.errors import SettingsError, TruthLocked
from kernel_gamma.truths.static.lock import (
    Approval,
    Lock,
    alone,
    parse_lock,
    put_file,
    read_lock,
    read_static,
    write_lock,
)
from kernel_gamma.truths.static.places import LOCK_FILE, Places, slug_of

__all__ = [
    "FIRST_START",
    "Approvals",
    "Found",
    "Settled",
    "drift_between",
    "files_on_disk",
    "sha256_of",
    "written_by_us",
]

log = structlog.get_logger(__name__)

FIRST_START: Final = "first start"
"""Who approved what stood there when there was no lock yet."""
_LOCK_KEY = "static.lock"

Found = Mapping[str, bytes | None]
"""File → its bytes as they stand on the disk; None when it cannot be read."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The lock, and where it came from."""

    lock: Lock
    how: Literal["file", "restored", "first start"]


class Approvals:
    """The approvals of one home."""

    def __init__(self, home: Path, places: Places, store: TruthStore, clock: Clock) -> None:
        self.home = home
        self.places = places
        self._store = store
        self._clock = clock

    # The files

    def on_disk(self) -> dict[str, bytes | None]:
        """Every static truth that stands in the home."""
        return files_on_disk(self.home, self.places)

    def signs(self) -> tuple[object, ...]:
        """What changes when a file or the lock changes; costs a few calls of stat."""
        files = (LOCK_FILE, *_files(self.home, self.places))
        return tuple((file, _sign(self.home / file)) for file in files)

    # The lock

    def settled(self) -> Settled | None:
        """The lock of the home, else the store's copy of it; None when nothing was ever approved here.

        Raises SettingsError for a lock that cannot be understood, TruthError when the store cannot be read.
        """
        lock = read_lock(self.home)
        if lock is not None:
            return Settled(lock, "file")
        copy = self._copy_of_lock()
        return None if copy is None else Settled(copy, "restored")

    def settle(self, check: Callable[[Mapping[str, bytes]], object]) -> Settled:
        """The same, and what was missing is written: the lock as it was, or one that approves the files as
        they stand, once `check` has taken them (it raises SettingsError)."""
        if (found := self.settled()) is not None and found.how == "file":
            return found
        with alone(self.home):
            found = self.settled()
            if found is None:
                files = {file: raw for file, raw in self.on_disk().items() if raw is not None}
                files = files or self._lay_out()
                check(files)
                now = self._clock.now()
                entries = {f: Approval.of(sha256_of(raw), FIRST_START, now) for f, raw in files.items()}
                found = Settled(Lock(entries), FIRST_START)
                self.keep(found.lock, files)
            if found.how != "file":
                self._write(found.lock)
        return found

    def _lay_out(self) -> dict[str, bytes]:
        """The shipped static truths, put into a home that was laid out before there were any."""
        shipped = files_on_disk(defaults_dir(), self.places)
        files = {file: raw for file, raw in shipped.items() if raw is not None}
        for file, raw in files.items():
            try:
                put_file(self.home / file, raw)
            except OSError as error:  # as above: the store's bytes serve
                log.warning("a static truth was not laid out", file=file, error=str(error))
        if files:
            log.info("this home had no static truths: the shipped ones were laid out", files=len(files))
        return files

    def _write(self, lock: Lock) -> None:
        try:
            write_lock(self.home, lock)
        except OSError as error:  # a home that is mounted read-only: the store's copy serves
            log.warning("the lock of the static truths was not written", file=LOCK_FILE, error=str(error))

    def _copy_of_lock(self) -> Lock | None:
        for truth in reversed(self._store.versions(_LOCK_KEY)):
            if written_by_us(truth):
                try:
                    return parse_lock(truth.value, _LOCK_KEY)
                except SettingsError as error:
                    log.warning("a copy of the lock is no lock", version=truth.version, error=str(error))
        return None

    # The bytes

    def approved(
        self, lock: Lock, found: Found, known: Mapping[str, bytes] | None = None
    ) -> dict[str, bytes]:
        """The approved bytes of every file in the lock: from the disk, from `known`, from the store.

        Files that are no static truths any more (static.paths moved) are left out. Raises SettingsError when
        approved bytes are nowhere to be had.
        """
        files: dict[str, bytes] = {}
        for file, approval in lock.files.items():
            if self.places.section_of(file) is None:
                continue
            here = (found.get(file), (known or {}).get(file))
            raw = next((raw for raw in here if raw is not None and sha256_of(raw) == approval.sha256), None)
            raw = self.bytes_of(file, approval.sha256) if raw is None else raw
            if raw is None:
                raise self._nowhere(file, approval)
            files[file] = raw
        return files

    def bytes_of(self, file: str, sha256: str) -> bytes | None:
        """Bytes of that SHA-256 that were kept in the store, or are shipped; None when there are none."""
        kept = self._kept(file, sha256)
        if kept is not None:
            return kept
        shipped = _shipped(file)
        return shipped if shipped is not None and sha256_of(shipped) == sha256 else None

    def _kept(self, file: str, sha256: str) -> bytes | None:
        for truth in reversed(self._store.versions(_bytes_key(file, sha256))):
            text = truth.value.get("text") if isinstance(truth.value, dict) else None
            if isinstance(text, str):
                raw = text.encode("utf-8", "replace")
                if sha256_of(raw) == sha256:
                    return raw
        return None

    def keep(self, lock: Lock, files: Mapping[str, bytes]) -> None:
        """Keep approved bytes and the lock in the store, where they are not there yet. Raises TruthError."""
        self.keep_bytes(lock, files)
        standing = self._store.get(_LOCK_KEY)
        document = lock.as_json()
        if standing is None or not written_by_us(standing) or standing.value != document:
            self._put(_LOCK_KEY, document, "who approved which static truths")

    def keep_bytes(self, lock: Lock, files: Mapping[str, bytes]) -> None:
        """The same, without the lock."""
        for file, raw in files.items():
            sha256 = sha256_of(raw)
            if self._kept(file, sha256) is None:
                self._keep_bytes(file, sha256, raw, lock.files.get(file))

    def _keep_bytes(self, file: str, sha256: str, raw: bytes, approval: Approval | None) -> None:
        value: dict[str, Json] = {
            "file": file,
            "sha256": sha256,
            "text": raw.decode(),
        }
        if approval is not None:
            value |= {"approved_by": approval.approved_by, "approved_at": approval.approved_at}
        self._put(_bytes_key(file, sha256), value, f"approved bytes of {file}", locked=True)

    def _put(self, key: str, value: dict[str, Json], description: str, *, locked: bool = False) -> None:
        new = NewTruth(key=key, value=value, description=description, locked=locked or None, trust="owner")
        try:
            self._store.upsert(new)
        except TruthLocked as error:
            log.warning("a truth of the static truths was locked by somebody", key=key, error=str(error))

    def _nowhere(self, file: str, approval: Approval) -> SettingsError:
        problem = (
            f"is not as {approval.approved_by} approved it ({approval.sha256[:12]}), "
            "and the approved bytes are nowhere to be had"
        )
        mend = f"put it back, or run `kgamma static propose {file}`, then `kgamma static approve ID`"
        return SettingsError(file, "sha256", problem, mend)


def files_on_disk(home: Path, places: Places) -> dict[str, bytes | None]:
    """Every static truth that stands in a home; None where it cannot be read."""
    found: dict[str, bytes | None] = {}
    for file in _files(home, places):
        with suppress(FileNotFoundError):
            found[file] = read_static(home / file)
    return found


def _files(home: Path, places: Places) -> Iterator[str]:
    yield from places.single_files()
    for folder in places.folders():
        try:
            with os.scandir(home / folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            continue
        yield from (f"{folder}/{name}" for name in names if places.section_of(f"{folder}/{name}"))


def drift_between(lock: Lock, found: Found, places: Places) -> list[Drift]:
    """Files that are not as they were approved, by name."""
    drift: list[Drift] = []
    names = sorted({*found, *(file for file in lock.files if places.section_of(file) is not None)})
    for file in names:
        approval, raw = lock.files.get(file), found.get(file)
        sha256 = None if raw is None else sha256_of(raw)
        approved = None if approval is None else approval.sha256
        if file not in found:
            kind: Literal["changed", "missing", "new", "unreadable"] = "missing"
        elif raw is None:
            kind = "unreadable"
        elif approval is None:
            kind = "new"
        elif sha256 != approved:
            kind = "changed"
        else:
            continue
        drift.append(Drift(file=file, kind=kind, approved_sha256=approved, found_sha256=sha256))
    return drift


def sha256_of(raw: bytes) -> str:
    """Hexadecimal."""
    return hashlib.sha256(raw).hexdigest()


def written_by_us(truth: Truth) -> bool:
    """Whether this program wrote it, or its owner at the shell: over HTTP nobody can."""
    return truth.trust == "owner"


def _shipped(file: str) -> bytes | None:
    """What this program brings along: approved as long as nobody approved other bytes."""
    try:
        return read_static(defaults_dir() / file)
    except (FileNotFoundError, SettingsError):
        return None


def _bytes_key(file: str, sha256: str) -> str:
    return f"static.{slug_of(file)}.{sha256[:16]}"


def _sign(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode
