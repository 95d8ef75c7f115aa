"""FileEventBus: files in, batches out, Outcomes committed. The only writer of a mind's folder.

    dropped ──accept──▶ taken ──take──▶ in flight ──commit──▶ done | dead_letter
    emitted ───────────▶ queued ─┘            └─ fail ─▶ retry | parked | split | dead_letter

Notifications only shorten the wait; the directories are the truth (tending.py), the ledger makes each
effect happen once (records.py, disk.py). Everything here runs on the event loop; the ledger and the disk
belong to the writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from kernel_gamma.bus.acceptance import Acceptance, AcceptancePorts
from kernel_gamma.bus.apply import Applier
from kernel_gamma.bus.delivery import Entry, backoff_sec
from kernel_gamma.bus.disk import Disk, DiskRules
from kernel_gamma.bus.folders import directory_of
from kernel_gamma.bus.intake import IntakeRules
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.plan import build_plan
from kernel_gamma.bus.reading import Reader
from kernel_gamma.bus.records import Books, Committed, Departure
from kernel_gamma.bus.recovery import Suspect, recover
from kernel_gamma.bus.steps import KillSwitch
from kernel_gamma.bus.subscription import Observer, QueuedFile, Subscriber, Subscription, departure
from kernel_gamma.bus.tending import Tender, TenderPorts
from kernel_gamma.bus.watcher import ignored
from kernel_gamma.bus.writer import Writer
from kernel_gamma.contracts.effects import Batch, DeadLetter, Delivery, Outcome
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock, Ids, PageStore
from kernel_gamma.errors import Park, Poison, Retry, Unusable
from kernel_gamma.settings import Settings

__all__ = ["BusPorts", "FileEventBus"]

log = structlog.get_logger(__name__)

_OUTAGE_AFTER = 3
"""Unusable answers for this many single events in a row are an outage, not bad events."""
_OUTAGE_FIRST_SEC = 30.0
_OUTAGE_LONGEST_SEC = 900.0


@dataclass(slots=True, eq=False)
class _Flight:
    """A batch that a handler has."""

    subscription: Subscription
    entries: list[Entry[QueuedFile]]
    batch: Batch


@dataclass(frozen=True, slots=True)
class BusPorts:
    """What the mind hands the bus."""

    clock: Clock
    ids: Ids
    pages: PageStore
    parse: Callable[[bytes], Json]
    """The bytes of a dropped file to a document; raises Poison."""
    kill: KillSwitch
    observe: Observer


class FileEventBus:
    """Open with `start`, then `next_batch` → handle → `commit` or `fail`, per node; `stop` at the end."""

    def __init__(self, root: Path, settings: Settings, ledger: Ledger, ports: BusPorts) -> None:
        """`ledger` is open and taken over; the bus closes what it opened itself."""
        self.root = root
        self._ports = ports
        self._settings = settings
        self._clock = ports.clock
        self._step = ports.kill
        self._observe = ports.observe
        self._subs: dict[str, Subscription] = {}
        self._targets: dict[tuple[str, str], tuple[str, ...]] = {}
        self._flights: dict[str, _Flight] = {}
        full = settings.bus.durability == "full"
        raw_root = os.fsencode(root)
        self._books = Books(raw_root, ports.pages, subscribers=self._subscribers)
        self._writer = Writer(ledger, full=full, step=ports.kill)
        self._applier = Applier(str(root), ports.pages, step=ports.kill, on_conflict=self._page_conflict)
        self._reader = Reader(raw_root, ports.clock, ports.parse, settings.inbox.max_bytes)
        self.disk = Disk(
            self._writer,
            self._books,
            self._applier,
            DiskRules(raw_root, full, settings.bus.checkpoint_sec),
            step=ports.kill,
            epoch=lambda: ports.clock.now().timestamp(),
            on_stall=lambda reason: self._observe("stalled", {"reason": reason}),
        )
        self._acceptance = Acceptance(
            AcceptancePorts(
                root=raw_root,
                clock=ports.clock,
                disk=self.disk,
                books=self._books,
                reader=self._reader,
                subscriptions=self._subs,
                subscribers=self._subscribers,
                step=ports.kill,
                observe=ports.observe,
                full=full,
            )
        )
        self._jitter = random.Random(0).random
        self._tender: Tender | None = None
        self._tending: asyncio.Task[None] | None = None
        self._suspects: list[Suspect] = []
        self.on_listing: Callable[[], Awaitable[None]] | None = None
        """Awaited after every listing of the directories: the mind looks at its pages then."""

    # ---- life

    async def start(self, subscribers: Sequence[Subscriber]) -> None:
        """Recover what the last process left, list the directories, begin to watch."""
        for subscriber in subscribers:
            self._subs[subscriber.node] = Subscription(subscriber, self._settings.bus.window)
        recovered = recover(
            self._writer,
            self._books,
            self._applier,
            root=os.fsencode(self.root),
            nodes={s.node: s.watch for s in subscribers},
            now=self._clock.now(),
            max_deaths=self._settings.bus.max_attempts,
        )
        self._suspects = recovered.suspects
        for sub in self._subs.values():
            sub.backlog = recovered.backlog.get(sub.node, 0)
            sub.more = sub.backlog > 0
        if recovered.stuck:
            self.disk.stick(recovered.stuck, recovered.stuck_reason)
        await self._begin_tending(subscribers)

    async def _begin_tending(self, subscribers: Sequence[Subscriber]) -> None:
        bus = self._settings.bus
        rules = IntakeRules(
            bus.settle_sec, bus.settle_timeout_sec, self._settings.inbox.max_bytes, self._ports.parse, ignored
        )
        ports = TenderPorts(
            clock=self._clock,
            accept=self._acceptance.accept,
            known=self._acceptance.known,
            room=self._room,
            listed=self._listed,
        )
        patterns = sorted({p for s in subscribers for p in s.watch})
        emitted = sorted({directory_of(p) for s in subscribers for p in s.emit})
        self._tender = Tender(self.root, bus, rules, ports, patterns=patterns, emitted=emitted)
        await self._tender.start()
        self._tending = asyncio.create_task(self._tender.run(), name="tending")

    async def stop(self) -> None:
        """Nothing new is taken; in-flight batches must have been committed, failed or released."""
        if self._tender is not None:
            self._tender.stop()
        if self._tending is not None:
            self._tending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._tending
        if self.disk.clear.is_set():
            await self._writer.submit(lambda ledger: ledger.run("release_running"))
        await self.disk.close()

    async def _listed(self) -> None:
        if self.on_listing is not None:
            await self.on_listing()

    def _subscribers(self, directory: str, name: str) -> tuple[str, ...]:
        prefix = name.split("_", 1)[0] if "_" in name else ""
        key = (directory, prefix)
        if key not in self._targets:
            if len(self._targets) > 1000:
                self._targets.clear()
            self._targets[key] = tuple(n for n, s in self._subs.items() if s.wants(directory, name))
        return self._targets[key]

    def _room(self, directory: str) -> int:
        if not self.disk.clear.is_set():
            return 0
        fed = [s for s in self._subs.values() if s.watches(directory)]
        return 2 * self._settings.bus.window - max((s.backlog for s in fed), default=0)

    # ---- deliver

    def suspects(self) -> list[Suspect]:
        """Batches that were in flight when the last process died; each is to be run alone, first."""
        return list(self._suspects)

    async def take_suspect(self, suspect: Suspect) -> Batch | None:
        """Hand a suspect over while nothing else is in flight; None if it is gone or waits for its pause."""
        sub = self._subs.get(suspect.node)
        if sub is None:
            return None
        await self.disk.clear.wait()
        rows = await self.disk.attempt(lambda ledger: _rows_of(ledger, suspect))
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
            await self.disk.clear.wait()
            pause = self._pause_left(sub)
            if pause <= 0:
                if entries := sub.mailbox.take(self._clock.monotonic()):
                    batch = await self._start(sub, entries)
                    if batch is not None:
                        return batch
                    continue
                if sub.more:
                    await self._load(sub)
                    continue
            await self._doze(sub, pause)

    def _pause_left(self, sub: Subscription) -> float:
        if sub.paused_until is None:
            return 0.0
        left = (sub.paused_until - self._clock.now()).total_seconds()
        if left <= 0:
            sub.paused_until = None
            sub.pause_reason = ""
        return left

    async def _doze(self, sub: Subscription, pause: float) -> None:
        wake_at = sub.mailbox.wake_at()
        if pause > 0:
            # The clock may be stepped or run faster in a trial: look again before long.
            timeout: float | None = min(pause, 5.0)
        else:
            timeout = None if wake_at is None else max(0.0, wake_at - self._clock.monotonic())
        if timeout is None:
            await sub.wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sub.wake.wait(), timeout)

    async def _load(self, sub: Subscription) -> None:
        """Fill the window from the ledger."""
        room = max(1, self._settings.bus.window - sub.mailbox.size)
        rows = await self.disk.attempt(
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
            queued = self._reader.queued(row)
        except FileNotFoundError:
            await self._acceptance.vanished(seq, (sub.node,))
            return None
        except Poison as error:
            file = Departure(seq, queue, os.fsdecode(name), os.fsdecode(path), origin)
            await self._acceptance.give_up(sub.node, file, error, attempts=attempts)
            sub.finished(seq)
            return None
        wait = next_try - self._clock.now().timestamp() if next_try is not None else 0.0
        not_before = self._clock.monotonic() + wait if wait > 0 else 0.0
        return sub.entry(queued, solo=bool(solo), not_before=not_before, batch=batch_id)

    async def _start(self, sub: Subscription, entries: list[Entry[QueuedFile]]) -> Batch | None:
        """Mark a batch as in flight, durably, before its handler runs."""
        now = self._clock.now()
        live = await self._without_expired(sub, entries, now.timestamp())
        if not live:
            return None
        deliveries = tuple(self._reader.again(e.item) for e in live)
        batch = Batch(live[0].batch or self._ports.ids.new("batch"), sub.node, deliveries)

        def mark(ledger: Ledger) -> None:
            for entry in live:
                ledger.run("start_delivery", batch.id, now.timestamp(), sub.node, entry.seq)

        await self.disk.attempt(mark)
        self._step("deliver.marked")
        sub.in_flight += 1
        self._flights[batch.id] = _Flight(sub, live, batch)
        return batch

    async def _without_expired(
        self, sub: Subscription, entries: list[Entry[QueuedFile]], now: float
    ) -> list[Entry[QueuedFile]]:
        live = [e for e in entries if e.item.expires_at is None or e.item.expires_at > now]
        for entry in entries:
            if entry not in live:
                await self._acceptance.expired(sub.node, departure(entry.item))
                sub.finished(entry.seq)
        if not live and entries:
            sub.mailbox.done(entries[0].key, self._clock.monotonic())
        return live

    # ---- commit and fail

    async def commit(self, batch: Batch, outcome: Outcome) -> None:
        """Make an Outcome durable and carry it out: all of it, once.

        Raises BadOutcome for what the node did not declare (then nothing has happened).
        """
        flight = self._flights[batch.id]
        sub, now = flight.subscription, self._clock.now()
        plan = build_plan(
            batch, outcome, emit_patterns=sub.subscriber.emit, mind=self._settings.mind, now=now
        )
        for seq, verdict in plan.verdicts.items():
            if verdict.status == "retry" and verdict.after_sec is None:
                plan.verdicts[seq] = replace(verdict, after_sec=self._backoff(flight))
        departures = {e.seq: departure(e.item) for e in flight.entries}
        record = partial(self._books.record_commit, plan=plan, batch=batch, departures=departures, now=now)
        committed = await self.disk.commit(record)
        self._land(flight, committed, now)

    def _backoff(self, flight: _Flight) -> float:
        attempt = max(e.item.delivery.attempt for e in flight.entries)
        bus = self._settings.bus
        return backoff_sec(attempt, first=bus.backoff_sec, longest=bus.backoff_max_sec, jitter=self._jitter)

    def _land(self, flight: _Flight, committed: Committed | None, now: datetime) -> None:
        """The in-memory side of a commit."""
        sub = flight.subscription
        del self._flights[flight.batch.id]
        sub.in_flight -= 1
        verdicts = committed.verdicts if committed else {}
        again = []
        for entry in flight.entries:
            verdict = verdicts.get(entry.seq)
            if verdict is not None and verdict.status == "retry":
                again.append(self._again(entry, verdict.after_sec or 0.0))
            else:
                sub.finished(entry.seq)
        monotonic = self._clock.monotonic()
        if again:
            sub.mailbox.give_back(again, monotonic)
        else:
            sub.mailbox.done(flight.entries[0].key, monotonic)
        dead = [v for v in verdicts.values() if v.status == "dead"]
        if not dead:
            sub.nonsense.clear()
            sub.parks = 0
        sub.wake.set()
        if committed is not None:
            self._offer_emitted(committed, now)
            self._observe("committed", {"node": sub.node, "batch": flight.batch, "commit": committed})
        if self._tender is not None and sub.backlog < self._settings.bus.window:
            self._tender.nudge()

    def _again(self, entry: Entry[QueuedFile], after_sec: float) -> Entry[QueuedFile]:
        delivery = entry.item.delivery
        entry.item.delivery = replace(delivery, attempt=delivery.attempt + 1)
        entry.not_before = self._clock.monotonic() + after_sec
        entry.solo = True
        entry.batch = None
        return entry

    def _offer_emitted(self, committed: Committed, now: datetime) -> None:
        monotonic = self._clock.monotonic()
        for new in committed.new_files:
            emit, envelope = new.emit, new.emit.envelope
            delivery = Delivery(
                seq=new.seq,
                queue=emit.directory,
                name=emit.name,
                origin="bus",
                document=emit.document(),
                accepted_at=now,
                envelope=envelope,
                trust=emit.trust,
            )
            ttl = envelope.ttl_sec
            expires = now.timestamp() + ttl if ttl is not None else None
            for node in new.nodes:
                queued = QueuedFile(delivery, f"{emit.directory}/{emit.name}", expires)
                self._subs[node].offer(queued, monotonic)

    async def fail(self, batch: Batch, error: BaseException) -> None:
        """A handler raised: wait, split, try again later, or set aside, as the error's class says."""
        flight = self._flights[batch.id]
        sub = flight.subscription
        sub.last_error = str(error) or type(error).__name__
        if isinstance(error, Park):
            self._pause(sub, error.until, str(error))
            await self.release(batch, reason=str(error))
        elif len(flight.entries) > 1:
            await self._split(flight, str(error))
        elif isinstance(error, Poison):
            await self.commit(batch, Outcome.of(DeadLetter(error.kind, str(error))))
        elif isinstance(error, Unusable) and self._is_outage(sub, flight.entries[0].seq):
            sub.parks += 1
            wait = min(_OUTAGE_LONGEST_SEC, _OUTAGE_FIRST_SEC * 2.0 ** (sub.parks - 1))
            reason = f"the model's answers are unusable for several events in a row: {error}"
            self._pause(sub, self._clock.now() + timedelta(seconds=wait), reason)
            await self._split(flight, str(error))
        else:
            await self._count_attempt(flight, error)

    def _is_outage(self, sub: Subscription, seq: int) -> bool:
        if seq not in sub.nonsense:
            sub.nonsense.append(seq)
        return len(sub.nonsense) >= _OUTAGE_AFTER

    def _pause(self, sub: Subscription, until: datetime, reason: str) -> None:
        sub.paused_until = until
        sub.pause_reason = reason
        log.warning("a node waits", node=sub.node, until=until.isoformat(), reason=reason)
        self._observe("paused", {"node": sub.node, "until": until, "reason": reason})

    async def _count_attempt(self, flight: _Flight, error: BaseException) -> None:
        entry, sub = flight.entries[0], flight.subscription
        attempt = entry.item.delivery.attempt
        reason = f"{type(error).__name__}: {error}"
        if attempt >= self._settings.bus.max_attempts:
            raw = error.raw if isinstance(error, Unusable) else ""
            kind = "unusable" if isinstance(error, Unusable) else "failed"
            await self.commit(flight.batch, Outcome.of(DeadLetter(kind, reason, raw=raw)))
            return
        wait = self._backoff(flight)
        if isinstance(error, Retry) and error.after_sec is not None:
            wait = error.after_sec
        at = self._clock.now().timestamp() + wait
        await self.disk.attempt(
            lambda ledger: ledger.run("retry_delivery", attempt, at, reason, sub.node, entry.seq)
        )
        log.warning("an attempt failed", node=sub.node, seq=entry.seq, attempt=attempt, error=reason)
        self._observe("failed", {"node": sub.node, "batch": flight.batch, "error": reason})
        self._return(flight, [self._again(entry, wait)])

    async def _split(self, flight: _Flight, reason: str) -> None:
        """Deliver the members one by one; no attempt is charged."""
        for entry in flight.entries:
            entry.solo = True
            entry.batch = None
        await self._release(flight, solo=1, reason=reason, keep_batch=False)

    async def release(self, batch: Batch, *, reason: str) -> None:
        """Back to the queue without an attempt; delivered again as the same batch."""
        flight = self._flights[batch.id]
        for entry in flight.entries:
            entry.batch = batch.id
        await self._release(flight, solo=0, reason=reason, keep_batch=True)

    async def _release(self, flight: _Flight, *, solo: int, reason: str, keep_batch: bool) -> None:
        node, batch_id = flight.subscription.node, flight.batch.id if keep_batch else None

        def record(ledger: Ledger) -> None:
            for entry in flight.entries:
                alone = solo or int(entry.solo)
                ledger.run("release_delivery", alone, reason, batch_id, node, entry.seq)

        await self.disk.attempt(record)
        self._return(flight, flight.entries)

    def _return(self, flight: _Flight, entries: list[Entry[QueuedFile]]) -> None:
        sub = flight.subscription
        del self._flights[flight.batch.id]
        sub.in_flight -= 1
        sub.mailbox.give_back(entries, self._clock.monotonic())
        sub.wake.set()

    # ---- what others ask

    def _page_conflict(self, page: str, kept: str) -> None:
        """A person's page was kept; tell the mind by an event whose id makes a repetition harmless."""
        from_self = {
            "specversion": "1.0",
            "id": kept,
            "source": "kernel-gamma/self",
            "type": "page.conflict",
            "data": {
                "text": f"{page} was changed by hand while I was writing it; mine is kept as {kept}.ours"
            },
        }
        self._applier.drop_event(f"page_conflict_{kept.removesuffix('.md')}.json", from_self)

    async def commit_own(
        self, cause: str, outcome: Outcome, *, extra: Callable[[Ledger], object] = lambda ledger: None
    ) -> None:
        """A commit of the runtime itself, caused by no delivery; once per `cause`. `extra` joins it."""
        batch = Batch(cause, "kernel", ())
        plan = build_plan(batch, outcome, emit_patterns=(), mind=self._settings.mind, now=self._clock.now())

        def record(ledger: Ledger) -> Committed | None:
            extra(ledger)
            return self._books.record_commit(ledger, plan, batch, {}, self._clock.now())

        await self.disk.commit(record)

    async def settle(self) -> None:
        """A fresh listing has been made and taken in."""
        if self._tender is not None:
            await self._tender.settle()

    def quiet(self) -> bool:
        """Nothing dropped, open, in flight or stuck that the bus knows of."""
        waiting = self._tender.waiting if self._tender is not None else 0
        return not waiting and self.disk.clear.is_set() and all(s.backlog == 0 for s in self._subs.values())

    def blocked(self) -> str:
        """Why nothing moves although something waits; "" when something does move."""
        if not self.disk.clear.is_set():
            return self.disk.stall_reason
        busy = [s for s in self._subs.values() if s.backlog]
        waiting = self._tender.waiting if self._tender is not None else 0
        if waiting or not busy or any(self._pause_left(s) <= 0 for s in busy):
            return ""
        return busy[0].pause_reason

    def node_states(self) -> dict[str, dict[str, Json]]:
        """For status: what each node is doing, and what went wrong last."""
        return {name: self._state_of(sub) for name, sub in self._subs.items()}

    def _state_of(self, sub: Subscription) -> dict[str, Json]:
        paused = self._pause_left(sub) > 0
        until = sub.paused_until.isoformat() if paused and sub.paused_until else None
        status = "parked" if paused else "running" if sub.in_flight else "idle"
        return {
            "status": status,
            "backlog": sub.backlog,
            "until": until,
            "reason": sub.pause_reason or None,
            "last_error": sub.last_error or None,
        }

    @property
    def watcher_state(self) -> tuple[str, str]:
        """How files are noticed: ("inotify" | "polling", why it polls)."""
        watcher = self._tender.watcher if self._tender is not None else None
        return (watcher.mode, watcher.reason) if watcher is not None else ("off", "")


def _rows_of(ledger: Ledger, suspect: Suspect) -> list[tuple[Any, ...]]:
    rows = []
    for seq in suspect.seqs:
        rows += [r for r in ledger.all("open_deliveries", suspect.node, seq - 1, 1) if r[0] == seq]
    return rows
