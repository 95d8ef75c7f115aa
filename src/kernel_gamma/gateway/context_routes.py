"""Prompts for other programs: what the assembler would send for a task."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from kernel_gamma.contracts.context import Assembled, TaskRequest
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.errors import SettingsError, TooLarge
from kernel_gamma.gateway.ports import GatewayPorts, Lanes
from kernel_gamma.gateway.problems import JsonAnswer, Refused, field_refused, responses

__all__ = ["add_context_routes"]

_TASK_CHARS = 20_000


class AssembleRequest(BaseModel):
    """A task, and what it may take."""

    model_config = ConfigDict(extra="forbid", strict=True)
    task: str = Field(
        min_length=1,
        max_length=_TASK_CHARS,
        pattern=r"\S",
        description="What it is about, in words.",
        examples=["线上服务启动失败，进入死循环"],
    )
    task_type: str | None = Field(
        default=None, description="One of config/task_types.yaml; left out: told by the words of the task."
    )
    agent: str | None = Field(
        default=None, description="As if this agent of the mind asked, with its instructions: internalizer."
    )
    budget: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Tokens of static truths and records together; left out: the task type's.",
    )


class StaticOut(BaseModel):
    """One section of the static truths."""

    name: str
    source: str
    text: str
    tokens: int


class DynamicOut(BaseModel):
    """One record that was retrieved."""

    key: str
    timestamp: str | None
    similarity: float | None
    text: str
    tokens: int


class TurnOut(BaseModel):
    """One turn as a model would get it."""

    role: str
    text: str


class AssembleAnswer(BaseModel):
    """The prompt, what it is made of, and where its account is kept."""

    task_type: str
    static: list[StaticOut]
    dynamic: list[DynamicOut]
    turns: list[TurnOut]
    total_tokens: int
    budget: int
    prefix_hash: str
    audit_key: str | None = Field(description="Of the truth that says what was left out, and why.")


def add_context_routes(router: APIRouter, ports: GatewayPorts, lanes: Lanes) -> None:
    """The endpoint; none where nothing can be assembled."""
    assemble = ports.assemble
    if assemble is None:
        return
    told: Any = {200: {"model": AssembleAnswer, "description": "OK"}, **responses(400, 413, 422, 503)}

    @router.post("/api/context/assemble", tags=["context"], response_model=None, responses=told)
    async def post_assemble(asked: AssembleRequest) -> Response:
        """What would be sent to a model for a task: static truths, the mind's own past, and the records that
        the task needs. No model is asked."""
        request = TaskRequest(
            task=asked.task, task_type=asked.task_type, agent=asked.agent or "", budget=asked.budget
        )
        try:
            assembled, key = await lanes.search(assemble, request)
        except SettingsError as error:
            raise Refused(503, f"nothing can be assembled: {error}") from None
        except TooLarge as error:
            raise field_refused("budget", str(error)) from None
        except ValueError as error:
            field = "agent" if str(error).startswith("agent") else "task_type"
            raise field_refused(field, str(error)) from None
        return JsonAnswer(_answer(assembled, key))


def _answer(assembled: Assembled, key: str | None) -> dict[str, Json]:
    static, dynamic = [], []
    for part in assembled.parts:
        for piece in part.pieces:
            said = piece.text if piece.plain is None else piece.plain
            if part.channel == "static":
                static.append(
                    {"name": part.name, "source": piece.source, "text": said, "tokens": piece.tokens}
                )
            elif part.channel == "dynamic":
                dynamic.append(
                    {
                        "key": piece.source,
                        "timestamp": None if piece.at is None else rfc3339(piece.at),
                        "similarity": piece.score,
                        "text": said,
                        "tokens": piece.tokens,
                    }
                )
    audit = assembled.audit
    return {
        "task_type": audit["task_type"],
        "static": static,
        "dynamic": dynamic,
        "turns": [{"role": turn.role, "text": turn.text} for turn in assembled.turns],
        "total_tokens": audit["total_tokens"],
        "budget": audit["budget"],
        "prefix_hash": audit["prefix_hash"],
        "audit_key": key,
    }
