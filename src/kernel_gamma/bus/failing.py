"""What follows when a handler raised: wait, split, try again later, or set aside, as the error's class says.

a fault of the folder     the node waits, no attempt is counted: no input is to blame for a page
Park of these inputs only they are put off, the node goes on with others, no attempt is counted
Park                      the node waits, the batch comes back unchanged, no attempt is counted
several in the batch      split: each comes back alone, no attempt is counted
Poison                    set aside
Unusable, third in a row  an outage of the model, not of the events: the node waits
anything else             an attempt; after `max_attempts` of them the input is set aside
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from kernel_gamma.bus.delivery import Entry, backoff_sec
from kernel_gamma.bus.disk import Disk, describe
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.subscription import Flight, Observer, QueuedFile, Subscription
from kernel_gamma.contracts.effects import Batch, DeadLetter, Outcome
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import Park, Poison, Retry, Unusable
from kernel_gamma.settings import BusSettings

__all__ = ["Failing", "FailingPorts"]

log = structlog.get_logger(__name__)

_OUTAGE_AFTER = 3
"""Unusable answers for this many single events in a row are an outage, not bad events."""
_OUTAGE_FIRST_SEC = 30.0
_OUTAGE_LONGEST_SEC = 900.0
_PUT_OFF_LEAST_SEC = 0.1
_PUT_OFF_MOST_SEC = 300.0
"""Real seconds after which inputs that were put off are looked at again; no call is made for that."""
_FOLDER_FIRST_SEC = 0.5
_FOLDER_LONGEST_SEC = 30.0


@dataclass(frozen=True, slots=True)
class FailingPorts:
    """What it works with; all of it belongs to the bus."""

    root: str
    """The data directory, absolute."""
    clock: Clock
    disk: Disk
    settings: BusSettings
    flights: dict[str, Flight]
    """By batch id; a batch that comes back leaves it."""
    lands: Callable[[Batch], None]
    """It is in the air no more."""
    commit: Callable[[Batch, Outcome], Awaitable[None]]
    observe: Observer
    jitter: Callable[[], float]
    rate: float = 1.0
    """Seconds of the mind's time that pass in one real second."""


class Failing:
    """The way back into the queue, and the way out of it without success."""

    def __init__(self, ports: FailingPorts) -> None:
        self._ports = ports
        self._clock = ports.clock
        self._disk = ports.disk

    async def fail(self, flight: Flight, error: BaseException) -> None:
        """A handler raised `error`."""
        sub = flight.subscription
        sub.last_error = str(error) or type(error).__name__
        if isinstance(error, Park) and not error.holds_all:
            await self._put_off(flight, error)
        elif isinstance(error, Park):
            self._pause(sub, error.until, str(error))
            await self.release(flight, reason=str(error))
        elif isinstance(error, OSError) and self._is_of_the_folder(error):
            await self._wait_for_the_folder(flight, error)
        elif len(flight.entries) > 1:
            await self._split(flight, str(error))
        elif isinstance(error, Poison):
            await self._ports.commit(flight.batch, Outcome.of(DeadLetter(error.kind, str(error))))
        elif isinstance(error, Unusable) and self._is_outage(sub, flight.entries[0].seq):
            sub.parks += 1
            wait = min(_OUTAGE_LONGEST_SEC, _OUTAGE_FIRST_SEC * 2.0 ** min(sub.parks - 1, 32))
            reason = f"the model's answers are unusable for several events in a row: {error}"
            self._pause(sub, self._clock.now() + timedelta(seconds=wait), reason)
            await self._split(flight, str(error))
        else:
            await self._count_attempt(flight, error)

    async def _put_off(self, flight: Flight, error: Park) -> None:
        """Only these wait; looked at again now and then, so that a clock set anew is noticed."""
        sub, now = flight.subscription, self._clock.now()
        left = (error.until - now).total_seconds() / self._ports.rate
        at = self._clock.monotonic() + min(max(left, _PUT_OFF_LEAST_SEC), _PUT_OFF_MOST_SEC)
        for entry in flight.entries:
            entry.put_off, entry.not_before, entry.batch = True, at, None
        sub.put_off_for = str(error)
        log.info("inputs are put off", node=sub.node, until=error.until.isoformat(), reason=str(error))
        self._ports.observe("put_off", {"node": sub.node, "until": error.until, "reason": str(error)})
        await self._release(flight, reason=str(error), batch_id=None)

    def _is_of_the_folder(self, error: OSError) -> bool:
        """Whether a file of the mind itself cannot be used: a read-only page, a folder in its place."""
        if error.filename is None or isinstance(error, FileNotFoundError):
            return False
        return os.path.abspath(os.fsdecode(error.filename)).startswith(self._ports.root + os.sep)

    async def _wait_for_the_folder(self, flight: Flight, error: OSError) -> None:
        sub = flight.subscription
        sub.parks += 1
        wait = min(_FOLDER_LONGEST_SEC, _FOLDER_FIRST_SEC * 2.0 ** min(sub.parks - 1, 32))
        self._pause(sub, self._clock.now() + timedelta(seconds=wait), describe(error))
        await self.release(flight, reason=describe(error))

    def _is_outage(self, sub: Subscription, seq: int) -> bool:
        if seq not in sub.nonsense:
            sub.nonsense.append(seq)
        return len(sub.nonsense) >= _OUTAGE_AFTER

    def _pause(self, sub: Subscription, until: datetime, reason: str) -> None:
        now = self._clock.now()
        sub.pause(until, self._clock.monotonic() + (until - now).total_seconds(), reason)
        log.warning("a node waits", node=sub.node, until=until.isoformat(), reason=reason)
        self._ports.observe("paused", {"node": sub.node, "until": until, "reason": reason})

    async def _count_attempt(self, flight: Flight, error: BaseException) -> None:
        entry, sub = flight.entries[0], flight.subscription
        attempt = entry.item.delivery.attempt
        reason = f"{type(error).__name__}: {error}"
        if attempt >= self._ports.settings.max_attempts:
            raw = error.raw if isinstance(error, Unusable) else ""
            kind = "unusable" if isinstance(error, Unusable) else "failed"
            await self._ports.commit(flight.batch, Outcome.of(DeadLetter(kind, reason, raw=raw)))
            return
        wait = self.backoff(flight)
        if isinstance(error, Retry) and error.after_sec is not None:
            wait = error.after_sec
        at = self._clock.now().timestamp() + wait
        await self._disk.attempt(
            lambda ledger: ledger.run("retry_delivery", attempt, at, reason, sub.node, entry.seq)
        )
        log.warning("an attempt failed", node=sub.node, seq=entry.seq, attempt=attempt, error=reason)
        self._ports.observe("failed", {"node": sub.node, "batch": flight.batch, "error": reason})
        self._return(flight, [self.again(entry, wait)])

    def backoff(self, flight: Flight) -> float:
        """Seconds until the next attempt of a batch."""
        attempt = max(e.item.delivery.attempt for e in flight.entries)
        bus = self._ports.settings
        return backoff_sec(
            attempt, first=bus.backoff_sec, longest=bus.backoff_max_sec, jitter=self._ports.jitter
        )

    def again(self, entry: Entry[QueuedFile], after_sec: float) -> Entry[QueuedFile]:
        """The same entry, its attempt counted, to be handed over alone after a pause."""
        delivery = entry.item.delivery
        entry.item.delivery = replace(delivery, attempt=delivery.attempt + 1)
        entry.not_before = self._clock.monotonic() + after_sec
        entry.solo = True
        entry.batch = None
        return entry

    async def _split(self, flight: Flight, reason: str) -> None:
        """Deliver the members one by one; no attempt is charged."""
        for entry in flight.entries:
            entry.solo = True
            entry.batch = None
        await self._release(flight, reason=reason, batch_id=None)

    async def release(self, flight: Flight, *, reason: str) -> None:
        """Back to the queue without an attempt; delivered again as the same batch."""
        for entry in flight.entries:
            entry.batch = flight.batch.id
        await self._release(flight, reason=reason, batch_id=flight.batch.id)

    async def _release(self, flight: Flight, *, reason: str, batch_id: str | None) -> None:
        node = flight.subscription.node

        def record(ledger: Ledger) -> None:
            for entry in flight.entries:
                ledger.run("release_delivery", int(entry.solo), reason, batch_id, node, entry.seq)

        await self._disk.attempt(record)
        self._return(flight, flight.entries)

    def _return(self, flight: Flight, entries: list[Entry[QueuedFile]]) -> None:
        sub = flight.subscription
        if self._ports.flights.pop(flight.batch.id, None) is None:
            return
        self._ports.lands(flight.batch)
        sub.in_flight -= 1
        sub.mailbox.give_back(entries, self._clock.monotonic())
        sub.wake.set()
