"""Waiting for room on a full disk before anything is opened there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from kernel_gamma.bus.writer import is_disk_full

__all__ = ["ROOM_BYTES", "wait_for_room"]

log = structlog.get_logger(__name__)

ROOM_BYTES = 262_144
"""A disk with less room than this is full still: the next commit would only fail again."""

_FIRST_SEC = 0.5
_LONGEST_SEC = 5.0
_PROBE = ".room.tmp"


def wait_for_room(folder: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Return once `folder` takes ROOM_BYTES more; what cannot be written for another reason is let pass.

    Blocks: nothing runs yet, and a signal ends the process at once.
    """
    pause = _FIRST_SEC
    waited = False
    while error := _no_room(folder):
        if not waited:
            reason = f"{folder}: {error.strerror}; free some space and the mind goes on by itself"
            log.error("the mind waits: the disk cannot be written", reason=reason)
        waited = True
        sleep(pause)
        pause = min(pause * 2, _LONGEST_SEC)
    if waited:
        log.info("the mind goes on")


def _no_room(folder: Path) -> OSError | None:
    """The error with which the disk refuses a few more bytes; a quota tells no other way."""
    probe = folder / _PROBE
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = ROOM_BYTES
            while left:
                left -= os.write(fd, bytes(left))
        finally:
            os.close(fd)
    except OSError as error:
        return error if is_disk_full(error) else None
    finally:
        with suppress(OSError):
            probe.unlink()
    return None
