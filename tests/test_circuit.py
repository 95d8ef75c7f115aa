"""The loop of every node: what it does with what a handler returns or raises, and how it stops."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.harness import Rig, finish, forward, node_class

from kernel_gamma.contracts.effects import Batch, Emit, Outcome
from kernel_gamma.errors import Park, Poison, Retry, Stop
from kernel_gamma.nodes.base import Node


async def test_a_node_that_raises_whatever_it_likes_never_stays_broken(tmp_path: Path) -> None:
    async def moody(node: Node, batch: Batch) -> Outcome:
        match batch[0].document["text"]:
            case "key":
                raise KeyError("missing")
            case "recursion":
                raise RecursionError
            case "nothing":
                return None  # type: ignore[return-value]
            case "poison":
                raise Poison("never", kind="unusable")
            case "retry":
                if batch[0].attempt < 3:
                    raise Retry("not yet", after_sec=0.0)
        return await forward(node, batch)

    node = node_class(moody, emit=("outbox/out/out_*.json",), key=lambda d: d.name)
    async with Rig(tmp_path, {"a": node}, max_attempts=2) as rig:
        for text in ("key", "recursion", "nothing", "poison", "good"):
            rig.drop(f"{text}.json", {"text": text})
        await rig.drained()
        assert rig.said() == ["good"]
        errors = {t: rig.reason(f"{t}.json") for t in ("key", "recursion", "nothing", "poison")}
        assert {t: e["error"] for t, e in errors.items()} == {
            "key": "failed",
            "recursion": "failed",
            "nothing": "failed",
            "poison": "unusable",
        }
        assert errors["key"]["attempts"] == 2 and "KeyError" in errors["key"]["detail"]


async def test_nodes_and_keys_run_side_by_side(tmp_path: Path) -> None:
    meeting = asyncio.Barrier(3)

    async def meet(node: Node, batch: Batch) -> Outcome:
        await asyncio.wait_for(meeting.wait(), 10)
        return Outcome()

    node = node_class(meet, concurrency=3, key=lambda d: d.name)
    async with Rig(tmp_path, {"a": node}) as rig:
        for number in range(3):
            rig.drop(f"{number}.json", {"text": "x"})
        await rig.drained()
        assert rig.names("dead_letter") == []


async def test_a_node_that_says_stop_ends_the_circuit_with_its_words(tmp_path: Path) -> None:
    async def wrong(node: Node, batch: Batch) -> Outcome:
        raise Stop("the key is wrong: mend config/kernel.yaml")

    rig = await Rig(tmp_path, {"a": node_class(wrong)}).start()
    rig.drop("e.json", {"text": "x"})
    assert rig.running is not None
    with pytest.raises(Stop, match="mend"):
        await asyncio.wait_for(asyncio.shield(rig.running), 10)
    await rig.stop(0.0)
    async with Rig(tmp_path, {"a": node_class(forward, emit=("outbox/out/out_*.json",))}) as again:
        await again.drained()
        assert again.said() == ["x"]


async def test_a_running_handler_may_finish_within_the_grace_and_is_committed(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def slow(node: Node, batch: Batch) -> Outcome:
        started.set()
        await asyncio.sleep(0.2)
        return await forward(node, batch)

    rig = await Rig(tmp_path, {"a": node_class(slow, emit=("outbox/out/out_*.json",))}).start()
    rig.drop("1.json", {"text": "running"})
    await started.wait()
    rig.drop("2.json", {"text": "waiting"})
    await rig.stop(10.0)
    assert rig.said() == ["running"]
    async with Rig(tmp_path, {"a": node_class(forward, emit=("outbox/out/out_*.json",))}) as again:
        assert again.bus.suspects() == []
        await again.drained()
        assert sorted(again.said()) == ["running", "waiting"]


async def test_a_handler_past_the_grace_goes_back_without_an_attempt(tmp_path: Path) -> None:
    attempts: list[int] = []
    started = asyncio.Event()

    async def endless(node: Node, batch: Batch) -> Outcome:
        attempts.append(batch[0].attempt)
        started.set()
        await asyncio.sleep(3600)
        return Outcome()

    for _ in range(3):
        started.clear()
        rig = await Rig(tmp_path, {"a": node_class(endless)}, max_attempts=2).start()
        rig.drop("e.json", {"text": "x"}) if not attempts else None
        await asyncio.wait_for(started.wait(), 10)
        await rig.stop(0.0)
    assert attempts == [1, 1, 1]
    assert rig.names("dead_letter") == []


async def test_a_stop_while_a_suspect_is_handled_ends_too(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def endless(node: Node, batch: Batch) -> Outcome:
        started.set()
        await asyncio.sleep(3600)
        return Outcome()

    rig = await Rig(tmp_path, {"a": node_class(endless)}).start()
    rig.drop("e.json", {"text": "x"})
    await asyncio.wait_for(started.wait(), 10)
    await rig.kill()
    started.clear()
    again = await Rig(tmp_path, {"a": node_class(endless)}).start()
    assert len(again.bus.suspects()) == 1
    await asyncio.wait_for(started.wait(), 10)
    await asyncio.wait_for(again.stop(0.0), 10)
    async with Rig(tmp_path, {"a": node_class(finish)}) as last:
        await last.drained()
        assert last.names("inbox/pending/done") == ["e.json"]


@pytest.mark.parametrize("durability", ["process", "full"])
async def test_stops_at_any_moment_lose_and_double_nothing(tmp_path: Path, durability: str) -> None:
    node = node_class(
        forward, emit=("outbox/out/out_*.json",), batch=3, concurrency=2, key=lambda d: d.name[0]
    )
    for number in range(60):
        rig = Rig(tmp_path, {"a": node}, durability=durability)
        if number == 0:
            for drop in range(150):
                rig.drop(f"{drop % 10}_{drop}.json", {"text": f"{drop:03}"})
        await rig.start()
        end = time.monotonic() + 0.0007 * (number % 20)
        while time.monotonic() < end:
            await asyncio.sleep(0)
        await asyncio.wait_for(rig.stop(0.0), 20)
    async with Rig(tmp_path, {"a": node}) as last:
        assert last.bus.suspects() == []
        await last.drained()
        assert sorted(last.said()) == [f"{n:03}" for n in range(150)]
        assert len(last.names("inbox/pending/done")) == 150


async def test_poison_that_kills_is_found_even_while_new_events_keep_coming(tmp_path: Path) -> None:
    died = asyncio.Event()

    async def deadly(node: Node, batch: Batch) -> Outcome:
        if batch[0].document["text"] == "killer":
            died.set()
            await asyncio.sleep(3600)  # the process is killed here
        return Outcome()

    node = node_class(deadly, key=lambda d: d.name)
    deaths, number = 0, 0
    rig = await Rig(tmp_path, {"a": node}, max_attempts=3).start()
    for name in ("0.json", "killer.json", "1.json"):
        rig.drop(name, {"text": name.removesuffix(".json")})
    while not rig.names("dead_letter"):
        waiting = asyncio.create_task(died.wait())
        drained = asyncio.create_task(rig.drained())
        await asyncio.wait([waiting, drained], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, drained):
            task.cancel()
        await asyncio.gather(waiting, drained, return_exceptions=True)
        if not died.is_set():
            break
        died.clear()
        deaths += 1
        assert deaths <= 5
        for _ in range(3):  # more comes in every life
            number += 1
            rig.drop(f"late{number}.json", {"text": "late"})
        await rig.bus.settle()
        await rig.kill()
        rig = await Rig(tmp_path, {"a": node}, max_attempts=3).start()
    await rig.drained()
    assert rig.names("dead_letter") == ["killer.json", "killer.json.reason.json"]
    assert len(rig.names("inbox/pending/done")) == 2 + number
    await rig.stop()


class _Slow:
    """A model that must be loaded first."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.said: list[str] = []

    async def warm(self) -> None:
        await asyncio.sleep(0.01)
        self.said.append("warm")
        if self.error is not None:
            raise self.error


async def _asking(node: Node, batch: Batch) -> Outcome:
    """Wait for a model that does not answer, until the process is killed."""
    await node.ports.journal.once(batch, "ask", lambda: asyncio.sleep(3600, "answer"), kind="model")
    return Outcome()


async def _die_waiting(root: Path, *, max_attempts: int, batch: int = 1) -> list[str]:
    """One life that ends by SIGKILL as soon as the model is asked; what is set aside at its start."""
    rig = await Rig(root, {"a": node_class(_asking, batch=batch)}, max_attempts=max_attempts).start()
    dead = rig.names("dead_letter")
    if not dead:
        await rig.until(lambda: any(f.waiting for f in rig.bus.disk.flights.read()))
    await rig.kill()
    return dead


async def test_deaths_while_the_model_is_asked_count_ten_times_less(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": node_class(_asking)}).start(circuit=False)
    rig.drop("e.json", {"text": "hello"})
    await rig.accepted(1)
    await rig.stop()
    deaths = 0
    while not (dead := await _die_waiting(tmp_path, max_attempts=1)):
        deaths += 1
        assert deaths <= 10
    assert deaths == 10
    assert dead == ["e.json", "e.json.reason.json"]


async def test_a_batch_that_waited_for_the_model_comes_again_whole(tmp_path: Path) -> None:
    told: list[list[str]] = []

    async def tell(node: Node, batch: Batch) -> Outcome:
        told.append([d.document["text"] for d in batch])
        return Outcome()

    rig = await Rig(tmp_path, {"a": node_class(_asking, batch=8)}).start(circuit=False)
    for number in range(3):
        rig.drop(f"{number}.json", {"text": str(number)})
    await rig.accepted(3)
    await rig.stop()
    for _ in range(6):
        assert await _die_waiting(tmp_path, max_attempts=2, batch=8) == []
    async with Rig(tmp_path, {"a": node_class(tell, batch=8)}, max_attempts=2) as last:
        await last.drained()
    assert told == [["0", "1", "2"]]


@pytest.mark.parametrize("error", [None, RuntimeError("no SDK here")])
async def test_the_model_is_made_ready_before_a_suspect_takes_off(
    tmp_path: Path, error: Exception | None
) -> None:
    model = _Slow(error)

    async def handle(node: Node, batch: Batch) -> Outcome:
        model.said.append("handled")
        return Outcome()

    rig = await Rig(tmp_path, {"a": node_class(finish)}).start(circuit=False)
    rig.drop("e.json", {"text": "hello"})
    await rig.bus.next_batch("a")
    await rig.kill()
    again = Rig(tmp_path, {"a": node_class(handle)})
    again.circuit._model = model  # type: ignore[assignment]
    async with again:
        assert len(again.bus.suspects()) == 1
        await again.drained()
    assert model.said == ["warm", "handled"]


class _Endless:
    """A model whose loading never ends."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def warm(self) -> None:
        self.said.append("warming")
        try:
            await asyncio.sleep(3600)
        finally:
            self.said.append("cancelled")


async def test_without_suspects_the_model_is_made_ready_beside_the_nodes(tmp_path: Path) -> None:
    model = _Endless()
    rig = Rig(tmp_path, {"a": node_class(forward, emit=("outbox/out/out_*.json",))})
    rig.circuit._model = model  # type: ignore[assignment]
    async with rig:
        await rig.until(lambda: model.said)
        rig.drop("e.json", {"text": "hello"})
        await rig.drained()
        assert rig.said() == ["hello"]
        assert model.said == ["warming"]
    assert model.said == ["warming", "cancelled"], "a stop does not wait for it"


class Beating(Node):
    """Writes what it is told to, each time it is time."""

    emit = ("outbox/out/out_*.json",)
    moments: list[datetime]
    raises: list[Exception]

    def next_beat(self, now: datetime) -> datetime | None:
        return self.moments[0] if self.moments else None

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        if self.raises:
            raise self.raises.pop()
        self.moments.pop(0)
        name = f"out_{at:%H%M%S}.json"
        return Outcome.of(
            Emit(directory="outbox/out", payload={"said": {"text": f"{at:%H:%M:%S}"}}, name=name)
        )


def beating(moments: list[datetime], *raises: Exception) -> type[Node]:
    return type("Beating", (Beating,), {"moments": moments, "raises": list(raises)})


async def test_a_beat_writes_the_file_it_names(tmp_path: Path) -> None:
    async with Rig(tmp_path, {}) as rig:
        now = rig.clock.now()
    moments = [now - timedelta(hours=2), now - timedelta(hours=1), now + timedelta(days=1)]
    async with Rig(tmp_path, {"a": beating(moments)}) as rig:
        await rig.until(lambda: len(rig.said()) == 2)
        assert rig.said() == [f"{m:%H:%M:%S}" for m in (now - timedelta(hours=2), now - timedelta(hours=1))]
        names = sorted(path.name for path in (rig.root / "outbox/out").glob("*.json"))
        assert names == sorted(f"out_{text.replace(':', '')}.json" for text in rig.said())
        assert len(moments) == 1


async def test_a_beat_that_raises_or_must_wait_is_tried_again_and_hurts_nobody(tmp_path: Path) -> None:
    async with Rig(tmp_path, {}) as rig:
        now = rig.clock.now()
    park = Park("not yet", until=now)
    async with Rig(tmp_path, {"a": beating([now], park), "b": node_class(forward, emit=())}) as rig:
        await rig.until(lambda: len(rig.said()) == 1)


async def test_a_batch_of_its_own_asks_a_node_for_its_next_beat_anew(tmp_path: Path) -> None:
    moments: list[datetime] = []

    class Woken(Beating):
        watch = ("inbox/pending/*.json",)

        async def handle(self, batch: Batch) -> Outcome:
            moments.append(self.ports.clock.now())
            return Outcome()

    Woken.moments, Woken.raises = moments, []
    async with Rig(tmp_path, {"a": Woken}) as rig:
        rig.drop("e.json", {"text": "x"})
        await rig.until(lambda: len(rig.said()) == 1)


async def test_a_node_with_a_pace_beats_at_every_multiple_of_it(tmp_path: Path) -> None:
    class Paced(Node):
        every_sec = 0.05
        emit = ("outbox/out/out_*.json",)

        async def beat(self, batch: Batch, at: datetime) -> Outcome:
            said = {"said": {"text": f"{round(at.timestamp() / 0.05)}"}}
            return Outcome.of(Emit(directory="outbox/out", payload=said))

    async with Rig(tmp_path, {"a": Paced}) as rig:
        await rig.until(lambda: len(rig.said()) >= 3)
        said = rig.said()
    assert len(set(said)) == len(said)
