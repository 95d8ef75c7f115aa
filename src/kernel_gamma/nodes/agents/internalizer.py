"""`msg_` files → one passage of the stream: the mind experiences what waited together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import ValidationError

from kernel_gamma.context.asking import Answer, Question
from kernel_gamma.context.fences import is_image
from kernel_gamma.context.own_parts import OwnParts
from kernel_gamma.context.ties import untied
from kernel_gamma.context.turns import Prompt, TurnBuilder, event_weight
from kernel_gamma.context.unseen import tell_unseen
from kernel_gamma.contracts.effects import (
    Append,
    Batch,
    Claim,
    DeadLetter,
    Delivery,
    Effect,
    Emit,
    Outcome,
    PassageRef,
    Record,
    Replace,
)
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.events import from_outside
from kernel_gamma.contracts.language import Language, language_of
from kernel_gamma.contracts.payloads import Event, MessagePayload, PassagePayload
from kernel_gamma.contracts.ports import Page, Role
from kernel_gamma.contracts.trust import least
from kernel_gamma.loops.circuits import WORRIES
from kernel_gamma.loops.rumination import LAST_BYTES, note, repeated, same_worry, with_worries, worry
from kernel_gamma.nodes.base import BatchRule, Node, NodePorts, most_told
from kernel_gamma.self_stream.passages import check_passage, check_state, parse_reply, render

__all__ = ["Internalizer"]

_RECEIPT_CHARS = 200
"""Of a text in a receipt: the whole stands in done/ and in the stream."""


class Internalizer(Node):
    """Asks the model once for all that waits, and appends what it tells."""

    watch = ("pipeline/message_queue/msg_*.json",)
    emit = ("pipeline/internalized/int_*.json",)

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        super().__init__(node_id, ports, config)
        self._role: Role = config.get("role") or "quality"
        budgets = ports.settings.internalizer
        self._most = most_told(ports.settings)
        # Two limits in one number (see weigh): so many events, and so many tokens of them.
        self.batch = BatchRule(max_count=self._most, max_weight=budgets.batch_tokens * self._most)
        own = OwnParts(ports.prompts, ports.self_log, self._count, budgets, ports.settings.context)
        self._turns = TurnBuilder(node_id, own)

    def batch_by(self, delivery: Delivery) -> str:
        return f"{self.order_by(delivery)}\n{delivery.trust}"

    def weigh(self, delivery: Delivery) -> int:
        budgets = self.ports.settings.internalizer
        tokens = event_weight(delivery.payload, self._count, budgets)
        events = delivery.payload.get("events")
        count = len(events) if isinstance(events, list) else 1
        return max(tokens * self._most, count * budgets.batch_tokens)

    async def handle(self, batch: Batch) -> Outcome:
        readable: list[Delivery] = []
        events: list[Event] = []
        effects: list[Effect] = []
        for delivery in batch:
            try:
                events += _events_of(delivery, self.ports.settings.mind)
                readable.append(delivery)
            except ValidationError as error:
                detail = f"no msg_ payload: {error.errors(include_url=False)[0]['msg']}"
                effects.append(DeadLetter("invalid", detail, (delivery,)))
        if events:
            effects += await self._experience(batch, readable, events)
        return Outcome.of(*effects)

    async def _experience(
        self, batch: Batch, deliveries: Sequence[Delivery], events: Sequence[Event]
    ) -> list[Effect]:
        ports = self.ports
        texts = [event.text for event in events]
        language = ports.settings.language
        spoken: Language = language_of("\n".join(texts)) if language == "auto" else language
        images = any(is_image(a) for event in events for a in event.attachments)
        sees = images and ports.model.has_role("multimodal")
        state = ports.self_log.state()
        role: Role = "multimodal" if sees else self._role
        request = self._turns.experience(
            events,
            state=state,
            language=spoken,
            now=ports.clock.now(),
            role=role,
            trace_id=batch.trace_id,
            see_images=sees,
        )
        for_people = any(event.awaited for event in events)
        assembled = await ports.assemble(request)
        if ports.settings.context.ties == "fast":
            assembled = await untied(
                request,
                assembled,
                ports.assemble,
                batch=batch,
                journal=ports.journal,
                model=ports.model,
                for_people=for_people,
            )
        question = Question(
            batch=batch,
            agent=self.id,
            role=role,
            prompt=Prompt.of(assembled),
            language=spoken,
            for_people=for_people,
            remember={"state": state.sha256},
        )
        asked = await question.ask(
            ports.journal, ports.model, partial(_understand, ports.prompts.sources(spoken), texts)
        )
        told = asked.result
        passage = told.passage if sees else tell_unseen(told.passage, events, spoken)
        passage_id = ports.ids.new("psg")
        # What became of an action is news each time, however alike it sounds.
        news = for_people or any(event.type.startswith("action.") for event in events)
        again = None if news else self._again(passage, spoken, events[-1].session)
        append = Append(
            page="stream/now.md",
            text=render(ports.clock.now(), again.note if again else passage),
            passage=PassageRef(passage_id, "note" if again else "experience"),
        )
        page = self._page(told, state, again)
        left = [delivery.seconds_left(ports.clock.now()) for delivery in deliveries]
        emit = _announce(deliveries, events, passage_id, state_changed=page is not None, left=left)
        task = _task(events, passage_id, emit)
        effects: list[Effect] = [append, *([page] if page else [])]
        # A rumination is told and let rest: nothing in it is translated into actions.
        effects += [again.claim] if again else [emit]
        return [*effects, task, *asked.receipts]

    def _again(self, passage: str, language: Language, session: str) -> _Again | None:
        """What stands for a passage that says again what the last ones said; None: it says something new."""
        ports, rules, now = self.ports, self.ports.settings.loop, self.ports.clock.now()
        if not rules.rumination_hours:
            return None
        known = same_worry(passage, ports.kept(WORRIES))
        if known is None and not repeated(passage, ports.self_log.tail(LAST_BYTES), now, rules):
            return None
        claim = worry(known, passage, session=session, language=language, now=now, rules=rules)
        return _Again(note(passage, language, again=known is not None), claim)

    def _page(self, told: _Told, shown: Page, again: _Again | None) -> Replace | None:
        """The new state page, with a line for each open worry; None when nothing changes.

        Lines of worries that came or went while the model was asked are no reason for a conflict.
        """
        ports = self.ports
        worries = dict(ports.kept(WORRIES))
        if again is not None:
            worries[again.claim.key] = again.claim.value
        changed = told.state is not None and told.state.strip() != shown.text.strip()
        if not changed and again is None:
            return None
        stands, expect = ports.self_log.state(), told.state_read
        if with_worries(stands.text, ()) == with_worries(shown.text, ()) and shown.sha256 == expect:
            expect = stands.sha256
        text = with_worries(f"{told.state}\n" if changed else stands.text, worries.values())
        if not changed:
            expect = stands.sha256
        return Replace(page="state.md", text=text, expect=expect) if text != stands.text else None

    def _count(self, text: str) -> int:
        return self.ports.model.count_tokens(self._role, text)


@dataclass(frozen=True, slots=True)
class _Again:
    """What stands in place of a passage that would say the same for the third time."""

    note: str
    claim: Claim


@dataclass(frozen=True, slots=True)
class _Told:
    """An answer that may be applied."""

    passage: str
    state: str | None
    state_read: str | None
    """Hash of the state page that was shown when this was answered."""


def _understand(sources: Sequence[str], texts: Sequence[str], answer: Answer) -> _Told:
    reply = parse_reply(answer.text)
    problem = check_passage(reply.passage, prompt_sources=sources, event_texts=texts)
    problem = problem or reply.problem
    if problem is None and reply.state is not None:
        problem = check_state(reply.state, prompt_sources=sources, event_texts=texts)
    if problem:
        raise ValueError(problem)
    return _Told(reply.passage, reply.state, answer.remembered["state"])


def _events_of(delivery: Delivery, mind: str) -> list[Event]:
    """The events; none is trusted further than the file that carries it, nor speaks for the mind in it."""
    message = MessagePayload.model_validate(delivery.payload)
    lent = delivery.trust
    events = [
        event if event.trust == lent else event.model_copy(update={"trust": least((event.trust, lent))})
        for event in message.events
    ]
    return [from_outside(event, mind) for event in events] if delivery.origin == "dropped" else events


def _task(events: Sequence[Event], passage_id: str, announced: Emit) -> Record:
    """The receipt of what was perceived: which events came, and the passage that tells them."""
    told = [
        {
            "id": event.id,
            "type": event.type,
            "from": event.from_,
            "text": event.text[:_RECEIPT_CHARS],
            "trace_id": event.trace_id,
        }
        for event in events
    ]
    first = next((event.text for event in events if event.text.strip()), events[0].type)
    session = announced.payload["session_key"]
    return Record(
        category="task",
        description=" ".join(first.split())[:_RECEIPT_CHARS],
        value={"events": told, "passage_id": passage_id, "session_key": session, "state": "perceived"},
        trust=announced.trust,
    )


def _announce(
    deliveries: Sequence[Delivery],
    events: Sequence[Event],
    passage_id: str,
    *,
    state_changed: bool,
    left: Sequence[int | None],
) -> Emit:
    """The `int_` that says where the passage is; the bus fills in its offset, length and hash."""
    worn = [delivery.envelope for delivery in deliveries if delivery.envelope is not None]
    messages = [event for event in events if event.awaited]
    trust = least(event.trust for event in events)
    # Whoever told something may be answered by name; what became of her actions was told by herself.
    told = (event.from_ for event in reversed(events) if not event.type.startswith("action."))
    senders = tuple(dict.fromkeys(told))[::-1]
    payload = PassagePayload(
        message_ids=tuple(envelope.id for envelope in worn),
        passage_id=passage_id,
        stream_offset=0,
        length=0,
        sha256="",
        state_changed=state_changed,
        session_key=worn[-1].session_key if worn else events[-1].session,
        channel=(messages or events)[-1].channel,
        traces=tuple(dict.fromkeys(event.trace_id for event in events if event.trace_id)),
        to=messages[-1].from_ if messages else None,
        senders=senders,
        trust=trust,
    )
    return Emit(
        directory="pipeline/internalized",
        payload=payload.model_dump(mode="json"),
        hops=max((envelope.hops for envelope in worn), default=0),
        # what is decided may concern any of the events: it is in time for as long as one of them is
        ttl_sec=None if None in left else max((sec for sec in left if sec is not None), default=None),
        trust=trust,
        locates=passage_id,
    )
