"""A real OpenAI-compatible HTTP server whose answers are scripted. Standard library only.

In a test:    with ScriptedServer() as server: settings.model.quality.base_url = server.base_url
By hand:      python tests/scripted_server.py --port 8081 [--refuse json_schema=500] [--delay 0.2]
              GET /requests shows what was asked; POST /control {"down": true, "retry_after": 60}

The default script is a good internalizer and externalizer: it names every event it was shown, and
answers each message once.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

_EVENT = re.compile(r"<event((?:\s+[\w-]+=\"[^\"]*\")*)\s*>(.*?)</event>", re.DOTALL)
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_PASSAGE = re.compile(r"<passage>(.*?)</passage>", re.DOTALL)
_DECISION = re.compile(r"^I decide to reply to (.+?): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class ParsedRequest:
    """One request as it came in."""

    number: int
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Mapping[str, Any]
    time: float
    """Monotonic seconds."""

    @property
    def agent(self) -> str:
        return self.headers.get("x-kgamma-agent", "")

    @property
    def trace(self) -> str:
        return self.headers.get("x-kgamma-trace", "")

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def level(self) -> str:
        """How JSON was asked for: json_schema, tool, json_object or plain."""
        if self.body.get("tools"):
            return "tool"
        return str((self.body.get("response_format") or {}).get("type", "plain"))

    @property
    def last(self) -> str:
        """The text of the last user turn."""
        turns = [turn for turn in self.body.get("messages", ()) if turn.get("role") == "user"]
        return _text_of(turns[-1]) if turns else ""

    @property
    def prompt(self) -> str:
        """All turns, one below the other."""
        return "\n".join(_text_of(turn) for turn in self.body.get("messages", ()))

    @property
    def events(self) -> list[dict[str, str]]:
        """The attributes of the fenced events, with the body under `body`."""
        return [
            {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(match[1])}
            | {"body": match[2].strip("\n")}
            for match in _EVENT.finditer(self.last)
        ]

    @property
    def passage(self) -> str | None:
        found = _PASSAGE.search(self.last)
        return found[1].strip("\n") if found else None


@dataclass(frozen=True)
class Answer:
    """What the server sends back."""

    text: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds before the first byte."""
    cut: bool = False
    """Close the connection in the middle of the answer."""
    hang: bool = False
    """Send the first piece (of a stream) and then nothing."""
    finish_reason: str | None = "stop"
    tool_call: bool | None = None
    """Answer by a tool call; None: if one is forced."""
    raw: bytes | None = None
    """These bytes are the body, whatever they are."""
    content_type: str | None = None
    sse: bool | None = None
    """Answer as an event stream; None: as asked for."""
    usage: Mapping[str, Any] | None = None
    """None: counted from the text; {}: none is reported."""
    piece: int = 24
    """Characters in each piece of a stream."""
    pause: float = 0.0
    """Seconds after each piece of a stream."""
    done: bool = True
    """Whether a stream ends with [DONE]."""


Script = Callable[[ParsedRequest], Answer]


def good_mind(request: ParsedRequest) -> Answer:
    """The default script."""
    if "internalizer" in request.agent or (not request.agent and request.events):
        return Answer(_internalized(request))
    if "externalizer" in request.agent or request.passage is not None:
        return Answer(_externalized(request))
    if "consolidator" in request.agent:
        return Answer('{"memories": [], "keep_from": null}')
    return Answer("I am here.")


def _internalized(request: ParsedRequest) -> str:
    events = request.events
    named = ", ".join(event.get("id", "") for event in events)
    lines = [f"I notice what has come to me: {named}."]
    for event in events:
        kind = event.get("type", "message")
        if kind == "message" or kind.startswith("message."):
            lines.append(f"I decide to reply to {event.get('from', '')}: echo {event.get('id')}")
    return "\n\n".join(lines)


def _externalized(request: ParsedRequest) -> str:
    actions = [
        {"tool": "send_message", "arguments": {"to": to, "text": text}}
        for to, text in _DECISION.findall(request.passage or "")
    ]
    return json.dumps({"thought": "", "actions": actions}, ensure_ascii=False)


class ScriptedServer:
    """Listens on 127.0.0.1 from construction until `close` (or the end of the `with`)."""

    def __init__(
        self,
        script: Script = good_mind,
        *,
        port: int = 0,
        refuse: Mapping[str, int] | None = None,
        delay: float = 0.0,
    ) -> None:
        """`refuse`: level (json_schema, tool, json_object) or body key → status it is refused with."""
        self.script = script
        self.refuse = dict(refuse or {})
        self.delay = delay
        self.down = False
        """Connections are closed without an answer."""
        self.retry_after: float | str | None = None
        """Answer 429 with this Retry-After."""
        self._requests: list[ParsedRequest] = []
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True, name="scripted-server"
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def requests(self) -> list[ParsedRequest]:
        """A copy of all that was asked, in order."""
        with self._lock:
            return list(self._requests)

    def count(self, agent: str | None = None) -> int:
        """Requests so far, of one agent or of all."""
        return sum(1 for request in self.requests if agent is None or request.agent == agent)

    def counters(self) -> dict[str, int]:
        """Requests by agent."""
        return dict(Counter(request.agent for request in self.requests))

    def up(self) -> None:
        """End `down` and `retry_after`."""
        self.down = False
        self.retry_after = None

    def close(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def record(self, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> ParsedRequest:
        with self._lock:
            number = len(self._requests) + 1
            request = ParsedRequest(number, path, headers, body, time.monotonic())
            self._requests.append(request)
        return request

    def answer(self, request: ParsedRequest) -> Answer:
        """The answer to a request: the state of the server first, then the script."""
        if self.retry_after is not None:
            return _error(429, "Rate limit reached", {"Retry-After": str(self.retry_after)})
        for what, status in self.refuse.items():
            if what == request.level or what in request.body:
                return _error(status, f"{what} is not supported by this server")
        return self.script(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: ScriptedServer

    def server_bind(self) -> None:
        # HTTPServer would ask the name service for our own name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def __init__(self, *args: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that clients keep open."""
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        owner = self.server.owner
        if self.path == "/requests":
            seen = [
                {"agent": r.agent, "trace": r.trace, "time": r.time, "body": r.body} for r in owner.requests
            ]
            self._send_json({"count": len(seen), "by_agent": owner.counters(), "requests": seen})
        elif self.path.endswith("/models"):
            self._send_json({"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        else:
            self._send_json({"error": {"message": "not found"}}, 404)

    def do_POST(self) -> None:
        owner = self.server.owner
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw or b"{}")
        if self.path == "/control":
            for name in ("down", "retry_after", "delay", "refuse"):
                if name in body:
                    setattr(owner, name, body[name])
            self._send_json({"ok": True})
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = owner.record(self.path, headers, body)
        if owner.down:
            self._hang_up()
            return
        if not self.path.endswith("/chat/completions"):
            self._send_json({"error": {"message": "not found"}}, 404)
            return
        self._send_answer(request, owner.answer(request))

    def _send_answer(self, request: ParsedRequest, answer: Answer) -> None:
        owner = self.server.owner
        wait = answer.delay + owner.delay
        if wait and owner.stopping.wait(wait):
            return
        if answer.raw is not None:
            self._send_bytes(answer.raw, answer.content_type or "application/json", answer)
        elif answer.status != 200:
            error = {"error": {"message": answer.text, "type": "scripted", "code": None}}
            self._send_bytes(json.dumps(error).encode(), "application/json", answer)
        elif request.stream if answer.sse is None else answer.sse:
            self._send_stream(request, answer)
        else:
            self._send_whole(request, answer)

    def _send_whole(self, request: ParsedRequest, answer: Answer) -> None:
        if answer.hang:
            self.server.owner.stopping.wait()
            self._hang_up()
            return
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if _by_tool(request, answer):
            call = {"name": "answer", "arguments": answer.text}
            message |= {
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
            }
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
        body = _chunk(request, "chat.completion", [choice])
        if usage := _usage(request, answer):
            body["usage"] = usage
        self._send_bytes(json.dumps(body).encode(), "application/json", answer)

    def _send_stream(self, request: ParsedRequest, answer: Answer) -> None:
        self._head(200, answer.content_type or "text/event-stream", answer.headers)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        pieces = re.findall(f".{{1,{answer.piece}}}", answer.text, re.DOTALL) or [""]
        for index, piece in enumerate(pieces):
            if answer.cut and index >= (len(pieces) + 1) // 2:
                self._hang_up()
                return
            delta: dict[str, Any] = {"content": piece}
            if _by_tool(request, answer):
                delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            self._event(request, [{"index": 0, "delta": delta, "finish_reason": None}])
            if answer.pause:
                self.wfile.flush()
                if self.server.owner.stopping.wait(answer.pause):
                    return
            if answer.hang:
                self.wfile.flush()
                self.server.owner.stopping.wait()
                self._hang_up()
                return
        if answer.cut:
            self._hang_up()
            return
        self._event(request, [{"index": 0, "delta": {}, "finish_reason": answer.finish_reason}])
        usage = _usage(request, answer)
        if usage and (request.body.get("stream_options") or {}).get("include_usage"):
            self._event(request, [], usage)
        if answer.done:
            self._piece(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _event(
        self, request: ParsedRequest, choices: list[Any], usage: Mapping[str, Any] | None = None
    ) -> None:
        chunk = _chunk(request, "chat.completion.chunk", choices) | {"usage": usage}
        self._piece(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")

    def _piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _send_json(self, value: Any, status: int = 200) -> None:
        self._send_bytes(json.dumps(value).encode(), "application/json", Answer(status=status))

    def _send_bytes(self, data: bytes, content_type: str, answer: Answer) -> None:
        self._head(answer.status, content_type, answer.headers)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if answer.cut:
            self.wfile.write(data[: len(data) // 2])
            self._hang_up()
            return
        self.wfile.write(data)
        self.wfile.flush()

    def _head(self, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        self.send_header("Date", formatdate(usegmt=True))
        self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name, value)

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def _by_tool(request: ParsedRequest, answer: Answer) -> bool:
    return request.level == "tool" if answer.tool_call is None else answer.tool_call


def _chunk(request: ParsedRequest, kind: str, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": request.body.get("model", "scripted"),
        "choices": choices,
    }


def _usage(request: ParsedRequest, answer: Answer) -> Mapping[str, Any]:
    if answer.usage is not None:
        return answer.usage
    prompt, completion = len(request.prompt) // 4 + 1, len(answer.text) // 4 + 1
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _text_of(turn: Mapping[str, Any]) -> str:
    content = turn.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(message, status=status, headers=headers or {})


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible server.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--refuse", action="append", default=[], metavar="LEVEL=STATUS")
    given = parser.parse_args()
    refuse = {what: int(status) for what, _, status in (r.partition("=") for r in given.refuse)}
    with ScriptedServer(port=given.port, refuse=refuse, delay=given.delay) as server:
        print(server.base_url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
