from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.model.json_reply import read_object

KEYS = ("thought", "actions")
GOOD = '{"thought": "", "actions": [{"tool": "send_message", "arguments": {"text": "嗨 {x}"}}]}'
MEANT = {"thought": "", "actions": [{"tool": "send_message", "arguments": {"text": "嗨 {x}"}}]}


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```\nDone.",
        f'I used {{curly}} braces and {{"x": 1}} before. {GOOD} That is all.',
        f"{{ note }} then: {GOOD}",
        f"\ufeff{GOOD}",
        GOOD.replace("}}]}", "}},],}"),
        GOOD.replace('"thought"', "thought"),
        GOOD.replace('{"thought"', '{ /* mine */ "thought"'),
    ],
)
def test_f10_an_object_is_found_and_mended(text: str) -> None:
    assert read_object(text, KEYS) == MEANT


def test_f10_a_lone_surrogate_escape_is_replaced_and_a_pair_is_joined() -> None:
    text = '{"thought": "\\ud83d x \\ud83d\\ude00", "actions": []}'
    assert read_object(text, KEYS)["thought"] == "\ufffd x 😀"
    mended = text.replace("[]}", "[],}")
    assert read_object(mended, KEYS)["thought"] == "\ufffd x 😀"


def test_unescaped_quotes_and_line_breaks_inside_a_string_are_understood() -> None:
    found = read_object('{"thought": "she said "hi" to me,\nso", "actions": []}', KEYS)
    assert found["thought"] == 'she said "hi" to me,\nso'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD[: len(GOOD) // 2], "cut off"),
        (GOOD[:-1], "cut off"),
        (GOOD[:-2], "cut off"),
        (f"```json\n{GOOD[:-3]}\n```", "cut off"),
        ('{"thought": "", "actions": [{"tool": "a"}}', "cut off"),
        ("{}", '"thought", "actions"'),
        ('{"thought": "x"}', 'lacks "actions"'),
        ("sorry", "no JSON object"),
        ("", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"a":' * 3000, "cut off"),
        ("{" * 5000, "no JSON object"),
    ],
)
def test_f10_what_is_no_whole_answer_is_refused_with_words_for_the_model(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_object(text, KEYS)


def test_an_empty_object_is_refused_even_if_nothing_is_required() -> None:
    with pytest.raises(ValueError, match="empty"):
        read_object("{}", ())


@given(st.integers(min_value=1, max_value=len(GOOD) - 1))
def test_no_truncation_of_a_good_object_is_accepted(length: int) -> None:
    with pytest.raises(ValueError):
        read_object(GOOD[:length], KEYS)


@given(st.text(max_size=200))
def test_any_text_gives_an_object_or_a_value_error(text: str) -> None:
    try:
        assert all(key in read_object(text + "{", ("a",)) for key in ("a",))
    except ValueError as error:
        assert str(error)
