"""`int_` files → `act_` files: the decisions of one new passage, translated and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from kernel_gamma.actions.decisions import Decided, Toolbox, actions_of
from kernel_gamma.context.asking import Answer, Question
from kernel_gamma.context.own_parts import OwnParts
from kernel_gamma.context.thoughts import thought_of
from kernel_gamma.context.turns import Prompt, TurnBuilder
from kernel_gamma.contracts.effects import (
    Append,
    Batch,
    DeadLetter,
    Delivery,
    Effect,
    Emit,
    Outcome,
    PassageRef,
)
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import language_of
from kernel_gamma.contracts.payloads import ActionPayload, PassagePayload
from kernel_gamma.contracts.ports import Passage, Role
from kernel_gamma.contracts.trust import Trust, least
from kernel_gamma.loops.rumination import LAST_BYTES, repeated
from kernel_gamma.model.json_reply import read_object
from kernel_gamma.nodes.base import Node, NodePorts
from kernel_gamma.self_stream.passages import render

__all__ = ["Externalizer"]


@dataclass(frozen=True, slots=True)
class _Translated:
    thought: str
    actions: tuple[Decided, ...]


class Externalizer(Node):
    """Decides nothing: a passage without a decision comes to nothing."""

    watch = ("pipeline/internalized/int_*.json",)
    emit = ("pipeline/action_queue/act_*.json", "pipeline/internalized/int_*.json")
    takes_expired = True
    """What was decided too late is told by whoever would have carried it out."""

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        super().__init__(node_id, ports, config)
        self._role: Role = config.get("role") or "fast"
        settings = ports.settings
        own = OwnParts(ports.prompts, ports.self_log, self._count, settings.internalizer, settings.context)
        self._turns = TurnBuilder(node_id, own)
        self._toolboxes: dict[tuple[Trust, str], Toolbox] = {}

    async def handle(self, batch: Batch) -> Outcome:
        delivery = batch[0]
        if delivery.origin == "dropped" or delivery.envelope is None:
            detail = "not written by this mind: no passage is translated because a file asks for it"
            return Outcome.of(DeadLetter("foreign", detail))
        try:
            told = PassagePayload.model_validate(delivery.payload)
        except ValidationError as error:
            detail = f"no int_ payload: {error.errors(include_url=False)[0]['msg']}"
            return Outcome.of(DeadLetter("invalid", detail))
        if told.trust != delivery.trust:
            told = told.model_copy(update={"trust": least((told.trust, delivery.trust))})
        passage = self._passage(told)
        if passage is None or delivery.envelope.hops > self.ports.settings.loop.max_hops:
            return Outcome()
        return await self._translate(batch, told, passage, delivery)

    async def _translate(
        self, batch: Batch, told: PassagePayload, passage: Passage, delivery: Delivery
    ) -> Outcome:
        ports = self.ports
        setting = ports.settings.language
        language = language_of(passage.text) if setting == "auto" else setting
        box = self._toolbox(told.trust, language)
        if not box.tools:
            return Outcome()
        request = self._turns.decisions(
            passage,
            tools=box.tools,
            language=language,
            now=ports.clock.now(),
            role=self._role,
            trace_id=batch.trace_id,
        )
        question = Question(
            batch=batch,
            agent=self.id,
            role=self._role,
            prompt=Prompt.of(await ports.assemble(request)),
            language=language,
            for_people=told.to is not None,
            schema=box.schema,
        )
        sources = ports.prompts.sources(language)
        # Each event told may be answered, however many an array brought at once.
        events = max(1, len(told.traces))
        most = max(ports.settings.actions.max_per_passage, events)

        def understand(answer: Answer) -> _Translated:
            found = read_object(answer.text, ("actions",))
            actions = box.decided(found["actions"], most=most, told=events)
            try:
                thought = thought_of(found.get("thought"), passage.text, sources)
            except ValueError:
                if not answer.is_last:
                    raise
                thought = ""  # the decisions are sound; only the afterthought is not
            return _Translated(thought, actions)

        asked = await question.ask(ports.journal, ports.model, understand)
        translated = asked.result
        left = delivery.seconds_left(ports.clock.now())
        effects = self._act(told, translated.actions, left) if translated.actions else []
        if translated.thought and not self._said_before(told, translated.thought):
            hops = delivery.envelope.hops if delivery.envelope is not None else 0
            effects += self._think(told, translated.thought, hops, left)
        return Outcome.of(*effects, *asked.receipts)

    def _said_before(self, told: PassagePayload, thought: str) -> bool:
        """A thought of her own accord that the last passages say already is not thought a third time."""
        if told.to is not None:
            return False
        rules, now = self.ports.settings.loop, self.ports.clock.now()
        return repeated(thought, self.ports.self_log.tail(LAST_BYTES), now, rules)

    def _passage(self, told: PassagePayload) -> Passage | None:
        """The passage, unless a person removed or emptied it."""
        place = self.ports.place_of(told.passage_id)
        passage = self.ports.self_log.passage(place) if place is not None else None
        return passage if passage is not None and passage.text.strip() else None

    def _toolbox(self, trust: Trust, language: str) -> Toolbox:
        tools = self.ports.tools.catalogue(trust, language)
        box = self._toolboxes.get((trust, language))
        if box is None or box.tools is not tools:
            box = self._toolboxes[trust, language] = Toolbox(tools)
        return box

    def _act(self, told: PassagePayload, decided: Sequence[Decided], left: int | None) -> list[Effect]:
        order = ActionPayload(
            passage_id=told.passage_id,
            actions=actions_of(decided, told.passage_id, self.ports.ids.new),
            session_key=told.session_key,
            channel=told.channel,
            to=told.to,
            senders=told.senders,
            traces=told.traces,
            trust=told.trust,
        )
        payload = order.model_dump(mode="json")
        return [Emit(directory="pipeline/action_queue", payload=payload, ttl_sec=left, trust=told.trust)]

    def _think(self, told: PassagePayload, thought: str, hops: int, left: int | None) -> list[Effect]:
        passage_id = self.ports.ids.new("psg")
        text = render(self.ports.clock.now(), thought)
        own = told.model_copy(update={"passage_id": passage_id, "state_changed": False})
        return [
            Append(page="stream/now.md", text=text, passage=PassageRef(passage_id, "thought")),
            Emit(
                directory="pipeline/internalized",
                payload=own.model_dump(mode="json"),
                source_type="reflection",
                hops=hops + 1,
                ttl_sec=left,
                trust=told.trust,
                locates=passage_id,
            ),
        ]

    def _count(self, text: str) -> int:
        return self.ports.model.count_tokens(self._role, text)
