"""/api/truth…: Channel B over HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.convertors import StringConvertor, register_url_convertor

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.truths import (
    RESERVED_KEYS,
    SELF_CATEGORIES,
    NewTruth,
    Search,
    Truth,
    category_of,
    check_category,
)
from kernel_gamma.gateway import forms
from kernel_gamma.gateway.forms import aware, last_moment, truth_form, truth_list
from kernel_gamma.gateway.ports import GatewayPorts, Lanes
from kernel_gamma.gateway.problems import JsonAnswer, Refused, field_refused, responses

__all__ = ["add_truth_routes"]

_ENDPOINTS = RESERVED_KEYS | {"upsert", "feedback", "category"}
"""Keys that could not be read back, because an endpoint has their address."""
_ONE_TAG = re.compile(r'\s*"(\d{1,15})"\s*')
_MOST_VERSIONS = 2**31
_TAGS = re.compile(r'(?:W/)?"[^"]*"')


class _KeyInPath(StringConvertor):
    """A path segment that is no endpoint of its own, so that these answer 405 to a wrong method."""

    regex = "(?!(?:search|upsert|feedback)$)[^/]+"


register_url_convertor("truth_key", _KeyInPath())

_Key = Annotated[forms.Key, Path()]
_IfNoneMatch = Annotated[str | None, Header(description="`*`, or versions as in ETag.")]
_ETAG = {"ETag": {"description": "The version, in quotes.", "schema": {"type": "string"}}}


_UPSERT = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": forms.UPSERT_SCHEMA}}},
    "parameters": [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": said,
            "schema": {"type": "string"},
        }
        for name, said in (
            ("If-Match", "The version this write follows, as in ETag; `*` for any."),
            ("If-None-Match", "`*`: there must be none yet."),
        )
    ],
}


def add_truth_routes(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    """The endpoints; what is asked most comes first, and fixed names come before `{key}`."""
    _add_upsert(router, ports, lanes)
    _add_search(router, ports, lanes)
    _add_listings(router, ports, lanes)
    _add_feedback(router, ports, lanes)
    _add_single(router, ports, lanes)


def _declared(model: Any, *statuses: int, headers: Any = None) -> dict[str, Any]:
    """The decorator's arguments that declare an answer and its problems."""
    ok = {"model": model, "description": "OK", **({"headers": headers} if headers else {})}
    return {"tags": ["truths"], "response_model": None, "responses": {200: ok, **responses(503, *statuses)}}


def _add_search(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    @router.post("/api/truth/search", **_declared(forms.SearchAnswer, 400, 413, 415, 422))
    async def search_truths(asked: forms.SearchRequest) -> Response:
        """Search by words, categories, time and similarity."""
        found = await lanes.search(ports.truths.search, _search_of(asked, ports))
        include_value = asked.include_value is not False
        results = [forms.found_form(one, include_value=include_value) for one in found.results]
        return JsonAnswer({"total": found.total, "returned": len(results), "results": results})


def _search_of(asked: forms.SearchRequest, ports: GatewayPorts) -> Search:
    zone = ports.clock.zone
    return Search(
        query=asked.query or "",
        categories=tuple(check_category(name) for name in asked.categories or ()),
        start=aware(asked.start_time, zone) if asked.start_time else None,
        end=last_moment(asked.end_time, zone) if asked.end_time else None,
        limit=asked.limit or 10,
        min_similarity=asked.min_similarity or 0.0,
        task_type=asked.task_type,
    )


def _add_listings(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    truths = ports.truths

    @router.get("/api/truth/categories", **_declared(forms.CategoryList))
    async def list_categories() -> Response:
        """Every category with the number of its truths."""
        found = await lanes.read(truths.categories)
        listed = [{"category": name, "count": count} for name, count in found.items()]
        return JsonAnswer({"total": len(listed), "categories": listed})

    @router.get("/api/truth/recent", **_declared(forms.TruthList, 422))
    async def recent_truths(asked: Annotated[forms.RecentQuery, Query()]) -> Response:
        """The newest truths. Without a category: none of those that come only when asked for."""
        category = None if asked.category is None else check_category(asked.category)

        def look() -> tuple[int, list[Truth]]:
            if category is not None:
                return truths.page(limit=asked.limit, category=category)[0], truths.recent(
                    limit=asked.limit, category=category
                )
            total = truths.search(Search(limit=1, fold=False)).total
            return total, truths.recent(limit=asked.limit)

        total, found = await lanes.search(look)
        return JsonAnswer(truth_list(max(total, len(found)), asked.limit, 0, found))

    @router.get("/api/truth/category/{category}", **_declared(forms.TruthList, 422))
    async def truths_of_category(
        category: Annotated[forms.Category, Path()], page: Annotated[forms.PageQuery, Query()]
    ) -> Response:
        """The truths of a category or of a longer key prefix, the newest first."""
        return await listing(page, check_category(category))

    @router.get("/api/truths", **_declared(forms.TruthList, 422))
    async def list_truths(page: Annotated[forms.PageQuery, Query()]) -> Response:
        """All truths, the newest first."""
        return await listing(page, None)

    async def listing(page: forms.PageQuery, category: str | None) -> Response:
        def look() -> tuple[int, list[Truth]]:
            return truths.page(limit=page.limit, offset=page.offset, category=category)

        total, found = await lanes.read(look)
        return JsonAnswer(truth_list(total, page.limit, page.offset, found))


@dataclass(frozen=True, slots=True)
class _Preconditions:
    """If-Match and If-None-Match of a write."""

    if_match: str | None
    if_none_match: str | None

    def expected(self, key: str | None, ports: GatewayPorts) -> int | None:
        """The version the write follows, None = any. Raises Refused 412 when it cannot be met."""
        if self.if_none_match is not None:
            if self.if_none_match.strip() != "*":
                raise Refused(
                    412, "If-None-Match: only `*` has a meaning for a write: there must be none yet"
                )
            return 0
        if self.if_match is None:
            return None
        if (one := _ONE_TAG.fullmatch(self.if_match)) is not None and int(one[1]) > 0 and key is not None:
            return int(one[1])
        standing = ports.truths.get(key) if key is not None else None
        if standing is not None and (
            self.if_match.strip() == "*" or _etag(standing) in _TAGS.findall(self.if_match)
        ):
            return standing.version
        raise Refused(
            412, "If-Match: no such version stands", extra={"version": standing.version if standing else 0}
        )


def _add_upsert(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    answer = forms.TruthOut | forms.Written

    @router.post(
        "/api/truth/upsert",
        **_declared(answer, 400, 409, 412, 413, 415, 422, 507, headers=_ETAG),
        openapi_extra=_UPSERT,
    )
    async def upsert_truth(request: Request) -> Response:
        """Write one truth, or with `{"truths": […]}` several, all or none."""
        # The busiest endpoint reads its request itself, which takes half the time.
        asked = _read_upsert(await request.json())
        if_match, if_none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
        conditions = _Preconditions(if_match, if_none_match)
        if isinstance(asked, forms.UpsertOne):
            return await lanes.write(_write_one, ports, asked, conditions)
        if if_match is not None or if_none_match is not None:
            raise Refused(412, "If-Match and If-None-Match are for a single truth")
        return await lanes.write(_write_many, ports, asked)


def _read_upsert(document: Json) -> forms.UpsertOne | forms.UpsertMany:
    try:
        return forms.UPSERT.validate_python(document)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None


def _write_one(ports: GatewayPorts, asked: forms.UpsertOne, conditions: _Preconditions) -> Response:
    new = _new_truth(ports, asked, "", conditions)
    truth = ports.truths.upsert(new)
    return JsonAnswer(truth_form(truth), headers={"ETag": _etag(truth)})


def _write_many(ports: GatewayPorts, asked: forms.UpsertMany) -> Response:
    new = [_new_truth(ports, one, f"truths.{number}.") for number, one in enumerate(asked.truths)]
    keys = ports.truths.upsert_many(new)
    return JsonAnswer({"written": len(keys), "keys": keys})


def _new_truth(
    ports: GatewayPorts, asked: forms.UpsertOne, where: str, conditions: _Preconditions | None = None
) -> NewTruth:
    """What is handed to the store. Raises Refused for what may not be written from outside."""
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
    return NewTruth(
        key=asked.key,
        category=category,
        value=asked.value,
        description=asked.description or "",
        timestamp=aware(asked.timestamp, ports.clock.zone) if asked.timestamp else None,
        locked=True if asked.locked else None,
        expect_version=conditions.expected(asked.key, ports) if conditions else None,
        trust="unknown",
    )


def _add_feedback(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    @router.post("/api/truth/feedback", **_declared(forms.FeedbackTaken, 400, 404, 413, 415, 422, 507))
    async def judge_truth(asked: forms.Feedback) -> Response:
        """Say whether a truth answered a query; it weighs in later searches."""

        def judge() -> bool:
            return ports.truths.feedback(asked.key, asked.query, relevant=asked.relevant, by=asked.by or "")

        if not await lanes.write(judge):
            raise _none(asked.key)
        return JsonAnswer({"key": asked.key, "relevant": asked.relevant})


def _add_single(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    answers = _declared(forms.TruthOut, 404, 422, headers=_ETAG)
    answers["responses"][304] = {"description": "The version that is named still stands.", "headers": _ETAG}

    @router.get("/api/truth/{key:truth_key}/versions", **_declared(forms.TruthList, 404, 422))
    async def versions_of_truth(key: _Key, page: Annotated[forms.PageQuery, Query()]) -> Response:
        """Every kept version of a truth, the oldest first."""
        found = await lanes.read(ports.truths.versions, key)
        if not found:
            raise _none(key)
        shown = found[page.offset : page.offset + page.limit]
        return JsonAnswer(truth_list(len(found), page.limit, page.offset, shown))

    @router.get("/api/truth/{key:truth_key}", **answers)
    async def get_truth(
        key: _Key,
        version: Annotated[int | None, Query(ge=1, le=_MOST_VERSIONS)] = None,
        if_none_match: _IfNoneMatch = None,
    ) -> Response:
        """One truth by its key; its newest version, or the one asked for."""
        truth = await lanes.read(ports.truths.get, key, version)
        if truth is None:
            raise _none(key if version is None else f"{key} of version {version}")
        headers = {"ETag": _etag(truth)}
        if if_none_match is not None and _matches(if_none_match, truth):
            return Response(None, 304, headers)
        return JsonAnswer(truth_form(truth), headers=headers)


def _matches(if_none_match: str, truth: Truth) -> bool:
    tags = [tag.removeprefix("W/") for tag in _TAGS.findall(if_none_match)]
    return if_none_match.strip() == "*" or _etag(truth) in tags


def _etag(truth: Truth) -> str:
    return f'"{truth.version}"'


def _none(key: str) -> Refused:
    return Refused(404, f"there is no truth {key}")
