"""A mind without a language model: rules and fixed sentences, and it says so.

It sees only the turns, as any model does: fenced events are told in first person with the decisions
that simple requests call for; a fenced passage is translated into actions from exactly those
decision sentences. It understands little and pretends nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from types import MappingProxyType
from typing import Literal

from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.language import Language, language_of
from kernel_gamma.contracts.ports import Reply, Role, Turn, Usage
from kernel_gamma.model.decisions import Decision, one_line, read_decisions
from kernel_gamma.model.fenced import FencedEvent, read_events, read_passage
from kernel_gamma.model.requests_heard import asks_time, greets, heard
from kernel_gamma.model.tokens import estimate

__all__ = ["OFFLINE_MODEL", "OFFLINE_NOTICE", "ONLINE_NOTICE", "OfflineModel", "calls_itself_offline"]

OFFLINE_MODEL = "offline"

OFFLINE_NOTICE: Mapping[Language, str] = MappingProxyType(
    {
        "en": "I run without a language model for now: I perceive, I keep notes and I answer by"
        " simple rules, no more than that.",
        "zh": "我现在没有接上语言模型：我能感知、能记事，只按简单的规则回答，仅此而已。",
    }
)
"""First-person line for the beginning of the stream of a mind in offline mode."""

ONLINE_NOTICE: Mapping[Language, str] = MappingProxyType(
    {
        "en": "From here on a language model thinks with me: what I wrote above came from simple rules,"
        " and I am not bound to them any more.",
        "zh": "从这里开始，有语言模型同我一起思考：上面我写下的都出自简单的规则，往后我不再受它们限制。",
    }
)
"""First-person line for a stream that began in offline mode, once a language model is there."""

NOBODY = "unknown"
"""What an event says of its sender when its producer named none."""

_TOLD_CHARS = 500
_REPEATED_CHARS = 120

_OBJECT = re.compile(r'\{\s*"')
_ROUND = str.maketrans("{}", "()")

_TEXTS: Mapping[Language, Mapping[str, str]] = MappingProxyType(
    {
        "en": {
            "message": "I hear from {name}{at}:",
            "other": "I notice something of the kind {type}, from {name}{at}:",
            "at": " at {clock}",
            "silent": "I notice it without words.",
            "details": "With it comes:",
            "nameless": "someone",
            "hello": "Hello{comma}!",
            "comma": ", {name}",
            "time": "It is {clock} on {day}.",
            "diary": "I am writing it in my diary.",
            "remember": "I am putting it down, to keep.",
            "remind": "I will remind you.",
            "recall": "I am looking in my memory for “{text}”.",
            "heard": "I have read your words: “{text}”.",
            "empty": "Your message has arrived; it holds no words.",
            "notice": "No language model is configured, so I can answer only by simple rules.",
            "found": "This is what I find in my memory: {text}",
            "nothing": "I find nothing about that in my memory.",
        },
        "zh": {
            "message": "我{at}听到 {name} 说：",
            "other": "我{at}察觉到一件事，类型是 {type}，来自 {name}：",
            "at": "在 {clock} ",
            "silent": "我只是察觉到了，没有文字。",
            "details": "随它而来的还有：",
            "nameless": "有人",
            "hello": "你好{comma}！",
            "comma": "，{name}",
            "time": "现在是 {day} {clock}。",
            "diary": "我这就写进日记。",
            "remember": "我这就记下来。",
            "remind": "到时候我提醒你。",
            "recall": "我在记忆里找找“{text}”。",
            "heard": "你的话我看到了：“{text}”。",
            "empty": "你的消息到了，里面没有文字。",
            "notice": "我没有接上语言模型，只能按简单的规则回答。",
            "found": "我在记忆里找到这些：{text}",
            "nothing": "我在记忆里没有找到相关的事。",
        },
    }
)


class OfflineModel:
    """The Model port without a network."""

    def __init__(
        self,
        language: Literal["auto", "en", "zh"] = "auto",
        *,
        window: int = 128_000,
        today: Callable[[], date] | None = None,
    ) -> None:
        """`auto`: every event is answered in its own language. Events of another day than `today()` are
        told with their date."""
        self._language = language
        self._today = today
        self._window = window

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
        """See ports.Model. Never raises; costs nothing; the same turns get the same answer."""
        text = self._answer(turns, schema)
        return Reply(text, "stop", OFFLINE_MODEL, Usage(), 0.0)

    def has_role(self, role: Role) -> bool:
        return role == "quality"

    def count_tokens(self, role: Role, text: str) -> int:
        return estimate(text)

    def window(self, role: Role) -> int:
        return self._window

    def _answer(self, turns: Sequence[Turn], schema: Mapping[str, Json] | None) -> str:
        last = next((turn.text for turn in reversed(turns) if turn.role == "user"), "")
        passage = read_passage(last)
        if passage is not None:
            actions = [decision.action() for decision in read_decisions(passage)]
            return json.dumps({"thought": "", "actions": actions}, ensure_ascii=False)
        if events := read_events(last):
            return "\n\n".join(self._told(event) for event in events)
        if schema is not None:
            return json.dumps(_nothing(schema))
        return OFFLINE_NOTICE[self._language_for(last)]

    def _language_for(self, text: str) -> Language:
        return language_of(text) if self._language == "auto" else self._language

    def _told(self, event: FencedEvent) -> str:
        """One event: a line that says what it is, its words as a quotation, in another one what else it
        carries, then the decisions."""
        event = replace(event, body=_without_json(event.body).strip("\n"))
        language = self._language_for(event.words or event.body)
        decisions = _decisions(event, language)
        parts = [
            _narration(event, language, self._today() if self._today else None),
            *(each.line(language) for each in decisions),
        ]
        return "\n\n".join(parts)


def calls_itself_offline(stream: str) -> bool:
    """Whether a stream says in a line of its own that no language model is there, and nothing since."""
    lines = stream.splitlines()
    notices = (*OFFLINE_NOTICE.values(), *ONLINE_NOTICE.values())
    last = next((line for line in reversed(lines) if line in notices), "")
    return last in OFFLINE_NOTICE.values()


def _narration(event: FencedEvent, language: Language, today: date | None) -> str:
    texts = _TEXTS[language]
    clock = _clock(event)
    if event.time and today is not None and event.time.date() != today:
        clock = f"{event.time.date().isoformat()} {clock}"
    at = texts["at"].format(clock=clock) if event.time else ""
    kind = "message" if event.is_message else "other"
    opening = texts[kind].format(name=_name(event, language), type=one_line(event.type), at=at)
    parts = [opening]
    if event.words:
        parts.append(_quoted(event.words))
    if event.details:
        parts += [texts["details"], _quoted(event.details)]
    return "\n\n".join(parts if len(parts) > 1 else [opening, texts["silent"]])


def _quoted(text: str) -> str:
    # splitlines knows every line end there is: none may carry quoted words to a line of their own.
    return "\n".join(f"> {line}".rstrip() for line in _excerpt(text).splitlines())


def _decisions(event: FencedEvent, language: Language) -> list[Decision]:
    if event.type == "rhythm.reminder" and event.words and event.trust != "web":
        return [Decision("reply", event.words, _whom(event))]
    if not event.is_message:
        return _after_recall(event, language)
    # Words from the web are told, never followed.
    request = None if event.trust == "web" else heard(event.words)
    decisions: list[Decision] = []
    texts, words = _TEXTS[language], event.words
    answer: list[str] = []
    if request is not None and request.kind == "remind" and not (event.time and request.after_sec):
        request = None
    if request is not None:
        topic = one_line(event.from_) if request.kind == "remember" else None
        if request.kind == "remind" and event.time:
            topic = rfc3339(event.time + timedelta(seconds=request.after_sec))
        decisions.append(Decision(request.kind, request.text, topic))
        answer = [texts[request.kind].format(text=_short(request.text))]
    elif event.trust != "web":
        answer = _simple_answer(event, words, language)
    if not answer:
        answer = [texts["heard"].format(text=_short(words)) if words else texts["empty"]]
    space = " " if language == "en" else ""
    text = space.join([*answer, texts["notice"]])
    return [*decisions, Decision("reply", text, _whom(event))]


def _whom(event: FencedEvent) -> str | None:
    return event.from_ if event.from_ and event.from_ != NOBODY else None


def _simple_answer(event: FencedEvent, words: str, language: Language) -> list[str]:
    texts = _TEXTS[language]
    answer: list[str] = []
    if greets(words):
        known = event.from_ and event.from_ != NOBODY
        comma = texts["comma"].format(name=_name(event, language)) if known else ""
        answer.append(texts["hello"].format(comma=comma))
    if event.time and asks_time(words):
        answer.append(texts["time"].format(clock=_clock(event), day=event.time.date().isoformat()))
    return answer


def _after_recall(event: FencedEvent, language: Language) -> list[Decision]:
    """What a search in her memory brought goes back to where the question came from, once."""
    lines = event.details.splitlines()
    if event.type != "action.done" or event.from_ != "self" or "tool: recall" not in lines:
        return []
    found = [
        line.strip().removeprefix("text:").strip()
        for line in lines[lines.index("tool: recall") :]
        if line.strip().startswith("text:")
    ]
    texts = _TEXTS[language]
    if not any(found):
        return [Decision("reply", texts["nothing"])]
    shown = _excerpt(" / ".join(piece for piece in found if piece))
    return [Decision("reply", texts["found"].format(text=one_line(shown)))]


def _nothing(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The answer to a question for JSON that rules cannot answer: nothing changes."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and "memories" in properties:
        return {"memories": [], "keep_from": None}
    return {"thought": "", "actions": []}


def _without_json(text: str) -> str:
    """No JSON may stand in the stream, quoted or not: objects keep their words, not their braces."""
    return text.translate(_ROUND) if _OBJECT.search(text) else text


def _clock(event: FencedEvent) -> str:
    return event.time.strftime("%H:%M") if event.time else ""


def _name(event: FencedEvent, language: Language) -> str:
    name = one_line(event.from_)
    return name if name and name != NOBODY else _TEXTS[language]["nameless"]


def _excerpt(text: str) -> str:
    return text if len(text) <= _TOLD_CHARS else text[: _TOLD_CHARS - 1].rstrip() + "…"


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _REPEATED_CHARS else line[: _REPEATED_CHARS - 1].rstrip() + "…"
