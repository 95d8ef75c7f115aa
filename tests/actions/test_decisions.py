"""From a model's JSON to actions that can run."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.fakes import FakeIds

from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.decisions import Toolbox, actions_of, idempotency_key
from kernel_gamma.actions.registry import build_registry

BOX = Toolbox(build_registry(BUILTINS, None).catalogue("unknown", "en"))
SEND = {"tool": "send_message", "arguments": {"text": "hi"}}


def test_the_schema_admits_exactly_the_tools_of_the_catalogue() -> None:
    validator = Draft202012Validator(BOX.schema)
    assert validator.is_valid({"thought": "", "actions": [SEND]})
    assert not validator.is_valid({"thought": "", "actions": [SEND | {"tool": "fly"}]})
    assert not validator.is_valid({"actions": []})


def test_actions_keep_their_order_and_the_same_one_twice_is_one() -> None:
    other = {"tool": "recall", "arguments": {"query": "tea"}}
    assert [tool for tool, _ in BOX.decided([SEND, other, dict(SEND)], most=4)] == [
        "send_message",
        "recall",
    ]


def test_each_event_told_may_have_led_to_the_same_action() -> None:
    thanks = {"tool": "send_message", "arguments": {"text": "谢谢"}}
    assert len(BOX.decided([thanks, thanks], most=4, told=2)) == 2
    assert len(BOX.decided([thanks, SEND, thanks, thanks], most=4, told=2)) == 3
    assert len(BOX.decided([thanks, thanks], most=4)) == 1


def test_null_means_not_given() -> None:
    padded = {"tool": "send_message", "arguments": {"text": "hi", "to": None, "session": None}}
    assert BOX.decided([padded], most=1) == (("send_message", {"text": "hi"}),)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "must be a list"),
        ([SEND, SEND, SEND], "3 actions are too many; at most 2"),
        (["send"], "actions[0] must be an object"),
        ([SEND, {"arguments": {}}], "actions[1] must be an object"),
        ([{"tool": "send_message", "arguments": "hi"}], "`arguments` must be an object"),
        ([{"tool": "fly"}], "there is no tool fly"),
        ([{"tool": "send_message"}], "'text' is a required property"),
    ],
)
def test_each_problem_is_a_sentence(found: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        BOX.decided(found, most=2)
    assert said in str(caught.value)


def test_keys_follow_from_passage_and_place_ids_do_not() -> None:
    first, second = (
        actions_of([("recall", {}), ("recall", {})], "psg_1", ids.new) for ids in (FakeIds(), FakeIds())
    )
    assert [a.idempotency_key for a in first] == [a.idempotency_key for a in second]
    assert first[0].idempotency_key == idempotency_key("psg_1", 0)
    assert len({a.idempotency_key for a in first} | {idempotency_key("psg_2", 0)}) == 3
