"""What one gateway bears: how many connections, and how long it waits for what they send.

The gateway may live in the daemon's process, whose files must stay openable: without bounds a few hundred
connections that say nothing would take every file descriptor.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["CROWDED", "BoundedProtocol", "Bounds"]

CROWDED = "crowded"
"""In the state of a request: its connection is one too many."""
_HARD = 2
"""Of so many times the connections that are served, one more is not even heard."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one server."""

    connections: int = 256
    """Served at once; what comes by one more is answered 503."""
    head_sec: float = 30.0
    """For the lines before a body; a connection that takes longer is closed."""
    body_sec: float = 30.0
    """For a whole body; else 408."""


class BoundedProtocol(H11Protocol):
    """One connection. A subclass sets `bounds`."""

    bounds: ClassVar[Bounds] = Bounds()
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _HARD * self.bounds.connections:
            transport.abort()
        elif len(self.connections) > self.bounds.connections:
            self.app_state = {**self.app_state, CROWDED: True}
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and _done(self.cycle):
            self._await_head()
        super().data_received(data)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.bounds.head_sec, self._look, self.cycle)

    def _look(self, before: Any) -> None:
        """End a connection on which no request has begun since `before`."""
        self._head_timer = None
        if not _done(self.cycle) or self.transport.is_closing():
            return
        if self.cycle is before:
            self.transport.close()
        elif self.timeout_keep_alive_task is None:  # the bytes of a further request have begun to come
            self._await_head()


def _done(cycle: Any) -> bool:
    """Whether the next bytes belong to a new request."""
    return cycle is None or bool(cycle.response_complete)
