"""Which batch a node is handed next, with its content, and its mark in the ledger before it is handled."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_gamma.bus.acceptance import Acceptance
from kernel_gamma.bus.delivery import Entry
from kernel_gamma.bus.disk import Disk
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.reading import Reader
from kernel_gamma.bus.records import Departure
from kernel_gamma.bus.recovery import Suspect
from kernel_gamma.bus.subscription import Flight, QueuedFile, Subscription, departure
from kernel_gamma.contracts.effects import Batch, Delivery
from kernel_gamma.contracts.ports import Clock, Ids
from kernel_gamma.errors import Poison

__all__ = ["Handing", "HandingPorts"]

_LOAD_LEAST = 64
"""Rows read at once when the window is full of deliveries that must wait."""
_MOST_WINDOWS = 16
"""So many windows may be in memory while all in them must wait; others of the node then wait too."""


@dataclass(frozen=True, slots=True)
class HandingPorts:
    """What it works with; all of it belongs to the bus."""

    clock: Clock
    ids: Ids
    disk: Disk
    takes_off: Callable[[Batch], None]
    """Note a batch as in the air, for whoever comes after a death of the process. Raises OSError."""
    reader: Reader
    acceptance: Acceptance
    subscriptions: Mapping[str, Subscription]
    flights: dict[str, Flight]
    """By batch id: every batch that is handed over enters it."""
    window: int
    step: Callable[[str], None]
    rate: float = 1.0
    """Seconds of the mind's time that pass in one real second."""


class Handing:
    """Takes from the mailboxes, and fills them from the ledger."""

    def __init__(self, ports: HandingPorts) -> None:
        self._ports = ports
        self._clock = ports.clock
        self._disk = ports.disk
        self._subs = ports.subscriptions

    async def take_suspect(self, suspect: Suspect) -> Batch | None:
        """Hand a suspect over while nothing else is in flight; None if it is gone."""
        sub = self._subs.get(suspect.node)
        if sub is None:
            return None
        await self._disk.clear.wait()
        rows = await self._disk.attempt(lambda ledger: _rows_of(ledger, suspect))
        entries = [e for row in rows if (e := await self._entry_of(sub, row)) is not None]
        if not entries:
            return None
        sub.held.update(entry.seq for entry in entries)
        return await self._start(sub, entries)

    async def next_batch(self, node: str) -> Batch:
        """The next batch for a node; waits for it. Marked as in flight before it is returned."""
        sub = self._subs[node]
        while True:
            sub.wake.clear()
            await self._disk.clear.wait()
            pause = self._pause_left(sub)
            if pause <= 0:
                if entries := sub.mailbox.take(self._clock.monotonic()):
                    batch = await self._start(sub, entries)
                    if batch is not None:
                        return batch
                    continue
                if sub.more and sub.mailbox.size < _MOST_WINDOWS * self._ports.window:
                    await self._load(sub)
                    continue
            await self._doze(sub, pause)

    def _pause_left(self, sub: Subscription) -> float:
        return sub.pause_left(self._clock.now(), self._clock.monotonic())

    async def _doze(self, sub: Subscription, pause: float) -> None:
        wake_at = sub.mailbox.wake_at()
        if pause > 0:
            # The clock may be stepped or run faster in a trial: look again before long.
            timeout: float | None = min(pause / self._ports.rate, 5.0)
        else:
            timeout = None if wake_at is None else max(0.0, wake_at - self._clock.monotonic())
        if timeout is None:
            await sub.wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sub.wake.wait(), timeout)

    async def _load(self, sub: Subscription) -> None:
        """Fill the window from the ledger; past it by a little, when all that is in it must wait."""
        async with sub.loading:
            if not sub.more:
                return  # another worker of this node was quicker
            room = max(_LOAD_LEAST, self._ports.window - sub.mailbox.size)
            rows = await self._disk.attempt(
                lambda ledger: ledger.all("open_deliveries", sub.node, sub.cursor, room)
            )
            sub.more = len(rows) == room
            for row in rows:
                sub.cursor = max(sub.cursor, row[0])
                if row[0] in sub.held:
                    continue
                entry = await self._entry_of(sub, row)
                if entry is not None:
                    sub.put(entry, self._clock.monotonic())

    async def _entry_of(self, sub: Subscription, row: tuple[Any, ...]) -> Entry[QueuedFile] | None:
        """Read the file of a row; a vanished or unreadable one is closed here."""
        seq, _, attempts, _, next_try, solo, batch_id, queue, name, path, origin, *_ = row
        try:
            queued = self._ports.reader.queued(row)
        except FileNotFoundError:
            await self._ports.acceptance.vanished(seq)
            return None
        except Poison as error:
            file = Departure(seq, queue, os.fsdecode(name), os.fsdecode(path), origin)
            await self._ports.acceptance.give_up(sub.node, file, error, attempts=attempts)
            sub.finished(seq)
            return None
        wait = next_try - self._clock.now().timestamp() if next_try is not None else 0.0
        not_before = self._clock.monotonic() + wait if wait > 0 else 0.0
        return sub.entry(queued, solo=bool(solo), not_before=not_before, batch=batch_id)

    async def _start(self, sub: Subscription, entries: list[Entry[QueuedFile]]) -> Batch | None:
        """Mark a batch as in flight, durably, before its handler runs."""
        now = self._clock.now()
        live: list[Entry[QueuedFile]] = []
        deliveries: list[Delivery] = []
        for entry in entries:
            if (delivery := await self._still_due(sub, entry, now.timestamp())) is not None:
                live.append(entry)
                deliveries.append(delivery)
        if not live:
            sub.mailbox.done(entries[0].key, self._clock.monotonic())
            return None
        again = live[0].batch
        batch = Batch(again or self._ports.ids.new("batch"), sub.node, tuple(deliveries), fresh=not again)
        await self._disk.when_possible(lambda: self._ports.takes_off(batch))
        self._ports.step("deliver.marked")
        sub.in_flight += 1
        self._ports.flights[batch.id] = Flight(sub, live, batch, now.timestamp())
        return batch

    async def _still_due(self, sub: Subscription, entry: Entry[QueuedFile], now: float) -> Delivery | None:
        """The delivery with its content; None if it has expired, or its file is gone or unreadable."""
        item = entry.item
        late = item.expires_at is not None and item.expires_at <= now
        if late and not sub.subscriber.takes_expired:
            await self._ports.acceptance.expired(sub.node, departure(item))
        else:
            try:
                return self._ports.reader.again(item)
            except FileNotFoundError:
                await self._ports.acceptance.vanished(entry.seq)
            except Poison as error:
                attempts = item.delivery.attempt - 1
                await self._ports.acceptance.give_up(sub.node, departure(item), error, attempts=attempts)
        sub.finished(entry.seq)
        return None


def _rows_of(ledger: Ledger, suspect: Suspect) -> list[tuple[Any, ...]]:
    found = (ledger.one("open_deliveries", suspect.node, seq - 1, 1) for seq in suspect.seqs)
    return [row for row in found if row is not None and row[0] in suspect.seqs]
