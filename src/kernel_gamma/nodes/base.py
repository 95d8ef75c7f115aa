"""What a node is: a declaration and one decision. The loop that feeds it lives in circuit.py.

A node gets no path, no lock and no bus: it reads through its ports and returns an Outcome.
Raise from errors.py to say what follows; any other exception counts as an attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from kernel_gamma.contracts.alerts import Inspection, Look
from kernel_gamma.contracts.context import Assembled, Request
from kernel_gamma.contracts.effects import Batch, Delivery, Outcome
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import (
    Clock,
    Ids,
    Journal,
    Model,
    PassagePlace,
    Prompts,
    SelfLog,
    ToolHost,
)
from kernel_gamma.rhythm.rules import Rule
from kernel_gamma.settings import Settings

__all__ = ["BatchRule", "Debounce", "Node", "NodePorts", "most_told"]

_MOST_TOLD = 64


@dataclass(frozen=True, slots=True)
class Debounce:
    """Hold deliveries of a busy key until it has been quiet (both in seconds)."""

    quiet_sec: float
    max_sec: float


@dataclass(frozen=True, slots=True)
class BatchRule:
    """How many waiting deliveries of one batch key are handed over at once."""

    max_count: int = 1
    max_weight: int | None = None
    """Sum of `weigh`; the first delivery is always taken."""


async def _measured_nothing() -> Mapping[str, Json]:
    return {}


async def _inspected_nothing(look: Look) -> Inspection:
    return Inspection()


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Everything a node may reach."""

    clock: Clock
    ids: Ids
    journal: Journal
    model: Model
    self_log: SelfLog
    tools: ToolHost
    prompts: Prompts
    settings: Settings
    place_of: Callable[[str], PassagePlace | None]
    """Where the ledger last knew a passage id."""
    seen: Callable[[str], Mapping[str, Json] | None]
    """What was claimed under a dedupe key (effects.Claim) and has not expired."""
    assemble: Callable[[Request], Awaitable[Assembled]]
    """The prompt for a request. Raises TooLarge."""
    rhythm: tuple[Rule, ...] = ()
    """The rules of config/rhythm.yaml."""
    signal: Callable[[str], Json] = lambda path: None
    """A small JSON file that is no queue, e.g. `control/skip.json`; None when it cannot be read."""
    last_happening: Callable[[], int] = lambda: 0
    """The number of the newest event or action that is not of the rhythm itself; 0: none."""
    triggers_made: Callable[[], Sequence[str]] = lambda: ()
    """Names of the triggers that stand or have been done."""
    kept: Callable[[str], Mapping[str, Mapping[str, Json]]] = lambda prefix: {}
    """`seen` for all keys that begin so; for a handful of them."""
    measures: Callable[[], Awaitable[Mapping[str, Json]]] = _measured_nothing
    """Queues, process and disk in numbers; the status has them from then on (measures.py)."""
    inspect: Callable[[Look], Awaitable[Inspection]] = _inspected_nothing
    """Look at the mind's own health, without a call of a model (inspections.py)."""


def most_told(settings: Settings) -> int:
    """Events told in one passage at most: each may be answered, and a passage may decide only so much."""
    return min(_MOST_TOLD, settings.actions.max_per_passage)


class Node:
    """Base of every node. Subclasses set `watch` and `emit` and write `handle`, or have beats, or both."""

    watch: ClassVar[tuple[str, ...]] = ()
    """Patterns relative to the data directory, `<queue>/<prefix>_*.json`; topology.yaml may override."""
    emit: ClassVar[tuple[str, ...]] = ()
    """Patterns it may write to; `*` may stand for one folder, as in `outbox/*/out_*.json`."""
    concurrency: ClassVar[int] = 1
    """Batches handled at the same time; deliveries of one `order_by` key never overlap."""
    takes_expired: ClassVar[bool] = False
    """Files past their time to live come too, and it says what follows; else the bus closes them."""
    every_sec: ClassVar[float | None] = None
    """Seconds between its beats; None: it has none, unless `next_beat` says otherwise."""
    debounce: Debounce | None = None
    batch: BatchRule = BatchRule()

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        """`config` is the node's own block of topology.yaml."""
        self.id = node_id
        self.ports = ports
        self.config = config

    def order_by(self, delivery: Delivery) -> str:
        """Deliveries with the same key are handled in order; while one waits for a retry, later ones wait."""
        return delivery.envelope.session_key if delivery.envelope else ""

    def batch_by(self, delivery: Delivery) -> str:
        """Only deliveries with the same key share a batch."""
        return self.order_by(delivery)

    def weigh(self, delivery: Delivery) -> int:
        """Weight for BatchRule.max_weight."""
        return 1

    async def handle(self, batch: Batch) -> Outcome:
        """Decide. Called again with the same batch after a crash before its commit."""
        raise NotImplementedError(f"{type(self).__name__} watches files and has no handle()")

    @classmethod
    def has_beats(cls) -> bool:
        """Whether time alone may call it."""
        return cls.every_sec is not None or cls.next_beat is not Node.next_beat

    def next_beat(self, now: datetime) -> datetime | None:
        """When `beat` is wanted next; at once if that is not after `now`. None: not as things stand.

        Asked again after each beat, after each batch it handled, and at least once a minute, so that a
        clock that is set anew is noticed. By default the next multiple of its pace.
        """
        every = self.pace()
        if every is None:
            return None
        clock = self.ports.settings.clock
        every = max(every, clock.rate if clock.trial else 0.0)  # in a trial a real second goes by, at least
        return datetime.fromtimestamp((now.timestamp() // every + 1) * every, now.tzinfo)

    def pace(self) -> float | None:
        """Seconds between beats: `every_sec`, unless a setting has another."""
        return self.every_sec

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        """Decide because it is time. `batch` has no deliveries; its id names the node and the moment `at`.

        Called again with the same batch after a crash before its commit, if `next_beat` says the same.
        An empty Outcome commits nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} has beats and no beat()")
