"""What the gateway needs of the world, and how it reads a JSON body."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from kernel_gamma.contracts.context import Assembled, TaskRequest
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.contracts.ports import Clock, Ids, SelfLog, TruthStore
from kernel_gamma.errors import Poison
from kernel_gamma.gateway.following import Told
from kernel_gamma.gateway.problems import Refused
from kernel_gamma.settings import Settings
from kernel_gamma.truths.static.changes import Changes

__all__ = ["GatewayPorts", "Lanes", "StrictRoute"]

T = TypeVar("T")
_MAX_DEPTH = 64
_UNREADABLE = frozenset({"not_json", "empty"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPorts:
    """Everything the gateway is handed; nothing of it is closed by the gateway."""

    truths: TruthStore
    clock: Clock
    ids: Ids
    settings: Settings
    version: str
    pages: SelfLog
    follow: Callable[[str | None], AsyncIterator[Told | None]]
    """Passages from now on, or after the one whose id is given; None at least once a second."""
    status: Callable[[], Mapping[str, Json]]
    """What `kgamma status --json` prints."""
    trace: Callable[[str], Mapping[str, Json] | None]
    """What `kgamma trace ID --json` prints; None when nothing is known of it."""
    assemble: Callable[[TaskRequest], tuple[Assembled, str | None]] | None = None
    """What would be sent for a task, and the key of its account; None: there is no assembler here."""
    emit: Callable[[bytes], Mapping[str, Json] | Awaitable[Mapping[str, Json]]] | None = None
    """Takes a checked event file, returns `{"id", "trace_id"}`; None: it is put into the inbox of `data`."""
    data: Path | None = None
    """The mind's folder; None when there is none."""
    token: str | None = field(default=None, repr=False)
    changes: Changes | None = None
    """Change control of the static truths; None: no answers are taken."""
    approval_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Lanes:
    """Threads for calls that block. Searches have few, so that they never take the store's last reader."""

    closing: threading.Event = field(default_factory=threading.Event)
    """Set when the server stops: streams end."""
    _searches: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(3))
    _writes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    _drops: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    _rest: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(16))

    async def search(self, call: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(call, *arguments, limiter=self._searches)

    async def write(self, call: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(call, *arguments, limiter=self._writes)

    async def drop(self, call: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(call, *arguments, limiter=self._drops)

    async def read(self, call: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(call, *arguments, limiter=self._rest)


class _StrictRequest(Request):
    async def json(self) -> Any:
        """As the inbox reads it: no NaN, bounded depth, U+FFFD for NUL and lone surrogates."""
        try:
            return read_document(await self.body(), max_depth=_MAX_DEPTH)
        except Poison as poison:
            status = 400 if poison.kind in _UNREADABLE else 422
            raise Refused(status, str(poison).replace("the file", "the body")) from None


class StrictRoute(APIRoute):
    """A route whose body is read by the same rules as a file in the inbox."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict
