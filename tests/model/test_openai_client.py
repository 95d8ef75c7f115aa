"""Against a real server, through the real SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.fakes import START
from tests.scripted_server import Answer as Scripted
from tests.scripted_server import ParsedRequest, Script, ScriptedServer

from kernel_gamma.contracts.ports import Turn
from kernel_gamma.model.answers import Answer
from kernel_gamma.model.asking import Ask
from kernel_gamma.model.failures import CallFailed
from kernel_gamma.model.messages import messages_of
from kernel_gamma.model.openai_client import OpenAIClient
from kernel_gamma.model.refusals import Kind
from kernel_gamma.settings import RoleSettings

WELL = Scripted("I am well")
KEY = "sk-very-secret-key"
SCHEMA = {"type": "object", "properties": {"thought": {"type": "string"}}, "required": ["thought"]}
GOOD = '{"thought": "I am well"}'

ASK = Ask(
    messages=({"role": "user", "content": "How are you?"},),
    settings=RoleSettings(model="m"),
    timeout_sec=10,
    headers={"X-Kgamma-Agent": "internalizer", "X-Kgamma-Trace": "trace_1"},
)
WITH_SCHEMA = replace(ASK, schema=SCHEMA)

Open = Callable[..., tuple[ScriptedServer, OpenAIClient]]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def open_pair(
            script: Script | Scripted = WELL, *, refuse: Any = None, **options: Any
        ) -> tuple[ScriptedServer, OpenAIClient]:
            run = script if callable(script) else lambda request: script
            server = stack.enter_context(ScriptedServer(run, refuse=refuse))
            options = {"now": lambda: START, "backoff_sec": 0.001} | options
            client = OpenAIClient(server.base_url, KEY, **options)
            stack.push_async_callback(client.aclose)
            return server, client

        yield open_pair


async def failure(client: OpenAIClient, ask: Ask = ASK, *, retries: int = 0) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await client.call(ask, retries=retries)
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value.__dict__).replace(repr(caught.value.text), "")
    return caught.value


async def test_prose_is_streamed_with_usage_and_headers(opened: Open) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    server, client = opened(Scripted("I am well 我很好", usage=usage))
    answer = await client.call(ASK, retries=0)
    assert answer == Answer("I am well 我很好", "stop", "m", 9, 4, 5)
    [request] = server.requests
    assert (request.agent, request.trace, request.stream) == ("internalizer", "trace_1", True)
    assert request.body["stream_options"] == {"include_usage": True}
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "temperature" not in request.body


async def test_json_is_not_streamed_unless_told_to(opened: Open) -> None:
    server, client = opened(Scripted(GOOD))
    await client.call(WITH_SCHEMA, retries=0)
    assert not server.requests[0].stream
    server, client = opened(Scripted(GOOD), stream="on")
    assert (await client.call(WITH_SCHEMA, retries=0)).text == GOOD
    assert server.requests[0].stream
    server, client = opened(stream="off")
    assert (await client.call(ASK, retries=0)).text == "I am well"
    assert not server.requests[0].stream


async def test_plain_json_instead_of_a_stream_is_understood_and_the_reverse(opened: Open) -> None:
    _, client = opened(Scripted("I am well", sse=False))
    assert (await client.call(ASK, retries=0)).text == "I am well"
    _, client = opened(Scripted(GOOD, sse=True))
    assert (await client.call(WITH_SCHEMA, retries=0)).text == GOOD


async def test_settings_of_the_role_are_sent(opened: Open) -> None:
    server, client = opened()
    settings = RoleSettings(model="m", temperature=0.2, max_output_tokens=77)
    await client.call(replace(ASK, settings=settings), retries=0)
    assert server.requests[0].body["temperature"] == 0.2
    assert server.requests[0].body["max_tokens"] == 77


@pytest.mark.parametrize("what", ["stream_options", "stream", "temperature"])
async def test_a_refused_parameter_is_left_out_and_remembered(opened: Open, what: str) -> None:
    server, client = opened(refuse={what: 400})
    ask = replace(ASK, settings=RoleSettings(model="m", temperature=0.2))
    for _ in range(2):
        assert (await client.call(ask, retries=0)).text == "I am well"
    assert [what in request.body for request in server.requests] == [True, False, False]


async def test_the_other_name_of_the_token_limit_is_found(opened: Open) -> None:
    server, client = opened(refuse={"max_tokens": 400})
    ask = replace(ASK, settings=RoleSettings(model="m", max_output_tokens=50))
    await client.call(ask, retries=0)
    assert server.requests[-1].body["max_completion_tokens"] == 50


@pytest.mark.parametrize("status", [400, 422, 500, 501])
async def test_a_refused_json_schema_falls_back_to_a_tool_and_is_remembered(
    opened: Open, status: int
) -> None:
    server, client = opened(Scripted(GOOD), refuse={"json_schema": status})
    for _ in range(2):
        assert (await client.call(WITH_SCHEMA, retries=0)).text == GOOD
    assert [request.level for request in server.requests] == ["json_schema", "tool", "tool"]


async def test_the_last_level_is_plain(opened: Open) -> None:
    refuse = {"json_schema": 500, "tool": 400, "json_object": 400}
    server, client = opened(Scripted(f"Here: {GOOD}"), refuse=refuse)
    assert (await client.call(WITH_SCHEMA, retries=0)).text == f"Here: {GOOD}"
    levels = ["json_schema", "tool", "json_object", "plain"]
    assert [request.level for request in server.requests] == levels


async def test_content_instead_of_a_tool_call_is_accepted(opened: Open) -> None:
    _, client = opened(Scripted(GOOD, tool_call=False), structured="tool")
    assert (await client.call(WITH_SCHEMA, retries=0)).text == GOOD


async def test_a_level_from_the_settings_is_the_only_one(opened: Open) -> None:
    server, client = opened(Scripted(GOOD), structured="json_object", refuse={"json_object": 500})
    await failure(client, WITH_SCHEMA)
    assert [request.level for request in server.requests] == ["json_object"]


async def test_an_outage_is_not_taken_for_a_refused_level(opened: Open) -> None:
    server, client = opened(Scripted(GOOD))
    await client.call(WITH_SCHEMA, retries=0)
    server.script = lambda request: Scripted("boom", status=500)
    assert (await failure(client, WITH_SCHEMA)).kind is Kind.PASSING
    server.script = lambda request: Scripted(GOOD)
    await client.call(WITH_SCHEMA, retries=0)
    assert {request.level for request in server.requests} == {"json_schema"}


async def test_a_short_retry_after_is_waited_for(opened: Open) -> None:
    def once_busy(request: ParsedRequest) -> Scripted:
        busy = Scripted("busy", status=429, headers={"Retry-After": "0.01"})
        return busy if request.number == 1 else Scripted("I am well")

    server, client = opened(once_busy)
    assert (await client.call(ASK, retries=1)).text == "I am well"
    assert server.count() == 2


async def test_a_long_retry_after_is_handed_on_without_another_try(opened: Open) -> None:
    server, client = opened(Scripted("busy", status=429, headers={"Retry-After": "3600"}))
    failed = await failure(client, retries=3)
    assert failed.retry_at == START + timedelta(hours=1)
    assert server.count() == 1


async def test_errors_that_pass_are_repeated_a_bounded_number_of_times(opened: Open) -> None:
    server, client = opened(Scripted("boom", status=503))
    failed = await failure(client, retries=2)
    assert failed.kind is Kind.PASSING
    assert server.count() == 3


@pytest.mark.parametrize(
    "answer",
    [
        Scripted("I am well, and this is long enough for several pieces.", cut=True),
        Scripted("I am well", finish_reason=None, done=False),
        Scripted("I am well", sse=False, cut=True),
        Scripted(raw=b"<html>Please log in</html>", content_type="text/html"),
        Scripted(raw=b"nonsense"),
        Scripted(raw=b""),
        Scripted(raw=b'{"choices": []}'),
        Scripted(raw=b'data: {"error": {"message": "overloaded"}}\n\n', content_type="text/event-stream"),
    ],
)
async def test_a_cut_or_meaningless_answer_is_a_failed_call_and_is_repeated(
    opened: Open, answer: Scripted
) -> None:
    server, client = opened(lambda request: answer if request.number == 1 else Scripted("I am well"))
    assert (await failure(client)).kind is Kind.PASSING
    server.script = lambda request: answer if request.number == 2 else Scripted("I am well")
    assert (await client.call(ASK, retries=1)).text == "I am well"


async def test_a_stream_that_stalls_is_given_up_without_another_try(opened: Open) -> None:
    server, client = opened(Scripted("I am well", hang=True))
    failed = await failure(client, replace(ASK, timeout_sec=0.1), retries=2)
    assert failed.kind is Kind.PASSING
    assert "sent nothing" in str(failed)
    assert server.count() == 1


async def test_a_stream_that_never_ends_is_given_up_without_another_try(opened: Open) -> None:
    dripping = Scripted("word " * 50_000, pause=0.02)
    server, client = opened(dripping, longest_sec=0.3)
    failed = await failure(client, replace(ASK, timeout_sec=0.4), retries=2)
    assert failed.kind is Kind.ENDLESS and "had not ended after 2 s" in str(failed)
    assert failed.received > 0 and server.count() == 1


async def test_a_long_timeout_lengthens_the_end_of_a_stream(opened: Open) -> None:
    _, client = opened(Scripted("word " * 50, pause=0.02), longest_sec=0.01)
    assert (await client.call(replace(ASK, timeout_sec=5), retries=0)).text == "word " * 50


@pytest.mark.parametrize("answer", [Scripted("many words " * 190_910), Scripted(raw=b"x" * 8_000_001)])
@pytest.mark.parametrize("stream", ["on", "off"])
async def test_an_answer_that_grows_without_end_is_given_up(
    opened: Open, answer: Scripted, stream: str
) -> None:
    server, client = opened(replace(answer, piece=100_000), stream=stream)
    failed = await failure(client, retries=2)
    assert failed.kind is Kind.ENDLESS and "longer than 2 MB" in str(failed)
    assert server.count() == 1


async def test_an_answer_that_never_begins_is_given_up(opened: Open) -> None:
    server, client = opened(Scripted(GOOD, hang=True), structured="plain")
    await failure(client, replace(WITH_SCHEMA, timeout_sec=0.1), retries=2)
    assert server.count() == 1


async def test_a_server_that_closes_or_is_not_there_cannot_be_reached(opened: Open) -> None:
    server, client = opened()
    server.down = True
    failed = await failure(client, retries=1)
    assert "cannot be reached" in str(failed)
    assert server.count() == 2
    server.up()
    assert (await client.call(ASK, retries=0)).text == "I am well"
    server.close()
    assert (await failure(client)).kind is Kind.PASSING


async def test_the_key_does_not_show_in_an_error(opened: Open) -> None:
    _, client = opened(Scripted(f"Incorrect API key provided: {KEY}", status=401))
    failed = await failure(client, retries=2)
    assert failed.kind is Kind.LASTING
    assert "***" in str(failed)
    assert failed.__cause__ is None


async def test_a_prompt_that_is_too_long_is_not_repeated(opened: Open) -> None:
    text = "This model's maximum context length is 8192 tokens, you asked for max_tokens 100"
    server, client = opened(Scripted(text, status=400))
    settings = RoleSettings(model="m", max_output_tokens=100)
    assert (await failure(client, replace(ASK, settings=settings), retries=2)).kind is Kind.TOO_LONG
    assert server.count() == 1


async def test_an_unclear_refusal_is_the_prompts_if_other_prompts_are_answered(opened: Open) -> None:
    def picky(request: ParsedRequest) -> Scripted:
        return Scripted("odd", status=400) if "How are you" in request.prompt else Scripted("Hello")

    _, client = opened(picky)
    assert (await failure(client)).kind is Kind.FORBIDDEN
    _, client = opened(Scripted("odd", status=400))
    assert (await failure(client)).kind is Kind.LASTING


async def test_lone_surrogates_do_not_keep_a_prompt_from_being_sent(opened: Open) -> None:
    server, client = opened()
    messages = await messages_of([Turn("user", "a\ud83d b")], None)
    await client.call(replace(ASK, messages=messages), retries=0)
    assert server.requests[0].last == "a\ufffd b"


async def test_a_cancelled_call_leaves_the_client_usable(opened: Open) -> None:
    server, client = opened(Scripted("I am well", hang=True))
    running = asyncio.create_task(client.call(ASK, retries=0))
    while not server.count():
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    server.script = lambda request: Scripted(json.dumps("well"))
    assert (await client.call(ASK, retries=0)).text == '"well"'
