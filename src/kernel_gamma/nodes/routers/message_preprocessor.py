"""Dropped files and triggers → `msg_` files: events of one session and trust, told together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kernel_gamma.contracts.effects import (
    Batch,
    Claim,
    DeadLetter,
    Delivery,
    Effect,
    Emit,
    Finish,
    Outcome,
    Overwrite,
    RetryLater,
)
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.events import ParsedEvent, read_events, session_of, trust_lookup
from kernel_gamma.contracts.payloads import Event, MessagePayload
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.errors import Poison
from kernel_gamma.loops.gate import Gate
from kernel_gamma.loops.series import SERIES, due_at
from kernel_gamma.loops.series import told as told_as_one
from kernel_gamma.nodes.base import BatchRule, Debounce, Node, NodePorts, most_told

__all__ = ["MessagePreprocessor"]

_MOST = 256
_INBOX = "inbox/pending"
_TRIGGERS = "rhythm/triggers"
_PAST_SEC = 0.01
"""What waited behind a circuit comes back when it is half open for certain."""

Group = tuple[str, Trust, int | None]
"""Session, trust and seconds left to live: what must be the same for events told together."""


@dataclass(slots=True)
class _Gathered:
    """What a batch comes to, as it is read file by file."""

    gate: Gate
    groups: dict[Group, list[ParsedEvent]] = field(default_factory=dict)
    claims: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    telling: list[Emit] = field(default_factory=list)
    """Of a series whose time has come."""


class MessagePreprocessor(Node):
    """Parses all four forms, recognises what came twice, acknowledges, and groups.

    A group larger than one passage can tell becomes several files.
    """

    watch = ("inbox/pending/*.json", "rhythm/triggers/*.json")
    emit = ("pipeline/message_queue/msg_*.json", "loops/tripped/loop_*.json")

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        super().__init__(node_id, ports, config)
        pace, trust = ports.settings.preprocessor, ports.settings.trust
        self.debounce = Debounce(pace.debounce_sec, pace.debounce_max_sec)
        self.batch = BatchRule(max_count=_MOST)
        self._most = most_told(ports.settings)
        self._trust_of = trust_lookup(trust.owner, trust.known, trust.web)
        self._dedupe_hours = ports.settings.inbox.dedupe_hours
        self._names = ports.settings.loop.own_names
        self._asked: tuple[Delivery | None, str] = (None, "")

    def order_by(self, delivery: Delivery) -> str:
        """The session of the first event: an unreadable file has none and waits for nobody."""
        if self._asked[0] is not delivery:  # batch_by asks again at once
            self._asked = (delivery, session_of(delivery.document, self.ports.settings.mind, self._names))
        return self._asked[1]

    async def handle(self, batch: Batch) -> Outcome:
        ports = self.ports
        found = _Gathered(Gate(ports.settings.loop, ports.clock.now(), ports.seen, ports.ids.new))
        for delivery in batch:
            if self._idle(delivery):
                continue  # its slot is noted by the scheduler; no model hears of it
            try:
                self._read(delivery, found)
            except Poison as poison:
                found.effects.append(DeadLetter(poison.kind, str(poison), (delivery,)))
        messages = [
            _message(group, events[first : first + self._most])
            for group, events in found.groups.items()
            for first in range(0, len(events), self._most)
        ]
        claims = [Claim(key=k, value=v, hours=self._dedupe_hours) for k, v in found.claims.items()]
        trips = [_trip(circuit) for circuit in found.gate.trips]
        return Outcome.of(
            *messages, *found.telling, *trips, *claims, *found.gate.claims.values(), *found.effects
        )

    def next_beat(self, now: datetime) -> datetime | None:
        """When the next series of folded events is to be told."""
        due = [at for series in self.ports.kept(SERIES).values() if (at := due_at(series)) is not None]
        return datetime.fromtimestamp(min(due), now.tzinfo) if due else None

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        """Tell what was folded and is due: one event for each series."""
        now, rules = self.ports.clock.now(), self.ports.settings.loop
        effects: list[Effect] = []
        for series in self.ports.kept(SERIES).values():
            due = due_at(series)
            if due is not None and due <= max(at, now).timestamp():
                event, after = told_as_one(series, now, rules)
                effects += [_message_of(event), after]
        return Outcome.of(*effects)

    def _idle(self, delivery: Delivery) -> bool:
        """A trigger before which nothing has happened."""
        ours = delivery.queue == _TRIGGERS and delivery.origin == "bus"
        return ours and delivery.payload.get("idle") is True and self.ports.settings.rhythm.idle != "perceive"

    def _read(self, delivery: Delivery, found: _Gathered) -> None:
        parsed = read_events(
            delivery.document,
            accepted_at=delivery.accepted_at,
            new_id=self.ports.ids.new,
            trust_of=self._trust_of,
            inherited=delivery.trust if delivery.origin == "bus" else None,
            mind=self.ports.settings.mind,
            own_names=self._names,
        )
        if delivery.origin == "dropped" and self._must_wait(delivery, parsed, found):
            return
        told = [self._place(one, delivery, found) for one in parsed]
        if delivery.queue == _INBOX and delivery.origin == "dropped":
            ack: dict[str, Json] = {"ok": True, **told[0]}
            if isinstance(delivery.document, list):
                ack = {"ok": True, "ids": [one["id"] for one in told]}
                ack["trace_ids"] = [one["trace_id"] for one in told]
                for key, names in (("duplicate", "duplicates"), ("noted", "noted"), ("folded", "folded")):
                    if ids := [one["id"] for one in told if key in one]:
                        ack[names] = ids
            found.effects.append(Overwrite(path=f"inbox/acks/{delivery.name}", document=ack))
        ended = [one for one in told if "noted" in one or "folded" in one]
        if ended:
            reason = str(ended[0].get("noted") or f"folded into {ended[0]['folded']}")
            ends = tuple(str(one[key]) for one in ended for key in ("id", "trace_id"))
            passed = len(told) - len(ended)
            reason = reason if not passed else f"done; {len(ended)} of {len(told)}: {reason}"
            found.effects.append(Finish(delivery, reason, ends))

    def _must_wait(self, delivery: Delivery, parsed: Sequence[ParsedEvent], found: _Gathered) -> bool:
        """Whether one of its events waits behind an open circuit; the whole file does then."""
        for one in parsed:
            circuit = found.gate.waits(one.event, delivery.accepted_at)
            if circuit is None:
                continue
            left = float(circuit["until"]) - self.ports.clock.now().timestamp()
            reason = f"the circuit of {circuit['source']} in {circuit['session']} is open"
            found.effects.append(RetryLater(reason, max(0.0, left) + _PAST_SEC, (delivery,)))
            return True
        return False

    def _place(self, one: ParsedEvent, delivery: Delivery, found: _Gathered) -> dict[str, Json]:
        """Put the event into its group, unless it came before; either way what to acknowledge."""
        event = one.event
        told: dict[str, Json] = {"id": event.id, "trace_id": event.trace_id}
        if one.dedupe_key and self._dedupe_hours:
            key = f"cloudevent:{one.dedupe_key}"
            first = found.claims.get(key) or self.ports.seen(key)
            if first is not None:
                return {**first, "duplicate": True}
            found.claims[key] = told
        if delivery.origin == "dropped":
            verdict = found.gate.judge(one)
            if verdict.tells is not None:
                found.telling.append(_message_of(verdict.tells))
            if verdict.into is not None:
                return {**told, "folded": verdict.into}
            if not verdict.passes:
                return {**told, "noted": verdict.reason}
            one = replace(one, hops=verdict.hops)
        left = delivery.left_of(one.ttl_sec, self.ports.clock.now())
        found.groups.setdefault((event.session, event.trust, left), []).append(one)
        return told


def _message(group: Group, parsed: list[ParsedEvent]) -> Emit:
    session, trust, ttl_sec = group
    events = tuple(one.event for one in parsed)
    newest = parsed[-1]
    payload = MessagePayload(
        events=events,
        text="\n".join(event.text for event in events if event.text),
        count=len(events),
        trust=trust,
    )
    return Emit(
        directory="pipeline/message_queue",
        payload=payload.model_dump(mode="json", by_alias=True),
        source_type=newest.source_type,
        session_key=session,
        trace_id=newest.event.trace_id,
        parent_id=newest.event.id,
        hops=max(one.hops for one in parsed),
        ttl_sec=ttl_sec,
        trust=trust,
    )


def _message_of(event: Event) -> Emit:
    """A `msg_` of one event that nobody dropped as it stands."""
    return _message((event.session, event.trust, None), [ParsedEvent(event, source_type="system")])


def _trip(circuit: Mapping[str, Json]) -> Emit:
    """Tells the loop_breaker of a circuit that opened."""
    return Emit(
        directory="loops/tripped",
        payload={"circuit": circuit},
        source_type="system",
        session_key=str(circuit["session"]),
        trust="unknown",
    )
