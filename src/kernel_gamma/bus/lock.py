"""One daemon per data directory: a lock on a file that is never removed, and who holds it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock

from kernel_gamma.errors import KernelError

__all__ = ["Held", "hold", "holder", "let_go"]

LOCK_FILE = "daemon.lock"
HOLDER_FILE = "daemon.json"
_LOCK_WAIT_SEC = 0.3


class Held(KernelError):
    """Another daemon holds the mind; `str()` says who."""


def hold(data: Path) -> filelock.FileLock:
    """Lock the data directory for this process. The lock file is never removed; the pid is information only.

    Raises Held when another process has it.
    """
    data.mkdir(parents=True, exist_ok=True)
    # Somebody who only asks for the holder has the lock for an instant.
    lock = filelock.FileLock(data / LOCK_FILE, timeout=_LOCK_WAIT_SEC)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        who = holder(data)
        whom = f"process {who['pid']}" if who else "another process"
        raise Held(
            f"{data}: this mind is held by {whom}; stop it first (kgamma status tells more)"
        ) from error
    (data / HOLDER_FILE).write_text(json.dumps({"pid": os.getpid()}) + "\n")
    return lock


def holder(data: Path) -> dict[str, Any] | None:
    """Who holds the mind right now; None if nobody does."""
    if not (data / LOCK_FILE).exists():
        return None
    lock = filelock.FileLock(data / LOCK_FILE, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        try:
            found: dict[str, Any] = json.loads((data / HOLDER_FILE).read_text())
        except (OSError, ValueError):
            return {"pid": None}
        return found
    lock.release()
    return None


def let_go(data: Path, lock: filelock.BaseFileLock) -> None:
    """The orderly end of `hold`."""
    with suppress(OSError):
        (data / HOLDER_FILE).unlink()
    lock.release()
