"""Every prompt is made here: static truths, what is the mind's own, what the task needs of the records.

The body of `assemble` reads as the six steps: task type, Channel A, Pool A, Channel B, what fits, audit. Pure
over its ports: it reads, and writes nothing. What it returns holds the audit, for whoever makes the call to
record it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from kernel_gamma.context.audit import Limits, audit_of, check_forced, text_of
from kernel_gamma.context.core_alerts import core_alerts
from kernel_gamma.context.dynamic_channel import Retrieved, dynamic_pieces
from kernel_gamma.context.fences import Count
from kernel_gamma.context.fitting import Fitted, Lost, fit, size_of
from kernel_gamma.context.own_parts import HEADINGS
from kernel_gamma.context.past_passages import with_past
from kernel_gamma.context.single_channel import SingleChannel
from kernel_gamma.context.task_types import TaskTypes
from kernel_gamma.contracts.context import (
    Assembled,
    Guess,
    Part,
    Piece,
    Request,
    Section,
    StaticTruths,
    TaskRule,
)
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.payloads import Attachment
from kernel_gamma.contracts.ports import Role, TruthStore, Turn
from kernel_gamma.errors import TruthError
from kernel_gamma.settings import ContextSettings

__all__ = ["Assembler", "AssemblerPorts"]

_ELASTIC, _DYNAMIC = 20, 10
"""Priorities: retrieved records are trimmed first, then static truths that were loaded on demand."""


@dataclass(frozen=True, slots=True)
class AssemblerPorts:
    """What prompts are made from."""

    static: StaticTruths
    truths: TruthStore
    task_types: Callable[[], TaskTypes]
    settings: ContextSettings
    window: Callable[[Role], int]
    """The context window of a role, in tokens."""
    count: Callable[[Role, str], int]
    """Tokens of a text for the role's tokenizer."""
    signs: Callable[[datetime], Sequence[str]] = lambda now: ()
    """What speaks for an emergency at this moment, each a sentence: an open breaker, a loop incident."""


class Assembler:
    """Safe to use from several threads, as its ports are."""

    def __init__(self, ports: AssemblerPorts) -> None:
        self._ports = ports
        self._single = SingleChannel(ports.static, ports.truths)
        self._counts: dict[Role, Count] = {}

    def guess(self, request: Request) -> Guess:
        """Of which task type the request is. Raises ValueError for a type nobody knows."""
        signs = self._ports.signs(request.now)
        return self._ports.task_types().guess(request.task, signs=signs, wanted=request.task_type)

    def assemble(self, request: Request) -> Assembled:
        """The prompt for a request.

        Raises TooLarge, with the numbers, when what may not be trimmed does not fit; ValueError for a task
        type nobody knows.
        """
        count = self._count_for(request.role)
        guess = self._identified(request)
        rule = guess.rule
        budget = rule.budget if request.budget is None else request.budget
        static = self._static(rule, request.task, count)
        own = self._own(request, count)
        alerts = self._core_alerts(request, count)
        left = self._left_for_records(rule, budget, static, alerts, count)
        retrieved, records = self._records(rule, request, left, count)

        parts = _placed(static, own, (records, alerts))
        window = int(self._ports.settings.window_share * self._ports.window(request.role))
        limits = Limits(budget=budget, own=_within_ceilings(own, count), window=window)
        fitted = fit(parts, limit=limits.total, count=count)
        turns = _turns(fitted.parts, request.images)
        audit = audit_of(
            parts,
            _with_unretrieved(fitted, records, retrieved),
            turns,
            guess=guess,
            limits=limits,
            count=count,
            about=self._about(request, retrieved),
        )
        return self._as_rolled_out(Assembled(turns, audit, fitted.parts), request, own, guess)

    # ---- the steps

    def _count_for(self, role: Role) -> Count:
        found = self._counts.get(role)
        if found is None:
            found = self._counts[role] = partial(self._ports.count, role)
        return found

    def _identified(self, request: Request) -> Guess:
        guess = self.guess(request)
        return replace(guess, rule=_for_a_hand(guess.rule)) if request.hand else guess

    def _static(self, rule: TaskRule, task: str, count: Count) -> list[Part]:
        """Channel A: one part a section; what is loaded on demand shares what they leave of its tokens."""
        static = self._ports.static
        truths = static.truths_in(task) if rule.static_truths else ()
        operators = static.operators_in(task)
        sections = static.sections(rule.profile, named=truths, operators=operators)
        forced = [_section_part(section, count) for section in sections if section.forced]
        settings = self._ports.settings
        most = settings.static_tokens if rule.profile == "full" else settings.lean_tokens
        left = most - sum(size_of(part, count) for part in forced)
        elastic = Part(
            name="on_demand",
            channel="static",
            pieces=[_section_piece(section, count) for section in sections if not section.forced],
            priority=_ELASTIC,
            maximum=max(0, left),
            volatile=True,
        )
        return [*forced, elastic]

    def _own(self, request: Request, count: Count) -> Sequence[Part]:
        """The agent's own parts, and what the index of the self adds to its memories."""
        try:
            return [
                with_past(part, request.task, self._ports.truths, count) if part.name == "memory" else part
                for part in request.parts
            ]
        except TruthError:
            return request.parts  # told where the records are asked, which fails in the same way

    def _core_alerts(self, request: Request, count: Count) -> Part:
        most = 0 if request.hand else self._ports.settings.core_alert_tokens
        pieces: Sequence[Piece] = ()
        if most:
            try:
                pieces = core_alerts(self._ports.truths, now=request.now, count=count, max_tokens=most)
            except TruthError:
                pieces = ()  # as above
        return Part(
            name="core_alerts",
            channel="dynamic",
            pieces=pieces,
            heading=HEADINGS[request.language]["core_alerts"],
            fixed=True,
            volatile=True,
        )

    def _left_for_records(
        self, rule: TaskRule, budget: int, static: Sequence[Part], alerts: Part, count: Count
    ) -> int:
        """Tokens that Channel A and the core alerts leave. Raises TooLarge when they leave less than none."""
        check_forced((*static, alerts), budget, count, rule.name)
        always = size_of(alerts, count)
        return budget - _within_ceilings(static, count) - always

    def _records(self, rule: TaskRule, request: Request, left: int, count: Count) -> tuple[Retrieved, Part]:
        heading = HEADINGS[request.language]["dynamic"]
        most = max(0, min(rule.dynamic_budget, left - count(heading))) if request.task.strip() else 0
        retrieved = dynamic_pieces(
            self._ports.truths,
            rule,
            request.task,
            now=request.now,
            budget=most,
            count=count,
            language=request.language,
        )
        part = Part(
            name="dynamic",
            channel="dynamic",
            pieces=retrieved.pieces,
            heading=heading,
            priority=_DYNAMIC,
            maximum=most,
            volatile=True,
        )
        return retrieved, part

    def _about(self, request: Request, retrieved: Retrieved) -> dict[str, Json]:
        return {
            "agent": request.agent,
            "role": request.role,
            "trace_id": request.trace_id,
            "at": rfc3339(request.now),
            "language": request.language,
            "task": request.task[:_TASK_CHARS],
            "queries": list(retrieved.queries),
            "static_drift": [drift.file for drift in self._ports.static.drift()],
        }

    def _as_rolled_out(
        self, dual: Assembled, request: Request, own: Sequence[Part], guess: Guess
    ) -> Assembled:
        """The dual prompt, or the single one where the roll-out is not that far; the audit tells of both."""
        count = self._count_for(request.role)
        settings = self._ports.settings
        own_tokens = _within_ceilings(own, count)
        sends_dual = settings.mode == "dual" or (settings.mode == "canary" and _is_canary(request, settings))
        try:
            if sends_dual:
                everything = self._single.size(settings.single_tokens, count) + own_tokens
                return replace(dual, audit={**dual.audit, **_sent(settings, "dual", everything, dual)})
            single = self._single.parts(settings.single_tokens, count)
        except TruthError:  # told where the records are asked; there is no other prompt to send then
            return replace(dual, audit={**dual.audit, **_sent(settings, "dual", None, dual)})
        everything = sum(size_of(part, count) for part in single) + own_tokens
        parts = _placed([part for part in single if part.channel == "static"], own, single[-1:])
        window = int(settings.window_share * self._ports.window(request.role))
        fitted = fit(parts, limit=window, count=count)
        turns = _turns(fitted.parts, request.images)
        limits = Limits(budget=settings.single_tokens, own=own_tokens, window=window)
        about = {name: dual.audit[name] for name in _ABOUT}
        audit = audit_of(parts, fitted, turns, guess=guess, limits=limits, count=count, about=about)
        return Assembled(turns, {**audit, **_sent(settings, "single", everything, dual)}, fitted.parts)


_TASK_CHARS = 400


_ABOUT = ("agent", "role", "trace_id", "at", "language", "task", "queries", "static_drift")


def _sent(settings: ContextSettings, which: str, everything: int | None, dual: Assembled) -> dict[str, Json]:
    """Which prompt was sent, how large each is, and what the dual one saves."""
    total = dual.audit["total_tokens"]
    return {
        "mode": settings.mode,
        "sent": which,
        "dual_tokens": total,
        "single_tokens": everything,
        "saved_share": None if everything is None else round(max(0.0, 1 - total / max(everything, 1)), 4),
    }


def _for_a_hand(rule: TaskRule) -> TaskRule:
    return replace(rule, profile="lean", dynamic_budget=0, static_truths=False)


def _section_piece(section: Section, count: Count) -> Piece:
    return Piece(
        source=section.file,
        text=section.text,
        tokens=count(section.text),
        sha256=section.sha256,
    )


def _section_part(section: Section, count: Count) -> Part:
    return Part(
        name=section.name,
        channel="static",
        pieces=[_section_piece(section, count)],
        fixed=True,
        role="system",
        # what stands in lean begins every prompt; the rest follows the instructions, which never change
        priority=1 if section.lean else 0,
    )


def _within_ceilings(parts: Sequence[Part], count: Count) -> int:
    """Tokens that parts may take: all of a fixed one, of others at most their ceiling."""
    total = 0
    for part in parts:
        size = size_of(part, count)
        if part.maximum is not None and not part.fixed:
            size = min(size, part.maximum + (count(part.heading) if part.heading else 0))
        total += size
    return total


def _placed(static: Sequence[Part], own: Sequence[Part], dynamic: Sequence[Part]) -> list[Part]:
    """The order in which parts stand: from what never changes to what is new."""
    lean = [part for part in static if part.role == "system" and part.priority]
    rest = [part for part in static if part.role == "system" and not part.priority]
    on_demand = [part for part in static if part.role == "user"]
    system = [part for part in own if part.role == "system"]
    past = [part for part in own if part.role == "user" and part.channel == "self"]
    brought = [part for part in own if part.role == "user" and part.channel != "self"]
    return [*lean, *system, *rest, *on_demand, *past, *dynamic, *brought]


def _turns(parts: Sequence[Part], images: tuple[Attachment, ...]) -> tuple[Turn, ...]:
    """One system turn and one user turn; a prompt without either has one turn."""
    turns = []
    system = [text for part in parts if part.role == "system" for text in text_of(part)]
    user = [text for part in parts if part.role == "user" for text in text_of(part)]
    if system:
        turns.append(Turn("system", "\n\n".join(system)))
    if user or images:
        turns.append(Turn("user", "\n\n".join(user), images))
    return tuple(turns)


def _with_unretrieved(fitted: Fitted, dynamic: Part, retrieved: Retrieved) -> Fitted:
    lost = [Lost(dynamic, Piece(source=key, text="", tokens=0), reason) for key, reason in retrieved.lost]
    return Fitted(fitted.parts, [*fitted.lost, *lost], fitted.tokens)


def _is_canary(request: Request, settings: ContextSettings) -> bool:
    """The same trace always goes the same way."""
    digest = hashlib.sha256(request.trace_id.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "big") < settings.canary_share * 2.0**64
