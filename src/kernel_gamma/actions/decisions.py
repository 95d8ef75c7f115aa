"""From a model's JSON to actions: what it names must exist, what it gives must fit. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from kernel_gamma.actions.registry import Registry, ToolSpec
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.payloads import Action

__all__ = ["Decided", "Toolbox", "actions_of", "idempotency_key"]

Decided: TypeAlias = tuple[str, dict[str, Json]]
"""A tool and its arguments."""


class Toolbox:
    """The tools one level of trust may use, and what answers are asked for and checked with."""

    def __init__(self, tools: Sequence[Mapping[str, Json]]) -> None:
        self.tools = tools
        """As ToolHost.catalogue gives them."""
        self.schema = _answer_schema(tools)
        """JSON Schema of `{"thought", "actions"}`."""
        self._registry = Registry(
            {
                tool["name"]: ToolSpec(tool["name"], {"en": tool["description"]}, tool["parameters"])
                for tool in tools
            }
        )

    def decided(self, found: Json, *, most: int, told: int = 1) -> tuple[Decided, ...]:
        """Tool and arguments of each action, in order.

        `told`: how many events the passage tells. Each of them may have led to the same action; an
        equal one beyond that is a repetition and left out. Raises ValueError with the first problem in a
        sentence: not a list, more than `most`, an unknown tool, arguments that do not fit.
        """
        if not isinstance(found, list):
            raise ValueError("`actions` must be a list")
        if len(found) > most:
            raise ValueError(f"{len(found)} actions are too many; at most {most} are carried out")
        decided: list[Decided] = []
        for index, entry in enumerate(found):
            one = self._one(f"actions[{index}]", entry)
            if decided.count(one) < told:
                decided.append(one)
        return tuple(decided)

    def _one(self, where: str, entry: Json) -> Decided:
        if not isinstance(entry, dict) or not isinstance(entry.get("tool"), str):
            raise ValueError(f"{where} must be an object with `tool` and `arguments`")
        arguments = entry.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ValueError(f"{where}: `arguments` must be an object")
        # Endpoints that fill in every property of a schema say null for "not given".
        given = {key: value for key, value in arguments.items() if value is not None}
        if problem := self._registry.problem(entry["tool"], given):
            raise ValueError(f"{where}: {problem}")
        return entry["tool"], given


def actions_of(
    decided: Sequence[Decided], passage_id: str, new_id: Callable[[str], str]
) -> tuple[Action, ...]:
    """The actions of one passage; their idempotency keys follow from the passage and their place."""
    return tuple(
        Action(
            id=new_id("act"),
            tool=tool,
            arguments=arguments,
            idempotency_key=idempotency_key(passage_id, index),
        )
        for index, (tool, arguments) in enumerate(decided)
    )


def idempotency_key(passage_id: str, index: int) -> str:
    """The same for the same decision, whenever it is translated."""
    return hashlib.sha256(f"{passage_id}\0{index}".encode()).hexdigest()


def _answer_schema(tools: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    action = {
        "type": "object",
        "properties": {
            "tool": {"type": "string", "enum": [tool["name"] for tool in tools]},
            "arguments": {"type": "object"},
        },
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "actions": {"type": "array", "items": action},
        },
        "required": ["thought", "actions"],
        "additionalProperties": False,
    }
