"""POST /api/truth/upsert: one truth, or several together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import TruthStore
from kernel_gamma.contracts.truths import (
    RESERVED_KEYS,
    SELF_CATEGORIES,
    NewTruth,
    category_of,
    check_category,
)
from kernel_gamma.errors import VersionConflict
from kernel_gamma.gateway import forms
from kernel_gamma.gateway.forms import aware, truth_form
from kernel_gamma.gateway.ports import GatewayPorts, Lanes
from kernel_gamma.gateway.problems import JsonAnswer, Refused, declared, field_refused
from kernel_gamma.gateway.versions import ETAG, PRECONDITIONS, Preconditions, etag

__all__ = ["add_upsert_route"]

T = TypeVar("T")
_ENDPOINTS = RESERVED_KEYS | {"upsert", "feedback", "category"}
"""Keys that could not be read back, because an endpoint has their address."""
_MOST_TRIES = 100
"""Another process that writes the same key may come between as often."""
_UPSERT = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": forms.UPSERT_SCHEMA}}},
    "parameters": PRECONDITIONS,
}


def add_upsert_route(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    """The endpoint."""
    answer = forms.TruthOut | forms.Written
    turn = threading.Lock()

    @router.post(
        "/api/truth/upsert",
        **declared("truths", answer, 400, 409, 412, 413, 415, 422, 507, headers=ETAG),
        openapi_extra=_UPSERT,
    )
    async def upsert_truth(request: Request) -> Response:
        """Write one truth, or with `{"truths": […]}` several, all or none."""
        # The busiest endpoint reads its request itself, which takes half the time.
        asked = _read_upsert(await request.json())
        conditions = Preconditions.of(request.headers)
        if isinstance(asked, forms.UpsertOne):
            return await lanes.write(_write_one, ports, turn, asked, conditions)
        if conditions.some:
            raise Refused(412, "If-Match and If-None-Match are for a single truth")
        return await lanes.write(_write_many, ports, turn, asked)


def _read_upsert(document: Json) -> forms.UpsertOne | forms.UpsertMany:
    try:
        return forms.UPSERT.validate_python(document)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


def _write_one(
    ports: GatewayPorts, turn: threading.Lock, asked: forms.UpsertOne, conditions: Preconditions
) -> Response:
    def write() -> Response:
        truth = ports.truths.upsert(_new_truth(ports, asked, "", _Standing(ports.truths), conditions))
        return JsonAnswer(truth_form(truth), headers={"ETag": etag(truth.version)})

    return _following(turn, write, pinned=conditions.pinned)


def _write_many(ports: GatewayPorts, turn: threading.Lock, asked: forms.UpsertMany) -> Response:
    def write() -> Response:
        standing = _Standing(ports.truths)
        new = [
            _new_truth(ports, one, f"truths.{number}.", standing) for number, one in enumerate(asked.truths)
        ]
        keys = ports.truths.upsert_many(new)
        return JsonAnswer({"written": len(keys), "keys": keys})

    return _following(turn, write, pinned=False)


def _following(turn: threading.Lock, write: Callable[[], T], *, pinned: bool) -> T:
    """Read what stands, then write what follows it; from the start when another came between.

    Raises VersionConflict when the request itself is `pinned` to a version.
    """
    for _ in range(_MOST_TRIES):
        with turn:  # the store writes one by one anyway
            try:
                return write()
            except VersionConflict:
                if pinned:
                    raise
    raise Refused(503, "others write the same key all the time; try again", headers={"Retry-After": "1"})


@dataclass(slots=True)
class _Standing:
    """What stands under the keys of one write, each read once, and only where it is asked for."""

    truths: TruthStore
    known: dict[str, tuple[int | None, str]] = field(default_factory=dict)
    """(version, description); without a version what an earlier truth of this write has put there."""

    def of(self, key: str) -> tuple[int | None, str]:
        if key not in self.known:
            found = self.truths.get(key)
            self.known[key] = (0, "") if found is None else (found.version, found.description)
        return self.known[key]

    def version(self, key: str | None) -> int:
        """Zero when there is none."""
        return 0 if key is None else self.of(key)[0] or 0


def _new_truth(
    ports: GatewayPorts,
    asked: forms.UpsertOne,
    where: str,
    standing: _Standing,
    conditions: Preconditions | None = None,
) -> NewTruth:
    """What is handed to the store. Without a description it keeps the one of the version it follows.

    Raises Refused for what may not be written from outside.
    """
    category = _checked_category(asked, where)
    expected = conditions.expected(partial(standing.version, asked.key)) if conditions else None
    description = asked.description
    if asked.key is not None:
        if description is None:
            version, description = standing.of(asked.key)
            expected = version if expected is None else expected
        standing.known[asked.key] = None, description
    return NewTruth(
        key=asked.key,
        category=category,
        value=asked.value,
        description=description or "",
        timestamp=aware(asked.timestamp, ports.clock.zone) if asked.timestamp else None,
        locked=True if asked.locked else None,
        expect_version=expected,
        trust="unknown",
    )


def _checked_category(asked: forms.UpsertOne, where: str) -> str | None:
    """The category that is given. Raises Refused when it or the key may not be written from outside."""
    category = None if asked.category is None else check_category(asked.category)
    own = category_of(asked.key or category or "")
    if own in SELF_CATEGORIES:
        raise Refused(
            403,
            f"{where}key: {own}. is the index of the mind's own pages and takes no writes",
        )
    if asked.key is not None and asked.key in _ENDPOINTS:
        raise field_refused(
            f"{where}key", f"{asked.key} is the name of an endpoint: put a category before it"
        )
    if asked.key is not None and category is not None and not f"{asked.key}.".startswith(f"{category}."):
        raise field_refused(f"{where}category", f"the key's own is {own}, not {category}")
    return category
