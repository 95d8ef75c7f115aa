"""What the two agents ask the assembler for: their own parts, and the words to retrieve with.

A prompt is one system turn, the same bytes for every call of an agent in a language until a static truth or a
tool changes, and one user turn, which goes from what changes least to what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kernel_gamma.context.audit import summary_of
from kernel_gamma.context.fences import MAX_CHARS_PER_TOKEN, Count, escape, is_image
from kernel_gamma.context.own_parts import OwnParts, query_of
from kernel_gamma.contracts.context import Assembled, Part, Request
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.payloads import Event
from kernel_gamma.contracts.ports import Page, Passage, Role, Turn
from kernel_gamma.settings import InternalizerSettings

__all__ = ["Prompt", "TurnBuilder", "event_weight"]

_AGAIN: Mapping[Language, str] = {
    "en": (
        "# Once more\n\nYour first answer could not be used: {problem}\nGive the whole answer again, mended."
    ),
    "zh": "# 再来一次\n\n你的第一次回答无法使用：{problem}\n请改好，把完整的回答重新给出。",
}
_DATA_CHARS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one call sends, and what it is made of."""

    turns: tuple[Turn, ...]
    audit: Mapping[str, Any] = field(repr=False)
    """See context.audit."""
    sizes: Sequence[Mapping[str, Json]]
    """(name, tokens) of its parts, in the order in which they stand."""

    @classmethod
    def of(cls, assembled: Assembled) -> Prompt:
        """The prompt that was assembled."""
        return cls(assembled.turns, assembled.audit, summary_of(assembled.audit))

    def asked_again(self, problem: str, language: Language) -> tuple[Turn, ...]:
        """The same turns, the last one ending with what was wrong with the first answer."""
        last = self.turns[-1]
        note = _AGAIN[language].format(problem=escape(problem))
        return (*self.turns[:-1], Turn(last.role, f"{last.text}\n\n{note}", last.images))


class TurnBuilder:
    """Makes the requests of one agent."""

    def __init__(self, agent: str, own: OwnParts) -> None:
        """`own` makes what the agent brings itself; `agent` is its node id."""
        self._agent = agent
        self._own = own

    def experience(
        self,
        events: Sequence[Event],
        *,
        state: Page,
        language: Language,
        now: datetime,
        role: Role = "quality",
        trace_id: str = "",
        see_images: bool = False,
    ) -> Request:
        """For the internalizer: persona, instructions, state, stream, memories, the time, the events.

        `state` is the page as it was read, so that who replaces it knows what was shown.
        """
        own = self._own
        images = tuple(a for event in events for a in event.attachments if is_image(a))
        parts = [
            own.persona(language),
            own.instructions("INTERNALIZER", language),
            own.state(state, language),
            own.stream(language),
            own.memory(own.recollected(query_of(events)), language),
            own.now(now, language),
            own.events(events, language, now=now, images_shown=see_images),
        ]
        return Request(
            agent=self._agent,
            role=role,
            trace_id=trace_id,
            language=language,
            now=now,
            task=_task_of(events),
            parts=parts,
            images=images if see_images else (),
        )

    def decisions(
        self,
        passage: Passage,
        *,
        tools: Sequence[Mapping[str, Json]],
        language: Language,
        now: datetime,
        role: Role = "quality",
        trace_id: str = "",
    ) -> Request:
        """For the externalizer: tools, the stream before `passage`, the time, the passage."""
        own = self._own
        parts: list[Part] = [
            own.persona(language),
            own.instructions("EXTERNALIZER", language, tools),
            own.stream(language, without=passage),
            own.now(now, language),
            own.passage(passage, language),
        ]
        return Request(
            agent=self._agent,
            role=role,
            trace_id=trace_id,
            language=language,
            now=now,
            task="",
            parts=parts,
            hand=True,
        )


def event_weight(payload: Mapping[str, Json], count: Count, budgets: InternalizerSettings) -> int:
    """About how many tokens the events of a `msg_` payload take in a prompt; at least one each."""
    events = payload.get("events")
    number = len(events) if isinstance(events, list) else 1
    most = number * budgets.event_max_tokens
    text = str(payload.get("text", ""))
    if len(text) > most * MAX_CHARS_PER_TOKEN:
        return most  # longer than what will be shown of it: not worth counting
    data = sum(len(str(e["data"])) for e in events or () if isinstance(e, dict) and e.get("data"))
    return max(number, min(most, count(text) + data // _DATA_CHARS_PER_TOKEN))


def _task_of(events: Iterable[Event]) -> str:
    """What these events ask for, in words: of what people, programs and time say, not of own acts."""
    return "\n".join(event.text for event in events if event.text and not event.type.startswith("action."))
