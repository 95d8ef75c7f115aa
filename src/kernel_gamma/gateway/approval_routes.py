"""POST /api/static/approvals: what a person decided elsewhere about a proposed change of the static truths.

The signature is what lets an answer in; the gateway's own token is not asked for here.
"""

from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import Poison, SettingsError
from kernel_gamma.gateway.ports import GatewayPorts, Lanes
from kernel_gamma.gateway.problems import JsonAnswer, Refused, field_refused, responses
from kernel_gamma.gateway.wordings import said_of
from kernel_gamma.truths.static.changes import ChangeRefused, Changes, NoSuchProposal, Proposal
from kernel_gamma.truths.static.messages import ANSWER_PATH, feishu_answer
from kernel_gamma.truths.static.signing import (
    SIGNATURE,
    TIMESTAMP,
    WINDOW_SEC,
    BadSignature,
    check_signature,
)

__all__ = ["add_approval_routes"]

_MAX_DEPTH = 16


class ApprovalAnswer(BaseModel):
    """What a person decided."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: str = Field(min_length=1, max_length=40, description="Of the proposal.")
    decision: Literal["approve", "reject"]
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"\S", description="Who decides.")]
    reason: str = Field(default="", max_length=2000, description="Of a rejection.")


class ApprovalDone(BaseModel):
    """What became of the proposal."""

    id: str
    file: str
    state: Literal["approved", "rejected"]
    decided_by: str
    decided_at: str


_HEADERS = [
    {
        "name": name,
        "in": "header",
        "required": False,
        "description": said,
        "schema": {"type": "string"},
    }
    for name, said in (
        (TIMESTAMP, "Whole seconds since 1970, at most 300 from the gateway's clock."),
        (SIGNATURE, "`sha256=` and the HMAC-SHA256 of `TIMESTAMP.BODY` with the secret, in hexadecimal."),
    )
]


class _Heard:
    """Requests of the window, so that none counts twice. A restart forgets them; what was decided stays so:
    a proposal is decided once, whatever comes again."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._turn = threading.Lock()

    def take(self, mark: str, now: float) -> bool:
        """False when it was heard before."""
        with self._turn:
            oldest = now - 2 * WINDOW_SEC
            self._seen = {one: at for one, at in self._seen.items() if at >= oldest}
            is_new = mark not in self._seen
            self._seen.setdefault(mark, now)
            return is_new

    def forget(self, mark: str) -> None:
        """It came to nothing here, and may come again."""
        with self._turn:
            self._seen.pop(mark, None)


def add_approval_routes(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    """The endpoint; it stands also where no answers are taken, and says so."""
    heard = _Heard()
    told: Any = {200: {"model": ApprovalDone, "description": "OK"}, **responses(400, 404, 409, 413, 415, 422)}
    schema = {"application/json": {"schema": ApprovalAnswer.model_json_schema()}}

    @router.post(
        ANSWER_PATH,
        tags=["static"],
        response_model=None,
        responses=told,
        openapi_extra={
            "parameters": _HEADERS,
            "requestBody": {"required": True, "content": schema},
            "security": [],
        },
    )
    async def post_approval(request: Request) -> Response:
        """Approve or reject a proposed change of the static truths, in a person's name, signed.

        With `static.approval: feishu` a click on the card is taken too, as Feishu signs and writes it.
        """
        feishu = ports.settings.static.approval == "feishu"
        changes, secret = _open_for_answers(ports)
        body = await request.body()
        now = ports.clock.now().timestamp()
        try:
            mark = check_signature(secret, request.headers, body, now=now, feishu=feishu)
        except BadSignature as error:
            raise Refused(403, str(error)) from None
        answer = _answer_in(body, feishu=feishu)
        if not heard.take(mark, now):
            raise Refused(409, "this very request was heard already; sign a new one")
        try:
            proposal = await lanes.write(_decide, changes, answer, ports.clock)
        except NoSuchProposal as error:
            raise Refused(404, str(error)) from None
        except (ChangeRefused, SettingsError) as error:
            raise Refused(409, str(error)) from None
        except BaseException:
            heard.forget(mark)
            raise
        return JsonAnswer(_done(proposal))


def _open_for_answers(ports: GatewayPorts) -> tuple[Changes, str]:
    """Raises Refused where answers over HTTP do not count."""
    settings = ports.settings.static
    if ports.changes is None or settings.approval == "cli":
        raise Refused(
            403,
            "static truths are approved by `kgamma static approve` alone; static.approval: webhook or feishu "
            "takes answers here too",
        )
    if not ports.approval_secret:
        raise Refused(
            403, f"there is no secret to check an answer with: {settings.approval_secret_env} is not set"
        )
    return ports.changes, ports.approval_secret


def _answer_in(body: bytes, *, feishu: bool) -> ApprovalAnswer:
    """Raises Refused."""
    try:
        document = read_document(body, max_depth=_MAX_DEPTH)
    except Poison as poison:
        said = str(poison).replace("the file", "the body")
        if poison.kind in {"not_json", "empty"}:
            raise Refused(400, said) from None
        raise field_refused("body", said.removeprefix("body: ")) from None
    try:
        return ApprovalAnswer.model_validate(feishu_answer(document) if feishu else document)
    except ValidationError as error:
        errors: list[Json] = [
            {"field": ".".join(map(str, one["loc"])) or "body", "problem": said_of(dict(one))}
            for one in error.errors(include_url=False)
        ]
        detail = "; ".join(f"{one['field']}: {one['problem']}" for one in errors)
        raise Refused(422, detail, extra={"errors": errors}) from None


def _decide(changes: Changes, answer: ApprovalAnswer, clock: Clock) -> Proposal:
    if answer.decision == "approve":
        return changes.approve(answer.id, name=answer.name, now=clock.now())
    return changes.reject(answer.id, name=answer.name, reason=answer.reason, now=clock.now())


def _done(proposal: Proposal) -> dict[str, Json]:
    return {
        "id": proposal.id,
        "file": proposal.file,
        "state": proposal.state,
        "decided_by": proposal.decided_by,
        "decided_at": proposal.decided_at,
    }
