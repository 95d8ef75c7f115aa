"""From an Outcome to a plan: everything needed to carry it out, and to carry it out again. Pure.

A plan is a list of operations on the file system, each idempotent, in the order they are applied:
pages first, then new files, then the inputs leave their queues. It is stored in the ledger as JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from kernel_gamma.bus.folders import NAME_MAX, matches, prefix_for
from kernel_gamma.contracts.effects import (
    Append,
    Archived,
    Batch,
    Claim,
    DeadLetter,
    Emit,
    Finish,
    Move,
    MovePrefix,
    Outcome,
    Overwrite,
    Record,
    Replace,
    RetryLater,
)
from kernel_gamma.contracts.envelope import Document, Envelope, Json, encode_document
from kernel_gamma.contracts.trust import Trust, least
from kernel_gamma.contracts.ulid import encode_ulid

__all__ = [
    "BadOutcome",
    "Operation",
    "Plan",
    "PlannedAppend",
    "PlannedEmit",
    "Verdict",
    "build_plan",
    "decode",
    "encode",
    "history_stem",
    "record_operation",
    "rotation_of",
]

_PAGE_PART = NAME_MAX - len("..tmp")
"""A page is written beside itself under a longer name first."""
_HISTORY_STEM = 120

Operation = tuple[Any, ...]
"""("append", page, text, opening, occurrence) · ("replace", page, text, expect, history) ·
("rotate", page, length, sha256, opening, [[archive, [[start, end], …]], …]) ·
("write", directory, name, text, kind) · ("record", key, description, value, trust, time) ·
("move", from, to); paths relative to the data directory."""


class BadOutcome(Exception):
    """A node asked for something it did not declare, or that cannot be."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one delivery."""

    status: Literal["finished", "dead", "retry"]
    reason: str = ""
    kind: str = ""
    after_sec: float | None = None
    raw: str = ""
    ids: tuple[str, ...] = ()


@dataclass(slots=True)
class PlannedEmit:
    """A file to be written; `payload` is completed when the passage it locates has its place."""

    directory: str
    name: str
    envelope: Envelope
    payload: dict[str, Json]
    trust: Trust
    locates: str | None = None
    size: int = 0
    """Bytes of the file, once its text was made."""

    def document(self) -> dict[str, Json]:
        return {"envelope": self.envelope.as_json(), "payload": self.payload}

    def text(self) -> str:
        data = Document(self.envelope, self.payload).to_bytes()
        self.size = len(data)
        return data.decode()

    def ids(self) -> Iterator[str]:
        """Other ids under which this file is found."""
        inside = [*_objects(self.payload.get("events")), *_objects(self.payload.get("actions"))]
        for one in inside:
            for key in ("id", "trace_id"):
                if isinstance(found := one.get(key), str) and found:
                    yield found
        for trace in self.payload.get("traces") or ():
            if isinstance(trace, str) and trace != self.envelope.trace_id:
                yield trace


@dataclass(slots=True)
class PlannedAppend:
    """Text to be added to a page."""

    page: str
    text: str
    opening: str
    passage_id: str | None
    kind: str
    offset: int = 0
    occurrence: int = 0
    """How many passages of exactly these bytes there are with this one; 0 = not counted yet."""

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "replace")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(slots=True)
class Plan:
    """One commit to be."""

    batch_id: str
    node: str
    trace_id: str
    started_at: float | None = None
    """When the handler started, in epoch seconds."""
    appends: list[PlannedAppend] = field(default_factory=list)
    replaces: list[Operation] = field(default_factory=list)
    rotations: list[Operation] = field(default_factory=list)
    emits: list[PlannedEmit] = field(default_factory=list)
    writes: list[Operation] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    farewells: list[Operation] = field(default_factory=list)
    """Reasons and acks of files that leave as dead."""
    asked_moves: list[Operation] = field(default_factory=list)
    moves: list[Operation] = field(default_factory=list)
    """Inputs that leave their queues."""
    records: list[Operation] = field(default_factory=list)
    """Truths for the memory store."""

    def locate(self) -> None:
        """Complete the emits that name a passage of this plan, once its offset is known."""
        places: dict[str | None, PlannedAppend] = {a.passage_id: a for a in self.appends if a.passage_id}
        for emit in self.emits:
            if (found := places.get(emit.locates)) is not None:
                emit.payload |= {
                    "passage_id": found.passage_id,
                    "stream_offset": found.offset,
                    "length": len(found.data),
                    "sha256": found.sha256,
                }

    def operations(self) -> list[Operation]:
        """In the order of application."""
        appends = [("append", a.page, a.text, a.opening, a.occurrence) for a in self.appends]
        emits = [("write", e.directory, e.name, e.text(), "emit") for e in self.emits]
        return [
            *appends, *self.replaces, *self.rotations, *emits, *self.writes, *self.records, *self.farewells,
            *self.asked_moves, *self.moves,
        ]  # fmt: skip

    def outputs(self) -> list[str]:
        """What `kgamma trace` names: the paths this commit writes."""
        pages = [f"self/{op.page}" for op in self.appends] + [f"self/{op[1]}" for op in self.replaces]
        pages += [f"self/{archive}" for op in self.rotations for archive, _ in op[5]]
        return pages + [f"{e.directory}/{e.name}" for e in self.emits]


def encode(operations: list[Operation]) -> str:
    """JSON for the ledger; names that are no UTF-8 survive as lone surrogates, escaped."""
    return json.dumps(operations)


def decode(text: str) -> list[Operation]:
    """The operations of a stored plan."""
    return [tuple(op) for op in json.loads(text)]


def emit_key(batch_id: str, node: str, index: int) -> bytes:
    """What makes a second run of the same cause emit the same names."""
    return hashlib.sha256(f"{batch_id}\0{node}\0{index}".encode()).digest()


def build_plan(
    batch: Batch, outcome: Outcome, *, emit_patterns: tuple[str, ...], mind: str, now: datetime
) -> Plan:
    """Translate effects; deliveries that no effect names are finished.

    Raises BadOutcome for an emit outside the declared patterns, a page outside self/, or a name that no
    file system takes: what is in the ledger must be possible on disk.
    """
    plan = Plan(batch.id, batch.node, batch.trace_id)
    for index, effect in enumerate(outcome.effects):
        match effect:
            case Emit():
                plan.emits.append(_emit(effect, index, batch, emit_patterns, mind, now))
            case Append():
                plan.appends.append(_append(effect))
            case Replace():
                plan.replaces.append(_replace(effect, index, batch.id))
            case MovePrefix():
                plan.rotations.append(_rotate(effect))
            case Overwrite() | Move():
                _place(plan, effect)
            case Claim():
                plan.claims.append(effect)
            case Record():
                plan.records.append(_record(effect, index, batch, now))
            case _:
                _judge(plan, effect, batch)
    for delivery in batch:
        plan.verdicts.setdefault(delivery.seq, Verdict("finished"))
    return plan


def _place(plan: Plan, effect: Overwrite | Move) -> None:
    _check_path(effect.path)
    if isinstance(effect, Overwrite):
        plan.writes.append(write_operation(effect.path, effect.document))
    else:
        _check_path(effect.to)
        plan.asked_moves.append(("move", effect.path, effect.to))


def _judge(plan: Plan, effect: Finish | RetryLater | DeadLetter, batch: Batch) -> None:
    match effect:
        case Finish():
            plan.verdicts[effect.delivery.seq] = Verdict("finished", effect.reason, ids=effect.ids)
            return
        case RetryLater():
            verdict = Verdict("retry", effect.reason, after_sec=effect.after_sec)
        case DeadLetter():
            verdict = Verdict("dead", effect.detail, effect.kind, raw=effect.raw)
    for delivery in effect.deliveries or batch.deliveries:
        plan.verdicts[delivery.seq] = verdict


def _append(effect: Append) -> PlannedAppend:
    _check_page(effect.page)
    ref = effect.passage
    # Every append ends with one empty line, so the place of the next one is known without looking.
    text = effect.text.rstrip("\n") + "\n\n"
    return PlannedAppend(
        effect.page, text, effect.opening, ref.passage_id if ref else None, ref.kind if ref else ""
    )


def _replace(effect: Replace, index: int, batch_id: str) -> Operation:
    _check_page(effect.page)
    kept = f"{history_stem(effect.page)}.{batch_id}.{index}.md"
    return ("replace", effect.page, effect.text, effect.expect, kept)


def history_stem(page: str) -> str:
    """How the names of the old copies of a page begin in self/.history/; a long name is cut."""
    stem = page.removesuffix(".md").replace("/", "_").encode("utf-8", "replace")
    return stem[:_HISTORY_STEM].decode("utf-8", "ignore")


def _rotate(effect: MovePrefix) -> Operation:
    for page in (effect.page, *(archived.page for archived in effect.archives)):
        _check_page(page)
    for start, end in (span for archived in effect.archives for span in archived.ranges):
        if not 0 <= start < end <= effect.length:
            raise BadOutcome(f"{start} to {end} is no piece of a prefix of {effect.length} bytes")
    archives = [[a.page, [list(span) for span in a.ranges]] for a in effect.archives]
    return ("rotate", effect.page, effect.length, effect.sha256, effect.opening, archives)


def rotation_of(operation: Operation) -> MovePrefix:
    """The effect that a stored ("rotate", …) stands for."""
    _, page, length, sha256, opening, archives = operation
    return MovePrefix(
        page=page,
        length=length,
        sha256=sha256,
        opening=opening,
        archives=tuple(Archived(name, tuple((a, b) for a, b in spans)) for name, spans in archives),
    )


def write_operation(path: str, document: Json) -> Operation:
    """Write a bare JSON file (ack, reason, signal) at `path`, relative to the data directory."""
    directory, _, name = path.rpartition("/")
    return ("write", directory, name, encode_document(document).decode(), "plain")


def record_operation(
    category: str, key: bytes, description: str, value: Mapping[str, Json], trust: Trust, now: datetime
) -> Operation:
    """Write a truth; `key` (10 bytes or more, from the cause) makes its name the same every time."""
    ulid = encode_ulid(int(now.timestamp() * 1000), key[:10])
    name = f"{category}.{now.astimezone(UTC):%Y%m%dT%H%M%SZ}.{ulid}"
    return ("record", name, description, dict(value), trust, now.isoformat())


def _record(effect: Record, index: int, batch: Batch, now: datetime) -> Operation:
    trust = effect.trust or least(d.trust for d in batch)
    if effect.key is not None:
        return ("record", effect.key, effect.description, dict(effect.value), trust, now.isoformat())
    value = {"trace_id": batch.trace_id, "node": batch.node, **effect.value}
    key = emit_key(batch.id, batch.node, index)
    return record_operation(effect.category, key, effect.description, value, trust, now)


def _check_page(page: str) -> None:
    parts = page.split("/")
    if not page.endswith(".md") or "\0" in page or any(p[:1] in ("", ".") for p in parts):
        raise BadOutcome(f"{page!r} is no page of the self (a relative path that ends in .md)")
    if any(len(p.encode("utf-8", "replace")) > _PAGE_PART for p in parts):
        raise BadOutcome(f"{page!r} is too long for a page: {_PAGE_PART} bytes a part")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if "\0" in path or any(p in ("", ".", "..") for p in parts):
        raise BadOutcome(f"{path!r} is no path inside the data directory")
    if any(len(p.encode("utf-8", "surrogateescape")) > NAME_MAX for p in parts):
        raise BadOutcome(f"{path!r} has a name of more than {NAME_MAX} bytes")


def _emit(
    effect: Emit, index: int, batch: Batch, patterns: tuple[str, ...], mind: str, now: datetime
) -> PlannedEmit:
    prefix = prefix_for(patterns, effect.directory)
    if prefix is None:
        declared = ", ".join(patterns) or "nothing"
        raise BadOutcome(f"node {batch.node} emits into {effect.directory} but declares {declared}")
    _check_path(effect.directory)
    if effect.name is not None:
        _check_name(effect, batch, patterns)
    newest = next((d.envelope for d in reversed(batch.deliveries) if d.envelope is not None), None)
    key = emit_key(batch.id, batch.node, index)
    file_id = f"{prefix}_{encode_ulid(int(now.timestamp() * 1000), key[:10])}"
    envelope = Envelope.model_construct(
        id=file_id,
        mind=mind,
        trace_id=effect.trace_id or (newest.trace_id if newest else batch.trace_id),
        parent_id=effect.parent_id or (newest.id if newest else None),
        timestamp=now,
        source_node=batch.node,
        source_type=effect.source_type or (newest.source_type if newest else "system"),
        session_key=effect.session_key or (newest.session_key if newest else "system"),
        ttl_sec=effect.ttl_sec,
        hops=effect.hops if effect.hops is not None else (newest.hops if newest else 0),
    )
    trust = effect.trust or least(d.trust for d in batch)
    name = effect.name or f"{file_id}.json"
    return PlannedEmit(effect.directory, name, envelope, _plain(effect.payload), trust, effect.locates)


def _check_name(effect: Emit, batch: Batch, patterns: tuple[str, ...]) -> None:
    _check_path(f"{effect.directory}/{effect.name}")
    if not any(matches(pattern, effect.directory, effect.name or "") for pattern in patterns):
        raise BadOutcome(f"node {batch.node} names a file {effect.name!r} that no emit pattern of it means")


def _objects(found: Json) -> Iterator[dict[str, Json]]:
    if isinstance(found, list | tuple):
        yield from (one for one in found if isinstance(one, dict))


def _plain(payload: Mapping[str, Json]) -> dict[str, Json]:
    return dict(payload)
