"""Runs one action: permission, trust, arguments, then the tool itself, once."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

from kernel_gamma.actions.builtin import Draft, Request, run_builtin
from kernel_gamma.actions.registry import Outside, Registry, ToolSpec
from kernel_gamma.actions.telling import note_of, spoken
from kernel_gamma.contracts.effects import Batch, Emit
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.payloads import Action, ActionPayload
from kernel_gamma.contracts.ports import Journal, OutcomeUnknown, SelfLog, ToolResult
from kernel_gamma.contracts.trust import Trust, reaches
from kernel_gamma.settings import Settings

__all__ = ["Tools"]


class Tools:
    """The ToolHost of one mind."""

    def __init__(
        self,
        registry: Registry,
        *,
        journal: Journal,
        self_log: SelfLog,
        settings: Settings,
        draft: Draft | None = None,
    ) -> None:
        """`draft` checks what propose_truth proposes."""
        self._registry = registry
        self._journal = journal
        self._self_log = self_log
        self._draft = draft
        self._timeout_sec = settings.actions.timeout_sec
        self._language = settings.language

    def catalogue(self, trust: Trust, language: str) -> list[dict[str, Json]]:
        """Tools an event of this trust may use; the same list object for the same question."""
        return self._registry.catalogue(trust, language)

    async def run(
        self,
        action: Action,
        order: ActionPayload,
        *,
        batch: Batch,
        trace_id: str,
        now: datetime,
        late: bool = False,
    ) -> ToolResult:
        """Refuse with a sentence, or run once; what is `late` is not begun any more.

        A tool that needs a person's consent is refused with one effect: the order for that action,
        emitted into approvals/pending.
        """
        spec = self._registry.get(action.tool)
        problem = self._problem(spec, action, order)
        if spec is None or problem:
            return ToolResult(False, refused=True, error=problem)
        if late and (spec.outside is None or spec.permission == "ask"):
            return _TOO_LATE
        if spec.permission == "ask":
            return _waiting(action, order)
        if spec.outside is not None:
            result = await self._leave(spec, spec.outside, action, batch, late=late)
        else:
            language = spoken(self._language, action)
            request = Request(
                action.arguments,
                order,
                now,
                language,
                self._self_log,
                key=action.idempotency_key,
                hops=max((d.envelope.hops for d in batch if d.envelope is not None), default=0),
                draft=self._draft,
            )
            result = run_builtin(spec.name, request)
        return result if not result.ok else self._told(spec, action, result)

    def _problem(self, spec: ToolSpec | None, action: Action, order: ActionPayload) -> str:
        if spec is not None and spec.permission == "off":
            return f"{spec.name} is switched off"
        if spec is not None and not reaches(order.trust, spec.min_trust):
            return (
                f"{spec.name} needs an event trusted as {spec.min_trust};"
                f" this one is trusted as {order.trust}"
            )
        return self._registry.problem(action.tool, action.arguments) or ""

    async def _leave(
        self, spec: ToolSpec, outside: Outside, action: Action, batch: Batch, *, late: bool
    ) -> ToolResult:
        async def call() -> Json:
            return await self._call(outside, action)

        try:
            step = f"tool.{action.id}"
            if late:
                receipt = await self._journal.kept(batch, step)
            else:
                receipt = await self._journal.once(batch, step, call, kind="tool", again=spec.idempotent)
        except OutcomeUnknown:
            return ToolResult(False, unknown=True, error="the process ended while it ran")
        if receipt is None:
            return _TOO_LATE
        if receipt["ok"]:
            return ToolResult(True, receipt["result"])
        unknown = receipt["unknown"] and not spec.idempotent
        return ToolResult(False, unknown=unknown, error=receipt["error"])

    async def _call(self, outside: Outside, action: Action) -> dict[str, Json]:
        """The receipt: what the tool returned, or how it failed."""
        try:
            async with asyncio.timeout(self._timeout_sec) as limit:
                found = await outside(dict(action.arguments), idempotency_key=action.idempotency_key)
        except Exception as error:  # noqa: BLE001 - somebody else's code: whatever it raises is its failure
            late = isinstance(error, TimeoutError) and limit.expired()
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            text = f"it did not end within {self._timeout_sec:g} s" if late else told
            return {"ok": False, "error": text, "unknown": late}
        return {"ok": True, "result": _as_json(found)}

    def _told(self, spec: ToolSpec, action: Action, result: ToolResult) -> ToolResult:
        note = result.note or note_of("tool", spoken(self._language, action), whom=spec.name)
        return ToolResult(
            True,
            result.result,
            perceive=spec.outcome == "perceive",
            note=note,
            effects=result.effects,
        )


_TOO_LATE = ToolResult(False, refused=True, expired=True)


def _waiting(action: Action, order: ActionPayload) -> ToolResult:
    alone = order.model_copy(update={"actions": (action,)})
    emit = Emit(directory="approvals/pending", payload=alone.model_dump(mode="json"))
    error = f"{action.tool} waits for a person's consent"
    return ToolResult(False, refused=True, error=error, effects=(emit,))


def _as_json(value: Json) -> Json:
    """What the journal can keep: JSON as it is, anything else as its text."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value
