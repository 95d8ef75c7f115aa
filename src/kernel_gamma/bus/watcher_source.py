"""Where names come from: the seam of the watcher, and watchdog's own observer behind it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import structlog
from watchdog.events import (
    DirDeletedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

__all__ = ["ArrivalKind", "Forget", "ObserverSource", "Reports", "Source"]

log = structlog.get_logger(__name__)

ArrivalKind = Literal["moved_in", "closed", "created"]

Forget: TypeAlias = Callable[[], None]
"""Ends the watch of one directory; harmless when the directory is gone already."""

_JOIN_SEC = 2.0


class Reports(Protocol):
    """Who is told about one directory, on a thread of the source."""

    def named(self, name: bytes | str, kind: ArrivalKind) -> None:
        """A file of this name was put or finished there."""
        ...

    def gone(self) -> None:
        """The directory was deleted, renamed or unmounted."""
        ...

    def overflowed(self) -> None:
        """An unknown number of names was lost."""
        ...


class Source(Protocol):
    """One way to be notified. Made started; every method but `close` is for a living one."""

    @property
    def mode(self) -> Literal["inotify", "observer"]: ...

    def add(self, path: Path, reports: Reports) -> Forget:
        """Watch the directory `path` itself, not what lies below. Raises OSError."""
        ...

    def alive(self) -> bool:
        """Whether every thread that names pass through still runs."""
        ...

    def close(self) -> None:
        """End all threads; no report comes after it."""
        ...


class _Handler(FileSystemEventHandler):
    """Turns watchdog's events of one directory into reports.

    Lets no exception out: it would end the observer's thread for every directory.
    """

    def __init__(self, path: Path, reports: Reports) -> None:
        self._reports = reports
        self._path = os.path.realpath(path)

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            self._report(event)
        except Exception:
            log.exception("a notification was dropped")

    def _report(self, event: FileSystemEvent) -> None:
        if isinstance(event, FileMovedEvent):
            self._arrived(os.fsdecode(event.dest_path), "moved_in")
        elif isinstance(event, FileCreatedEvent):
            self._arrived(os.fsdecode(event.src_path), "created")
        elif isinstance(event, FileClosedEvent):
            self._arrived(os.fsdecode(event.src_path), "closed")
        elif isinstance(event, DirDeletedEvent) and self._is_ours(os.fsdecode(event.src_path)):
            self._reports.gone()

    def _is_ours(self, path: str) -> bool:
        return os.path.realpath(path) == self._path

    def _arrived(self, path: str, kind: ArrivalKind) -> None:
        # A move out of the directory is told here too; its destination is another directory.
        folder, name = os.path.split(path)
        if self._is_ours(folder):
            self._reports.named(name, kind)


class ObserverSource:
    """watchdog's observer of this platform (FSEvents, kqueue), where the narrow one is not to be had."""

    mode: Literal["observer"] = "observer"

    def __init__(self) -> None:
        self._observer = Observer()
        self._observer.start()

    def add(self, path: Path, reports: Reports) -> Forget:
        handler = _Handler(path, reports)
        watch = self._observer.schedule(
            handler,
            str(path),
            event_filter=[FileMovedEvent, FileCreatedEvent, FileClosedEvent, DirDeletedEvent],
            follow_symlink=True,
        )

        def forget() -> None:
            try:
                self._observer.unschedule(watch)
            except KeyError:  # its emitter has ended with its directory
                log.debug("the watch had ended", path=str(path))

        return forget

    def alive(self) -> bool:
        observer = self._observer
        return observer.is_alive() and all(emitter.is_alive() for emitter in observer.emitters)

    def close(self) -> None:
        self._observer.stop()
        self._observer.join(_JOIN_SEC)
