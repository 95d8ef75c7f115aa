"""The bus itself: what is told of it, and the places where two things happen at once."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Rig, SteppedClock, finish, forward, node_class, text_of

from kernel_gamma.bus.plan import BadOutcome
from kernel_gamma.contracts.effects import Append, Batch, Emit, Outcome
from kernel_gamma.errors import BudgetSpent, QuietHours, Retry
from kernel_gamma.nodes.base import Debounce, Node
from kernel_gamma.rhythm.clock import SystemClock

FORWARD = node_class(forward, emit=("outbox/out/out_*.json",))
INNER = "pipeline/message_queue"


async def test_many_workers_on_a_small_window_handle_everything_once(tmp_path: Path) -> None:
    async def spread(node: Node, batch: Batch) -> Outcome:
        return Outcome.of(*(Emit(directory=INNER, payload={"n": d.document["n"]}) for d in batch))

    seen: list[int] = []
    at_once = 0

    async def count(node: Node, batch: Batch) -> Outcome:
        nonlocal at_once
        at_once += 1
        await asyncio.sleep(0)
        seen.extend(d.payload["n"] for d in batch)
        assert at_once <= 5
        at_once -= 1
        return Outcome()

    nodes = {
        "a": node_class(spread, emit=(f"{INNER}/msg_*.json",), batch=50),
        "b": node_class(
            count, watch=(f"{INNER}/msg_*.json",), concurrency=5, key=lambda d: str(d.payload["n"] % 7)
        ),
    }
    async with Rig(tmp_path, nodes, window=6) as rig:
        for number in range(300):
            rig.drop(f"{number}.json", {"n": number})
        await rig.drained()
        assert sorted(seen) == list(range(300))
        assert rig.names("inbox/pending") == sorted(rig.names("inbox/pending/done"))


async def test_one_busy_key_with_more_than_a_window_keeps_no_other_key_waiting(tmp_path: Path) -> None:
    release = asyncio.Event()
    told: list[str] = []

    async def wait_for_slow(node: Node, batch: Batch) -> Outcome:
        if batch[0].document["key"] == "slow":
            await release.wait()
        told.append(batch[0].document["key"])
        return Outcome()

    node = node_class(wait_for_slow, concurrency=2, key=lambda d: d.document["key"])
    async with Rig(tmp_path, {"a": node}, window=10) as rig:
        for number in range(15):
            rig.drop(f"{number:02}.json", {"key": "slow"})
        await rig.bus.settle()
        rig.drop("quick.json", {"key": "quick"})
        await rig.until(lambda: "quick" in told)
        release.set()
        await rig.drained()
        assert len(told) == 16


async def test_a_large_document_waits_on_disk_and_comes_whole_to_each_node(tmp_path: Path) -> None:
    text = "long " * 20_000
    seen: list[str] = []

    async def read(node: Node, batch: Batch) -> Outcome:
        seen.append(batch[0].document["text"])
        return Outcome()

    def key(delivery: Any) -> str:
        return str(delivery.document["text"][:4])  # each node orders by the content

    nodes = {name: node_class(read, key=key) for name in "ab"}
    async with Rig(tmp_path, nodes) as rig:
        rig.drop("e.json", {"text": text})
        await rig.drained()
        assert seen == [text, text]


async def test_an_event_as_deep_as_allowed_survives_a_restart_inside_the_pipeline(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(63):
        deep = [deep]

    async def wrap(node: Node, batch: Batch) -> Outcome:
        return Outcome.of(Emit(directory=INNER, payload={"events": [{"data": batch[0].document}]}))

    nodes = {
        "a": node_class(wrap, emit=(f"{INNER}/msg_*.json",)),
        "b": node_class(finish, watch=(f"{INNER}/msg_*.json",)),
    }
    rig = await Rig(tmp_path, {"a": nodes["a"], "b": nodes["b"]}).start(circuit=False)
    rig.drop("e.json", {"d": deep})
    batch = await rig.bus.next_batch("a")
    await rig.bus.commit(batch, await wrap(None, batch))  # type: ignore[arg-type]
    await rig.stop()
    async with Rig(tmp_path, nodes) as again:
        await again.drained()
        assert again.names("dead_letter") == []
        assert len(again.names(f"{INNER}/done")) == 1


async def test_an_outcome_the_node_did_not_declare_is_refused_and_nothing_of_it_happens(
    tmp_path: Path,
) -> None:
    rig = await Rig(tmp_path, {"a": node_class(finish)}).start(circuit=False)
    rig.drop("e.json", {"text": "x"})
    batch = await rig.bus.next_batch("a")
    effects = (Append(page="stream/now.md", text="half"), Emit(directory="outbox/x", payload={}))
    with pytest.raises(BadOutcome):
        await rig.bus.commit(batch, Outcome.of(*effects))
    assert rig.now_md == ""
    await rig.bus.commit(batch, Outcome())
    assert rig.bus.quiet()
    await rig.stop()


async def test_a_file_removed_between_listing_and_handling_ends_nobody(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD}).start(circuit=False)
    rig.drop("big.json", {"text": "x" * 100_000})
    await rig.accepted(1)
    (taken,) = (tmp_path / "inbox/taken").iterdir()
    taken.unlink()
    rig.drop("next.json", {"text": "next"})
    batch = await asyncio.wait_for(rig.bus.next_batch("a"), 10)
    assert batch[0].name == "next.json"
    await rig.bus.commit(batch, Outcome())
    assert rig.bus.quiet()
    await rig.stop()


async def test_it_is_not_quiet_while_anything_waits_is_held_or_in_flight(tmp_path: Path) -> None:
    node = node_class(finish, debounce=Debounce(0.15, 1.0), batch=9)
    rig = await Rig(tmp_path, {"a": node}).start(circuit=False)
    assert rig.bus.quiet()
    for number in range(3):
        rig.drop(f"{number}.json", {"text": "x"})
        await rig.bus.settle()
    assert not rig.bus.quiet()
    first = await rig.bus.next_batch("a")
    assert len(first) == 1
    await rig.bus.fail(first, Retry("again", after_sec=0.05))
    assert not rig.bus.quiet()
    handled = 0
    while handled < 3:
        batch = await asyncio.wait_for(rig.bus.next_batch("a"), 10)
        assert not rig.bus.quiet()
        await rig.bus.commit(batch, Outcome())
        handled += len(batch)
    assert rig.bus.quiet()
    await rig.stop()


async def test_a_parked_node_says_until_when_and_is_the_reason_why_nothing_moves(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": node_class(finish)}).start(circuit=False)
    rig.drop("e.json", {"text": "x"})
    until = SystemClock().now() + timedelta(hours=3)
    await rig.bus.fail(
        await rig.bus.next_batch("a"), BudgetSpent("the day's tokens are used up", until=until)
    )
    state = rig.bus.node_states()["a"]
    assert (state["status"], state["until"], state["backlog"]) == ("parked", until.isoformat(), 1)
    assert rig.bus.blocked() == "the day's tokens are used up"
    assert not rig.bus.quiet()
    await rig.stop()


async def test_while_a_worker_of_a_parked_node_is_still_busy_something_moves(tmp_path: Path) -> None:
    node = node_class(finish, concurrency=2, key=lambda d: d.name)
    rig = await Rig(tmp_path, {"a": node}).start(circuit=False)
    for number in range(2):
        rig.drop(f"{number}.json", {"text": "x"})
    first, second = [await rig.bus.next_batch("a") for _ in range(2)]
    until = SystemClock().now() + timedelta(hours=1)
    await rig.bus.fail(first, BudgetSpent("spent", until=until))
    assert rig.bus.blocked() == ""
    await rig.bus.commit(second, Outcome())
    assert rig.bus.blocked() == "spent"
    await rig.stop()


async def test_a_clock_set_back_does_not_lengthen_a_pause(tmp_path: Path) -> None:
    clock = SteppedClock()
    rig = await Rig(tmp_path, {"a": node_class(finish)}, clock=clock).start(circuit=False)
    rig.drop("e.json", {"text": "x"})
    until = clock.now() + timedelta(seconds=0.1)
    await rig.bus.fail(await rig.bus.next_batch("a"), BudgetSpent("spent", until=until))
    clock.steps = -86_400.0
    batch = await asyncio.wait_for(rig.bus.next_batch("a"), 10)
    await rig.bus.commit(batch, Outcome())
    await rig.stop()


async def test_a_commit_of_the_runtime_happens_once_per_cause(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": node_class(finish)}).start(circuit=False)
    for _ in range(3):
        await rig.bus.commit_own("start_1", Outcome.of(Append(page="stream/now.md", text="I begin.")))
    assert rig.now_md == "I begin.\n\n"
    await rig.stop()


async def test_a_lost_ledger_loses_no_event(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD}).start(circuit=False)
    for number in range(5):
        rig.drop(f"{number}.json", {"text": str(number)})
    await rig.accepted(5)
    await rig.stop()
    assert len(list((tmp_path / "inbox/taken").iterdir())) == 5
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    async with Rig(tmp_path, {"a": FORWARD}) as again:
        await again.drained()
        assert sorted(again.said()) == list("01234")
        assert sorted(again.names("inbox/pending/done")) == [f"{n}.json" for n in range(5)]


async def test_memory_holds_windows_of_what_is_pending_not_all(tmp_path: Path) -> None:
    pending = tmp_path / "inbox/pending"
    pending.mkdir(parents=True)
    for number in range(3000):
        (pending / f"{number}.json").write_text(json.dumps({"text": "x"}))
    rig = await Rig(tmp_path, {"a": node_class(finish)}, window=50).start(circuit=False)
    await rig.bus.settle()
    assert rig.bus.node_states()["a"]["backlog"] <= 100
    assert len(list(pending.glob("*.json"))) >= 2900
    await rig.stop()


async def test_inputs_that_are_put_off_hold_nobody_else_up_and_join_what_comes_for_a_person(
    tmp_path: Path,
) -> None:
    told: list[list[str]] = []

    async def quiet(node: Node, batch: Batch) -> Outcome:
        texts = [text_of(delivery.document) for delivery in batch]
        if not any("hello" in text for text in texts):
            until = node.ports.clock.now() + timedelta(hours=8)
            raise QuietHours("people only", until=until, holds_all=False)
        told.append(texts)
        return Outcome()

    def key(delivery: Any) -> str:
        return str(delivery.document["session"])

    async with Rig(tmp_path, {"node": node_class(quiet, batch=8, key=key)}) as rig:
        rig.drop("1.json", {"text": "the hour struck", "session": "rhythm"})
        rig.drop("2.json", {"text": "it was done", "session": "alice"})
        await rig.until(lambda: [what for what, _ in rig.heard].count("put_off") == 2)
        await rig.until(lambda: rig.bus.blocked() == "people only")
        rig.drop("3.json", {"text": "hello", "session": "bob"})
        rig.drop("4.json", {"text": "hello again", "session": "alice"})
        await rig.until(lambda: len(told) == 2)
        assert sorted(told) == [["hello"], ["it was done", "hello again"]]
        assert rig.bus.node_states()["node"]["backlog"] == 1
        assert not rig.names("dead_letter")
