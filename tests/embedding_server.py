"""A scripted OpenAI-compatible endpoint for vectors, over real HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["EmbeddingServer", "good"]


class EmbeddingServer:
    """A real OpenAI-compatible endpoint for vectors; `answer` scripts (status, body)."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.answer: Callable[[dict[str, Any]], tuple[int, Any]] = good
        self.delay_sec = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                outer.keys.append(self.headers["Authorization"])
                time.sleep(outer.delay_sec)
                status, answer = outer.answer(body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the client did not wait

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def good(body: dict[str, Any]) -> tuple[int, Any]:
    rows = [
        {"object": "embedding", "index": number, "embedding": [float(len(text)), -1.0, 0.5]}
        for number, text in enumerate(body["input"])
    ]
    return 200, {"object": "list", "data": rows[::-1], "usage": {"prompt_tokens": 7, "total_tokens": 7}}
