"""The lock in a home that was just laid out: what is shipped is approved, what a person had is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from kernel_gamma.truths.static.approvals import FIRST_START, files_on_disk, sha256_of
from kernel_gamma.truths.static.lock import Approval, Lock, read_lock, write_lock
from kernel_gamma.truths.static.places import LOCK_FILE, Places

__all__ = ["settle_lock"]


def settle_lock(
    home: Path, written: Sequence[Path], shipped: Path, places: Places, now: datetime, *, remembered: bool
) -> list[Path]:
    """Make the lock of `home` fit what `lay_out` has `written` from the folder `shipped`; returns what is
    written now.

    A new lock approves what is shipped as shipped, and files that were there before as they stand. Where the
    memory store is `remembered` (memory.db is there) it knows better: the lock is left to be restored from
    it. A lock that was there gets entries for shipped files that are new in it.

    Raises SettingsError, OSError.
    """
    lock_file = home / LOCK_FILE
    defaults = read_lock(shipped)
    if defaults is None:
        return list(written)
    here = {file: sha256_of(raw) for file, raw in files_on_disk(home, places).items() if raw is not None}
    if lock_file in written:
        if remembered:
            lock_file.unlink()
            return [path for path in written if path != lock_file]
        own = {file: Approval.of(sha256, FIRST_START, now) for file, sha256 in here.items()}
        entries = {f: _shipped(defaults, f, sha256) or own[f] for f, sha256 in here.items()}
        _write(home, Lock(entries), defaults)
        return list(written)
    lock = read_lock(home)
    if lock is None:
        return list(written)
    changed = lock
    for path in written:
        file = path.relative_to(home).as_posix()
        approval = _shipped(defaults, file, here.get(file))
        if approval is not None and file not in lock.files:
            changed = changed.with_file(file, approval)
    _write(home, changed, lock)
    return list(written)


def _shipped(defaults: Lock, file: str, sha256: str | None) -> Approval | None:
    approval = defaults.files.get(file)
    return approval if approval is not None and approval.sha256 == sha256 else None


def _write(home: Path, lock: Lock, standing: Lock) -> None:
    if lock != standing:
        write_lock(home, lock)
