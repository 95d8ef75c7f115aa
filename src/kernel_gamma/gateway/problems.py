"""Every error leaves as RFC 9457 problem details; what the OpenAPI declares and what is sent meet here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from kernel_gamma.contracts.envelope import Json, encode_document
from kernel_gamma.contracts.json_text import clean_text
from kernel_gamma.errors import BadTruth, KernelError, StoreFull, TruthError, TruthLocked, VersionConflict
from kernel_gamma.gateway.wordings import said_of

__all__ = [
    "MEDIA_TYPE",
    "JsonAnswer",
    "Problem",
    "Refused",
    "declared",
    "field_refused",
    "handle_problems",
    "problem",
    "responses",
]

MEDIA_TYPE = "application/problem+json"
_TAGS = frozenset({"one", "many"})
"""Names pydantic puts into the place of an error for the alternative it took."""
_WHERE = frozenset({"body", "query", "path", "header"})


class JsonAnswer(JSONResponse):
    """JSON in UTF-8 with a final newline; never fails on a text that is no UTF-8."""

    def render(self, content: Any) -> bytes:
        return encode_document(content)


class FieldProblem(BaseModel):
    """One field that is wrong."""

    field: str
    problem: str


class Problem(BaseModel):
    """RFC 9457 problem details."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] | None = None
    """The fields that are wrong; with 422, and with 412 for a header that is not written as it must be."""


class Refused(HTTPException):
    """A request that is answered with a problem. `extra` are members of the problem beside the usual."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Json] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.extra = dict(extra or {})


def field_refused(field: str, problem: str) -> Refused:
    """422 that names one field."""
    return Refused(422, f"{field}: {problem}", extra={"errors": [{"field": field, "problem": problem}]})


def problem(
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Json] | None = None,
) -> Response:
    """The response."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": clean_text(detail),
        **(extra or {}),
    }
    return Response(encode_document(document), status, dict(headers or {}), MEDIA_TYPE)


def handle_problems(app: FastAPI) -> None:
    """Make every error of `app` a problem."""

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND and detail == HTTPStatus.NOT_FOUND.phrase:
            detail = "there is nothing at this address; /docs lists what there is"
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"this address takes {(error.headers or {}).get('Allow', 'another method')}"
        return problem(error.status_code, detail, headers=error.headers, extra=getattr(error, "extra", None))

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        return _unprocessable(error.errors())

    @app.exception_handler(TruthError)
    async def _truth(_: Request, error: TruthError) -> Response:
        headers = {"ETag": f'"{error.version}"'} if isinstance(error, VersionConflict) else None
        extra = {"version": error.version} if isinstance(error, VersionConflict) else None
        return problem(_status_of(error), str(error), headers=headers, extra=extra)

    @app.exception_handler(KernelError)
    async def _kernel(_: Request, error: KernelError) -> Response:
        return problem(503, str(error))


def _status_of(error: TruthError) -> int:
    for kind, status in ((TruthLocked, 409), (VersionConflict, 412), (BadTruth, 422), (StoreFull, 507)):
        if isinstance(error, kind):
            return status
    return 503


def _unprocessable(found: Sequence[Any]) -> Response:
    errors = [{"field": _field(one["loc"]), "problem": said_of(one)} for one in found]
    detail = "; ".join(f"{one['field']}: {one['problem']}" for one in errors[:5])
    return problem(422, detail, extra={"errors": errors})


def _field(loc: Sequence[Any]) -> str:
    parts = [str(part) for part in loc if part not in _TAGS]
    if len(parts) > 1 and parts[0] in _WHERE:
        parts = parts[1:]
    return clean_text(".".join(parts)) or "body"


_MEANINGS: Mapping[int, str] = {
    400: "The request cannot be read: no JSON.",
    401: "The token is missing or wrong.",
    403: "Not allowed: the page's origin, what may not be written from outside, or a signature that is none.",
    404: "There is none.",
    408: "The body did not come in time.",
    409: "The truth is locked, or what is asked was decided already.",
    412: "Another version stands than the request names.",
    413: "The body is larger than gateway.max_bytes, or an event than inbox.max_bytes.",
    415: "The body is not declared as JSON.",
    421: "The Host header names no host of this gateway.",
    422: "A field is wrong; `errors` names it.",
    503: "The store or the mind cannot answer, or there are too many connections.",
    507: "The disk is full; nothing was written.",
}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How problems are declared: those any request may get, and these; with 413 a request has a body."""
    return {
        status: {
            "description": _MEANINGS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({401, 403, 421, 503, *statuses} | ({408} if 413 in statuses else set()))
    }


def declared(tag: str, model: Any, *statuses: int, headers: Any = None) -> dict[str, Any]:
    """The decorator's arguments that declare an answer and its problems."""
    ok = {"model": model, "description": "OK", **({"headers": headers} if headers else {})}
    return {"tags": [tag], "response_model": None, "responses": {200: ok, **responses(*statuses)}}
