"""Notifications are hints: a lost, doubled or early one costs time, never an event.

The bus lists its directories anyway (at start, on overflow, whenever `check` says so, and at a slow
pace always). The watcher only makes it fast, and says honestly when it cannot: a directory counts
as watched once a probe file renamed into it was noticed.

Threads: a source calls `_Place` on a thread of its own; everything else, and every callback of the
bus, runs on the loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from kernel_gamma.bus.watcher_source import ArrivalKind, Forget, ObserverSource, Source

if sys.platform == "linux":
    from kernel_gamma.bus.watcher_inotify import InotifySource

__all__ = ["Hint", "HintKind", "Watcher", "ignored"]

log = structlog.get_logger(__name__)

HintKind = Literal["moved_in", "closed", "created", "gone_dir"]

PROBE_NAME = ".kgamma-probe"
_PROBES = 3
_PROBE_WAIT_SEC = 0.3
_MOST_WAITING = 20_000
"""Hints held while the loop is busy; past it a listing is cheaper."""
_TEMPORARY = (".tmp", ".part", ".filepart", ".swp", "~")


def ignored(name: str, *, queue: bool = True) -> bool:
    """Whether a file of this name is another program's unfinished business.

    `queue`: the directory takes JSON files only. The rename to the final name is the drop.
    """
    if name.startswith("."):
        return True
    lower = name.lower()
    return not lower.endswith(".json") if queue else lower.endswith(_TEMPORARY)


@dataclass(frozen=True, slots=True)
class Hint:
    """Something may be there; look."""

    directory: str
    """Relative to the watcher's root, as it was given."""
    name: str
    """File name as of os.fsdecode (bytes that are no UTF-8 survive); empty for `gone_dir`."""
    kind: HintKind
    """`moved_in`: renamed in, so complete; `closed`: its writer closed it; `created`: may grow still;
    `gone_dir`: the directory itself was deleted or moved away: make it anew, then `check`."""


class _Place:
    """One watch of one directory. A directory that is watched anew gets a new one, so what an old
    watch still tells is known for stale."""

    def __init__(self, directory: str, path: Path, tell: Callable[[Hint | None], None]) -> None:
        self.directory = directory
        self.path = path
        self.seen = threading.Event()
        """The probe was noticed (or cannot be written)."""
        self.probes = 0
        self.identity: tuple[int, int] | None = None
        """Device and inode of what is watched; None while there is no such directory."""
        self.forget: Forget | None = None
        self._tell = tell
        self._lost = False
        self._queue = directory.split("/", 1)[0] == "inbox"

    # On the source's thread.

    def named(self, name: bytes | str, kind: ArrivalKind) -> None:
        text = os.fsdecode(name)
        if text.startswith("."):
            if text == PROBE_NAME:
                self.seen.set()
        elif not self._lost and not ignored(text, queue=self._queue):
            self._tell(Hint(self.directory, text, kind))

    def gone(self) -> None:
        if not self._lost:
            self._lost = True
            self._tell(Hint(self.directory, "", "gone_dir"))

    def overflowed(self) -> None:
        self._tell(None)

    # On the loop's thread.

    def stands(self) -> bool:
        """Whether the directory at the path is the one watched; absent counts when none was."""
        return not self._lost and self.identity == _identity(self.path)

    def probe(self) -> None:
        """Rename a dot file in. Where nothing can be written nothing can be proved: believed."""
        self.probes += 1
        probe = self.path / PROBE_NAME
        draft = self.path / f"{PROBE_NAME}.tmp"
        try:
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            draft.rename(probe)
            probe.unlink()
        except OSError as error:
            log.debug("a directory cannot be probed", path=str(self.path), error=str(error))
            self.seen.set()

    def end(self) -> None:
        self._lost = True
        if self.forget is not None:
            self.forget()


class Watcher:
    """Tells the bus of names that came into its directories, on the loop's thread, in batches."""

    def __init__(
        self,
        root: Path,
        directories: Sequence[str],
        *,
        mode: Literal["auto", "inotify", "polling"],
        on_hint: Callable[[Hint], None],
        on_overflow: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        open_source: Callable[[], Source] | None = None,
    ) -> None:
        """`directories` are relative to `root`; one that is not there yet is watched once it is.

        `open_source` stands in for the platform's own source of notifications.
        """
        self.mode: Literal["inotify", "observer", "polling"] = "polling"
        """What it really is; with `polling` the bus has to list by itself, there is no thread."""
        self.reason = ""
        """Why it polls, with the mend; empty otherwise."""
        self._root = root
        self._wanted = mode
        self._on_hint = on_hint
        self._on_overflow = on_overflow
        self._loop = loop
        self._open_source = open_source or _platform_source
        self._source: Source | None = None
        self._places: dict[str, _Place] = {}
        self._directories = list(dict.fromkeys(directories))
        self._waiting: deque[Hint] = deque()
        self._overflowed = False
        self._woken = False

    def start(self) -> None:
        """Watch everything and wait until each directory's probe was noticed (ms; 1 s at worst).

        Never fails: where notifications do not work `mode` is `polling` and `reason` says why.
        """
        if self._wanted == "polling":
            self._poll("bus.watcher is set to polling")
        elif self._wanted == "inotify" and sys.platform != "linux":
            self._poll("this system has no inotify; set bus.watcher to auto")
        else:
            self._open()
            self._wait_for_probes()

    def check(self) -> bool:
        """Look after the watches; cheap, called every few seconds.

        Mends what died or was replaced. True: something may have been missed, list now.
        """
        source = self._source
        if source is None:
            return False
        if not source.alive():
            log.error("the thread of the notifications had ended; it is started again")
            self._close()
            self._open()
            return True
        due = False
        for place in list(self._places.values()):
            if not place.stands():
                place.end()
                due = True
                self._watch(place.directory)
            elif not place.seen.is_set():
                self._probe_again(place)
        return due or self._source is None

    def add(self, directory: str) -> None:
        """Watch one more directory; `check` finds out whether it is really seen."""
        if directory not in self._directories:
            self._directories.append(directory)
            self._watch(directory)

    def remove(self, directory: str) -> None:
        """Watch this directory no longer."""
        if directory in self._directories:
            self._directories.remove(directory)
        place = self._places.pop(directory, None)
        if place is not None:
            place.end()

    def stop(self) -> None:
        """End the threads; no callback runs after it."""
        self._close()
        self._waiting.clear()
        self._overflowed = False

    # Watching.

    def _open(self) -> None:
        try:
            self._source = self._open_source()
        except OSError as error:
            self._poll(_why(error, self._root))
            return
        self.mode, self.reason = self._source.mode, ""
        for directory in self._directories:
            self._watch(directory)

    def _watch(self, directory: str) -> None:
        """Watch and probe, unless it polls by now; an absent directory is remembered as absent."""
        if self._source is None:
            return
        place = _Place(directory, self._root / directory, self._tell)
        self._places[directory] = place
        try:
            place.forget = self._source.add(place.path, place)
        except (FileNotFoundError, NotADirectoryError):
            place.seen.set()
        except OSError as error:
            self._poll(_why(error, place.path))
        else:
            place.identity = _identity(place.path)
            place.probe()

    def _wait_for_probes(self) -> None:
        for _ in range(_PROBES):
            wait_sec = _PROBE_WAIT_SEC  # for all of them together
            blind = []
            for place in self._places.values():
                if not place.seen.wait(wait_sec):
                    blind.append(place)
                    wait_sec = 0.0
            if not blind:
                return
            for place in blind:
                self._probe_again(place)

    def _probe_again(self, place: _Place) -> None:
        """Another probe, as one may be lost in an overflow; after three the file system is mute."""
        if place.probes < _PROBES:
            place.probe()
        else:
            self._poll(
                f"{place.path}: a probe file renamed in was not noticed, as on network, container "
                "and shared mounts; move the home to a local disk, or set bus.watcher to polling"
            )

    def _poll(self, reason: str) -> None:
        self._close()
        self.reason = reason
        if self._wanted != "polling":
            log.warning("directories are listed instead of watched", reason=reason)

    def _close(self) -> None:
        source, self._source = self._source, None
        self.mode = "polling"
        for place in self._places.values():
            place.end()
        self._places.clear()
        if source is not None:
            source.close()

    # From the source's thread to the loop's.

    def _tell(self, hint: Hint | None) -> None:
        """None: an overflow. Many hints ride on one wake-up of the loop."""
        if hint is None or len(self._waiting) >= _MOST_WAITING:
            self._overflowed = True
        else:
            self._waiting.append(hint)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed: nobody is left to tell
                self._waiting.clear()

    def _deliver(self) -> None:
        self._woken = False  # first: what is told from here on wakes the loop again
        if self._overflowed:
            self._overflowed = False
            self._call(self._on_overflow)
        for _ in range(len(self._waiting)):
            if not self._waiting:  # stopped by a callback
                return
            hint = self._waiting.popleft()
            self._call(self._on_hint, hint)

    def _call(self, callback: Callable[..., None], *arguments: Hint) -> None:
        try:
            callback(*arguments)
        except Exception:
            log.exception("a hint failed; the next listing finds what it was about")


def _platform_source() -> Source:
    if sys.platform == "linux":
        return InotifySource()
    return ObserverSource()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _why(error: OSError, path: Path) -> str:
    if error.errno == errno.ENOSPC:
        return (
            "the user's inotify watches are used up; raise the limit: "
            "sysctl fs.inotify.max_user_watches=524288"
        )
    if error.errno == errno.EMFILE:
        return (
            "the user's inotify instances are used up; raise the limit: "
            "sysctl fs.inotify.max_user_instances=1024 (or, for open files, ulimit -n)"
        )
    return f"{path} cannot be watched: {error.strerror}; make it readable for this user"
