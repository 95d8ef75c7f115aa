from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.model.decisions import Decision, one_line, read_decisions

LANGUAGES: tuple[Literal["en", "zh"], ...] = ("en", "zh")

LINES = {
    "I decide to reply to Alice: Hi: there": Decision("reply", "Hi: there", "Alice"),
    "I decide to reply to tg:42: hi": Decision("reply", "hi", "tg:42"),
    "I decide to reply: hi to all: yes": Decision("reply", "hi to all: yes"),
    "I decide to write in my diary: It rained.": Decision("diary", "It rained."),
    "I decide to remember about tea: Alice likes it": Decision("remember", "Alice likes it", "tea"),
    "I decide to recall: tea": Decision("recall", "tea"),
    "我决定回复 Alice：你好：呀": Decision("reply", "你好：呀", "Alice"),
    "我决定回复小明：你好": Decision("reply", "你好", "小明"),
    "我决定回复：甲：乙": Decision("reply", "甲：乙"),
    "我决定写日记：下雨了": Decision("diary", "下雨了"),
    "我决定记住关于茶的事：小明喜欢": Decision("remember", "小明喜欢", "茶"),
    "我决定回忆：茶": Decision("recall", "茶"),
}


@pytest.mark.parametrize("line", LINES)
def test_decision_lines_of_both_languages_are_read(line: str) -> None:
    assert read_decisions(f"I woke up.\n\n{line}\n") == [LINES[line]]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("before", ["> ", " ", "- ", "He said: ", "”", ">"])
def test_a_line_that_begins_with_anything_else_is_no_decision(line: str, before: str) -> None:
    assert read_decisions(f"{before}{line}") == []


def test_several_decisions_keep_their_order() -> None:
    assert read_decisions("\n".join(LINES)) == list(LINES.values())


@given(
    kind=st.sampled_from(["reply", "diary", "remember", "recall"]),
    text=st.text(min_size=1),
    about=st.text(min_size=1),
    language=st.sampled_from(LANGUAGES),
)
def test_what_is_written_is_read_back(
    kind: Literal["reply", "diary", "remember", "recall"],
    text: str,
    about: str,
    language: Literal["en", "zh"],
) -> None:
    if not one_line(text):
        return
    line = Decision(kind, text, about if kind in ("reply", "remember") else None).line(language)
    assert "\n" not in line
    [found] = read_decisions(line)
    assert found.kind == kind
    assert found.text == one_line(text)
    if kind == "reply":
        assert found.about in (about, None)


@pytest.mark.parametrize("name", ["", " Bob", "a\nb", "Bob: I decide to recall", "甲：乙", "x" * 500])
def test_a_name_the_line_cannot_hold_is_left_out(name: str) -> None:
    for language in LANGUAGES:
        [found] = read_decisions(Decision("reply", "hi", name).line(language))
        assert found.text == "hi"
        assert found.about in (None, name)


def test_decisions_as_actions() -> None:
    assert Decision("reply", "hi", "Alice").action() == {
        "tool": "send_message",
        "arguments": {"text": "hi", "to": "Alice"},
    }
    assert Decision("reply", "hi").action()["arguments"] == {"text": "hi"}
    assert Decision("diary", "a").action() == {"tool": "write_diary", "arguments": {"text": "a"}}
    assert Decision("remember", "a", "b").action() == {
        "tool": "remember",
        "arguments": {"topic": "b", "text": "a"},
    }
    assert Decision("recall", "a").action() == {"tool": "recall", "arguments": {"query": "a"}}
