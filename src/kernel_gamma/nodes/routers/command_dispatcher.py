"""`act_` files → tools: runs what was decided, in order, and tells what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from kernel_gamma.actions.telling import Told, action_event, spoken, told_as
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
)
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.payloads import Action, ActionPayload
from kernel_gamma.contracts.ports import ToolResult
from kernel_gamma.contracts.trust import least
from kernel_gamma.loops.circuits import acted_key
from kernel_gamma.loops.own_words import saying
from kernel_gamma.nodes.base import Node
from kernel_gamma.self_stream.passages import render

__all__ = ["CommandDispatcher"]

_RECEIPT_CHARS = 400
"""Of an argument or an outcome in a receipt: the whole stands in done/ and in the outbox."""


class CommandDispatcher(Node):
    """Everything that was decided comes back: as a line in the stream, or as an event."""

    watch = ("pipeline/action_queue/act_*.json",)
    emit = (
        "outbox/*/out_*.json",
        "inbox/pending/evt_*.json",
        "approvals/pending/act_*.json",
        "tools/*/requests/act_*.json",
    )
    concurrency = 4
    takes_expired = True
    """They are not carried out, and she hears of it."""

    async def handle(self, batch: Batch) -> Outcome:
        delivery = batch[0]
        try:
            order = ActionPayload.model_validate(delivery.payload)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            return Outcome.of(DeadLetter("invalid", f"no act_ payload: {where}: {first['msg']}"))
        if order.trust != delivery.trust:
            order = order.model_copy(update={"trust": least((order.trust, delivery.trust))})
        if delivery.origin == "dropped":
            return self._foreign(delivery, order)
        late = delivery.seconds_left(self.ports.clock.now()) == 0
        return await self._run(batch, delivery, order, late=late)

    async def _run(self, batch: Batch, delivery: Delivery, order: ActionPayload, *, late: bool) -> Outcome:
        effects: list[Effect] = []
        notes: list[str] = []
        acted = False
        for action in order.actions:
            result = await self.ports.tools.run(
                action,
                order,
                batch=batch,
                trace_id=batch.trace_id,
                now=self.ports.clock.now(),
                late=late,
            )
            effects += result.effects
            effects.append(_receipt(action, order, result))
            acted = acted or (result.ok and _leaves(result))
            if result.ok and not result.perceive:
                notes.append(result.note)
            else:
                effects.append(self._event(action, order, told_as(result), result, delivery))
        if notes:
            block = render(self.ports.clock.now(), "\n\n".join(notes))
            ref = PassageRef(self.ports.ids.new("psg"), "note")
            effects.append(Append(page="stream/now.md", text=block, passage=ref))
        # After the last await: nobody else decides between what is read here and its commit.
        if acted:
            effects.append(self._acted(order))
        hops = delivery.envelope.hops if delivery.envelope is not None else 0
        return Outcome.of(*effects, *self._said(effects, hops))

    def _acted(self, order: ActionPayload) -> Claim:
        """Remembers for whom she acted: a source that makes her act again and again is noticed by it."""
        rules, now = self.ports.settings.loop, self.ports.clock.now().timestamp()
        key = acted_key(order.session_key)
        before = self.ports.seen(key)
        turns = [*(before["turns"] if before else []), [now, order.senders[-1] if order.senders else ""]]
        value = {"turns": turns[-rules.max_turns :]}
        return Claim(key=key, value=value, hours=rules.window_sec / 3600, renew=True)

    def _said(self, effects: Sequence[Effect], hops: int) -> Iterator[Claim]:
        """Remembers her own words, so that they are known when they come back."""
        hours, at = self.ports.settings.loop.echo_hours, self.ports.clock.now().timestamp()
        for effect in effects:
            text = effect.payload.get("text") if isinstance(effect, Emit) and _is_out(effect) else None
            said = saying(text) if isinstance(text, str) and hours else None
            if said is not None:
                session = str(effect.payload.get("session")) if isinstance(effect, Emit) else ""
                for key, value in said.claims(session=session, hops=hops, at=at):
                    yield Claim(key=key, value=value, hours=hours, renew=True)

    def _foreign(self, delivery: Delivery, order: ActionPayload) -> Outcome:
        """Orders this mind did not write wait for a person, and she hears of them once."""
        named = Action(
            id="act_foreign",
            tool=", ".join(action.tool for action in order.actions) or "?",
            arguments={},
            idempotency_key="",
        )
        waiting = ToolResult(False, refused=True)
        keep = Emit(
            directory="approvals/pending",
            payload=order.model_dump(mode="json"),
            session_key=order.session_key,
            trust=order.trust,
        )
        return Outcome.of(keep, self._event(named, order, "waiting", waiting, delivery))

    def _event(
        self,
        action: Action,
        order: ActionPayload,
        told: Told,
        result: ToolResult,
        delivery: Delivery,
    ) -> Emit:
        language = spoken(self.ports.settings.language, action)
        worn = delivery.envelope
        return Emit(
            directory="inbox/pending",
            payload=action_event(action, order, told, result, language),
            source_type="action",
            session_key=order.session_key,
            hops=(worn.hops if worn is not None else 0) + 1,
            trust=order.trust,
        )


def _receipt(action: Action, order: ActionPayload, result: ToolResult) -> Record:
    """What became of one action: `result.` when it ran, `error.` when it failed or may have run."""
    failed = not result.ok and not result.refused
    told = told_as(result)
    outcome = {"outcome_unknown": "unknown", "waiting": "refused"}.get(told, told)
    value = {
        "action_id": action.id,
        "tool": action.tool,
        "outcome": outcome,
        "arguments": {name: _cut(given) for name, given in action.arguments.items()},
        "passage_id": order.passage_id,
        "session_key": order.session_key,
    }
    if result.ok:
        value["result"] = _cut(result.result)
    elif result.error:
        value["error"] = _cut(result.error)
    return Record(
        category="error" if failed else "result",
        description=f"{action.tool}: {outcome}",
        value=value,
        trust=order.trust,
    )


def _cut(value: Json) -> Json:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return value if len(text) <= _RECEIPT_CHARS else text[: _RECEIPT_CHARS - 1] + "…"


def _leaves(result: ToolResult) -> bool:
    """Whether something outside hears of it: a message, or a tool that is not pure."""
    return not result.effects or any(isinstance(effect, Emit) for effect in result.effects)


def _is_out(emit: Emit) -> bool:
    return emit.directory.startswith("outbox/")
