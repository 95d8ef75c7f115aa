"""Files that are past their time: found and removed in small steps, by the mind's own days.

    <queue>/done/<day>/       whole days, except files that something unfinished came from
    dead_letter/<day>/        whole days, if config/retention.yaml gives them a time at all
    outbox/<channel>/done/    since it was taken
    self/.history/            since it was kept; the newest copy of each page stays
    inbox/acks/               since it was written

A trial's clock has nothing to do with a file's own time: there the time in a name counts alone, and of an
ack when the ledger accepted its file.

Nothing else is ever touched: no queue, no message that nobody has taken, no page.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from kernel_gamma.bus.folders import ACKS, DEAD_LETTER, OUTBOX
from kernel_gamma.bus.keep_times import KeepTimes, moment_before
from kernel_gamma.contracts.ulid import ulid_milliseconds

__all__ = ["OldFiles", "history_page", "time_in_name"]

_STEP = 500
"""Files removed between two pauses."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ULID = re.compile(r"(?<![0-9A-Z])[0-7][0-9A-HJKMNP-TV-Z]{25}(?![0-9A-Z])")
_STAMP = re.compile(r"(?<!\d)\d{8}T\d{6}Z")
_NO_QUEUES = frozenset({"self", "logs", "metrics", DEAD_LETTER, "done"})
_DEEPEST = 3
_HISTORY = "self/.history"


@dataclass(slots=True)
class OldFiles:
    """What one look at a data directory removes; `steps` does it."""

    root: Path
    keep: KeepTimes
    now: datetime
    """In the mind's zone: its days are the folders' names."""
    real_time: bool = True
    """The mind's clock is the one that stamps files."""
    held: frozenset[str] = frozenset()
    """Paths below `root` that stay: what is not through came from them."""
    counts: dict[str, int] = field(default_factory=dict)
    """Files by kind that were removed so far."""

    def steps(self) -> Iterator[None]:
        """Remove what is due; yields after each few hundred files. Raises OSError only for what lies deeper
        than a missing file or folder."""
        yield from _in_steps(self._done())
        yield from _in_steps(self._days(DEAD_LETTER, self.keep.dead_letter, "dead_letter"))
        yield from _in_steps(self._outbox())
        yield from _in_steps(self._history())

    def _done(self) -> Iterator[None]:
        if self.keep.done is None:
            return
        for queue in _queues(self.root, "", 0):
            if not queue.startswith(f"{OUTBOX}/"):
                yield from self._days(f"{queue}/done", self.keep.done, "done")

    def _days(self, folder: str, keep: timedelta | None, kind: str) -> Iterator[None]:
        """Whole days: one is due when its last moment is past its time."""
        if keep is None:
            return
        last = moment_before(self.now, keep).date() - timedelta(days=1)
        for day in sorted(_names(self.root / folder)):
            if _DAY.fullmatch(day) and _date(day) <= last:
                yield from self._empty(f"{folder}/{day}", kind)

    def _empty(self, folder: str, kind: str) -> Iterator[None]:
        for name in _names(self.root / folder):
            if f"{folder}/{name}" not in self.held:
                yield from self._remove(f"{folder}/{name}", kind)
        with suppress(OSError):  # what stays in it keeps it
            (self.root / folder).rmdir()

    def _outbox(self) -> Iterator[None]:
        if self.keep.outbox_done is None:
            return
        for channel in _names(self.root / OUTBOX):
            folder = f"{OUTBOX}/{channel}/done"
            yield from self._days(folder, self.keep.outbox_done, "outbox_done")
            yield from self._by_time(folder, self.keep.outbox_done, "outbox_done", keeping=frozenset())

    def _history(self) -> Iterator[None]:
        if self.keep.history is None:
            return
        newest: dict[str, str] = {}
        for name in _names(self.root / _HISTORY):
            page = history_page(name)
            other = newest.get(page)
            if other is None or self._written(_HISTORY, name) > self._written(_HISTORY, other):
                newest[page] = name
        yield from self._by_time(_HISTORY, self.keep.history, "history", frozenset(newest.values()))

    def _by_time(self, folder: str, keep: timedelta, kind: str, keeping: frozenset[str]) -> Iterator[None]:
        before = moment_before(self.now, keep)
        for name in _names(self.root / folder):
            path = self.root / folder / name
            if name not in keeping and path.is_file() and self._written(folder, name) < before:
                yield from self._remove(f"{folder}/{name}", kind)

    def _written(self, folder: str, name: str) -> datetime:
        """When it came to stand there; now, when nothing tells."""
        found = time_in_name(name)
        if not self.real_time:
            return found or self.now
        try:
            moved = datetime.fromtimestamp((self.root / folder / name).lstat().st_ctime, UTC)
        except OSError:
            return self.now
        return moved if found is None else max(found, moved)

    def _remove(self, relative: str, kind: str) -> Iterator[None]:
        try:
            (self.root / relative).unlink()
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            return  # gone already, or a folder of somebody's own
        self.counts[kind] = self.counts.get(kind, 0) + 1
        yield

    def acks(self, accepted: Callable[[str], float | None]) -> int:
        """Remove acks that no producer waits for any more; returns how many.

        `accepted(name)`: when the ledger took the newest file of that name, in epoch seconds.
        """
        if self.keep.acks is None:
            return 0
        before, gone = moment_before(self.now, self.keep.acks).timestamp(), 0
        for name in _names(self.root / ACKS):
            path = self.root / ACKS / name
            try:
                written = path.lstat().st_mtime if self.real_time else accepted(name)
                if written is not None and written < before:
                    path.unlink()
                    gone += 1
            except OSError:
                continue
        return gone


def time_in_name(name: str) -> datetime | None:
    """The moment that an id or a stamp in a name tells; None when there is none."""
    if (ulid := _ULID.search(name)) is not None:
        milliseconds = ulid_milliseconds(ulid[0])
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    if (stamp := _STAMP.search(name)) is not None:
        with suppress(ValueError):
            return datetime.strptime(stamp[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return None


def history_page(name: str) -> str:
    """Of which page a file in self/.history/ is an old copy: `<page>.<batch>.<index>.md`."""
    return name.removesuffix(".ours").removesuffix(".md").rsplit(".", 2)[0]


def _in_steps(removing: Iterator[None]) -> Iterator[None]:
    for number, _ in enumerate(removing, 1):
        if number % _STEP == 0:
            yield
    yield


def _queues(root: Path, below: str, depth: int) -> Iterator[str]:
    """Folders with a done/ folder in them, as paths below `root`."""
    try:
        with os.scandir(root / below) as entries:
            folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    if below and "done" in folders:
        yield below
    for name in sorted(folders):
        inner = f"{below}/{name}".lstrip("/")
        if depth < _DEEPEST and name not in _NO_QUEUES and not name.startswith("."):
            yield from _queues(root, inner, depth + 1)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _date(day: str) -> date:
    try:
        return date.fromisoformat(day)
    except ValueError:
        return date.max
