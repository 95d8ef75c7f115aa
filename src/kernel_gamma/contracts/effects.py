"""What a node decides: an Outcome is a list of effects, and only the bus carries them out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, overload

from kernel_gamma.contracts.envelope import Envelope, Json, SourceType
from kernel_gamma.contracts.trust import Trust

__all__ = [
    "Append",
    "Archived",
    "Batch",
    "Claim",
    "DeadLetter",
    "Delivery",
    "Effect",
    "Emit",
    "Finish",
    "Move",
    "MovePrefix",
    "Outcome",
    "Overwrite",
    "PassageRef",
    "Record",
    "Replace",
    "RetryLater",
]


_RHYTHM = "rhythm:"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One queue file handed to one node."""

    seq: int
    """The bus's own number: the order of acceptance and the identity of the file."""
    queue: str
    """Directory relative to the data directory, e.g. `pipeline/message_queue`."""
    name: str
    """The name it was dropped or emitted under."""
    origin: Literal["bus", "dropped"]
    """`bus`: written by a commit of this mind; `dropped`: by anyone else."""
    document: Json
    """The parsed content: an object, or an array of objects."""
    accepted_at: datetime
    envelope: Envelope | None = None
    """Set when the document wears a valid envelope."""
    attempt: int = 1
    trust: Trust = "unknown"
    """What the cause of a bus-written file was trusted; `unknown` for dropped ones."""

    def seconds_left(self, now: datetime) -> int | None:
        """Of its time to live, which counts from acceptance; 0 when that is over, None when it has none."""
        return self.left_of(self.envelope.ttl_sec if self.envelope is not None else None, now)

    def left_of(self, ttl_sec: int | None, now: datetime) -> int | None:
        """The same of a time to live that something inside of it has: an event of an array, say."""
        if ttl_sec is None:
            return None
        return max(0, math.ceil(ttl_sec - max(0.0, (now - self.accepted_at).total_seconds())))

    @property
    def payload(self) -> Mapping[str, Json]:
        """The payload of an enveloped document; empty otherwise."""
        found = self.document.get("payload") if isinstance(self.document, dict) else None
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Batch(Sequence[Delivery]):
    """Deliveries handled together. Stored before the handler starts, redelivered unchanged."""

    id: str
    node: str
    deliveries: tuple[Delivery, ...]
    fresh: bool = False
    """Made just now: no step of it can stand in the journal."""

    def __len__(self) -> int:
        return len(self.deliveries)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Delivery, ...]: ...
    def __getitem__(self, index: int | slice) -> Delivery | tuple[Delivery, ...]:
        return self.deliveries[index]

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self.deliveries)

    @property
    def trace_id(self) -> str:
        """The newest trace among the deliveries; the batch's own id when none wears an envelope."""
        for delivery in reversed(self.deliveries):
            if delivery.envelope is not None:
                return delivery.envelope.trace_id
        return self.id

    @property
    def rule(self) -> str:
        """The rhythm rule whose session (`rhythm:<rule>`) it belongs to; "" when it belongs to none."""
        for delivery in self.deliveries:
            if delivery.envelope is not None and delivery.envelope.session_key.startswith(_RHYTHM):
                return delivery.envelope.session_key.removeprefix(_RHYTHM)
        return ""


@dataclass(frozen=True, slots=True)
class PassageRef:
    """Names a passage so that an `int_` and the ledger can find it again."""

    passage_id: str
    kind: Literal["experience", "thought", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Write one enveloped file. What is None is taken from the batch's newest delivery."""

    directory: str
    """Relative to the data directory; must match one of the node's emit patterns."""
    payload: Mapping[str, Json]
    source_type: SourceType | None = None
    session_key: str | None = None
    trace_id: str | None = None
    parent_id: str | None = None
    hops: int | None = None
    ttl_sec: int | None = None
    trust: Trust | None = None
    locates: str | None = None
    """A passage id appended in this Outcome: its offset, length and sha256 are filled in."""
    name: str | None = None
    """The file name (ends in .json, matches the pattern) where it must say what it stands for, as a trigger
    names its slot; None: the bus makes one. Whoever names files sees to it that no name comes twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Add text at the end of a page of the self. Exactly these bytes, once."""

    page: str
    """Relative to self/, e.g. `stream/now.md`, `diary/2026-11-30.md`."""
    text: str
    opening: str = ""
    """Written first when the page does not exist yet."""
    passage: PassageRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Put a whole new page in place, if it is still the one that was read."""

    page: str
    text: str
    expect: str | None
    """sha256 (hex) of the page that was read; None = there was no page."""


@dataclass(frozen=True, slots=True)
class Archived:
    """Pieces of a prefix that go to one page."""

    page: str
    """Relative to self/, e.g. `stream/archive/2026-11-30.md`."""
    ranges: tuple[tuple[int, int], ...]
    """Byte offsets in the prefix, start and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePrefix:
    """Move the beginning of a page to other pages, unaltered; what follows it stays.

    If the page begins otherwise by then, nothing happens.
    """

    page: str
    """Relative to self/."""
    length: int
    """Bytes of the prefix."""
    sha256: str
    """Hex, of these bytes."""
    archives: tuple[Archived, ...]
    """Where the pieces go: appended, each once."""
    opening: str = ""
    """What the page begins with afterwards, in the place of the prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Write a bare file in place: acks and signals."""

    path: str
    """Relative to the data directory."""
    document: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Move a bare file, after everything else of the Outcome; nothing happens if it is gone."""

    path: str
    """Relative to the data directory, as `to` is."""
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Remember a dedupe key, in the same commit as what it stands for."""

    key: str
    value: Mapping[str, Json]
    """What `NodePorts.seen` answers until then."""
    hours: float
    renew: bool = False
    """Takes the place of what is remembered under the key; False: what is remembered stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Write a truth of what was done into the memory store (Channel B), once.

    Its key is made by the bus from the cause: a commit that is applied again records nothing new.
    """

    category: str
    """e.g. `task`, `result`, `error`; the key begins with it."""
    value: Mapping[str, Json]
    """The trace id is added when it is not there."""
    description: str = ""
    trust: Trust | None = None
    """None: the least trusted of the batch."""
    key: str | None = None
    """A key of its own instead, which must derive from the cause; the value is then written as it is."""


@dataclass(frozen=True, slots=True)
class Finish:
    """This delivery is done. Deliveries an Outcome does not name are finished too."""

    delivery: Delivery
    reason: str = ""
    """Why nothing was emitted for it; `kgamma trace` shows it in place of `done`."""
    ids: tuple[str, ...] = ()
    """Events and traces that ended here: the file is found under them too."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Deliver these again (all of the batch when empty)."""

    reason: str
    after_sec: float | None = None
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """These deliveries can never succeed (all of the batch when empty)."""

    kind: str
    """A short word, e.g. `invalid`, `unusable`."""
    detail: str
    """A sentence for a person."""
    deliveries: tuple[Delivery, ...] = ()
    raw: str = ""
    """A model's reply that could not be used, kept whole beside the reason."""


Effect: TypeAlias = (
    Emit
    | Append
    | Replace
    | MovePrefix
    | Overwrite
    | Move
    | Claim
    | Record
    | Finish
    | RetryLater
    | DeadLetter
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All effects of one handled batch; they happen together or not at all."""

    effects: tuple[Effect, ...] = field(default=())

    @classmethod
    def of(cls, *effects: Effect) -> Outcome:
        return cls(effects)
