"""The sentences in which a mind without a language model decides; written here, read here. Pure.

A decision is one whole line that begins with its first word in the first column. Whatever comes from
outside stands in block quotes (`> `), so no quoted text can be a decision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language

__all__ = ["DECISION", "Decision", "DecisionKind", "one_line", "read_decisions"]

DecisionKind = Literal["reply", "diary", "remember", "recall", "remind"]

DECISION: Mapping[Language, Mapping[DecisionKind, re.Pattern[str]]] = MappingProxyType(
    {
        "en": {
            "reply": re.compile(r"I decide to reply(?: to (?P<about>.+?))?: (?P<text>.+)"),
            "diary": re.compile(r"I decide to write in my diary: (?P<text>.+)"),
            "remember": re.compile(r"I decide to remember about (?P<about>.+?): (?P<text>.+)"),
            "recall": re.compile(r"I decide to recall: (?P<text>.+)"),
            "remind": re.compile(r"I decide to be reminded at (?P<about>\S+): (?P<text>.+)"),
        },
        "zh": {
            "reply": re.compile(r"我决定回复(?: ?(?P<about>[^：]+))?：(?P<text>.+)"),
            "diary": re.compile(r"我决定写日记：(?P<text>.+)"),
            "remember": re.compile(r"我决定记住关于(?P<about>.+?)的事：(?P<text>.+)"),
            "recall": re.compile(r"我决定回忆：(?P<text>.+)"),
            "remind": re.compile(r"我决定在 (?P<about>\S+) 提醒：(?P<text>.+)"),
        },
    }
)
"""Matched against whole lines."""

_LINES: Mapping[Language, Mapping[DecisionKind, str]] = {
    "en": {
        "reply": "I decide to reply{about}: {text}",
        "diary": "I decide to write in my diary: {text}",
        "remember": "I decide to remember about {about}: {text}",
        "recall": "I decide to recall: {text}",
        "remind": "I decide to be reminded at {about}: {text}",
    },
    "zh": {
        "reply": "我决定回复{about}：{text}",
        "diary": "我决定写日记：{text}",
        "remember": "我决定记住关于{about}的事：{text}",
        "recall": "我决定回忆：{text}",
        "remind": "我决定在 {about} 提醒：{text}",
    },
}
_TO: Mapping[Language, str] = {"en": " to {about}", "zh": " {about}"}
_NO_TOPIC: Mapping[Language, str] = {"en": "what I was told", "zh": "别人告诉我"}
_ENDS: Mapping[Language, tuple[str, ...]] = {"en": (": ",), "zh": ("：", "的事：")}
_NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing she decides to do."""

    kind: DecisionKind
    text: str
    about: str | None = None
    """Who a reply goes to (None: where the event came from), the topic to remember
    under, or when to be reminded (RFC 3339)."""

    def line(self, language: Language) -> str:
        """The sentence for the stream; `read_decisions` makes the same decision of it.

        Line breaks in the text become spaces. A name that the sentence cannot hold unmistakably is
        left out: the reply then goes back to where its event came from.
        """
        about = self.about if _speakable(self.about, language) else None
        if self.kind == "reply":
            shown = _TO[language].format(about=about) if about else ""
        else:
            shown = about or _NO_TOPIC[language]
        return _LINES[language][self.kind].format(about=shown, text=one_line(self.text))

    def action(self) -> dict[str, Json]:
        """The decision as the externalizer answers it: `{tool, arguments}`."""
        if self.kind == "reply":
            to = {"to": self.about} if self.about else {}
            return {"tool": "send_message", "arguments": {"text": self.text, **to}}
        if self.kind == "diary":
            return {"tool": "write_diary", "arguments": {"text": self.text}}
        if self.kind == "remember":
            return {"tool": "remember", "arguments": {"topic": self.about, "text": self.text}}
        if self.kind == "remind":
            return {"tool": "remind_me", "arguments": {"text": self.text, "at": self.about}}
        return {"tool": "recall", "arguments": {"query": self.text}}


def read_decisions(passage: str) -> list[Decision]:
    """The decisions of a passage, in order; quoted lines and all other sentences are none."""
    return [found for line in passage.split("\n") if (found := _read(line.rstrip()))]


def one_line(text: str) -> str:
    """`text` with every run of blanks and line breaks made one space."""
    return " ".join(text.split())


def _read(line: str) -> Decision | None:
    for patterns in DECISION.values():
        for kind, pattern in patterns.items():
            if match := pattern.fullmatch(line):
                return Decision(kind, match["text"], match.groupdict().get("about"))
    return None


def _speakable(about: str | None, language: Language) -> bool:
    """Whether a name or topic survives being written into a line and read back."""
    return (
        about is not None
        and 0 < len(about) <= _NAME_CHARS
        and about == one_line(about)
        and not any(end in about for end in _ENDS[language])
        and not about.endswith((":", "的事"))
    )
