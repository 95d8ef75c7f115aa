"""A model that answers at once, in this process: what is measured with it is everything but the model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Reply, Role, Turn, Usage

_EVENT = re.compile(r'<event id="([^"]*)"[^>]*? from="([^"]*)"')
_DECISION = re.compile(r"^I decide to reply to (.+?): (.*)$", re.M)
_USAGE = Usage(100, 40)


class InstantModel:
    """The Model port: narrates every event it is shown and answers each with one message."""

    offline = False

    def __init__(self) -> None:
        self.calls = 0

    async def complete(
        self,
        role: Role,
        turns: Sequence[Turn],
        *,
        agent: str,
        trace_id: str,
        schema: Mapping[str, Json] | None = None,
        for_people: bool = True,
        rule: str = "",
    ) -> Reply:
        self.calls += 1
        last = turns[-1].text
        text = self._act(last) if schema is not None else self._tell(last)
        return Reply(text, "stop", "instant", _USAGE, 0.0)

    def _tell(self, prompt: str) -> str:
        lines = []
        for event_id, sender in _EVENT.findall(prompt):
            lines.append(f"I hear {sender} say something, it is event {event_id}.\n")
            lines.append(f"I decide to reply to {sender}: I heard {event_id}.\n")
        return "\n".join(lines)

    def _act(self, prompt: str) -> str:
        passage = prompt[prompt.rfind("<passage>") :]
        actions = [
            {"tool": "send_message", "arguments": {"to": to, "text": text}}
            for to, text in _DECISION.findall(passage)
        ]
        return json.dumps({"thought": "", "actions": actions})

    def has_role(self, role: Role) -> bool:
        return role in ("quality", "fast")

    def count_tokens(self, role: Role, text: str) -> int:
        return len(text) // 4 + 1

    def window(self, role: Role) -> int:
        return 128_000
