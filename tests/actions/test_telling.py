"""Outcomes are told in fixed words, short, in both languages."""

from __future__ import annotations

import pytest

from kernel_gamma.actions.telling import action_event, note_of, spoken, told_as
from kernel_gamma.contracts.effects import Emit
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.payloads import Action, ActionPayload
from kernel_gamma.contracts.ports import ToolResult
from kernel_gamma.self_stream.passages import check_passage

ACTION = Action(id="act_1", tool="send_message", arguments={"text": "hi"}, idempotency_key="k")
ORDER = ActionPayload(passage_id="psg_1", actions=(ACTION,), session_key="group:42", channel="qq", to="alice")
WAITS = Emit(directory="approvals/pending", payload={})


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", ["answered", "wrote", "diary", "remember", "recall", "tool"])
def test_every_note_may_stand_in_the_stream(kind: str, language: Language) -> None:
    note = note_of(kind, language, whom="Alice", text="line one\nline two " + "x" * 200)
    assert "\n" not in note and len(note) < 160
    assert check_passage(note, prompt_sources=(), event_texts=()) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("I will come to see you " * 4, "I will come to see you " * 3 + "I will…"),
        ("我明天下午去看你，" * 10, "我明天下午去看你，" * 8 + "我明天下午去看…"),
        ("我去看你和your friends " * 5, "我去看你和your friends " * 4 + "我去看你和…"),
        ("one, two, three, four, " * 4, "one, two, three, four, " * 3 + "one, two…"),
        ("x" * 81, "x" * 79 + "…"),
        ("y" * 80, "y" * 80),
        ("don't " * 14, "don't " * 12 + "don't…"),
    ],
)
def test_long_words_are_cut_between_two_of_them(text: str, shown: str) -> None:
    assert note_of("tool", "en", whom=text) == f"I used {shown}, and it worked."


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ToolResult(True), "done"),
        (ToolResult(False, error="x"), "failed"),
        (ToolResult(False, unknown=True), "outcome_unknown"),
        (ToolResult(False, refused=True), "refused"),
        (ToolResult(False, refused=True, effects=(WAITS,)), "waiting"),
    ],
)
def test_a_result_names_its_event(result: ToolResult, told: str) -> None:
    assert told_as(result) == told


def test_an_event_says_what_where_and_with_which_arguments() -> None:
    result = ToolResult(False, error="no such person.\n")
    long = ACTION.model_copy(update={"arguments": {"text": "y" * 500, "n": 3, "list": [1]}})
    event = action_event(long, ORDER, "failed", result, "en")
    assert event["text"] == "The action send_message failed: no such person."
    assert (event["type"], event["from"]) == ("action.failed", "self")
    assert (event["session"], event["channel"]) == ("group:42", "qq")
    assert event["data"]["arguments"] == {"text": "y" * 199 + "…", "n": 3, "list": "[1]"}
    assert "result" not in event["data"]


def test_a_result_comes_along_bounded() -> None:
    small = action_event(ACTION, ORDER, "done", ToolResult(True, {"found": []}), "zh")
    assert small["data"]["result"] == {"found": []}
    assert small["text"] == "行动 send_message 已经完成。"
    large = action_event(ACTION, ORDER, "done", ToolResult(True, ["z" * 50_000]), "en")
    assert len(large["data"]["result"]) == 8000


def test_the_language_is_the_setting_or_that_of_the_arguments() -> None:
    chinese = ACTION.model_copy(update={"arguments": {"text": "五点见"}})
    assert (spoken("auto", chinese), spoken("auto", ACTION), spoken("en", chinese)) == (
        "zh",
        "en",
        "en",
    )
