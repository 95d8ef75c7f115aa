"""One question to a model, journalled; an answer that is no answer is asked for once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from kernel_gamma.context.turns import Prompt
from kernel_gamma.contracts.effects import Batch, Record
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.ports import Journal, Model, Role, Usage
from kernel_gamma.errors import Unusable

__all__ = ["Answer", "Asked", "Question"]

T = TypeVar("T")

_USAGE = tuple(each.name for each in fields(Usage))
_CUT: Mapping[Language, str] = {
    "en": "It was cut off because it was too long. Say it in fewer words.",
    "zh": "它太长，被截断了。请写得短一些。",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to a question."""

    text: str
    remembered: Mapping[str, Json]
    """What the question asked to keep beside the answer (Question.remember)."""
    is_last: bool
    """No further answer will be asked for."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What an answer was understood as, and the receipts of the prompts that were sent for it."""

    result: T
    receipts: tuple[Record, ...]
    """One `assembly.` truth a call, for the Outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything one call needs. The record under `answer` is what the ledger knows of the call."""

    batch: Batch
    agent: str
    role: Role
    prompt: Prompt
    language: Language
    for_people: bool
    schema: Mapping[str, Json] | None = None
    remember: Mapping[str, Json] = field(default_factory=dict)
    """Stored with the answer: how things stood when it was given, for a second run of the handler."""

    async def ask(self, journal: Journal, model: Model, understand: Callable[[Answer], T]) -> Asked[T]:
        """What `understand` makes of the answer; it raises ValueError with the problem in a sentence.

        An answer cut off by its length is never understood. Raises Unusable after two answers.
        """
        problem: str | None = None
        receipts: list[Record] = []
        for step in ("answer", "answer.again"):
            record = await self._record(journal, model, step, problem)
            receipts.append(_receipt(record))
            before = f" (before that: {problem})" if problem else ""
            try:
                if record["finish_reason"] == "length":
                    raise ValueError(_CUT[self.language])
                answer = Answer(record["text"], record["remembered"], is_last=step == "answer.again")
                return Asked(understand(answer), tuple(receipts))
            except ValueError as error:
                problem = f"{error}{before}"
        raise Unusable(problem or "", raw=record["text"])

    async def _record(
        self, journal: Journal, model: Model, step: str, problem: str | None
    ) -> dict[str, Json]:
        async def call() -> Json:
            turns = self.prompt.asked_again(problem, self.language) if problem else self.prompt.turns
            reply = await model.complete(
                self.role,
                turns,
                agent=self.agent,
                trace_id=self.batch.trace_id,
                schema=self.schema,
                for_people=self.for_people,
                rule=self.batch.rule,
            )
            return {
                "text": reply.text,
                "finish_reason": reply.finish_reason,
                "model": reply.model,
                "usage": {name: getattr(reply.usage, name) for name in _USAGE},
                "duration_sec": reply.duration_sec,
                "role": self.role,
                "agent": self.agent,
                "parts": list(self.prompt.sizes),
                "audit": dict(self.prompt.audit),
                "remembered": dict(self.remember),
            }

        record: dict[str, Json] = await journal.once(self.batch, step, call, kind="model")
        return record


def _receipt(record: Mapping[str, Any]) -> Record:
    """The assembly as it was when the call was made, also when the answer is read back after a crash."""
    audit = record["audit"]
    told = {name: record[name] for name in ("model", "usage", "duration_sec", "finish_reason")}
    return Record(
        category="assembly",
        description=f"{audit['agent']}: {audit['task_type']}, {audit['total_tokens']} tokens",
        value={**audit, **told},
    )
