"""POST /api/events: something for the mind to perceive."""

from __future__ import annotations

import errno
import inspect
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import Poison
from kernel_gamma.gateway.event_drop import EventDrop
from kernel_gamma.gateway.event_schema import EVENT_BODY
from kernel_gamma.gateway.ports import GatewayPorts, Lanes
from kernel_gamma.gateway.problems import JsonAnswer, Refused, responses

__all__ = ["add_event_routes"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_STATUSES = {"not_json": 400, "empty": 400, "too_large": 413}
"""By the kind of Poison; else 422."""


class EventTaken(BaseModel):
    """The file is in the inbox."""

    id: str | None
    """Null: an AMP event without an id of its own, and no daemon runs."""
    trace_id: str | None
    """Null: a CloudEvent or an AMP event, and no daemon runs that could have acknowledged it."""
    file: str | None = None
    """Its name in the inbox; the ack has the same name, and /api/trace/ knows it too."""
    ids: list[str | None] | None = None
    """Of all events, when there are several."""
    trace_ids: list[str | None] | None = None


def add_event_routes(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    """The endpoint."""
    emit = ports.emit or _drop_of(ports)

    @router.post(
        "/api/events",
        tags=["events"],
        status_code=202,
        response_model=None,
        responses={
            202: {"model": EventTaken, "description": "Accepted"},
            **responses(400, 413, 415, 422, 503, 507),
        },
        openapi_extra={"requestBody": EVENT_BODY},
    )
    async def take_event(request: Request) -> Response:
        """Drop an event into the inbox: plain, envelope, CloudEvents 1.0 or AMP, or an array of them."""
        if emit is None:
            raise Refused(503, "this gateway runs without a mind: there is no inbox to put the event into")
        raw = await request.body()
        try:
            taken: Any = await lanes.drop(emit, raw)
            if inspect.isawaitable(taken):
                taken = await taken
        except Poison as poison:
            status = _STATUSES.get(poison.kind, 422)
            raise _refused(status, str(poison).replace("the file", "the body")) from None
        except OSError as error:
            status = 507 if error.errno in _FULL else 503
            raise Refused(status, f"the event could not be written: {error.strerror}") from error
        return JsonAnswer(_as_json(taken), 202)


def _drop_of(ports: GatewayPorts) -> EventDrop | None:
    if ports.data is None:
        return None
    return EventDrop(ports.data, ports.settings, ports.clock, ports.ids)


def _as_json(taken: Mapping[str, Json]) -> dict[str, Json]:
    return dict(taken)


def _refused(status: int, detail: str) -> Refused:
    field, colon, said = detail.partition(": ")
    if status != 422 or not colon or " " in field:
        field, said = "body", detail
    extra: dict[str, Json] = {"errors": [{"field": field, "problem": said}]} if status == 422 else {}
    return Refused(status, detail, extra=extra | ({"kind": "too_large"} if status == 413 else {}))
