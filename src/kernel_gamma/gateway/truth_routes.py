"""/api/truth…: Channel B over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import Response
from starlette.convertors import StringConvertor, register_url_convertor

from kernel_gamma.contracts.truths import Finding, Search, Truth, check_category
from kernel_gamma.gateway import forms
from kernel_gamma.gateway.forms import aware, last_moment, truth_form, truth_list
from kernel_gamma.gateway.ports import GatewayPorts, Lanes
from kernel_gamma.gateway.problems import JsonAnswer, Refused, declared, field_refused
from kernel_gamma.gateway.upserts import add_upsert_route
from kernel_gamma.gateway.versions import ETAG, etag, is_named

__all__ = ["add_truth_routes"]

_MOST_VERSIONS = 2**31
_UNDERSTOOD = {
    "X-Understood-Time": {
        "description": "The time range that was searched, `start/end`; `..` is an open side. Absent: none.",
        "schema": {"type": "string"},
    }
}


class _KeyInPath(StringConvertor):
    """A path segment that is no endpoint of its own, so that these answer 405 to a wrong method."""

    regex = "(?!(?:search|upsert|feedback)$)[^/]+"


register_url_convertor("truth_key", _KeyInPath())

_Key = Annotated[forms.Key, Path()]
_IfNoneMatch = Annotated[str | None, Header(description="`*`, or versions as in ETag.")]


def add_truth_routes(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    """The endpoints; what is asked most comes first, and fixed names come before `{key}`."""
    add_upsert_route(router, ports, lanes)
    _add_search(router, ports, lanes)
    _add_listings(router, ports, lanes)
    _add_feedback(router, ports, lanes)
    _add_single(router, ports, lanes)


def _add_search(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    @router.post(
        "/api/truth/search", **declared("truths", forms.SearchAnswer, 400, 413, 415, 422, headers=_UNDERSTOOD)
    )
    async def search_truths(asked: forms.SearchRequest) -> Response:
        """Search by words, categories, time and similarity."""
        found = await lanes.search(ports.truths.search, _search_of(asked, ports))
        include_value = asked.include_value is not False
        results = [forms.found_form(one, include_value=include_value) for one in found.results]
        document = {"total": found.total, "returned": len(results), "results": results}
        return JsonAnswer(document, headers=_understood(found))


def _understood(found: Finding) -> dict[str, str]:
    """The header that tells the time range, also one that words of the query named."""
    start = _side(found.start, open_year=1)
    end = _side(found.end, open_year=9999)
    return {} if start == end == ".." else {"X-Understood-Time": f"{start}/{end}"}


def _side(moment: datetime | None, *, open_year: int) -> str:
    return ".." if moment is None or moment.year == open_year else forms.written(moment)


def _search_of(asked: forms.SearchRequest, ports: GatewayPorts) -> Search:
    """Raises Refused 422 for a time range that ends before it starts."""
    zone = ports.clock.zone
    start = aware(asked.start_time, zone) if asked.start_time else None
    end = last_moment(asked.end_time, zone) if asked.end_time else None
    if start is not None and end is not None and end < start:
        raise field_refused(
            "end_time", f"{asked.end_time} is before start_time {asked.start_time}; exchange the two"
        )
    return Search(
        query=asked.query or "",
        categories=tuple(check_category(name) for name in asked.categories or ()),
        start=start,
        end=end,
        limit=asked.limit or 10,
        min_similarity=asked.min_similarity or 0.0,
        task_type=asked.task_type,
    )


def _add_listings(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    truths = ports.truths

    @router.get("/api/truth/categories", **declared("truths", forms.CategoryList))
    async def list_categories() -> Response:
        """Every category with the number of its truths."""
        found = await lanes.read(truths.categories)
        listed = [{"category": name, "count": count} for name, count in found.items()]
        return JsonAnswer({"total": len(listed), "categories": listed})

    @router.get("/api/truth/recent", **declared("truths", forms.TruthList, 422))
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

    @router.get("/api/truth/category/{category}", **declared("truths", forms.TruthList, 422))
    async def truths_of_category(
        category: Annotated[forms.Category, Path()], page: Annotated[forms.PageQuery, Query()]
    ) -> Response:
        """The truths of a category or of a longer key prefix, the newest first."""
        return await listing(page, check_category(category))

    @router.get("/api/truths", **declared("truths", forms.TruthList, 422))
    async def list_truths(page: Annotated[forms.PageQuery, Query()]) -> Response:
        """All truths, the newest first."""
        return await listing(page, None)

    async def listing(page: forms.PageQuery, category: str | None) -> Response:
        def look() -> tuple[int, list[Truth]]:
            return truths.page(limit=page.limit, offset=page.offset, category=category)

        total, found = await lanes.read(look)
        return JsonAnswer(truth_list(total, page.limit, page.offset, found))


def _add_feedback(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    @router.post(
        "/api/truth/feedback", **declared("truths", forms.FeedbackTaken, 400, 404, 413, 415, 422, 507)
    )
    async def judge_truth(asked: forms.Feedback) -> Response:
        """Say whether a truth answered a query; it weighs in later searches."""

        def judge() -> bool:
            return ports.truths.feedback(asked.key, asked.query, relevant=asked.relevant, by=asked.by or "")

        if not await lanes.write(judge):
            raise _none(asked.key)
        return JsonAnswer({"key": asked.key, "relevant": asked.relevant})


def _add_single(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    answers = declared("truths", forms.TruthOut, 404, 422, headers=ETAG)
    answers["responses"][304] = {"description": "The version that is named still stands.", "headers": ETAG}

    @router.get("/api/truth/{key:truth_key}/versions", **declared("truths", forms.TruthList, 404, 422))
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
        headers = {"ETag": etag(truth.version)}
        if if_none_match is not None and is_named(if_none_match, truth):
            return Response(None, 304, headers)
        return JsonAnswer(truth_form(truth), headers=headers)


def _none(key: str) -> Refused:
    return Refused(404, f"there is no truth {key}")
