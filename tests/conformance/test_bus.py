"""What every bus must do, whatever it is made of: order, exactly once, retries, poison, fences."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.conformance.subject import Subject, Subscribing
from tests.harness import drop

from kernel_gamma.contracts.effects import Append, Batch, DeadLetter, Emit, Finish, Outcome, RetryLater
from kernel_gamma.errors import Fenced, ModelDown, Poison, Retry, Unusable
from kernel_gamma.rhythm.clock import SystemClock

ONE: Mapping[str, Subscribing] = {"a": Subscribing()}
TWO: Mapping[str, Subscribing] = {"a": Subscribing(), "b": Subscribing()}
_numbers = itertools.count()


def say(batch: Batch, **fields: Any) -> Outcome:
    """Send each document on."""
    return Outcome.of(
        *(
            Emit(directory="outbox/out", payload={"said": d.document, "n": next(_numbers)}, **fields)
            for d in batch
        )
    )


async def handle(bus: Subject, node: str = "a") -> Batch:
    """One batch, taken and committed."""
    batch = await asyncio.wait_for(bus.next_batch(node), 10)
    await bus.commit(batch, say(batch))
    return batch


async def nothing_comes(bus: Subject, node: str = "a") -> None:
    await bus.settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bus.next_batch(node), 0.05)


def texts(batch: Batch) -> list[str]:
    return [d.document["text"] for d in batch]


async def test_a_drop_is_delivered_committed_and_leaves_its_queue(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.drop("e.json", {"text": "hello 你好"})
    batch = await handle(bus)
    assert (batch[0].origin, batch[0].name, batch[0].attempt) == ("dropped", "e.json", 1)
    assert bus.outputs() == ["hello 你好"]
    assert (bus.waiting(), bus.done(), bus.dead()) == ([], ["e.json"], [])
    assert bus.idle()


async def test_the_order_is_that_of_acceptance(bus: Subject) -> None:
    await bus.start(ONE)
    for number in range(8, 0, -1):  # the names sort the other way round
        await bus.drop(f"{number}.json", {"text": str(number)})
        await bus.settle()
    told = [texts(await handle(bus))[0] for _ in range(8)]
    assert told == list("87654321")


async def test_what_lies_there_at_the_start_comes_in_the_order_of_file_time(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.stop()
    await bus_drop_cold(bus, "z.json", "first")
    await bus_drop_cold(bus, "a.json", "second")
    await bus.start(ONE)
    assert [texts(await handle(bus))[0] for _ in range(2)] == ["first", "second"]


async def bus_drop_cold(bus: Any, name: str, text: str) -> None:
    drop(bus.root, name, {"text": text})
    await asyncio.sleep(0.01)


async def test_killed_between_taking_and_committing_it_comes_again_as_the_same_batch(bus: Subject) -> None:
    await bus.start({"a": Subscribing(batch=5)})
    for number in range(3):
        await bus.drop(f"{number}.json", {"text": str(number)})
    await bus.settle()
    first = await bus.next_batch("a")
    await bus.drop("late.json", {"text": "late"})
    await bus.settle()
    await bus.kill()
    await bus.start({"a": Subscribing(batch=5)})
    suspects = await bus.take_suspects()
    members = [text for batch in suspects for text in texts(batch)]
    assert members[: len(first)] == texts(first), "its members come first"
    for batch in suspects:
        await bus.commit(batch, say(batch))
    while not bus.idle():
        await handle(bus)
    assert sorted(bus.outputs()) == ["0", "1", "2", "late"]


async def test_killed_after_the_commit_nothing_happens_twice(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.drop("e.json", {"text": "once"})
    batch = await bus.next_batch("a")
    await bus.commit(
        batch,
        Outcome.of(
            Append(page="stream/now.md", text="once"),
            Emit(directory="outbox/out", payload={"said": "x", "n": 0}),
        ),
    )
    await bus.kill()
    await bus.start(ONE)
    assert await bus.take_suspects() == []
    await nothing_comes(bus)
    assert bus.pages().count("once") == 1
    assert len(bus.outputs()) == 1


async def test_a_commit_repeated_does_nothing(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.drop("e.json", {"text": "once"})
    batch = await bus.next_batch("a")
    await asyncio.gather(bus.commit(batch, say(batch)), bus.commit(batch, say(batch)))
    await bus.commit(batch, say(batch))
    assert bus.outputs() == ["once"]
    assert bus.idle()


async def test_a_stale_fence_writes_nothing(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.drop("e.json", {"text": "not mine any more"})
    batch = await bus.next_batch("a")
    await bus.usurp()
    with pytest.raises(Fenced):
        await bus.commit(batch, say(batch))
    assert bus.outputs() == []
    await bus.stop()
    await bus.start(ONE)
    for again in await bus.take_suspects():
        await bus.commit(again, say(again))
    assert bus.outputs() == ["not mine any more"]


async def test_poison_that_raises_is_set_aside_after_its_attempts_and_others_flow(bus: Subject) -> None:
    await bus.start({"a": Subscribing(keyed=True)}, max_attempts=3)
    await bus.drop("bad.json", {"text": "bad", "key": "bad"})
    await bus.drop("good.json", {"text": "good", "key": "good"})
    attempts = 0
    while not bus.dead():
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        if texts(batch) == ["good"]:
            await bus.commit(batch, say(batch))
            continue
        attempts += 1
        assert batch[0].attempt == attempts
        await bus.fail(batch, RuntimeError("it hurts"))
    assert attempts == 3
    assert (bus.dead(), bus.outputs()) == (["bad.json"], ["good"])


async def test_attempts_are_counted_across_restarts(bus: Subject) -> None:
    await bus.start(ONE, max_attempts=3)
    await bus.drop("bad.json", {"text": "bad"})
    for attempt in (1, 2, 3):
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        assert batch[0].attempt == attempt
        await bus.fail(batch, RuntimeError("it hurts"))
        await (bus.kill() if attempt == 1 else bus.stop())
        await bus.start(ONE, max_attempts=3)
    assert bus.dead() == ["bad.json"]


async def test_poison_that_kills_the_process_is_set_aside_and_others_flow(bus: Subject) -> None:
    nodes = {"a": Subscribing(keyed=True)}
    await bus.start(nodes, max_attempts=3)
    await bus.drop("killer.json", {"text": "killer", "key": "k"})
    for number in range(3):
        await bus.drop(f"good{number}.json", {"text": f"good{number}", "key": str(number)})
    await bus.settle()
    held = [await bus.next_batch("a") for _ in range(4)]  # all in flight when it dies
    assert len(held) == 4
    deaths = 0
    while not bus.dead():
        deaths += 1
        assert deaths < 20
        await bus.kill()
        await bus.start(nodes, max_attempts=3)
        if await _all_but_the_killer(bus):
            continue
    assert bus.dead() == ["killer.json"]
    while not bus.idle():
        await handle(bus)
    assert sorted(bus.outputs()) == ["good0", "good1", "good2"]


async def _all_but_the_killer(bus: Any) -> bool:
    """What the runtime does after a death: suspects alone, one by one, until it dies again."""
    for suspect in bus.rig.bus.suspects():
        batch = await bus.rig.bus.take_suspect(suspect)
        if batch is None:
            continue
        if texts(batch) == ["killer"]:
            return True
        await bus.commit(batch, say(batch))
    return False


async def test_an_orderly_stop_is_no_death(bus: Subject) -> None:
    await bus.start(ONE, max_attempts=2)
    await bus.drop("e.json", {"text": "patient"})
    for _ in range(5):
        await asyncio.wait_for(bus.next_batch("a"), 10)
        await bus.stop()
        await bus.start(ONE, max_attempts=2)
        assert await bus.take_suspects() == []
    await handle(bus)
    assert bus.outputs() == ["patient"]


async def test_a_batch_that_raises_is_split_before_anybody_is_charged(bus: Subject) -> None:
    await bus.start({"a": Subscribing(batch=3)}, max_attempts=2)
    for number in range(3):
        await bus.drop(f"{number}.json", {"text": str(number)})
    await bus.settle()
    batch = await bus.next_batch("a")
    while len(batch) < 3:  # the first may have come before the others
        await bus.fail(batch, Retry("together"))
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        if len(batch) == 1 and batch[0].attempt > 1:
            pytest.skip("they did not come together")
    await bus.fail(batch, Retry("one of us is bad"))
    for number in range(3):
        alone = await asyncio.wait_for(bus.next_batch("a"), 10)
        assert texts(alone) == [str(number)]
        assert alone[0].attempt == 1
        if number == 1:
            await bus.fail(alone, Poison("me"))
        else:
            await bus.commit(alone, say(alone))
    assert (bus.dead(), bus.outputs()) == (["1.json"], ["0", "2"])


async def test_one_of_several_may_be_retried_the_others_are_done(bus: Subject) -> None:
    await bus.start({"a": Subscribing(batch=9)})
    for number in range(3):
        await bus.drop(f"{number}.json", {"text": str(number)})
    told: list[str] = []
    again = 0
    while len(told) < 3:
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        late = tuple(d for d in batch if d.document["text"] == "1" and d.attempt == 1)
        again += len(late)
        told += [d.document["text"] for d in batch if d not in late]
        effects = [RetryLater("not yet", after_sec=0.02, deliveries=late)] if late else []
        await bus.commit(batch, Outcome.of(*effects, *(Finish(d) for d in batch if d not in late)))
    assert sorted(told) == ["0", "1", "2"]
    assert again == 1
    assert bus.done() == ["0.json", "1.json", "2.json"]


async def test_while_one_is_retried_later_ones_of_its_key_wait(bus: Subject) -> None:
    await bus.start({"a": Subscribing(keyed=True)})
    for number, key in enumerate("xxy"):
        await bus.drop(f"{number}.json", {"text": str(number), "key": key})
        await bus.settle()
    first = await bus.next_batch("a")
    await bus.fail(first, Retry("later", after_sec=0.1))
    order = [texts(await handle(bus))[0] for _ in range(3)]
    assert order == ["2", "0", "1"]


async def test_out_of_order_a_redelivery_still_comes_before_what_is_younger(bus: Subject) -> None:
    await bus.start(ONE)
    for number in range(4):
        await bus.drop(f"{number}.json", {"text": str(number)})
        await bus.settle()
    batch = await bus.next_batch("a")
    await bus.fail(batch, Retry("again", after_sec=0.0))
    await bus.kill()
    await bus.start(ONE)
    assert [texts(await handle(bus))[0] for _ in range(4)] == list("0123")


async def test_parked_work_comes_back_without_an_attempt(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.drop("e.json", {"text": "wait"})
    for _ in range(7):
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        assert batch[0].attempt == 1
        until = SystemClock().now() + timedelta(seconds=0.01)
        await bus.fail(batch, ModelDown("away", until=until))
        assert bus.dead() == []
    await handle(bus)
    assert bus.outputs() == ["wait"]


async def test_nonsense_for_three_in_a_row_is_an_outage_and_costs_no_attempt(bus: Subject) -> None:
    await bus.start({"a": Subscribing(keyed=True)}, max_attempts=9)
    for number in range(3):
        await bus.drop(f"{number}.json", {"text": str(number), "key": str(number)})
    await bus.settle()
    for _ in range(3):
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        attempt = batch[0].attempt
        await bus.fail(batch, Unusable("no answer", raw="?"))
    assert attempt <= 3
    await nothing_comes(bus)
    assert bus.dead() == []


async def test_a_file_leaves_when_every_subscriber_has_finished(bus: Subject) -> None:
    await bus.start(TWO)
    await bus.drop("e.json", {"text": "both"})
    await handle(bus, "a")
    assert bus.done() == []
    await handle(bus, "b")
    assert bus.done() == ["e.json"]
    assert bus.outputs() == ["both", "both"]


async def test_a_retry_reaches_only_the_node_that_asked(bus: Subject) -> None:
    await bus.start(TWO)
    await bus.drop("e.json", {"text": "mine"})
    await bus.fail(await bus.next_batch("a"), Retry("again", after_sec=0.0))
    again = await asyncio.wait_for(bus.next_batch("a"), 10)
    other = await asyncio.wait_for(bus.next_batch("b"), 10)
    assert (again[0].attempt, other[0].attempt) == (2, 1)
    await bus.commit(again, say(again))
    await bus.commit(other, say(other))
    await nothing_comes(bus, "b")
    assert bus.done() == ["e.json"]


async def test_dead_for_one_is_dead_for_the_file(bus: Subject) -> None:
    await bus.start(TWO)
    await bus.drop("e.json", {"text": "half"})
    batch = await bus.next_batch("a")
    await bus.commit(batch, Outcome.of(DeadLetter("invalid", "not for me")))
    assert bus.dead() == []
    await handle(bus, "b")
    assert (bus.dead(), bus.done()) == (["e.json"], [])


async def test_more_than_the_window_waits_outside_and_none_is_forgotten(bus: Subject) -> None:
    nodes = {"a": Subscribing(batch=4)}
    await bus.start(nodes, window=8)
    for number in range(100):
        await bus.drop(f"{number:03}.json", {"text": f"{number:03}"})
    await bus.settle()
    assert len(bus.waiting()) >= 50, "the rest is left where it is safe"
    told: list[str] = []
    while len(told) < 100:
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        told += texts(batch)
        await bus.commit(batch, say(batch))
    assert sorted(told) == [f"{n:03}" for n in range(100)]


async def test_what_waits_past_the_window_downstream_is_read_from_the_ledger(bus: Subject) -> None:
    nodes = {
        "a": Subscribing(batch=50, emit=("pipeline/message_queue/msg_*.json",)),
        "b": Subscribing(watch=("pipeline/message_queue/msg_*.json",), keyed=False),
    }
    await bus.start(nodes, window=4)
    for number in range(60):
        await bus.drop(f"{number:03}.json", {"text": f"{number:03}"})
    sent: list[str] = []
    while len(sent) < 60:
        batch = await asyncio.wait_for(bus.next_batch("a"), 10)
        sent += texts(batch)
        await bus.commit(
            batch,
            Outcome.of(*(Emit(directory="pipeline/message_queue", payload=dict(d.document)) for d in batch)),
        )
    told: list[str] = []
    while len(told) < 60:
        batch = await asyncio.wait_for(bus.next_batch("b"), 10)
        told += [d.payload["text"] for d in batch]
        await bus.commit(batch, say(batch))
    assert told == sent
    assert bus.idle()


async def test_an_expired_file_is_not_handled_and_not_lost(bus: Subject) -> None:
    nodes = {
        "a": Subscribing(emit=("pipeline/message_queue/msg_*.json",)),
        "b": Subscribing(watch=("pipeline/message_queue/msg_*.json",)),
    }
    await bus.start(nodes)
    await bus.drop("e.json", {"text": "stale"})
    batch = await bus.next_batch("a")
    old = Emit(directory="pipeline/message_queue", payload={"said": "old"}, ttl_sec=0)
    new = Emit(directory="pipeline/message_queue", payload={"text": "new"}, ttl_sec=3600)
    await bus.commit(batch, Outcome.of(old, new))
    fresh = await asyncio.wait_for(bus.next_batch("b"), 10)
    assert fresh[0].payload["text"] == "new"
    await bus.commit(fresh, Outcome())
    assert len(bus.done("pipeline/message_queue")) == 2
    assert bus.dead() == []


async def test_files_dropped_into_an_inner_queue_are_accepted_where_they_lie_once(bus: Subject) -> None:
    nodes = {"a": Subscribing(watch=("rhythm/triggers/*.json",))}
    await bus.start(nodes)
    await bus.drop("hourly_1.json", {"text": "tick"}, "rhythm/triggers")
    batch = await asyncio.wait_for(bus.next_batch("a"), 10)
    assert bus.waiting("rhythm/triggers") == ["hourly_1.json"]
    await bus.drop("hourly_1.json", {"text": "tick"}, "rhythm/triggers")  # noticed again while it waits
    for _ in range(3):
        await nothing_comes(bus)
    await bus.commit(batch, say(batch))
    await nothing_comes(bus)
    assert bus.outputs() == ["tick"]
    assert bus.done("rhythm/triggers") == ["hourly_1.json"]


async def test_the_same_name_again_is_another_event_also_while_the_first_is_in_flight(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.drop("e.json", {"text": "first"})
    first = await bus.next_batch("a")
    await bus.drop("e.json", {"text": "second"})
    await bus.settle()
    await bus.commit(first, say(first))
    await bus.drop("e.json", {"text": "third"})
    second, third = await handle(bus), await handle(bus)
    assert [texts(second), texts(third)] in ([["second"], ["third"]], [["third"], ["second"]])
    assert sorted(bus.outputs()) == ["first", "second", "third"]
    assert len(bus.done()) == 3


async def test_what_the_bus_writes_into_a_watched_queue_is_delivered_once(bus: Subject) -> None:
    await bus.start({"a": Subscribing(emit=("inbox/pending/evt_*.json", "outbox/out/out_*.json"))})
    await bus.drop("e.json", {"text": "begin"})
    batch = await bus.next_batch("a")
    await bus.commit(batch, Outcome.of(Emit(directory="inbox/pending", payload={"said": "echo"})))
    await bus.settle()
    echo = await asyncio.wait_for(bus.next_batch("a"), 10)
    assert echo[0].origin == "bus"
    await bus.settle()
    await bus.commit(echo, Outcome())
    await nothing_comes(bus)
    assert bus.idle()
    assert len(bus.done()) == 2


async def test_deliveries_of_a_node_that_left_are_closed_on_the_record(bus: Subject) -> None:
    await bus.start(TWO)
    await bus.drop("e.json", {"text": "left behind"})
    await handle(bus, "a")
    await bus.settle()
    await bus.stop()
    await bus.start(ONE)
    assert bus.done() == ["e.json"]
    assert bus.idle()


async def test_a_node_that_joined_sees_what_still_waits(bus: Subject) -> None:
    await bus.start(ONE)
    await bus.drop("e.json", {"text": "for the new one too"})
    await bus.next_batch("a")
    await bus.stop()
    await bus.start(TWO)
    await handle(bus, "a")
    assert bus.done() == []
    await handle(bus, "b")
    assert bus.done() == ["e.json"]


async def test_a_file_somebody_removes_is_finished_for_all_its_nodes(bus: Subject, tmp_path: Any) -> None:
    await bus.start(TWO, window=1)
    for number in range(6):
        await bus.drop(f"{number}.json", {"text": str(number), "much": "x" * 40_000})
    await bus.settle()
    for path in (tmp_path / "mind/inbox/taken").iterdir():
        path.unlink()
    while not bus.idle():
        for node in ("a", "b"):
            try:
                batch = await asyncio.wait_for(bus.next_batch(node), 0.05)
            except TimeoutError:
                continue
            await bus.commit(batch, Outcome())
        await bus.settle()
        for path in (tmp_path / "mind/inbox/taken").iterdir():
            path.unlink()
    assert bus.dead() == []
