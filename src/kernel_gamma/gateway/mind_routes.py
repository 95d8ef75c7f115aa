"""How the mind is and what it wrote: status, traces, pages, the stream as it grows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path
from fastapi.responses import Response, StreamingResponse

from kernel_gamma.contracts.ports import Page
from kernel_gamma.gateway.following import Told
from kernel_gamma.gateway.ports import GatewayPorts, Lanes
from kernel_gamma.gateway.problems import JsonAnswer, Refused, responses
from kernel_gamma.gateway.wordings import DATE_PATTERN
from kernel_gamma.self_stream.passages import slug
from kernel_gamma.self_stream.stream import NOW

__all__ = ["add_mind_routes"]

MARKDOWN = "text/markdown"
_QUIET_LOOKS = 30
"""Looks without news after which a comment keeps the connection open: about 15 seconds."""
_RETRY_MS = 2000

_IfNoneMatch = Annotated[str | None, Header(description="The sha256 of the page, as in ETag.")]
_Date = Annotated[str, Path(pattern=DATE_PATTERN, examples=["2026-11-30"])]
_Name = Annotated[str, Path(min_length=1, description="The name of the page, or its topic.")]
_Id = Annotated[
    str,
    Path(
        min_length=1,
        max_length=255,
        description="An event, trace, file or passage id, or the name of a dropped file.",
    ),
]
_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_PAGE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The page",
        "content": {MARKDOWN: {"schema": {"type": "string"}}},
        "headers": {"ETag": {"description": "Its sha256, in quotes.", "schema": {"type": "string"}}},
    },
    304: {"description": "It is still the same page."},
}


def add_mind_routes(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    """The endpoints."""
    _add_state(router, ports, lanes)
    _add_pages(router, ports, lanes)
    _add_stream(router, ports, lanes)


def _add_state(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    ok = {"description": "OK", "content": _OBJECT}

    @router.get("/api/status", tags=["mind"], response_model=None, responses={200: ok, **responses(503)})
    async def get_status() -> Response:
        """Running? Queues, nodes, model, tokens, last error: what `kgamma status --json` prints."""
        return JsonAnswer(dict(await lanes.read(ports.status)))

    @router.get(
        "/api/trace/{id}", tags=["mind"], response_model=None, responses={200: ok, **responses(404, 422, 503)}
    )
    async def get_trace(id: _Id) -> Response:
        """One event's whole journey: what `kgamma trace ID --json` prints."""
        found = await lanes.read(ports.trace, id)
        if found is None:
            raise Refused(
                404, f"nothing is known of {id}; a file that still lies in inbox/pending has no journey yet"
            )
        return JsonAnswer(dict(found))


def _add_pages(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    declared: dict[str, Any] = {"tags": ["self"], "response_class": Response}

    @router.get("/api/self/now", responses={**_PAGE, **responses(404, 503)}, **declared)
    async def get_now(if_none_match: _IfNoneMatch = None) -> Response:
        """The current stream."""
        return _answer(await lanes.read(_page, ports, NOW), if_none_match)

    @router.get("/api/self/state", responses={**_PAGE, **responses(404, 503)}, **declared)
    async def get_state(if_none_match: _IfNoneMatch = None) -> Response:
        """The state page."""
        return _answer(await lanes.read(_page, ports, "state.md"), if_none_match)

    @router.get("/api/self/diary/{date}", responses={**_PAGE, **responses(404, 422, 503)}, **declared)
    async def get_diary(date: _Date, if_none_match: _IfNoneMatch = None) -> Response:
        """A page of the diary."""
        return _answer(await lanes.read(_page, ports, f"diary/{date}.md"), if_none_match)

    @router.get("/api/self/memories/{name}", responses={**_PAGE, **responses(404, 503)}, **declared)
    async def get_memory(name: _Name, if_none_match: _IfNoneMatch = None) -> Response:
        """A memory page."""
        return _answer(await lanes.read(_memory, ports, name), if_none_match)


def _page(ports: GatewayPorts, name: str) -> Page:
    """Raises Refused."""
    try:
        page = ports.pages.page(name)
    except ValueError:
        raise Refused(404, f"{name} is no name of a page") from None
    except OSError as error:
        raise Refused(503, f"self/{name}: {error.strerror}") from error
    if page.sha256 is None:
        raise Refused(404, f"there is no page self/{name}")
    return page


def _memory(ports: GatewayPorts, name: str) -> Page:
    names = ports.pages.memories()
    known = next((one for one in (name.removesuffix(".md"), slug(name)) if one in names), None)
    if known is None:
        raise Refused(404, f"there is no memory page {name}")
    return _page(ports, f"memories/{known}.md")


def _answer(page: Page, if_none_match: str | None) -> Response:
    headers = {"ETag": f'"{page.sha256}"'}
    if if_none_match is not None and (if_none_match.strip() == "*" or headers["ETag"] in if_none_match):
        return Response(None, 304, headers)
    return Response(page.text.encode("utf-8", "replace"), 200, headers, f"{MARKDOWN}; charset=utf-8")


def _add_stream(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    told = {
        "description": "Passages as they come",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }

    @router.get(
        "/api/stream", tags=["self"], response_class=Response, responses={200: told, **responses(503)}
    )
    async def follow_stream(
        last_event_id: Annotated[str | None, Header(description="The last passage that was heard.")] = None,
    ) -> Response:
        """New passages of the stream as server-sent events `passage`, data `{"id", "heading", "text"}`."""
        passages = ports.follow(last_event_id)
        first = await anext(passages, None)  # from here on nothing is missed
        events = _events(first, passages, lanes)
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )


async def _events(
    first: Told | None, passages: AsyncIterator[Told | None], lanes: Lanes
) -> AsyncIterator[bytes]:
    yield f"retry: {_RETRY_MS}\n\n".encode()
    if first is not None:
        yield _event(first)
    quiet = 0
    async for told in passages:
        if lanes.closing.is_set():
            return
        quiet = quiet + 1 if told is None else 0
        if told is not None:
            yield _event(told)
        elif quiet % _QUIET_LOOKS == 0:
            yield b": still here\n\n"


def _event(told: Told) -> bytes:
    passage = told.passage
    data = json.dumps({"id": told.id, "heading": passage.heading, "text": passage.text}, ensure_ascii=False)
    return f"id: {told.id}\nevent: passage\ndata: {data}\n\n".encode("utf-8", "replace")
