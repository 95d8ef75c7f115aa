"""How an action's outcome is told: a first-person line in the stream, or an event. Fixed words only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language, language_of
from kernel_gamma.contracts.payloads import Action, ActionPayload
from kernel_gamma.contracts.ports import ToolResult
from kernel_gamma.words import SIGNS, WORD

__all__ = ["Told", "action_event", "note_of", "spoken", "told_as"]

Told = Literal["done", "failed", "refused", "expired", "outcome_unknown", "waiting"]

_NOTE_CHARS = 80
_ARGUMENT_CHARS = 200
_RESULT_CHARS = 8000
_UP_TO_A_WORDS_END = re.compile(rf".*(?:(?<={WORD})(?!{WORD}|['’])|[{SIGNS}])(?=.)", re.DOTALL)
"""The longest part that ends with a whole word, or with one sign of a script without spaces."""
_LEFT_HANGING = " ,;:-–—，、；："

_NOTES: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "answered": "I replied to {whom}: “{text}”",
        "wrote": "I wrote to {whom}: “{text}”",
        "diary": "I wrote in my diary for {whom}: “{text}”",
        "remember": "I put down under “{whom}”, to keep: “{text}”",
        "propose": "I proposed a change of {whom}; a person has to approve it. Why: “{text}”",
        "recall": "I searched my memory for “{whom}” and found {text}.",
        "remind": "I set a reminder for {whom}: “{text}”",
        "tool": "I used {whom}, and it worked.",
    },
    "zh": {
        "answered": "我回复了 {whom}：“{text}”",
        "wrote": "我给 {whom} 写了：“{text}”",
        "diary": "我在 {whom} 的日记里写下：“{text}”",
        "remember": "我在“{whom}”名下记住了：“{text}”",
        "propose": "我提议改动 {whom}，要等一个人批准。理由：“{text}”",
        "recall": "我在记忆里找了“{whom}”，找到 {text} 处。",
        "remind": "我定下了一个提醒（{whom}）：“{text}”",
        "tool": "我用了 {whom}，做成了。",
    },
}
_EVENTS: Mapping[Language, Mapping[Told, str]] = {
    "en": {
        "done": "The action {tool} is done.",
        "failed": "The action {tool} failed: {error}.",
        "refused": "The action {tool} was not carried out: {error}.",
        "expired": "The action {tool} was not carried out: it had waited too long.",
        "outcome_unknown": "Whether the action {tool} took effect is not known: {error}.",
        "waiting": "The action {tool} has not been carried out: it waits for a person's consent.",
    },
    "zh": {
        "done": "行动 {tool} 已经完成。",
        "failed": "行动 {tool} 失败了：{error}。",
        "refused": "行动 {tool} 没有执行：{error}。",
        "expired": "行动 {tool} 没有执行：它等得太久了。",
        "outcome_unknown": "行动 {tool} 有没有生效，无从知道：{error}。",
        "waiting": "行动 {tool} 还没有执行：它在等一个人点头。",
    },
}


def spoken(setting: Literal["auto", "en", "zh"], action: Action) -> Language:
    """The language an action's outcome is told in: the setting, or that of its arguments."""
    if setting != "auto":
        return setting
    return language_of(" ".join(str(value) for value in action.arguments.values()))


def note_of(kind: str, language: Language, *, whom: str, text: str = "") -> str:
    """The line for a success that is only noted; long words are shortened to 80 characters."""
    return _NOTES[language][kind].format(whom=_shown(whom), text=_shown(text))


def told_as(result: ToolResult) -> Told:
    """Which `action.…` event a result is; a refusal that emits something waits for a person."""
    if result.ok:
        return "done"
    if result.unknown:
        return "outcome_unknown"
    if result.expired:
        return "expired"
    if result.refused:
        return "waiting" if result.effects else "refused"
    return "failed"


def action_event(
    action: Action, order: ActionPayload, told: Told, result: ToolResult, language: Language
) -> dict[str, Json]:
    """The plain event that tells the mind what became of `action`."""
    error = _shown(result.error, _ARGUMENT_CHARS).rstrip("。. ")
    data: dict[str, Json] = {
        "tool": action.tool,
        "arguments": {key: _excerpt(value) for key, value in action.arguments.items()},
    }
    if result.result is not None:
        data["result"] = _bounded(result.result)
    return {
        "type": f"action.{told}",
        "text": _EVENTS[language][told].format(tool=_shown(action.tool), error=error),
        "from": "self",
        "session": order.session_key,
        "channel": order.channel,
        "data": data,
    }


def _shown(text: str, limit: int = _NOTE_CHARS) -> str:
    """On one line, and short: cut between two words, or two signs of a script without spaces."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    whole = _UP_TO_A_WORDS_END.match(line[:limit])
    # A word longer than that has no end to be cut at.
    kept = whole[0] if whole and len(whole[0]) * 2 >= limit else line[: limit - 1]
    return kept.rstrip(_LEFT_HANGING) + "…"


def _excerpt(value: Json) -> Json:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _shown(value if isinstance(value, str) else str(value), _ARGUMENT_CHARS)


def _bounded(value: Json) -> Json:
    """A result that is no longer than an event should be."""
    text = value if isinstance(value, str) else str(value)
    return value if len(text) <= _RESULT_CHARS else text[: _RESULT_CHARS - 1] + "…"
