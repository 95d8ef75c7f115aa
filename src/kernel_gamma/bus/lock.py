"""One daemon per data directory: a lock on a file that is never removed, and who holds it."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock

from kernel_gamma.errors import KernelError, Stop

__all__ = ["LOCK_FILE", "Held", "hold", "holder", "let_go"]

LOCK_FILE = "daemon.lock"
HOLDER_FILE = "daemon.json"
_LOCK_WAIT_SEC = 0.3


class Held(KernelError):
    """Another daemon holds the mind; `str()` says who."""

    exit_code = 3
    """Of a command that meets it (docs/runtime.md)."""


def hold(data: Path) -> filelock.FileLock:
    """Lock the data directory for this process. The lock file is never removed; the pid is information only.

    Raises Held when another process has it, Stop when the directory cannot be written.
    """
    # Somebody who only asks for the holder has the lock for an instant.
    lock = filelock.FileLock(data / LOCK_FILE, timeout=_LOCK_WAIT_SEC)
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        who = holder(data)
        whom = f"process {who['pid']}" if who else "another process"
        raise Held(
            f"{data}: this mind is held by {whom}; stop it first (kgamma status tells more)"
        ) from error
    except OSError as error:
        raise Stop(
            f"{data}: cannot be written: {error.strerror}; make it writable, then start again"
        ) from error
    with suppress(OSError):  # information only: a full disk does not keep a mind from waiting for room
        (data / HOLDER_FILE).write_text(json.dumps({"pid": os.getpid()}) + "\n")
    return lock


def holder(data: Path) -> dict[str, Any] | None:
    """Who holds the mind right now; None if nobody does."""
    try:
        fd = os.open(data / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)  # a read-only disk can be asked too
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            found: dict[str, Any] = json.loads((data / HOLDER_FILE).read_text())
        except (OSError, ValueError):
            return {"pid": None}
        return found
    finally:
        os.close(fd)
    return None


def let_go(data: Path, lock: filelock.BaseFileLock) -> None:
    """The orderly end of `hold`."""
    with suppress(OSError):
        (data / HOLDER_FILE).unlink()
    lock.release()
