"""HEAD: what GET would say, without the body, which the server leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["HeadAsGet"]

_ENDLESS = frozenset({"/api/stream"})
"""An answer that never ends has no head of its own: 405."""


@dataclass(frozen=True, slots=True)
class HeadAsGet:
    """ASGI: everything within sees a GET."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD" and scope["path"] not in _ENDLESS:
            scope = {**scope, "method": "GET"}  # a copy: the server looks at its own to leave the body out
        await self.app(scope, receive, send)
