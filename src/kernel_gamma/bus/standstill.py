"""A moment at which nothing is half done: a backup asks for it, the daemon's writer stands still meanwhile.

Two locks beside the ledger. The writer passes a turnstile before each group of commits and holds the second
lock until their effects stand. Whoever wants a standstill closes the turnstile, then waits for the second.
The kernel lets go of both when a process ends, so that no dead backup keeps a mind waiting.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_gamma.errors import KernelError

__all__ = ["LOCKS", "Gate", "NoStandstill", "standstill"]

LOCKS = ("standstill.lock", "commits.lock")
_PATIENCE_SEC = 30.0
_LOOK_SEC = 0.002
_CLOSED_SEC = 0.02


class NoStandstill(KernelError):
    """The daemon did not stop between two commits in time."""


class Gate:
    """The writer's side; used by one thread at a time. Where no lock can be had it stands open."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fds: list[int] = []

    def enter(self) -> bool:
        """Whether commits may be made now; `leave` after them. Never waits."""
        if not self._fds:
            try:
                self._fds = [_open(self._root / name) for name in LOCKS]
            except OSError:
                return True
        turnstile, commits = self._fds
        if not _try(turnstile, fcntl.LOCK_SH):
            return False
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        return _try(commits, fcntl.LOCK_SH)

    async def wait(self) -> None:
        """`enter` as soon as it is possible."""
        while not self.enter():  # noqa: ASYNC110 - another process opens it: nobody can tell us
            await asyncio.sleep(_CLOSED_SEC)

    def leave(self) -> None:
        """The effects stand."""
        if self._fds:
            fcntl.flock(self._fds[1], fcntl.LOCK_UN)

    def close(self) -> None:
        """No more commits."""
        for fd in self._fds:
            with suppress(OSError):
                os.close(fd)
        self._fds = []


@contextmanager
def standstill(root: Path) -> Iterator[None]:
    """While the block runs no commit is made or applied in this data directory, by whichever process.

    Raises NoStandstill after half a minute, OSError where the locks cannot be made.
    """
    held: list[int] = []
    until = time.monotonic() + _PATIENCE_SEC
    try:
        for name in LOCKS:
            held.append(_open(root / name))
            while not _try(held[-1], fcntl.LOCK_EX):
                if time.monotonic() > until:
                    raise NoStandstill(
                        f"{root}: another backup is being made, or the daemon hangs; try again"
                    )
                time.sleep(_LOOK_SEC)
        yield
    finally:
        for fd in held:
            os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _try(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        # anything else: a file system without locks
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
