"""Linux: names straight from inotify, through watchdog's reader thread and nothing else.

watchdog's emitters pair moves (a move out of a directory holds up what follows for half a second)
and hand each event on through two more threads. A queue needs neither: it asks only what came in.
So each directory is watched by itself, for what a finished drop makes, and watchdog's `InotifyFD`
calls us with the name.

Importable on Linux only; `watcher` guards it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Literal

import structlog
from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

from kernel_gamma.bus.watcher_source import Forget, Reports

__all__ = ["InotifySource"]

log = structlog.get_logger(__name__)

_MOVED_IN = int(InotifyConstants.IN_MOVED_TO)
_IS_DIRECTORY = int(InotifyConstants.IN_ISDIR)
_GONE = int(InotifyConstants.IN_DELETE_SELF | InotifyConstants.IN_MOVE_SELF | InotifyConstants.IN_UNMOUNT)
_MASK = Mask(
    InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_ONLYDIR
)
_JOIN_SEC = 2.0


class _Callback:
    """What watchdog calls on its reader thread, for one directory.

    Lets no exception out: it would end that thread for every directory.
    """

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    def on_event(self, event: InotifyEvent) -> None:
        try:
            mask = event.mask
            if mask & _GONE:
                self._reports.gone()
            elif not mask & _IS_DIRECTORY:
                self._reports.named(event.name, "moved_in" if mask & _MOVED_IN else "closed")
        except Exception:
            log.exception("a notification was dropped")

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        try:
            self._reports.gone()
        except Exception:
            log.exception("a notification was dropped")

    def on_queue_overflow(self) -> None:
        try:
            self._reports.overflowed()
        except Exception:
            log.exception("a notification was dropped")

    def on_events_lost(self) -> None:
        """Called after every `on_queue_overflow`, which has told it already."""


class InotifySource:
    """One inotify instance and its reader thread."""

    mode: Literal["inotify"] = "inotify"

    def __init__(self) -> None:
        """Raises OSError (EMFILE) when the user has no inotify instance left."""
        self._fd = InotifyFD()
        self._fd.start()

    def add(self, path: Path, reports: Reports) -> Forget:
        """Watch the directory `path` itself.

        Raises OSError: ENOENT, ENOTDIR, EACCES, or ENOSPC when the user has no watch left.
        """
        callback = _Callback(reports)
        callback_id = CallbackId(id(callback))
        wd = self._fd.add_callback(os.fsencode(path), _MASK, callback, callback_id)
        if wd < 0:  # watchdog passes over EACCES
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return lambda: self._fd.remove_callbacks([(wd, callback_id)])

    def alive(self) -> bool:
        return self._fd.is_alive()

    def close(self) -> None:
        self._fd.stop()
        self._fd.join(_JOIN_SEC)
