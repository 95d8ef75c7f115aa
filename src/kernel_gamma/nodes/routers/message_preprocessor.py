"""Dropped files and triggers → `msg_` files: events of one session and trust, told together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_gamma.contracts.effects import (
    Batch,
    Claim,
    DeadLetter,
    Delivery,
    Effect,
    Emit,
    Outcome,
    Overwrite,
)
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.events import ParsedEvent, read_events, session_of, trust_lookup
from kernel_gamma.contracts.payloads import MessagePayload
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.errors import Poison
from kernel_gamma.nodes.base import BatchRule, Debounce, Node, NodePorts, most_told

__all__ = ["MessagePreprocessor"]

_MOST = 256
_INBOX = "inbox/pending"
_TRIGGERS = "rhythm/triggers"

Group = tuple[str, Trust, int | None]
"""Session, trust and seconds left to live: what must be the same for events told together."""


@dataclass(slots=True)
class _Gathered:
    """What a batch comes to, as it is read file by file."""

    groups: dict[Group, list[ParsedEvent]] = field(default_factory=dict)
    claims: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)


class MessagePreprocessor(Node):
    """Parses all four forms, recognises what came twice, acknowledges, and groups.

    A group larger than one passage can tell becomes several files.
    """

    watch = ("inbox/pending/*.json", "rhythm/triggers/*.json")
    emit = ("pipeline/message_queue/msg_*.json",)

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        super().__init__(node_id, ports, config)
        pace, trust = ports.settings.preprocessor, ports.settings.trust
        self.debounce = Debounce(pace.debounce_sec, pace.debounce_max_sec)
        self.batch = BatchRule(max_count=_MOST)
        self._most = most_told(ports.settings)
        self._trust_of = trust_lookup(trust.owner, trust.known, trust.web)
        self._dedupe_hours = ports.settings.inbox.dedupe_hours
        self._asked: tuple[Delivery | None, str] = (None, "")

    def order_by(self, delivery: Delivery) -> str:
        """The session of the first event: an unreadable file has none and waits for nobody."""
        if self._asked[0] is not delivery:  # batch_by asks again at once
            self._asked = (delivery, session_of(delivery.document, self.ports.settings.mind))
        return self._asked[1]

    async def handle(self, batch: Batch) -> Outcome:
        found = _Gathered()
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
        return Outcome.of(*messages, *claims, *found.effects)

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
        )
        told = [self._place(one, delivery, found) for one in parsed]
        if delivery.queue == _INBOX and delivery.origin == "dropped":
            ack: dict[str, Json] = {"ok": True, **told[0]}
            if isinstance(delivery.document, list):
                ack = {"ok": True, "ids": [one["id"] for one in told]}
                ack["trace_ids"] = [one["trace_id"] for one in told]
                if any("duplicate" in one for one in told):
                    ack["duplicates"] = [one["id"] for one in told if "duplicate" in one]
            found.effects.append(Overwrite(path=f"inbox/acks/{delivery.name}", document=ack))

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
        left = self._seconds_left(one.ttl_sec, delivery)
        found.groups.setdefault((event.session, event.trust, left), []).append(one)
        return told

    def _seconds_left(self, ttl_sec: int | None, delivery: Delivery) -> int | None:
        """The time to live counts from acceptance, and some of it was spent waiting here."""
        if ttl_sec is None:
            return None
        waited = (self.ports.clock.now() - delivery.accepted_at).total_seconds()
        return max(0, math.ceil(ttl_sec - max(0.0, waited)))


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
