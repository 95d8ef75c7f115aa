"""Circuit: the loop of every node. Takes a batch, lets the node decide, commits or says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

import structlog

from kernel_gamma.bus.delivery import Hold, Limits
from kernel_gamma.bus.event_bus import FileEventBus
from kernel_gamma.bus.subscription import Subscriber
from kernel_gamma.contracts.effects import Batch, Outcome
from kernel_gamma.errors import Fenced, Park, Stop
from kernel_gamma.nodes.base import Node, NodePorts
from kernel_gamma.topology import Declared

__all__ = ["Circuit"]

log = structlog.get_logger(__name__)

Commit = Callable[[Batch, Outcome], Awaitable[None]]
Phase = Literal["taking", "handling", "committing"]

_ASKED_AGAIN_SEC = 60.0
"""Real seconds after which a node is asked anew when its next beat is: a clock may have been set."""
_MOMENTS_KEPT = 10_000
_BEAT_RETRY_SEC = 60.0
"""Real seconds until a beat that raised is tried again."""


class Circuit:
    """All nodes of one mind. `run` until `stop`; `subscribers` is what the bus must know first."""

    def __init__(self, bus: FileEventBus, declared: Sequence[Declared], ports: NodePorts) -> None:
        self._bus = bus
        self._model = ports.model
        self._clock = ports.clock
        self._rate = ports.settings.clock.per_real_sec
        self._awake: dict[str, asyncio.Event] = {}
        """Set when a node with beats may want its next one at another time."""
        self._waiting: set[str] = set()
        """Nodes with beats that have none due."""
        self._declared = list(declared)
        self._nodes: dict[str, Node] = {d.id: d.node_class(d.id, ports, d.config) for d in declared}
        self._workers: dict[asyncio.Task[None], Phase] = {}
        self._fatal: BaseException | None = None
        self._ended = asyncio.Event()
        self._stopping = False
        self._warmed = False
        bus.on_fatal = self._end_with
        bus.on_written = self._wake_heeding

    def subscribers(self) -> list[Subscriber]:
        """One per node."""
        return [_subscriber(d, self._nodes[d.id]) for d in self._declared]

    async def run(self) -> None:
        """Start every worker and wait until `stop`; raises Stop or Fenced if a node or the bus did."""
        first = self._employ(self._clear_suspects(), "suspects")
        await asyncio.wait([first])
        if not self._stopping and not self._ended.is_set():
            for declared in self._declared:
                for _ in range(declared.concurrency if declared.watch else 0):
                    self._employ(self._serve(self._nodes[declared.id]), declared.id)
                if declared.node_class.has_beats():
                    self._awake[declared.id] = asyncio.Event()
                    self._employ(self._keep_time(self._nodes[declared.id]), f"{declared.id} beats")
            self._employ(self._warm(), "warming")  # beside them: the first event need not wait for it
        await self._ended.wait()
        if self._fatal is not None:
            raise self._fatal

    def _employ(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._workers[task] = "taking"
        task.add_done_callback(self._worker_ended)
        return task

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        self._workers.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end_with(error)

    def _end_with(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self._ended.set()

    async def _clear_suspects(self) -> None:
        """What was in flight when the last process died runs alone: a second death has a culprit."""
        suspects = self._bus.suspects()
        if suspects:
            await self._warm()
        for suspect in suspects:
            self._phase("taking")
            batch = await self._bus.take_suspect(suspect)
            if batch is not None:
                await self._handle(self._nodes[suspect.node], batch, self._bus.commit)

    async def _warm(self) -> None:
        """Load what the model needs, before a call waits for it; nothing when that was done before.

        A suspect takes off only after it, so that no slow start is laid on it.
        """
        warm = getattr(self._model, "warm", None)
        if warm is None or self._warmed:
            return
        self._warmed = True
        try:
            await warm()
        except Exception as error:  # noqa: BLE001 - the first call loads the same, and says what is wrong
            log.warning("the model could not be made ready", error=f"{type(error).__name__}: {error}")

    async def _serve(self, node: Node) -> None:
        while not self._stopping:
            self._phase("taking")
            batch = await self._bus.next_batch(node.id)
            await self._handle(node, batch, self._bus.commit_ahead)
            if node.id in self._awake:
                self._awake[node.id].set()

    def _wake_heeding(self, directories: frozenset[str]) -> None:
        """A file was written that may bring the next beat of a node forward."""
        for node_id, awake in self._awake.items():
            if not directories.isdisjoint(self._nodes[node_id].heeds):
                awake.set()

    def beats_due(self) -> bool:
        """Whether a beat is running or its time has come."""
        return len(self._waiting) < len(self._awake)

    async def _keep_time(self, node: Node) -> None:
        """Call a node whenever its time has come."""
        ran: dict[str, int] = {}
        planned: datetime | None = None
        while not self._stopping:
            self._phase("taking")
            at = self._next_beat(node, planned)
            planned = at
            left = _ASKED_AGAIN_SEC if at is None else (at - self._clock.now()).total_seconds() / self._rate
            if at is None or left > 0:
                self._waiting.add(node.id)
                await self._rest(node, min(left, _ASKED_AGAIN_SEC))
                continue
            self._waiting.discard(node.id)
            pause = await self._beat(node, self._batch_of(node, at, ran), at)
            planned = None
            if pause == 0:
                ran[_name_of(node, at)] = ran.get(_name_of(node, at), 0) + 1
            else:
                self._phase("taking")
                self._waiting.add(node.id)
                await asyncio.sleep(pause)

    def _next_beat(self, node: Node, planned: datetime | None) -> datetime | None:
        """The next multiple of a pace is always ahead: the one that was waited for is kept until it came."""
        now = self._clock.now()
        at = node.next_beat(now)
        by_pace = type(node).next_beat is Node.next_beat
        if by_pace and planned is not None and planned.timestamp() <= now.timestamp():
            return planned
        return at

    async def _rest(self, node: Node, seconds: float) -> None:
        awake = self._awake[node.id]
        awake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(awake.wait(), max(0.001, seconds))

    def _batch_of(self, node: Node, at: datetime, ran: dict[str, int]) -> Batch:
        """The same moment has the same id after a crash; one that comes again on a clock set back has not."""
        if len(ran) > _MOMENTS_KEPT:
            ran.clear()
        name = _name_of(node, at)
        return Batch(f"{name}_{ran[name]}" if name in ran else name, node.id, ())

    async def _beat(self, node: Node, batch: Batch, at: datetime) -> float:
        """Real seconds to wait before the next one is asked for."""
        self._phase("handling")
        try:
            outcome = await node.beat(batch, at)
            self._phase("committing")
            if outcome.effects:
                await self._bus.commit_beat(batch, outcome)
        except (Stop, Fenced):
            raise
        except Park as wait:
            log.info("a beat waits", node=node.id, reason=str(wait))
            left = (wait.until - self._clock.now()).total_seconds() / self._rate
            return min(max(left, 0.1), _BEAT_RETRY_SEC)
        except Exception as error:  # noqa: BLE001 - a node never stays broken: its time comes again
            log.warning("a beat failed", node=node.id, error=f"{type(error).__name__}: {error}")
            return _BEAT_RETRY_SEC
        return 0.0

    def _phase(self, phase: Phase) -> None:
        task = asyncio.current_task()
        if task in self._workers:
            self._workers[task] = phase

    async def _handle(self, node: Node, batch: Batch, commit: Commit) -> None:
        self._phase("handling")
        try:
            outcome = await node.handle(batch)
            self._phase("committing")
            await commit(batch, outcome)
        except asyncio.CancelledError:
            self._phase("committing")
            await self._bus.release(batch, reason="the daemon was stopped")
            raise
        except (Stop, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - a node never stays broken: whatever it raised is an attempt
            self._phase("committing")
            log.warning(
                "a node failed",
                node=node.id,
                trace_id=batch.trace_id,
                error=f"{type(error).__name__}: {error}",
            )
            await self._bus.fail(batch, error)

    async def stop(self, grace_sec: float) -> None:
        """Stop taking; running handlers may finish within the grace, the rest goes back to its queue.

        While the disk cannot be written nobody waits for a commit: what is not in the ledger comes again.
        """
        self._stopping = True
        self._cancel("taking")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_sec
        while self._workers and loop.time() < deadline:
            await asyncio.wait(
                self._workers, timeout=min(0.05, grace_sec), return_when=asyncio.FIRST_COMPLETED
            )
            self._cancel_idle()
        self._cancel("handling")
        while self._workers:
            await asyncio.wait(self._workers, timeout=0.05)
            self._cancel_idle()
        self._ended.set()

    def _cancel_idle(self) -> None:
        self._cancel("taking")
        if self._bus.disk.stalled.is_set():
            self._cancel("committing")

    def _cancel(self, phase: Phase) -> None:
        for task, where in list(self._workers.items()):
            if where == phase:
                task.cancel()


def _name_of(node: Node, at: datetime) -> str:
    return f"beat_{node.id}_{at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"


def _subscriber(declared: Declared, node: Node) -> Subscriber:
    debounce = node.debounce
    return Subscriber(
        node=declared.id,
        watch=declared.watch,
        emit=declared.emit,
        limits=Limits(node.batch.max_count, node.batch.max_weight),
        hold=Hold(debounce.quiet_sec, debounce.max_sec) if debounce is not None else None,
        order_by=node.order_by,
        batch_by=node.batch_by,
        weigh=node.weigh,
        takes_expired=node.takes_expired,
    )
