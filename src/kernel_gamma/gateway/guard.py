"""Who may ask, and with what: Host, Origin, token, media type, size. Pure ASGI, before anything is routed.

A web page may send requests to loopback from any browser. The Host check stops one that made its own name
point here, the Origin check and the JSON media type the others.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.responses import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernel_gamma.errors import SettingsError
from kernel_gamma.gateway.bounds import CROWDED, Bounds
from kernel_gamma.gateway.problems import Refused, problem
from kernel_gamma.settings import GatewaySettings
from kernel_gamma.truths.static.messages import ANSWER_PATH

__all__ = ["Guard", "is_loopback", "token_of"]

log = logging.getLogger(__name__)

SETTINGS_FILE = "config/kernel.yaml"
_OPEN_PATHS = frozenset({"/healthz", ANSWER_PATH})
"""Whether it lives is told without a token; an approval brings a signature of its own."""
_DRAINED_BYTES = 16 << 20
"""So much of a body that is too large is read and dropped: then its sender hears why."""
_SENT_HEADERS = ("authorization", "content-type", "if-match", "if-none-match", "last-event-id")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::[0-9]{1,5})?")
_LOCAL_NAMES = frozenset({"localhost"})


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") in _LOCAL_NAMES


def token_of(settings: GatewaySettings, environ: Mapping[str, str]) -> str | None:
    """The token, None when there is none. Raises SettingsError when one is needed and missing."""
    token = environ.get(settings.token_env, "").strip()
    if not token:
        check_token(settings, None)
        return None
    if not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(
            f"environment variable {settings.token_env}",
            "gateway.token_env",
            "the token holds something else than printable ASCII",
            "make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token


def check_token(settings: GatewaySettings, token: str | None) -> None:
    """Raises SettingsError when other machines could reach the gateway without a token."""
    if token is None and not is_loopback(settings.host):
        raise SettingsError(
            SETTINGS_FILE,
            "gateway.host",
            f"{settings.host} can be reached from other machines, and there is no token",
            f"set the environment variable {settings.token_env}, or gateway.host: 127.0.0.1",
        )


@dataclass(frozen=True, slots=True)
class Guard:
    """The outer skin of the application."""

    app: ASGIApp
    settings: GatewaySettings
    token: str | None
    bounds: Bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            origin = self._check(scope, headers)
            if (preflight := self._preflight(scope, headers, origin)) is not None:
                await preflight(scope, receive, _with_headers(send, origin))
                return
            if scope["method"] in _WITH_BODY:
                receive = await self._body_in_time(headers, receive)
        except Refused as refused:
            answer = problem(
                refused.status_code, refused.detail, headers=refused.headers, extra=refused.extra
            )
            await answer(scope, receive, _with_headers(send, None))
            return
        await self._answer(scope, receive, _with_headers(send, origin))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What nobody foresaw is a problem too, and ends neither the connection nor the server."""
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception as error:
            log.exception("a request failed: %s %r", scope["method"], scope["path"])
            if started:
                raise
            answer = problem(500, f"the gateway failed: {type(error).__name__}; its log tells more")
            await answer(scope, receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> str | None:
        """The foreign origin that is allowed, if the request comes from one. Raises Refused."""
        if scope.get("state", {}).get(CROWDED):
            raise Refused(
                503,
                f"the gateway has {self.bounds.connections} connections and takes no more; try again soon",
                headers={"Retry-After": "1", "Connection": "close"},
            )
        self._check_host(scope, headers)
        origin = self._foreign_origin(scope, headers)
        if self.token is not None and scope["path"] not in _OPEN_PATHS and not _asks_first(scope, headers):
            given = headers.get("authorization", "")
            scheme, _, token = given.partition(" ")
            told = token.strip() if scheme.lower() == "bearer" else ""
            if not hmac.compare_digest(told.encode("utf-8", "replace"), self.token.encode()):
                raise Refused(
                    401,
                    "this gateway asks for a token: send `Authorization: Bearer TOKEN`",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        return origin

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        given = headers.getlist("host")
        found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if found is not None:
            name = found[1].strip("[]").lower().rstrip(".")
            here = (scope.get("server") or ("",))[0]
            known = {name.lower() for name in (self.settings.host, here, *self.settings.allowed_hosts)}
            if is_loopback(name) or name in known:
                return
        raise Refused(421, "the Host header names no host of this gateway; gateway.allowed_hosts can add one")

    def _foreign_origin(self, scope: Scope, headers: Headers) -> str | None:
        origins = headers.getlist("origin")
        if not origins or origins == [f"{scope.get('scheme', 'http')}://{headers['host']}"]:
            return None
        if len(origins) == 1 and origins[0] in self.settings.allowed_origins:
            return origins[0]
        raise Refused(
            403, "web pages of this origin may not use the gateway; gateway.allowed_origins can add it"
        )

    def _preflight(self, scope: Scope, headers: Headers, origin: str | None) -> Response | None:
        """The answer to a browser that asks before it sends for an allowed page."""
        if origin is None or not _asks_first(scope, headers):
            return None
        allowed = {
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": ", ".join(_SENT_HEADERS),
            "Access-Control-Max-Age": "600",
        }
        return Response(None, 204, allowed)

    async def _body_in_time(self, headers: Headers, receive: Receive) -> Receive:
        """Raises Refused."""
        try:
            async with asyncio.timeout(self.bounds.body_sec):
                return await self._body(headers, receive)
        except TimeoutError:
            raise Refused(
                408,
                f"the body did not come whole within {self.bounds.body_sec:g} seconds",
                headers={"Connection": "close"},
            ) from None

    async def _body(self, headers: Headers, receive: Receive) -> Receive:
        """The body, read whole within the bound. Raises Refused."""
        largest = self.settings.max_bytes
        said = headers.get("content-length", "")
        if said.isdigit() and int(said[:18]) > _DRAINED_BYTES:
            raise _too_large(largest)
        body, total, more = bytearray(), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _replay(message)
            part = message.get("body", b"")
            total += len(part)
            if total <= largest:
                body += part
            elif total > _DRAINED_BYTES:
                break
            more = message.get("more_body", False)
        if total > largest:
            raise _too_large(largest)
        if body and not _JSON.fullmatch(headers.get("content-type", "").strip()):
            raise Refused(415, "the body must be JSON and say so: `Content-Type: application/json`")
        return _replay({"type": "http.request", "body": bytes(body), "more_body": False}, receive)


def _asks_first(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers and "origin" in headers


def _too_large(largest: int) -> Refused:
    return Refused(
        413,
        f"the body is larger than gateway.max_bytes = {largest} bytes",
        headers={"Connection": "close"},
        extra={"kind": "too_large"},
    )


def _replay(first: Message, then: Receive | None = None) -> Receive:
    waiting: list[Message] = [first]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        return await then() if then is not None else {"type": "http.disconnect"}

    return receive


def _with_headers(send: Send, origin: str | None) -> Send:
    async def wrapped(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Content-Type-Options"] = "nosniff"
            if origin is not None:
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = "ETag, X-Understood-Time"
                headers.add_vary_header("Origin")
        await send(message)

    return wrapped
