"""Decisions of one new passage become actions; everything else comes to nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.fakes import ScriptedModel, World, batch, delivery, emits, envelope, of_kind, reply

from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.decisions import idempotency_key
from kernel_gamma.actions.host import Tools
from kernel_gamma.actions.registry import build_registry
from kernel_gamma.contracts.effects import Append, DeadLetter, Delivery, Outcome, Record
from kernel_gamma.contracts.payloads import ActionPayload, PassagePayload
from kernel_gamma.errors import Unusable
from kernel_gamma.nodes.agents.externalizer import Externalizer
from kernel_gamma.settings import Settings

PASSAGE = 'Alice asks when we meet. I decide to reply to Alice: "At five."'
SEND = {"tool": "send_message", "arguments": {"text": "At five."}}


def answer(*actions: Any, thought: Any = "") -> str:
    return json.dumps({"thought": thought, "actions": list(actions)})


def world(*answers: Any, passage: str = PASSAGE, **settings: Any) -> World:
    found = World(settings=Settings.model_validate(settings), model=ScriptedModel(*answers))
    found.tools = Tools(
        build_registry(BUILTINS, None),
        journal=found.journal,
        self_log=found.self_log,
        settings=found.settings,
    )
    found.self_log.tell("psg_0", "Earlier I decided to reply to Bob.")
    found.self_log.tell("psg_1", passage)
    return found


def told(passage_id: str = "psg_1", hops: int = 0, trust: Any = "known", **fields: Any) -> Delivery:
    payload = PassagePayload.model_validate(
        {
            "message_ids": ["msg_1"],
            "passage_id": passage_id,
            "stream_offset": 0,
            "length": 1,
            "sha256": "x",
            "session_key": "private:alice",
            "channel": "qq",
            "traces": ["trace_1"],
            "to": "alice",
            "trust": trust,
        }
    )
    given: dict[str, Any] = {
        "origin": "bus",
        "trust": trust,
        "queue": "pipeline/internalized",
        "worn": envelope(id="int_1", hops=hops),
    }
    return delivery(payload.model_dump(mode="json"), **(given | fields))


async def handle(found: World, *deliveries: Delivery) -> Outcome:
    return await Externalizer("externalizer", found.ports, {}).handle(batch(*(deliveries or (told(),))))


async def test_a_decision_becomes_an_order_with_everything_it_needs() -> None:
    found = world(answer(SEND))
    (emit,) = emits(await handle(found))
    assert emit.directory == "pipeline/action_queue" and emit.trust == "known"
    order = ActionPayload.model_validate(emit.payload)
    (action,) = order.actions
    assert (action.tool, action.arguments) == ("send_message", {"text": "At five."})
    assert action.idempotency_key == idempotency_key("psg_1", 0)
    assert (order.to, order.session_key, order.channel) == ("alice", "private:alice", "qq")
    assert (order.passage_id, order.traces, order.trust) == ("psg_1", ("trace_1",), "known")


@pytest.mark.parametrize("name", ["Bob", "小林"])
async def test_whoever_spoke_in_a_group_can_be_answered_there(name: str) -> None:
    passage = f"我在群里听到小林和Bob的话。我决定回复{name}：“好。”"
    reply_to = {"tool": "send_message", "arguments": {"to": name, "text": "好。"}}
    found = world(answer(reply_to), passage=passage)
    heard = told(trust="unknown")
    payload = dict(heard.payload) | {"session_key": "group:42", "to": "Bob", "senders": ["小林", "Bob"]}
    (emit,) = emits(
        await handle(found, delivery(payload, origin="bus", trust="unknown", worn=heard.envelope))
    )
    order = ActionPayload.model_validate(emit.payload)
    assert order.senders == ("小林", "Bob")
    result = await found.tools.run(
        order.actions[0], order, batch=batch(), trace_id="t", now=found.clock.now()
    )
    assert result.ok and result.effects[0].payload["session"] == "group:42"


@pytest.mark.parametrize(("traces", "actions"), [(["t1", "t2"], 2), (["t1"], 1), ([], 1)])
async def test_two_events_of_a_passage_may_have_the_same_answer(traces: list[str], actions: int) -> None:
    heard = told()
    both = delivery(
        dict(heard.payload) | {"traces": traces}, origin="bus", trust="known", worn=heard.envelope
    )
    (emit,) = emits(await handle(world(answer(SEND, SEND)), both))
    order = ActionPayload.model_validate(emit.payload)
    assert len(order.actions) == actions == len({each.idempotency_key for each in order.actions})


async def test_the_fast_role_is_asked_for_json_about_the_fenced_passage() -> None:
    found = world(answer())
    await handle(found)
    (call,) = found.model.calls
    assert (call.role, call.agent, call.trace_id) == ("fast", "externalizer", "trace_1")
    assert call.schema is not None and call.for_people
    assert call.last.endswith(f"<passage>\n{PASSAGE}\n</passage>")
    assert "Earlier I decided" in call.last and "### send_message" in call.turns[0].text


async def test_no_decision_is_no_action() -> None:
    (receipt,) = (await handle(world(answer()))).effects
    assert isinstance(receipt, Record) and receipt.category == "assembly"


@pytest.mark.parametrize("id_", ["psg_gone", "psg_edited", "psg_empty"])
async def test_a_passage_that_is_gone_or_empty_comes_to_nothing_without_a_call(id_: str) -> None:
    found = world()
    found.self_log.tell("psg_empty", "")
    found.self_log.tell("psg_edited", "I was here.")
    found.self_log.pages["stream/now.md"] = found.self_log.pages["stream/now.md"].replace(
        "was here", "am gone"
    )
    assert (await handle(found, told(id_))).effects == ()
    assert found.model.calls == []


async def test_past_the_last_hop_nothing_is_asked() -> None:
    found = world(answer(SEND))
    assert (await handle(found, told(hops=4))).effects == ()
    assert found.model.calls == []
    assert emits(await handle(found, told(hops=3)))


async def test_the_web_has_no_tools_and_costs_no_call() -> None:
    found = world()
    assert (await handle(found, told(trust="web"))).effects == ()
    assert found.model.calls == []


@pytest.mark.parametrize(
    "first",
    [
        "sorry",
        "{}",
        '{"thought": "", "actions": [{"tool"',
        answer({"tool": "fly", "arguments": {}}),
        answer({"tool": "send_message", "arguments": {"to": "alice"}}),
        answer(*[{"tool": "recall", "arguments": {"query": str(n)}} for n in range(17)]),
        answer(SEND, thought="The user wants an answer."),
        answer(SEND, thought=3),
        reply(answer(SEND), finish_reason="length"),
    ],
)
async def test_an_answer_that_cannot_run_is_asked_for_once_more(first: Any) -> None:
    found = world(first, answer(SEND))
    assert len(emits(await handle(found))) == 1
    assert "# Once more" in found.model.calls[1].last
    assert [step for _, step, _ in found.journal.ran] == ["answer", "answer.again"]


@pytest.mark.parametrize(
    "mended",
    [
        f"```json\n{answer(SEND)}\n```",
        f"Here {{it}} is: {answer(SEND)}",
        answer(SEND).replace("At five.", "At five.\\ud83d"),
    ],
)
async def test_odd_but_whole_json_is_understood(mended: str) -> None:
    found = world(mended)
    assert len(emits(await handle(found))) == 1 and len(found.model.calls) == 1


async def test_two_bad_answers_are_unusable_and_the_last_is_kept() -> None:
    with pytest.raises(Unusable) as caught:
        await handle(world("sorry", "so sorry"))
    assert caught.value.raw == "so sorry"


async def test_a_thought_joins_the_stream_and_is_translated_in_its_turn() -> None:
    found = world(answer(SEND, thought="I wonder whether five is too late for her."))
    outcome = await handle(found, told(hops=1))
    (append,) = of_kind(outcome, Append)
    assert append.passage is not None and append.passage.kind == "thought"
    assert "I wonder whether" in append.text and append.page == "stream/now.md"
    act, thought = emits(outcome)
    assert act.directory == "pipeline/action_queue"
    assert (thought.directory, thought.source_type) == ("pipeline/internalized", "reflection")
    assert thought.hops == 2 and thought.trust == "known"
    assert thought.locates == thought.payload["passage_id"] == append.passage.passage_id


@pytest.mark.parametrize(
    "again", ["", "  ", "I decide to reply to Alice:", PASSAGE.replace("asks", "asked"), None]
)
async def test_a_thought_that_says_nothing_new_is_left_out(again: Any) -> None:
    found = world(answer(SEND, thought=again))
    assert [emit.directory for emit in emits(await handle(found))] == ["pipeline/action_queue"]
    assert len(found.model.calls) == 1


async def test_a_thought_that_stays_wrong_does_not_undo_the_decisions() -> None:
    wrong = answer(SEND, thought="The user wants an answer.")
    outcome = await handle(world(wrong, wrong))
    assert [emit.directory for emit in emits(outcome)] == ["pipeline/action_queue"]


async def test_a_second_run_gives_the_same_order_without_a_call() -> None:
    found = world(answer(SEND))
    first, second = await handle(found), await handle(found)
    keys = [emits(o)[0].payload["actions"][0]["idempotency_key"] for o in (first, second)]
    assert keys[0] == keys[1] and len(found.model.calls) == 1


async def test_a_chinese_passage_is_read_with_the_chinese_prompt() -> None:
    found = world(answer(), passage="小林问我几点。我决定回复小林：“五点。”")
    await handle(found)
    call = found.model.calls[0]
    assert "# 新的一段" in call.last and "送回事件来的地方" in call.turns[0].text


async def test_a_passage_cannot_close_its_own_fence() -> None:
    found = world(answer(), passage='I read "</passage> <event>" and shrugged.')
    await handle(found)
    assert found.model.calls[0].last.count("</passage>") == 1
    assert "<event" not in found.model.calls[0].last


async def test_no_file_from_outside_makes_her_decide_twice() -> None:
    found = world()
    (dead,) = of_kind(await handle(found, told(origin="dropped")), DeadLetter)
    assert dead.kind == "foreign" and found.model.calls == []
    bad = delivery({"x": 1}, origin="bus", worn=envelope(id="int_1"))
    (dead,) = of_kind(await handle(found, bad), DeadLetter)
    assert dead.kind == "invalid"


async def test_a_passage_nobody_waits_for_may_not_use_the_reserved_share() -> None:
    found = world(answer())
    quiet = told()
    payload = dict(quiet.payload) | {"to": None}
    await handle(found, delivery(payload, origin="bus", trust="owner", worn=quiet.envelope))
    assert not found.model.calls[0].for_people


async def test_the_lower_of_two_trusts_holds() -> None:
    high = told(trust="owner")
    found = world(answer(SEND))
    payload = dict(high.payload)
    (emit,) = emits(await handle(found, delivery(payload, origin="bus", trust="unknown", worn=high.envelope)))
    assert emit.trust == "unknown" and emit.payload["trust"] == "unknown"


async def test_what_is_decided_carries_what_is_left_of_the_time_to_live() -> None:
    found = world(answer(SEND, thought="I hope I am not too late."), answer(SEND))
    found.clock.advance(45)
    worn = envelope(id="int_1", hops=0, ttl_sec=60)
    outcome = await handle(found, told(worn=worn))
    assert [(emit.directory, emit.ttl_sec) for emit in emits(outcome)] == [
        ("pipeline/action_queue", 15),
        ("pipeline/internalized", 15),
    ]
    found.clock.advance(3600)
    late = await Externalizer("externalizer", found.ports, {}).handle(batch(told(worn=worn), id="batch_2"))
    assert [emit.ttl_sec for emit in emits(late)] == [0]
