"""One node's view of the queues: its patterns, its window of deliveries, and when it may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kernel_gamma.bus.delivery import Entry, Hold, Limits, Mailbox
from kernel_gamma.bus.folders import directory_of, matches
from kernel_gamma.bus.records import Departure
from kernel_gamma.contracts.effects import Batch, Delivery
from kernel_gamma.contracts.envelope import Json

__all__ = ["Flight", "Observer", "QueuedFile", "Subscriber", "Subscription", "departure"]

Observer = Callable[[str, Mapping[str, Any]], None]
"""Hears (what, details): accepted, refused, committed, failed, paused, stalled."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """What the bus must know of a node; circuit.py builds it from the node's declaration."""

    node: str
    watch: tuple[str, ...]
    emit: tuple[str, ...]
    limits: Limits
    hold: Hold | None
    order_by: Callable[[Delivery], str]
    batch_by: Callable[[Delivery], str]
    weigh: Callable[[Delivery], int]
    takes_expired: bool = False


@dataclass(slots=True, eq=False)
class QueuedFile:
    """A row of the books with its content, as it lies in a mailbox."""

    delivery: Delivery
    path: str
    """Where it stands, relative to the data directory."""
    expires_at: float | None
    deaths: int = 0
    sole: bool = False
    """This node is the only one that ever had it."""
    large: bool = False
    """Its document is dropped from memory until its turn comes."""

    def lighten(self) -> None:
        """Forget a large document; what orders it is known by now."""
        if self.large:
            self.delivery = replace(self.delivery, document=None)


@dataclass(slots=True)
class Subscription:
    """A subscriber with its window."""

    subscriber: Subscriber
    window: int
    mailbox: Mailbox[QueuedFile] = field(init=False)
    cursor: int = 0
    """Numbers up to here are in memory or finished; the ledger is read from here on."""
    more: bool = False
    """The ledger holds open deliveries past the cursor."""
    backlog: int = 0
    """Open deliveries in all, in memory or not."""
    held: set[int] = field(default_factory=set)
    """Numbers in memory: in the mailbox or in flight."""
    in_flight: int = 0
    paused_until: datetime | None = None
    paused_for: float = 0.0
    """Monotonic seconds at which the pause ends at the latest, should the clock be set back."""
    pause_reason: str = ""
    put_off_for: str = ""
    """Why inputs were put off last while the node goes on with others."""
    last_error: str = ""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    nonsense: list[int] = field(default_factory=list)
    """Numbers of the single events whose answers were unusable, one after the other."""
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one worker that reads the ledger."""
    parks: int = 0
    """Pauses in a row, for their growing length."""

    def __post_init__(self) -> None:
        self.mailbox = Mailbox(self.subscriber.limits, self.subscriber.hold)

    @property
    def node(self) -> str:
        return self.subscriber.node

    def wants(self, directory: str, name: str) -> bool:
        """Whether a file is meant for this node."""
        return any(matches(pattern, directory, name) for pattern in self.subscriber.watch)

    def watches(self, directory: str) -> bool:
        """Whether files of a directory may be meant for this node."""
        return any(matches(f"{directory_of(p)}/x", directory, "x") for p in self.subscriber.watch)

    def entry(
        self, queued: QueuedFile, *, solo: bool, not_before: float, batch: str | None
    ) -> Entry[QueuedFile]:
        """The mailbox entry of a file."""
        delivery = queued.delivery
        key = self.subscriber.order_by(delivery)
        made: Entry[QueuedFile] = Entry(
            seq=delivery.seq,
            key=key,
            group=self.subscriber.batch_by(delivery),
            item=queued,
            weight=self.subscriber.weigh(delivery),
            solo=solo,
            not_before=not_before,
            batch=batch,
        )
        queued.lighten()
        return made

    def offer(self, queued: QueuedFile, now: float) -> None:
        """A new file: into the window if there is room and nothing older waits outside, else later."""
        self.backlog += 1
        seq = queued.delivery.seq
        if self.more or self.mailbox.size >= self.window:
            self.more = True
            self.cursor = min(self.cursor, seq - 1)
            self.wake.set()
            return
        self.cursor = max(self.cursor, seq)
        self.put(self.entry(queued, solo=False, not_before=0.0, batch=None), now)
        self.wake.set()

    def put(self, entry: Entry[QueuedFile], now: float) -> None:
        """An entry enters the window."""
        self.held.add(entry.seq)
        self.mailbox.push(entry, now)

    def finished(self, seq: int) -> None:
        """A delivery of this node is through."""
        self.held.discard(seq)
        self.backlog -= 1

    def pause(self, until: datetime, monotonic: float, reason: str) -> None:
        """Hand nothing over until a moment, known on both clocks."""
        self.paused_until = until
        self.paused_for = monotonic
        self.pause_reason = reason

    def pause_left(self, now: datetime, monotonic: float) -> float:
        """Seconds of the pause that are left; it is over when either clock says so."""
        if self.paused_until is None:
            return 0.0
        left = min((self.paused_until - now).total_seconds(), self.paused_for - monotonic)
        if left <= 0:
            self.paused_until = None
            self.pause_reason = ""
        return left

    def all_put_off(self, monotonic: float) -> str:
        """Why everything that waits was put off, each for itself; "" when something else waits."""
        return self.put_off_for if not self.more and self.mailbox.all_put_off(monotonic) else ""

    def state(self, now: datetime, monotonic: float) -> dict[str, Json]:
        """For status: what the node is doing, and what went wrong last."""
        paused = self.pause_left(now, monotonic) > 0
        return {
            "status": "parked" if paused else "running" if self.in_flight else "idle",
            "backlog": self.backlog,
            "until": self.paused_until.isoformat() if self.paused_until else None,
            "reason": self.pause_reason or None,
            "last_error": self.last_error or None,
        }


@dataclass(slots=True, eq=False)
class Flight:
    """A batch that a handler has."""

    subscription: Subscription
    entries: list[Entry[QueuedFile]]
    batch: Batch
    started_at: float
    """Epoch seconds, in the mind's time."""
    committing: bool = False
    """Its Outcome is on the way into the ledger."""


def departure(queued: QueuedFile) -> Departure:
    """A queued file as it leaves its queue."""
    delivery = queued.delivery
    trace = delivery.envelope.trace_id if delivery.envelope else None
    return Departure(
        delivery.seq, delivery.queue, delivery.name, queued.path, delivery.origin, trace, queued.sole
    )
