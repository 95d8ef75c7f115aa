"""A real HTTP server that takes what a webhook is told, and answers as it is scripted to."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class HookServer:
    """`with HookServer() as hook`: `heard` holds (headers, body) of each request."""

    status: int = 200
    answer: Any = field(default_factory=lambda: {"code": 0, "msg": "success"})
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.heard.append(({k.lower(): v for k, v in self.headers.items()}, body))
                raw = json.dumps(hook.answer).encode()
                self.send_response(hook.status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook/a-token-of-the-address"

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.heard]
