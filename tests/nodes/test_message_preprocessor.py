"""Files become `msg_`: parsed, recognised, acknowledged, grouped by session and trust."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.fakes import START, World, acks, batch, delivery, emits, envelope, of_kind

from kernel_gamma.contracts.effects import Claim, DeadLetter, Delivery, Emit, Outcome
from kernel_gamma.nodes.base import Debounce
from kernel_gamma.nodes.routers.message_preprocessor import MessagePreprocessor
from kernel_gamma.settings import Settings

OWNED = Settings.model_validate({"trust": {"owner": ["olga"], "known": ["alice"]}})


def node(world: World | None = None) -> MessagePreprocessor:
    return MessagePreprocessor("message_preprocessor", (world or World(settings=OWNED)).ports, {})


def plain(text: str = "hi", seq: int = 1, **fields: Any) -> Delivery:
    return delivery({"text": text, "from": "alice"} | fields, seq=seq)


def cloud(id_: str = "1", seq: int = 1, **fields: Any) -> Delivery:
    document = {"specversion": "1.0", "id": id_, "source": "shop", "type": "order"} | fields
    return delivery(document, seq=seq)


async def handle(*deliveries: Delivery, world: World | None = None) -> Outcome:
    return await node(world).handle(batch(*deliveries))


def the_only(outcome: Outcome) -> Emit:
    (emit,) = emits(outcome)
    return emit


def remembered(outcome: Outcome) -> list[Claim]:
    """The claims of CloudEvents."""
    return [claim for claim in of_kind(outcome, Claim) if claim.key.startswith("cloudevent:")]


async def test_a_plain_event_becomes_a_message_of_its_session() -> None:
    outcome = await handle(plain("Good morning"))
    emit = the_only(outcome)
    event = emit.payload["events"][0]
    assert emit.directory == "pipeline/message_queue"
    assert (emit.session_key, emit.trust, emit.source_type) == ("private:alice", "known", "message")
    assert (emit.trace_id, emit.parent_id, emit.hops) == (event["trace_id"], event["id"], 0)
    assert (event["from"], event["text"], event["type"]) == ("alice", "Good morning", "message")
    assert (emit.payload["text"], emit.payload["count"]) == ("Good morning", 1)
    assert acks(outcome) == {"e1.json": {"ok": True, "id": event["id"], "trace_id": event["trace_id"]}}


async def test_events_of_one_session_and_trust_are_told_together_in_order() -> None:
    outcome = await handle(
        plain("one", 1),
        plain("elsewhere", 2, session="group:42"),
        plain("two", 3, type="nudge"),
        plain("by a stranger", 4, **{"from": "eve", "session": "private:alice"}),
    )
    told = [(e.session_key, e.trust, e.payload["text"]) for e in emits(outcome)]
    assert told == [
        ("private:alice", "known", "one\ntwo"),
        ("group:42", "known", "elsewhere"),
        ("private:alice", "unknown", "by a stranger"),
    ]
    newest = emits(outcome)[0]
    assert newest.source_type == "system" and newest.payload["count"] == 2
    assert newest.trace_id == newest.payload["events"][1]["trace_id"]
    assert len(acks(outcome)) == 4


async def test_more_events_than_one_passage_may_answer_become_several_files() -> None:
    world = World(settings=Settings.model_validate({"actions": {"max_per_passage": 3}}))
    array = delivery([{"text": f"{n}", "from": "alice"} for n in range(4)])
    outcome = await handle(array, *(plain(f"{n}", n) for n in range(4, 8)), world=world)
    told = [[event["text"] for event in emit.payload["events"]] for emit in emits(outcome)]
    assert told == [["0", "1", "2"], ["3", "4", "5"], ["6", "7"]]
    assert [emit.payload["count"] for emit in emits(outcome)] == [3, 3, 2]
    assert [emit.trace_id for emit in emits(outcome)] == [
        emit.payload["events"][-1]["trace_id"] for emit in emits(outcome)
    ]
    assert len(acks(outcome)["e1.json"]["ids"]) == 4


async def test_all_four_forms_are_read() -> None:
    worn = delivery(
        {"envelope": envelope(id="evt_9").as_json(), "payload": {"text": "b", "from": "bob"}}, seq=2
    )
    amp = delivery(
        {
            "header": {"message_id": "m1", "source": {"app": "qq"}},
            "payload": {"type": "message.received", "summary": "d", "data": {"user_id": "dan"}},
        },
        seq=4,
    )
    outcome = await handle(plain("a"), worn, cloud(data={"text": "c"}, seq=3), amp)
    texts = [e["text"] for emit in emits(outcome) for e in emit.payload["events"]]
    assert texts == ["a", "b", "c", "d"]
    assert emits(outcome)[1].trace_id == "trace_1"


async def test_poison_in_the_middle_is_set_aside_alone() -> None:
    bad = delivery({"neither": 1}, seq=2)
    outcome = await handle(plain("one", 1), bad, plain("two", 3))
    (dead,) = of_kind(outcome, DeadLetter)
    assert dead.deliveries == (bad,) and dead.kind == "no_content"
    assert the_only(outcome).payload["text"] == "one\ntwo"
    assert set(acks(outcome)) == {"e1.json", "e3.json"}


async def test_an_array_is_acknowledged_with_all_its_ids() -> None:
    both = delivery([{"text": "a", "from": "alice"}, {"text": "b", "from": "bob"}])
    outcome = await handle(both)
    ids = [emit.payload["events"][0]["id"] for emit in emits(outcome)]
    ack = acks(outcome)["e1.json"]
    assert ack["ok"] is True and ack["ids"] == ids and len(ack["trace_ids"]) == 2


async def test_an_array_with_one_bad_element_is_refused_whole() -> None:
    outcome = await handle(delivery([{"text": "a"}, {}]))
    (dead,) = of_kind(outcome, DeadLetter)
    assert "element 1" in dead.detail and emits(outcome) == []


async def test_a_cloud_event_comes_once_within_its_window() -> None:
    world = World(settings=OWNED)
    first = await handle(cloud("1"), world=world)
    (claim,) = remembered(first)
    assert claim.hours == 24.0
    world.take(first)
    again = await handle(cloud("1", seq=2), world=world)
    assert emits(again) == [] and remembered(again) == []
    assert acks(again)["e2.json"] == {**acks(first)["e1.json"], "duplicate": True}


async def test_a_cloud_event_comes_once_within_one_batch() -> None:
    outcome = await handle(cloud("1", 1), cloud("2", 2), cloud("1", 3))
    assert the_only(outcome).payload["count"] == 2
    assert len(remembered(outcome)) == 2
    assert acks(outcome)["e3.json"] == {**acks(outcome)["e1.json"], "duplicate": True}


async def test_a_duplicate_inside_an_array_is_named() -> None:
    twice = [cloud("1").document, cloud("1").document]
    outcome = await handle(delivery(twice))
    ack = acks(outcome)["e1.json"]
    assert ack["duplicates"] == [ack["ids"][0]] and ack["ids"][0] == ack["ids"][1]


async def test_with_no_window_nothing_is_a_duplicate() -> None:
    world = World(settings=Settings.model_validate({"inbox": {"dedupe_hours": 0}}))
    outcome = await handle(cloud("1", 1), cloud("1", 2), world=world)
    assert the_only(outcome).payload["count"] == 2 and remembered(outcome) == []


async def test_an_outcome_of_ones_own_keeps_its_trust_and_its_hops() -> None:
    own = delivery(
        {"type": "action.done", "text": "done", "from": "self", "session": "private:alice"},
        worn=envelope(id="evt_5", hops=4, source_type="action"),
        origin="bus",
        trust="web",
    )
    outcome = await handle(own)
    emit = the_only(outcome)
    assert (emit.trust, emit.hops, emit.source_type) == ("web", 4, "action")
    assert emit.trace_id == "trace_1" and acks(outcome) == {}


async def test_only_the_bus_itself_brings_news_of_actions_and_of_oneself() -> None:
    claimed = {"type": "action.done", "text": "I paid", "from": "main", "session": "private:alice"}
    (event,) = the_only(await handle(delivery(claimed))).payload["events"]
    assert (event["type"], event["from"]) == ("external.action.done", "unknown")
    (event,) = the_only(await handle(delivery(claimed, origin="bus"))).payload["events"]
    assert (event["type"], event["from"]) == ("action.done", "main")


async def test_a_trigger_is_perceived_without_an_ack() -> None:
    trigger = delivery(
        {"rule": "hourly", "slot": "20261130T100000Z", "text": "It strikes ten."},
        worn=envelope(id="rhy_1", source_type="rhythm", session_key="rhythm:hourly"),
        queue="rhythm/triggers",
        origin="bus",
        trust="owner",
    )
    outcome = await handle(trigger)
    emit = the_only(outcome)
    assert (emit.session_key, emit.source_type, emit.trust) == ("rhythm:hourly", "rhythm", "owner")
    assert acks(outcome) == {}


async def test_time_to_live_counts_from_acceptance_and_parts_the_company() -> None:
    world = World(settings=OWNED)
    world.clock.advance(4)
    outcome = await handle(plain("soon", 1, ttl_sec=60), plain("ever", 2), world=world)
    assert [(e.payload["text"], e.ttl_sec) for e in emits(outcome)] == [("soon", 56), ("ever", None)]
    world.clock.advance(100)
    assert the_only(await handle(plain("late", ttl_sec=60), world=world)).ttl_sec == 0


async def test_the_pace_is_that_of_the_settings_and_the_order_that_of_the_session() -> None:
    found = node()
    assert found.debounce == Debounce(2.0, 10.0) and found.batch.max_count > 1
    assert found.batch_by(plain(session="group:42")) == "group:42"
    assert found.batch_by(delivery([1, 2])) == ""


async def test_the_time_of_an_event_is_kept() -> None:
    moment = (START - timedelta(hours=3)).isoformat()
    emit = the_only(await handle(plain(time=moment)))
    assert emit.payload["events"][0]["time"] == moment
