"""Files that others drop: from a name in a directory to something the bus may accept, or must refuse.

A file is accepted when it is settled and whole: renamed in or closed after writing, or standing still for
`settle_sec`. One that is no JSON document yet gets `settle_timeout_sec` of standing still before it is
refused, so that a slow writer is never judged early. Names are bytes throughout.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from kernel_gamma.bus.files import FileSign, Unreadable, list_names, read_regular
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import Poison

__all__ = ["Arrival", "Intake", "IntakeRules", "Refusal"]

_INCOMPLETE = frozenset({"empty", "not_json"})
_MOST_BYTES = 8_388_608
"""Files read in one go; the loop must not stand still for long, nor hold them all."""


@dataclass(frozen=True, slots=True)
class IntakeRules:
    """Limits of what is taken in."""

    settle_sec: float
    settle_timeout_sec: float
    max_bytes: int
    read: Callable[[bytes], Json]
    """Bytes to a document; raises Poison."""
    wanted: Callable[[str, str], bool]
    """Whether (directory, name) is meant for any node; others are never read."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A whole file, ready to be accepted."""

    name: bytes
    document: Json
    sign: FileSign


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file that can never be accepted."""

    name: bytes
    kind: str
    detail: str


@dataclass(slots=True)
class _Unsettled:
    sign: FileSign
    since: float
    """Monotonic seconds since when it stands still."""
    problem: Poison | None


class Intake:
    """What stands in one directory and is not yet accepted."""

    def __init__(self, root: bytes, directory: str, rules: IntakeRules) -> None:
        self.directory = directory
        self.path = os.path.join(root, os.fsencode(directory))
        self._rules = rules
        self._queue: deque[bytes] = deque()
        self._queued: set[bytes] = set()
        self._closed: set[bytes] = set()
        self._aged: set[bytes] = set()
        self._unsettled: dict[bytes, _Unsettled] = {}

    def __len__(self) -> int:
        """Names seen and not yet accepted or refused."""
        return len(self._queued) + len(self._unsettled)

    @property
    def queued(self) -> int:
        """Names that can be looked at right now."""
        return len(self._queued)

    def hint(self, name: str, *, closed: bool) -> None:
        """A notification named a file; `closed`: its writer is through with it."""
        if not self._rules.wanted(self.directory, name):
            return
        raw = os.fsencode(name)
        if closed:
            self._closed.add(raw)
        self._enqueue(raw)

    def _enqueue(self, name: bytes) -> None:
        if name not in self._queued:
            self._queued.add(name)
            self._queue.append(name)

    def fresh_names(self) -> list[bytes]:
        """Names in the directory that are not being looked at yet, in no order."""
        return [
            n
            for n in list_names(self.path)
            if n not in self._queued
            and n not in self._unsettled
            and self._rules.wanted(self.directory, os.fsdecode(n))
        ]

    def admit(self, names: Collection[bytes], file_clock: Callable[[], float]) -> int:
        """Queue names found by a listing, oldest first, each stat'ed once; returns how many there are.

        `file_clock()` is the file system's own time (seconds), so that old files need not be watched again.
        """
        dated = []
        for name in names:
            try:
                status = os.lstat(os.path.join(self.path, name))
            except OSError:
                continue
            dated.append((status.st_mtime_ns, name, max(status.st_mtime, status.st_ctime)))
        if not dated:
            return 0
        now = file_clock()
        for _, name, changed in sorted(dated):
            if now - changed >= self._rules.settle_sec:
                self._closed.add(name)
            if now - changed >= self._rules.settle_timeout_sec:
                self._aged.add(name)
            self._enqueue(name)
        return len(dated)

    def due_at(self) -> float | None:
        """When an unsettled file should be looked at again; None if there is none."""
        if not self._unsettled:
            return None
        return min(u.since + self._wait(u) for u in self._unsettled.values())

    def _wait(self, unsettled: _Unsettled) -> float:
        incomplete = unsettled.problem is not None and unsettled.problem.kind in _INCOMPLETE
        return self._rules.settle_timeout_sec if incomplete else self._rules.settle_sec

    def collect(self, now: float, most: int) -> list[Arrival | Refusal]:
        """Up to `most` files that can be accepted or refused now, in order."""
        for name in [n for n, u in self._unsettled.items() if u.since + self._wait(u) <= now]:
            self._enqueue(name)
        found: list[Arrival | Refusal] = []
        size = 0
        while self._queue and len(found) < most and size < _MOST_BYTES:
            name = self._queue.popleft()
            self._queued.discard(name)
            judged = self._judge(name, now)
            if judged is not None:
                self._forget(name)
                found.append(judged)
                size += judged.sign.size if isinstance(judged, Arrival) else 0
        return found

    def _judge(self, name: bytes, now: float) -> Arrival | Refusal | None:
        """Accept, refuse, or remember as unsettled (None)."""
        path = os.path.join(self.path, name)
        try:
            raw, sign = read_regular(path, self._rules.max_bytes)
        except FileNotFoundError:
            self._forget(name)
            return None
        except Unreadable as error:
            return self._judge_unreadable(name, path, error, now)
        try:
            document = self._rules.read(raw)
        except Poison as problem:
            return self._not_yet(name, sign, problem, now)
        if name in self._closed or self._still_for(name, sign, now) >= self._rules.settle_sec:
            return Arrival(name, document, sign)
        self._remember(name, sign, None, now)
        return None

    def _judge_unreadable(self, name: bytes, path: bytes, error: Unreadable, now: float) -> Refusal | None:
        try:
            status = os.lstat(path)
        except OSError:
            self._forget(name)
            return None
        if stat.S_ISREG(status.st_mode) and name not in self._closed:
            # Too large or not readable, but perhaps still being written: it leaves once it stands still.
            sign = FileSign.of(status)
            if self._still_for(name, sign, now) < self._rules.settle_sec:
                self._remember(name, sign, None, now)
                return None
        return Refusal(name, error.kind, str(error))

    def _not_yet(self, name: bytes, sign: FileSign, problem: Poison, now: float) -> Refusal | None:
        wait = self._rules.settle_timeout_sec if problem.kind in _INCOMPLETE else self._rules.settle_sec
        if name in self._aged or self._still_for(name, sign, now) >= wait:
            return Refusal(name, problem.kind, str(problem))
        self._remember(name, sign, problem, now)
        return None

    def _forget(self, name: bytes) -> None:
        self._unsettled.pop(name, None)
        self._closed.discard(name)
        self._aged.discard(name)

    def _still_for(self, name: bytes, sign: FileSign, now: float) -> float:
        """Seconds this file has been seen standing still."""
        seen = self._unsettled.get(name)
        return now - seen.since if seen is not None and seen.sign == sign else 0.0

    def _remember(self, name: bytes, sign: FileSign, problem: Poison | None, now: float) -> None:
        seen = self._unsettled.get(name)
        if seen is None or seen.sign != sign:
            self._unsettled[name] = _Unsettled(sign, now, problem)
        else:
            seen.problem = problem
