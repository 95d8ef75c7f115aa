"""FileEventBus: files in, batches out, Outcomes committed. The only writer of a mind's folder.

    dropped ──accept──▶ taken ──take──▶ in flight ──commit──▶ done | dead_letter
    emitted ───────────▶ queued ─┘            └─ fail ─▶ retry | parked | split | dead_letter

Notifications only shorten the wait; the directories are the truth (tending.py), the ledger makes each
effect happen once (records.py, disk.py). Everything here runs on the event loop; the ledger and the disk
belong to the writer.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog

from kernel_gamma.bus.acceptance import Acceptance, AcceptancePorts
from kernel_gamma.bus.apply import Applier
from kernel_gamma.bus.disk import Disk, DiskRules
from kernel_gamma.bus.failing import Failing, FailingPorts
from kernel_gamma.bus.files import place_of
from kernel_gamma.bus.folders import directory_of
from kernel_gamma.bus.handing import Handing, HandingPorts
from kernel_gamma.bus.intake import IntakeRules
from kernel_gamma.bus.lane import Lane, QueuedCommit
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.lock import LOCK_FILE
from kernel_gamma.bus.plan import Plan, build_plan
from kernel_gamma.bus.provenance import announce
from kernel_gamma.bus.reading import KEEP_BYTES, Reader
from kernel_gamma.bus.records import Books, Committed
from kernel_gamma.bus.recovery import Suspect, recover
from kernel_gamma.bus.standstill import Gate
from kernel_gamma.bus.steps import KillSwitch
from kernel_gamma.bus.subscription import (
    Flight,
    Observer,
    QueuedFile,
    Subscriber,
    Subscription,
    departure,
)
from kernel_gamma.bus.tending import Tender, TenderPorts
from kernel_gamma.bus.watcher import ignored
from kernel_gamma.bus.writer import Writer
from kernel_gamma.contracts.effects import Batch, Delivery, MovePrefix, Outcome
from kernel_gamma.contracts.envelope import Json, encode_document
from kernel_gamma.contracts.ports import Clock, Ids, PageStore, Recorder
from kernel_gamma.errors import Fenced, Stop
from kernel_gamma.settings import Settings

__all__ = ["BusPorts", "FileEventBus"]

log = structlog.get_logger(__name__)


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
    foresee: Callable[[Plan], None] = lambda plan: None
    """Pages that a queued commit will write."""
    recorder: Recorder | None = None
    """Where commits record what was done; None = nowhere."""
    stands: Callable[[Plan], None] = lambda plan: None
    """They are written, or never will be."""


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
        self._flights: dict[str, Flight] = {}
        self._lanes: dict[str, Lane] = {}
        self._claims: dict[str, Mapping[str, Json]] = {}
        full = settings.bus.durability == "full"
        rate = settings.clock.per_real_sec
        raw_root = os.fsencode(root)
        self._books = Books(raw_root, ports.pages, subscribers=self._subscribers)
        self._gate = Gate(root)
        self._writer = Writer(ledger, full=full, step=ports.kill, gate=self._gate)
        self._applier = Applier(
            str(root),
            ports.pages,
            step=ports.kill,
            on_conflict=self._page_conflict,
            on_rotated=self._page_rotated,
            recorder=ports.recorder,
        )
        self._reader = Reader(raw_root, ports.clock, ports.parse, settings.inbox.max_bytes)
        self.disk = Disk(
            self._writer,
            self._books,
            self._applier,
            DiskRules(raw_root, full, settings.bus.checkpoint_sec),
            step=ports.kill,
            now=ports.clock.now,
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
        self._failing = Failing(
            FailingPorts(
                root=os.path.abspath(root),
                clock=ports.clock,
                disk=self.disk,
                settings=settings.bus,
                flights=self._flights,
                lands=self.disk.flights.lands,
                commit=self.commit,
                observe=ports.observe,
                jitter=random.Random(0).random,
                rate=rate,
            )
        )
        self._handing = Handing(
            HandingPorts(
                clock=ports.clock,
                ids=ports.ids,
                disk=self.disk,
                takes_off=self.disk.flights.takes_off,
                reader=self._reader,
                acceptance=self._acceptance,
                subscriptions=self._subs,
                flights=self._flights,
                window=settings.bus.window,
                step=ports.kill,
                rate=rate,
            )
        )
        self._ledger = ledger
        self._lock: tuple[int, int] | None = None
        """The lock file this process holds, if it holds one."""
        self._tender: Tender | None = None
        self._tending: asyncio.Task[None] | None = None
        self._suspects: list[Suspect] = []
        self._commits = 0
        self.on_listing: Callable[[], Awaitable[None]] | None = None
        """Awaited after every listing of the directories: the mind looks at its pages then."""
        self.on_fatal: Callable[[BaseException], None] | None = None
        """Hears why nothing more can be accepted, e.g. Fenced."""
        self.on_written: Callable[[frozenset[str]], None] | None = None
        """Hears of the folders into which a commit has written bare files."""

    # ---- life

    async def start(self, subscribers: Sequence[Subscriber]) -> None:
        """Recover what the last process left, list the directories, begin to watch."""
        self._lock = place_of(self.root / LOCK_FILE)
        for subscriber in subscribers:
            self._subs[subscriber.node] = Subscription(subscriber, self._settings.bus.window)
            self._lanes[subscriber.node] = Lane(self.disk)
        await self._gate.wait()
        recovered = recover(
            self._writer,
            self._books,
            self._applier,
            root=os.fsencode(self.root),
            nodes={s.node: s.watch for s in subscribers},
            now=self._clock.now(),
            in_flight=list(self.disk.flights.read()),
            max_deaths=self._settings.bus.max_attempts,
        )
        self._gate.leave()
        self.disk.flights.open()
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
            settle_sec=bus.settle_sec,
            settle_timeout_sec=bus.settle_timeout_sec,
            max_bytes=self._settings.inbox.max_bytes,
            read=self._ports.parse,
            wanted=lambda directory, name: bool(self._subscribers(directory, name)),
        )
        ports = TenderPorts(
            clock=self._clock,
            accept=self._acceptance.accept,
            known=self._acceptance.known,
            room=self._room,
            still_ours=self._still_ours,
            listed=self._listed,
        )
        patterns = sorted({p for s in subscribers for p in s.watch})
        emitted = sorted({directory_of(p) for s in subscribers for p in s.emit})
        self._tender = Tender(self.root, bus, rules, ports, patterns=patterns, emitted=emitted)
        await self._tender.start()
        self._tending = asyncio.create_task(self._tender.run(), name="tending")
        self._tending.add_done_callback(self._tending_ended)

    def _tending_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self.on_fatal is not None:
            self.on_fatal(error)

    async def stop(self) -> None:
        """Nothing new is taken; in-flight batches must have been committed, failed or released."""
        if self._tender is not None:
            self._tender.stop()
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        for lane in self._lanes.values():
            if self.disk.clear.is_set():
                await lane.drain()
            else:
                lane.cancel()
        self.disk.flights.close(orderly=await self.disk.close())

    async def _listed(self) -> None:
        if self.on_listing is not None:
            await self.on_listing()

    def _still_ours(self) -> None:
        """Whoever removes or moves the folder lets another daemon start in its place: this one ends."""
        self._ledger.check_place()
        lock = self.root / LOCK_FILE
        if self._lock is not None and place_of(lock) != self._lock:
            raise Fenced(f"{lock}: it was removed or replaced while this daemon was holding it; start again")

    def _subscribers(self, directory: str, name: str) -> tuple[str, ...]:
        if ignored(name):
            return ()
        prefix = name.split("_", 1)[0] + "_" if "_" in name else ""
        key = (directory, prefix)
        if key not in self._targets:
            if len(self._targets) > 1000:
                self._targets.clear()
            like = f"{prefix}x.json"  # the ending may be written in capitals
            self._targets[key] = tuple(n for n, s in self._subs.items() if s.wants(directory, like))
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
        """Hand a suspect over while nothing else is in flight; None if it is gone."""
        return await self._handing.take_suspect(suspect)

    async def next_batch(self, node: str) -> Batch:
        """The next batch for a node; waits for it. Marked as in flight before it is returned."""
        return await self._handing.next_batch(node)

    # ---- commit and fail

    async def commit(self, batch: Batch, outcome: Outcome) -> None:
        """Make an Outcome durable and carry it out: all of it, once. Returns when it stands.

        Committing a batch again does nothing. Raises BadOutcome for what the node did not declare (then
        nothing has happened).
        """
        queued = self._queue(batch, outcome)
        if queued is not None:
            await self._lanes[batch.node].stands(queued)

    async def commit_ahead(self, batch: Batch, outcome: Outcome) -> None:
        """`commit` that returns when it is certain to happen before whatever the node commits next.

        Until it stands, what is read of the self is shown as it will be (`BusPorts.foresee`).
        """
        queued = self._queue(batch, outcome)
        if queued is not None:
            await self._lanes[batch.node].room()

    def _queue(self, batch: Batch, outcome: Outcome) -> QueuedCommit | None:
        flight = self._flights.get(batch.id)
        if flight is None or flight.committing:
            return None
        sub, now = flight.subscription, self._clock.now()
        plan = build_plan(
            batch, outcome, emit_patterns=sub.subscriber.emit, mind=self._settings.mind, now=now
        )
        for seq, verdict in plan.verdicts.items():
            if verdict.status == "retry" and verdict.after_sec is None:
                plan.verdicts[seq] = replace(verdict, after_sec=self._failing.backoff(flight))
        flight.committing = True
        plan.started_at = flight.started_at
        departures = {e.seq: departure(e.item) for e in flight.entries}
        queued = QueuedCommit(
            partial(
                self._books.record_commit,
                plan=plan,
                batch=batch,
                departures=departures,
                now=now,
            ),
            landed=lambda committed: self._land(flight, plan, committed, now),
            failed=lambda error: self._commit_failed(flight, error),
            refused=lambda: self._refused(flight, plan),
        )
        self._foresee(plan)
        self._lanes[sub.node].push(queued)
        return queued

    async def commit_beat(self, batch: Batch, outcome: Outcome) -> None:
        """`commit` of what a node decided because it was time: once for each batch id.

        Raises what the ledger said, and BadOutcome for what the node did not declare.
        """
        sub, now = self._subs[batch.node], self._clock.now()
        plan = build_plan(
            batch, outcome, emit_patterns=sub.subscriber.emit, mind=self._settings.mind, now=now
        )

        async def nobody(error: Exception) -> None:
            """Whoever waits has the error."""

        queued = QueuedCommit(
            partial(self._books.record_commit, plan=plan, batch=batch, departures={}, now=now),
            landed=lambda committed: self._land_beat(sub, batch, plan, committed, now),
            failed=nobody,
            refused=lambda: self._stands(plan),
        )
        self._foresee(plan)
        self._lanes[sub.node].push(queued)
        await self._lanes[sub.node].stands(queued)

    def _land_beat(
        self, sub: Subscription, batch: Batch, plan: Plan, committed: Committed | None, now: datetime
    ) -> None:
        self._stands(plan)
        self._commits += 1
        self._tell(sub, batch, plan, committed, now)

    def _tell(
        self, sub: Subscription, batch: Batch, plan: Plan, committed: Committed | None, now: datetime
    ) -> None:
        """Whoever waits for what a commit has written hears of it."""
        if plan.writes and self.on_written is not None:
            self.on_written(frozenset(directory for _, directory, *_ in plan.writes))
        if committed is not None:
            self._offer_emitted(committed, now)
            self._observe("committed", {"node": sub.node, "batch": batch, "commit": committed})

    def _foresee(self, plan: Plan) -> None:
        for claim in plan.claims:
            self._claims[claim.key] = claim.value
        self._ports.foresee(plan)

    def _stands(self, plan: Plan) -> None:
        for claim in plan.claims:
            if self._claims.get(claim.key) is claim.value:  # else a later commit renews it
                del self._claims[claim.key]
        self._ports.stands(plan)

    def claimed_ahead(self, key: str) -> Mapping[str, Json] | None:
        """What a commit that does not stand yet claims under a key."""
        return self._claims.get(key)

    def kept_ahead(self, prefix: str) -> dict[str, Mapping[str, Json]]:
        """The same for all keys that begin so."""
        return {key: value for key, value in self._claims.items() if key.startswith(prefix)}

    def _refused(self, flight: Flight, plan: Plan) -> None:
        self._stands(plan)
        flight.committing = False

    async def _commit_failed(self, flight: Flight, error: Exception) -> None:
        """The ledger would not take it: as if its handler had raised that."""
        if isinstance(error, (Fenced, Stop)):
            if self.on_fatal is not None:
                self.on_fatal(error)
            return
        log.error(
            "a commit was refused", node=flight.batch.node, trace_id=flight.batch.trace_id, error=str(error)
        )
        await self._failing.fail(flight, error)

    def _land(self, flight: Flight, plan: Plan, committed: Committed | None, now: datetime) -> None:
        """The in-memory side of a commit."""
        sub = flight.subscription
        self._stands(plan)
        self._commits += 1
        del self._flights[flight.batch.id]
        self.disk.flights.lands(flight.batch)
        sub.in_flight -= 1
        verdicts = committed.verdicts if committed else {}
        again = []
        for entry in flight.entries:
            verdict = verdicts.get(entry.seq)
            if verdict is not None and verdict.status == "retry":
                again.append(self._failing.again(entry, verdict.after_sec or 0.0))
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
        self._tell(sub, flight.batch, plan, committed, now)
        if self._tender is not None and sub.backlog < self._settings.bus.window:
            self._tender.nudge()

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
                path, large = f"{emit.directory}/{emit.name}", emit.size > KEEP_BYTES
                queued = QueuedFile(delivery, path, expires, sole=len(new.nodes) == 1, large=large)
                self._subs[node].offer(queued, monotonic)

    async def fail(self, batch: Batch, error: BaseException) -> None:
        """A handler raised: wait, split, try again later, or set aside, as the error's class says."""
        flight = self._flights.get(batch.id)
        if flight is not None and not flight.committing:
            await self._failing.fail(flight, error)

    async def release(self, batch: Batch, *, reason: str) -> None:
        """Back to the queue without an attempt; delivered again as the same batch."""
        flight = self._flights.get(batch.id)
        if flight is not None and not flight.committing:
            await self._failing.release(flight, reason=reason)

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
        name, data = f"page_conflict_{kept.removesuffix('.md')}.json", encode_document(from_self)
        # In the writer, between two transactions: nobody else may say that a page is in conflict.
        self._writer.run_amid(lambda ledger: announce(ledger, name, data, self._clock.now()))
        self._applier.drop_event(name, data)

    def _page_rotated(self, move: MovePrefix) -> None:
        """A page was shortened to make room for an append: a ledger entry of its own says so."""
        # In the writer, between two transactions.
        self._writer.run_amid(lambda ledger: self._books.record_rotation(ledger, move, self._clock.now()))
        passages = sum(len(archived.ranges) for archived in move.archives)
        log.info("passages moved to the archive", page=move.page, passages=passages, bytes=move.length)

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
        self._commits += 1

    async def settle(self) -> bool:
        """A fresh listing has been made and taken in; or nothing can be taken in, the disk being full.

        True if nothing was committed meanwhile: then the listing has seen all that commits have dropped.
        """
        before = self._commits
        if self._tender is None:
            return True
        waits = [asyncio.create_task(self._tender.settle()), asyncio.create_task(self.disk.stalled.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return self._commits == before

    def quiet(self) -> bool:
        """Nothing dropped, open, in flight or stuck that the bus knows of."""
        waiting = self._tender.waiting if self._tender is not None else 0
        return not waiting and self.disk.clear.is_set() and all(s.backlog == 0 for s in self._subs.values())

    def blocked(self) -> str:
        """Why nothing moves although something waits; "" when something does move."""
        if not self.disk.clear.is_set():
            return self.disk.stall_reason
        now, monotonic = self._clock.now(), self._clock.monotonic()
        busy = [s for s in self._subs.values() if s.backlog]
        moves = self._tender is not None and self._tender.acceptable()
        if moves or not busy or any(s.in_flight for s in busy):
            return ""
        reasons = [
            s.pause_reason if s.pause_left(now, monotonic) > 0 else s.all_put_off(monotonic) for s in busy
        ]
        return reasons[0] if all(reasons) else ""

    def node_states(self) -> dict[str, dict[str, Json]]:
        """For status: what each node is doing, and what went wrong last."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        return {name: sub.state(now, monotonic) for name, sub in self._subs.items()}

    @property
    def watcher_state(self) -> tuple[str, str]:
        """How files are noticed: ("inotify" | "polling", why it polls)."""
        watcher = self._tender.watcher if self._tender is not None else None
        return (watcher.mode, watcher.reason) if watcher is not None else ("off", "")
