"""Bytes of a Chat Completions answer → an Answer, whether they come as one JSON object or as events.

Pure. Which of the two it is is seen from the bytes, not from what was asked for or from a header:
servers differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.model.tokens import without_surrogates

__all__ = ["Answer", "AnswerReader", "BadAnswer", "EndlessAnswer", "ErrorInAnswer"]

_MOST_TEXT = 2_000_000
"""Bytes of text in one answer: far more than any model writes that comes to an end."""
_MOST_PENDING = 4 * _MOST_TEXT
"""Bytes held until they can be read: a body in JSON may write a character in twice its bytes."""
_TOO_MUCH = f"the answer is longer than {_MOST_TEXT // 1_000_000} MB"

_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
"""What reasoning models served locally put before their answer."""


class BadAnswer(Exception):
    """The server's answer cannot be used: cut off, or no chat completion."""


class ErrorInAnswer(BadAnswer):
    """The server answered 200 and reports an error inside."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status it stands for; 500 when the server names none."""


class EndlessAnswer(BadAnswer):
    """The server goes on and on: longer than any answer, or over a longer time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer of an endpoint."""

    text: str
    """The arguments of the tool call when there is one, else the content."""
    finish_reason: str
    model: str
    prompt_tokens: int | None
    """None: the endpoint reported no usage."""
    completion_tokens: int
    cached_tokens: int


class AnswerReader:
    """Takes the body in any pieces; `finish` says what it was."""

    def __init__(self) -> None:
        self._pending = b""
        self._is_json: bool | None = None
        self._data: list[bytes] = []
        self._done = False
        self._content: list[str] = []
        self._arguments: list[str] = []
        self._refusal: list[str] = []
        self._finish_reason = ""
        self._model = ""
        self._usage: Mapping[str, Json] | None = None
        self._choices = 0
        self.received = 0
        """Bytes of text that have come."""

    @property
    def complete(self) -> bool:
        """Whether nothing that matters can follow (usage may)."""
        return self._done or bool(self._finish_reason)

    @property
    def done(self) -> bool:
        """Whether the server has said that nothing follows."""
        return self._done

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; True if a piece of the answer was among them, not only a keep-alive.

        Raises EndlessAnswer beyond about 2 MB of text.
        """
        self._pending += data
        if len(self._pending) > _MOST_PENDING:
            self.received = _MOST_TEXT
            raise EndlessAnswer(_TOO_MUCH)
        if self._is_json is None:
            start = self._pending.lstrip(b"\xef\xbb\xbf \t\r\n")
            if not start:
                return False
            self._is_json = start[:1] in b"{["
        if self._is_json:
            return bool(data.strip())
        *lines, self._pending = self._pending.split(b"\n")
        seen = [self._take_line(line.rstrip(b"\r")) for line in lines]
        return any(seen)

    def finish(self) -> Answer:
        """The answer, once the body has ended. Raises BadAnswer."""
        if self._is_json:
            self._take_event(self._pending)
            self._done = True
            self._finish_reason = self._finish_reason or "stop"
        elif self._is_json is False:
            self._take_line(self._pending.rstrip(b"\r"))
            self._take_line(b"")
        if self._is_json is None:
            raise BadAnswer("the answer is empty")
        if not self.complete:
            cut = "the answer was cut off before its end"
            raise BadAnswer(cut if self._choices else "the answer is no chat completion")
        if not self._choices:
            raise BadAnswer("the answer holds no choice")
        text = "".join(self._arguments) or "".join(self._content) or "".join(self._refusal)
        usage = self._usage or {}
        details = usage.get("prompt_tokens_details")
        return Answer(
            text=without_surrogates(_THOUGHTS.sub("", text)),
            finish_reason=self._finish_reason or "stop",
            model=self._model,
            prompt_tokens=_count(usage, "prompt_tokens") if usage.get("prompt_tokens") else None,
            completion_tokens=_count(usage, "completion_tokens"),
            cached_tokens=_count(details, "cached_tokens") if isinstance(details, dict) else 0,
        )

    def _take_line(self, line: bytes) -> bool:
        """One line of an event stream; an empty one ends an event."""
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            return True
        if line or not self._data:
            return False
        event, self._data = b"\n".join(self._data), []
        if self._done:
            return False
        if event.strip() == b"[DONE]":
            self._done = True
        else:
            self._take_event(event)
        return True

    def _take_event(self, raw: bytes) -> None:
        try:
            event = json.loads(raw)
        except (ValueError, RecursionError):
            raise BadAnswer("the answer is not JSON, or was cut off") from None
        if not isinstance(event, dict):
            raise BadAnswer("the answer is no chat completion")
        if event.get("error"):
            raise _error(event["error"])
        self._model = _text(event.get("model")) or self._model
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
                self._take_choice(choice)

    def _take_choice(self, choice: Mapping[str, Json]) -> None:
        self._choices += 1
        self._finish_reason = _text(choice.get("finish_reason")) or self._finish_reason
        message = choice.get("message") or choice.get("delta")
        if not isinstance(message, dict):
            return
        self._keep(self._content, _text(message.get("content")))
        self._keep(self._refusal, _text(message.get("refusal")))
        calls = message.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            function = call.get("function") if isinstance(call, dict) else None
            # One call was forced; of several (parallel) ones the first is the answer.
            if isinstance(function, dict) and call.get("index", position) in (0, None):
                self._keep(self._arguments, _argument_text(function.get("arguments")))

    def _keep(self, pieces: list[str], text: str) -> None:
        pieces.append(text)
        self.received += len(text.encode(errors="replace"))
        if self.received > _MOST_TEXT:
            raise EndlessAnswer(_TOO_MUCH)


def _text(value: Json) -> str:
    """Content is a string, null, or a list of parts."""
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _argument_text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else _text(value)


def _count(usage: Mapping[str, Json], key: str) -> int:
    value = usage.get(key)
    return max(int(value), 0) if isinstance(value, int | float) else 0


def _error(error: Json) -> ErrorInAnswer:
    if not isinstance(error, dict):
        return ErrorInAnswer(str(error), 500)
    status = next(
        (
            int(str(error[key]))
            for key in ("status", "code")
            if str(error.get(key)).isdecimal() and 400 <= int(str(error[key])) < 600
        ),
        500,
    )
    return ErrorInAnswer(_text(error.get("message")) or json.dumps(error), status)
