"""The scripted model of a long life: it tells every event it is shown, answers people, keeps few memories."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter

from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.model.tokens import Tokens

__all__ = ["Endpoint"]

_DECISION = re.compile(r"^(?:I decide to reply to|我决定回复) (.+?)[:：] (.+)$", re.MULTILINE)
_WORD = re.compile(r"\b(?:[bcdfgklmnprstvz][aeiou]){4}\d+\b")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Endpoint:
    """A server; `day` is what its counts are laid to."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.tokens: Counter[int] = Counter()
        self.largest = 0
        self.refused = 0
        self.agents: Counter[str] = Counter()
        self.day = -1
        self.asked: list[tuple[int, str]] = []
        """On which day, and who."""
        self._tokens = Tokens()
        self._lock = threading.Lock()
        self.away = False
        self.server = ScriptedServer(self._answer)

    def _answer(self, request: ParsedRequest) -> Answer:
        self.server._requests.clear()  # months of prompts are not kept
        if self.away:
            self.refused += 1
            return Answer("the model is away", status=503)
        size = self._tokens.count(request.prompt)
        with self._lock:
            self.calls[self.day] += 1
            self.tokens[self.day] += size
            self.largest = max(self.largest, size)
            self.agents[request.agent] += 1
            self.asked.append((self.day, request.agent))
        if "externalizer" in request.agent:
            return Answer(_acts(request))
        if "consolidator" in request.agent:
            return Answer(_memories(request))
        return Answer(_tells(request))

    def close(self) -> None:
        self.server.close()


def _tells(request: ParsedRequest) -> str:
    lines = []
    for event in request.events:
        body, sender = event["body"].strip(), event.get("from", "")
        chinese = bool(_CHINESE.search(body))
        said = body.replace("`", "'").splitlines()[0][:300] if body else ""
        lines.append(f"我听见 {sender} 说：“{said}”。" if chinese else f"I hear {sender} say “{said}”.")
        if event.get("type", "message").startswith("message"):
            word = (_WORD.findall(body) or ["it"])[0]
            lines.append(
                f"我决定回复 {sender}: 关于 {word}，我记下了。"
                if chinese
                else f"I decide to reply to {sender}: I have taken note of {word}."
            )
    return "\n\n".join(lines) or "I notice that time passes."


def _acts(request: ParsedRequest) -> str:
    actions = [
        {"tool": "send_message", "arguments": {"to": to, "text": text}}
        for to, text in _DECISION.findall(request.passage or "")
    ]
    return json.dumps({"thought": "", "actions": actions}, ensure_ascii=False)


def _memories(request: ParsedRequest) -> str:
    """One page of what people named lately; the oldest names go when it grows."""
    words = list(dict.fromkeys(_WORD.findall(request.prompt)))[-80:]
    page = "I was told these names and I keep them: " + ", ".join(words) + ".\n"
    memories = [{"topic": "names people gave me", "page": page}] if words else []
    return json.dumps({"memories": memories, "keep_from": None})
