from __future__ import annotations

from datetime import timedelta

import pytest
from tests.fakes import START

from kernel_gamma.model.refusals import (
    Kind,
    Quirk,
    error_text,
    kind_of,
    named_quirks,
    retry_at,
    without_secrets,
)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (401, "Incorrect API key", Kind.LASTING),
        (403, "forbidden", Kind.LASTING),
        (404, "The model `x` does not exist", Kind.NO_MODEL),
        (400, "model 'x' not found", Kind.NO_MODEL),
        (429, "Rate limit reached", Kind.PASSING),
        (429, "You exceeded your current quota insufficient_quota", Kind.LASTING),
        (500, "boom", Kind.PASSING),
        (529, "overloaded", Kind.PASSING),
        (408, "timeout", Kind.PASSING),
        (400, "This model's maximum context length is 8192 tokens", Kind.TOO_LONG),
        (400, "the request exceeds the available context size", Kind.TOO_LONG),
        (413, "", Kind.TOO_LONG),
        (400, "content_policy_violation", Kind.FORBIDDEN),
        (400, "triggering Azure OpenAI's content management policy", Kind.FORBIDDEN),
        (400, "messages[1].role is wrong", Kind.UNCLEAR),
        (422, "oops", Kind.UNCLEAR),
    ],
)
def test_what_a_refusal_is(status: int, text: str, kind: Kind) -> None:
    assert kind_of(status, text) is kind


def test_a_refusal_names_the_parameter_to_leave_out() -> None:
    assert named_quirks("Unrecognized request argument: stream_options") == [Quirk.STREAM_OPTIONS]
    assert named_quirks("streaming is not supported") == [Quirk.STREAM]
    assert named_quirks("upstream error") == []
    assert named_quirks("'max_tokens' is not supported: use 'max_completion_tokens'") == [Quirk.MAX_TOKENS]
    assert named_quirks("'temperature' does not support 0.2") == [Quirk.TEMPERATURE]


def test_retry_after_in_seconds_and_as_a_date() -> None:
    assert retry_at({"retry-after": "90"}, START) == START + timedelta(seconds=90)
    headers = {
        "retry-after": "Fri, 31 Jul 2026 10:10:00 GMT",
        "date": "Fri, 31 Jul 2026 10:00:00 GMT",
    }
    assert retry_at(headers, START) == START + timedelta(minutes=10)
    assert retry_at({"retry-after": "Mon, 30 Nov 2026 02:31:05 GMT"}, START) == START + timedelta(minutes=1)


@pytest.mark.parametrize("value", ["", "soon", "-5", "0", "nan", "Fri, 31 Jul 2020 10:10:00 GMT"])
def test_a_retry_after_that_says_nothing_is_none(value: str) -> None:
    assert retry_at({"retry-after": value}, START) is None


def test_a_retry_after_is_believed_for_a_day_at_most() -> None:
    assert retry_at({"retry-after": "9999999"}, START) == START + timedelta(days=1)


def test_secrets_and_what_looks_like_one_are_not_shown() -> None:
    text = "bad key topsecret, sk-abcdef*****wxyz\nBearer abc.def " + "x" * 500
    shown = without_secrets(text, "topsecret")
    assert "topsecret" not in shown
    assert "abcdef" not in shown
    assert "abc.def" not in shown
    assert "\n" not in shown
    assert len(shown) <= 300


def test_the_words_of_an_error_body() -> None:
    assert error_text({"error": {"message": "a", "code": "b", "param": None}}, "") == "a b"
    assert error_text({"message": "a", "type": "t"}, "") == "a t"
    assert error_text(None, "fallback") == "fallback"
    assert error_text("plain words", "") == "plain words"
