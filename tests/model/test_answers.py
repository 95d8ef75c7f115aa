from __future__ import annotations

import json
from typing import Any

import pytest

from kernel_gamma.model.answers import Answer, AnswerReader, BadAnswer, ErrorInAnswer


def read(data: bytes, size: int = 7) -> Answer:
    reader = AnswerReader()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    return reader.finish()


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"


def delta(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event(model="m", choices=[choice])


def whole(message: dict[str, Any], **fields: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"model": "m", "choices": [choice], **fields}).encode()


DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_event_stream_in_any_pieces(size: int) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    data = b": ping\n\n" + delta("你") + delta("好\u2028!", "stop") + event(choices=[], usage=usage) + DONE
    assert read(data, size) == Answer("你好\u2028!", "stop", "m", 9, 2, 4)


def test_line_ends_of_windows_and_data_without_a_blank() -> None:
    data = (delta("a", "stop") + DONE).replace(b"data: ", b"data:").replace(b"\n", b"\r\n")
    assert read(data).text == "a"


def test_plain_json_is_understood_by_the_same_reader() -> None:
    answer = read(whole({"content": "hi"}, usage={"prompt_tokens": 3, "completion_tokens": 1}))
    assert (answer.text, answer.prompt_tokens, answer.cached_tokens) == ("hi", 3, 0)


def test_a_tool_calls_arguments_are_the_text() -> None:
    calls = [{"function": {"name": "answer", "arguments": '{"a": 1}'}}, {"function": {"arguments": "{}"}}]
    assert read(whole({"content": None, "tool_calls": calls})).text == '{"a": 1}'
    pieces = b"".join(
        event(choices=[{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}}])
        for part in ('{"a"', ": 1}")
    )
    assert read(pieces + delta("", "tool_calls") + DONE).text == '{"a": 1}'


def test_content_in_parts_thoughts_and_refusals() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read(whole({"content": parts})).text == "ab"
    assert read(whole({"content": "<think>\nhm\n</think>\n\nI see."})).text == "I see."
    assert read(whole({"content": None, "refusal": "I can't."})).text == "I can't."


def test_without_usage_the_prompt_tokens_are_unknown() -> None:
    assert read(whole({"content": "hi"})).prompt_tokens is None


def test_a_done_mark_ends_a_stream_whose_server_gives_no_finish_reason() -> None:
    assert read(delta("a") + DONE).finish_reason == "stop"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (delta("a") + delta("b"), "cut off"),
        (delta("a") + b'data: {"choices": [{"del', "cut off"),
        (whole({"content": "hi"})[:-9], "cut off"),
        (b"<html>Welcome to our network</html>", "no chat completion"),
        (b"", "empty"),
        (b"[]", "no chat completion"),
        (b'{"choices": []}', "no choice"),
        (DONE, "no choice"),
    ],
)
def test_what_is_no_whole_answer_is_bad(data: bytes, said: str) -> None:
    with pytest.raises(BadAnswer, match=said):
        read(data)


def test_an_error_inside_an_answer_is_an_error_with_its_status() -> None:
    with pytest.raises(ErrorInAnswer, match="busy") as caught:
        read(event(error={"message": "busy", "code": 429}))
    assert caught.value.status == 429
    with pytest.raises(ErrorInAnswer) as caught:
        read(b'{"error": "out of memory"}')
    assert caught.value.status == 500


def test_keep_alives_are_no_pieces() -> None:
    reader = AnswerReader()
    assert not reader.feed(b": ping\n\n")
    assert reader.feed(delta("a"))
    assert not reader.feed(b"\n: ping\n\n")
    assert not reader.complete
    reader.feed(delta("", "stop"))
    assert reader.complete
    assert not reader.done
    reader.feed(DONE)
    assert reader.done
