"""What is asked of an endpoint: turns, schema and settings → the body of a Chat Completions call.

Pure. How JSON is asked for has four levels, best first; endpoints differ in what they take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.model.refusals import Quirk
from kernel_gamma.settings import RoleSettings

__all__ = ["LEVELS", "Ask", "Level", "body_of", "levels_for", "refusable"]

Level = Literal["json_schema", "tool", "json_object", "plain"]
LEVELS: tuple[Level, ...] = ("json_schema", "tool", "json_object", "plain")
_NAME = "answer"


@dataclass(frozen=True, slots=True)
class Ask:
    """One call, ready to be sent."""

    messages: tuple[Mapping[str, Json], ...]
    """`{role, content}`; content is a string, or parts when there are images."""
    settings: RoleSettings
    timeout_sec: float
    headers: Mapping[str, str]
    schema: Mapping[str, Json] | None = None


def levels_for(wanted: Literal["auto"] | Level) -> tuple[Level, ...]:
    """The levels to try in order; a level named in the settings is the only one."""
    return LEVELS if wanted == "auto" else (wanted,)


def body_of(
    ask: Ask,
    level: Level,
    *,
    stream: bool,
    left_out: AbstractSet[Quirk],
    new_limit_name: bool,
) -> dict[str, Json]:
    """The request body. `left_out`: what this endpoint has refused before.

    `new_limit_name`: the limit of the answer is called max_completion_tokens (unless refused).
    """
    body: dict[str, Json] = {"model": ask.settings.model, "messages": list(ask.messages)}
    if ask.settings.temperature is not None and Quirk.TEMPERATURE not in left_out:
        body["temperature"] = ask.settings.temperature
    if ask.settings.max_output_tokens is not None:
        renamed = new_limit_name is not (Quirk.MAX_TOKENS in left_out)
        limit = "max_completion_tokens" if renamed else "max_tokens"
        body[limit] = ask.settings.max_output_tokens
    if stream and Quirk.STREAM not in left_out:
        body["stream"] = True
        if Quirk.STREAM_OPTIONS not in left_out:
            body["stream_options"] = {"include_usage": True}
    if ask.schema is not None:
        body.update(_structured(ask.schema, level))
    return body


def refusable(body: Mapping[str, Json], quirks: Sequence[Quirk]) -> Quirk | None:
    """The first of `quirks` that this body holds and that could be left out."""
    held = {
        Quirk.STREAM_OPTIONS: "stream_options" in body,
        Quirk.STREAM: "stream" in body,
        Quirk.TEMPERATURE: "temperature" in body,
        Quirk.MAX_TOKENS: "max_tokens" in body or "max_completion_tokens" in body,
    }
    return next((quirk for quirk in quirks if held[quirk]), None)


def _structured(schema: Mapping[str, Json], level: Level) -> dict[str, Json]:
    if level == "json_schema":
        named = {"name": _NAME, "schema": dict(schema)}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if level == "tool":
        tool = {"type": "function", "function": {"name": _NAME, "parameters": dict(schema)}}
        choice = {"type": "function", "function": {"name": _NAME}}
        return {"tools": [tool], "tool_choice": choice}
    return {"response_format": {"type": "json_object"}} if level == "json_object" else {}
