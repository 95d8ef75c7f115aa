"""The process that holds a mind: found by the lock itself, asked to end, waited for.

The number in `daemon.json` is only a hint. A process that was killed may have left it, and the number may
by now be that of a stranger.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kernel_gamma.bus.lock import HOLDER_FILE, LOCK_FILE, holder

__all__ = ["HoldingProcess", "holding_process"]

_LOOK_EVERY_SEC = 0.05
_PROCESSES = Path("/proc")


class HoldingProcess:
    """A process known to hold the lock. `close` it in the end."""

    def __init__(self, data: Path, pid: int, handle: int | None) -> None:
        self.pid = pid
        self._data = data
        self._handle = handle

    def ask_to_end(self) -> None:
        """SIGTERM; nobody else gets it, should the process just have ended. Raises PermissionError."""
        with suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)

    def ended(self, within_sec: float) -> bool:
        """Wait until it has ended, or, where that cannot be seen, until it holds the mind no more."""
        if self._handle is not None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            return bool(poll.poll(int(within_sec * 1000)))
        deadline = time.monotonic() + within_sec
        while (held := holder(self._data)) is not None and held.get("pid") in (self.pid, None):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_EVERY_SEC)
        return True

    def close(self) -> None:
        """No more questions."""
        if self._handle is not None:
            os.close(self._handle)


def holding_process(data: Path) -> HoldingProcess | None:
    """Who holds the lock of this data directory; None if nobody does, or nobody that can be seen."""
    if holder(data) is None:
        return None
    for pid in dict.fromkeys((*_named(data), *_all())):
        try:
            handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        except OSError:
            continue
        # Looked at after the handle was opened: the number cannot pass to another process any more.
        if _holds(pid, data / LOCK_FILE):
            return HoldingProcess(data, pid, handle)
        if handle is not None:
            os.close(handle)
    return None


def _named(data: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        pid = json.loads((data / HOLDER_FILE).read_text()).get("pid")
        if isinstance(pid, int) and pid > 0:
            yield pid


def _all() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(path.name) for path in _PROCESSES.iterdir() if path.name.isdigit())


def _holds(pid: int, lock: Path) -> bool:
    """Whether one of its open files is the lock file, with a lock on it."""
    if not (_PROCESSES / "self/fdinfo").is_dir():
        return True  # a system without /proc: the lock is held, and this is the number its holder wrote
    try:
        wanted = lock.stat()
        for opened in (_PROCESSES / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(opened.stat(), wanted) and "FLOCK" in _told(pid, opened.name):
                    return True
    except OSError:
        return False
    return False


def _told(pid: int, descriptor: str) -> str:
    return (_PROCESSES / str(pid) / "fdinfo" / descriptor).read_text()
