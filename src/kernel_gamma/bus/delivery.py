"""What waits for a node, and what it is handed next. Pure: time is an argument (monotonic seconds).

    waiting ──take──▶ running ──commit──▶ finished | dead
       ▲                 │
       └── release ──────┤   (park, shutdown, split: no attempt counted)
       └── retry(at) ────┘   (an attempt counted; later ones of the same key wait behind it)

The order is `seq` within a key and, between keys, the oldest head first. A key is handed to one handler
at a time. A held entry (debounce) is not an attempt: it waits until its key has been quiet.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Entry", "Hold", "Mailbox", "backoff_sec"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """One delivery as the mailbox sees it."""

    seq: int
    key: str
    """Entries of one key are handled in order and never at the same time."""
    group: str
    """Only neighbours of the same group share a batch."""
    item: T
    weight: int = 1
    solo: bool = False
    """Handed over alone: it failed, or was split from a failed batch."""
    not_before: float = 0.0
    """Monotonic seconds of the next try."""
    free: bool = True
    """Not held by the debounce."""
    put_off: bool = False
    """It waits until `not_before` for no fault of its own: at once again when more of its key arrives."""
    batch: str | None = None
    """Belongs to a batch that was stored before: handed over with its members, unchanged."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Debounce of a subscription, in seconds."""

    quiet_sec: float
    max_sec: float


@dataclass(slots=True)
class _Lane(Generic[T]):
    """Everything of one key."""

    entries: deque[Entry[T]] = field(default_factory=deque)
    busy: bool = False
    held_since: float | None = None
    held_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may hold."""

    count: int = 1
    weight: int | None = None


class Mailbox(Generic[T]):
    """The in-memory window of one node's deliveries."""

    def __init__(self, limits: Limits, hold: Hold | None = None) -> None:
        self._limits = limits
        self._hold = hold
        self._lanes: dict[str, _Lane[T]] = {}
        self._ready: list[tuple[int, str]] = []
        self._timers: list[tuple[float, str]] = []
        self._last_arrival: dict[str, float] = {}
        self.size = 0
        """Entries inside, those being handled not counted."""

    def push(self, entry: Entry[T], now: float) -> None:
        """A delivery arrives; one that comes late is put in its place by number."""
        lane = self._lanes.get(entry.key)
        if lane is None:
            lane = self._lanes[entry.key] = _Lane()
        if self._hold is not None and self._hold.quiet_sec > 0:
            self._debounce(entry, lane, self._hold, now)
        again = bool(lane.entries) and lane.entries[0].put_off
        for waiting in lane.entries if again else ():
            if waiting.put_off:
                waiting.put_off, waiting.not_before = False, 0.0
        late = bool(lane.entries) and lane.entries[-1].seq > entry.seq
        lane.entries.append(entry)
        if late:
            lane.entries = deque(sorted(lane.entries, key=lambda e: e.seq))
        self.size += 1
        if len(lane.entries) == 1 or late or again or not entry.free:
            self._schedule(entry.key, lane, now)

    def _debounce(self, entry: Entry[T], lane: _Lane[T], hold: Hold, now: float) -> None:
        last = self._last_arrival.get(entry.key)
        self._last_arrival[entry.key] = now
        if len(self._last_arrival) > 4096:
            self._forget_quiet(now, hold)
        if last is None or now - last >= hold.quiet_sec:
            return
        entry.free = False
        if lane.held_since is None:
            lane.held_since = now
        lane.held_until = min(now + hold.quiet_sec, lane.held_since + hold.max_sec)

    def _forget_quiet(self, now: float, hold: Hold) -> None:
        self._last_arrival = {k: t for k, t in self._last_arrival.items() if now - t < hold.quiet_sec}

    def _schedule(self, key: str, lane: _Lane[T], now: float) -> None:
        """Note when the head of a lane may be taken."""
        if lane.busy or not lane.entries:
            return
        at = self._due_at(lane)
        if at <= now:
            heapq.heappush(self._ready, (lane.entries[0].seq, key))
        else:
            heapq.heappush(self._timers, (at, key))

    def _due_at(self, lane: _Lane[T]) -> float:
        head = lane.entries[0]
        return max(head.not_before, 0.0 if head.free else lane.held_until)

    def take(self, now: float) -> list[Entry[T]]:
        """The next batch, or nothing. Its key is busy until `done`."""
        self._fire_timers(now)
        while self._ready:
            seq, key = heapq.heappop(self._ready)
            lane = self._lanes.get(key)
            if lane is None or lane.busy or not lane.entries or lane.entries[0].seq != seq:
                continue  # a stale note: the lane was rescheduled since
            if (at := self._due_at(lane)) > now:
                heapq.heappush(self._timers, (at, key))
                continue
            batch = self._gather(lane, now)
            for entry in batch:
                entry.put_off = False
            lane.busy = True
            self.size -= len(batch)
            if not any(not e.free for e in lane.entries):
                lane.held_since = None
            return batch
        return []

    def _fire_timers(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, key = heapq.heappop(self._timers)
            lane = self._lanes.get(key)
            if lane is not None:
                self._schedule(key, lane, now)

    def _gather(self, lane: _Lane[T], now: float) -> list[Entry[T]]:
        entries, released = lane.entries, lane.held_until <= now
        batch = [entries.popleft()]
        weight = batch[0].weight
        while entries:
            weight += entries[0].weight
            if not self._joins(entries[0], batch, weight, now, released):
                break
            batch.append(entries.popleft())
        return batch

    def _joins(self, entry: Entry[T], batch: list[Entry[T]], weight: int, now: float, released: bool) -> bool:
        head = batch[0]
        if head.batch is not None or entry.batch is not None:
            return entry.batch == head.batch
        return (
            len(batch) < self._limits.count
            and not (head.solo or entry.solo)
            and entry.group == head.group
            and entry.not_before <= now
            and (entry.free or released)
            and (self._limits.weight is None or weight <= self._limits.weight)
        )

    def done(self, key: str, now: float) -> None:
        """The batch of this key is through; the next of the key may be taken."""
        lane = self._lanes.get(key)
        if lane is None:
            return
        lane.busy = False
        if lane.entries:
            self._schedule(key, lane, now)
        else:
            del self._lanes[key]

    def give_back(self, entries: Iterable[Entry[T]], now: float) -> None:
        """Entries of one taken batch return to the head of their lane (retry, park, split)."""
        back = list(entries)
        for entry in reversed(back):
            lane = self._lanes.setdefault(entry.key, _Lane())
            late = bool(lane.entries) and lane.entries[0].seq < entry.seq
            lane.entries.appendleft(entry)
            if late:
                lane.entries = deque(sorted(lane.entries, key=lambda e: e.seq))
            self.size += 1
        for entry in back[:1]:
            self.done(entry.key, now)

    def all_put_off(self, now: float) -> bool:
        """Whether something waits, and all of it was put off until later."""
        waiting = [lane.entries[0] for lane in self._lanes.values() if lane.entries]
        return bool(waiting) and all(head.put_off and head.not_before > now for head in waiting)

    def wake_at(self) -> float | None:
        """When something held or waiting for its retry may be taken; None if nothing is."""
        return self._timers[0][0] if self._timers else None


def backoff_sec(attempt: int, *, first: float, longest: float, jitter: Callable[[], float]) -> float:
    """Pause before the next attempt: doubles from `first`, at most `longest`, ± 20 % by `jitter()` in 0-1."""
    return min(longest, first * 2.0 ** min(attempt - 1, 32)) * (0.8 + 0.4 * jitter())
