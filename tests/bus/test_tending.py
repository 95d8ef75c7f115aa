"""Finding what was dropped, in spite of everything."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.harness import Rig, forward, node_class

from kernel_gamma.errors import Fenced

FORWARD = node_class(forward, emit=("outbox/out/out_*.json",))


async def test_what_follows_a_listing_may_fail_and_the_bus_hears_on(tmp_path: Path) -> None:
    async def broken() -> None:
        raise RuntimeError("the page is a folder")

    async with Rig(tmp_path, {"a": FORWARD}) as rig:
        rig.bus.on_listing = broken
        for number in range(3):
            rig.drop(f"{number}.json", {"text": str(number)})
            await rig.drained()
        assert sorted(rig.said()) == list("012")


async def test_a_fence_met_after_a_listing_ends_the_daemon(tmp_path: Path) -> None:
    async def fenced() -> None:
        raise Fenced("another daemon")

    rig = await Rig(tmp_path, {"a": FORWARD}).start()
    rig.bus.on_listing = fenced
    assert rig.running is not None
    settling = asyncio.create_task(rig.bus.settle())
    await asyncio.wait([rig.running], timeout=10)
    assert isinstance(rig.running.exception(), Fenced)
    settling.cancel()
    await rig.stop(0.0)


async def test_a_folder_that_appears_later_is_watched_for_a_pattern_with_a_star(tmp_path: Path) -> None:
    node = node_class(forward, watch=("tools/*/receipts/act_*.json",), emit=("outbox/out/out_*.json",))
    async with Rig(tmp_path, {"a": node}) as rig:
        rig.drop("act_1.json", {"text": "done"}, "tools/mail/receipts")
        await rig.drained()
        assert rig.said() == ["done"]
        assert rig.names("tools/mail/receipts/done") == ["act_1.json"]


async def test_files_written_by_the_bus_and_still_waiting_are_not_accepted_again(tmp_path: Path) -> None:
    hold = asyncio.Event()

    async def wait(node: object, batch: object) -> object:
        await hold.wait()
        return await forward(node, batch)  # type: ignore[arg-type]

    nodes = {
        "a": node_class(forward, emit=("pipeline/message_queue/msg_*.json",)),
        "b": node_class(
            wait,  # type: ignore[arg-type]
            watch=("pipeline/message_queue/msg_*.json",),
            emit=("outbox/out/out_*.json",),
        ),
    }
    async with Rig(tmp_path, nodes, watcher="polling", poll_sec=0.01) as rig:
        for number in range(20):
            rig.drop(f"{number}.json", {"text": str(number)})
        await rig.until(lambda: len(rig.names("pipeline/message_queue")) == 20)
        for _ in range(5):
            await rig.bus.settle()
        hold.set()
        await rig.drained()
        assert len(rig.documents("outbox/out")) == 20


async def test_the_accepting_itself_counts_as_waiting(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD}, durability="full").start(circuit=False)
    for number in range(40):
        rig.drop(f"{number}.json", {"text": "x"})
    seen_idle = False
    while rig.bus.node_states()["a"]["backlog"] < 40:
        waiting_on_disk = any((tmp_path / "inbox/pending").glob("*.json"))
        if rig.bus.quiet() and not waiting_on_disk and rig.bus.node_states()["a"]["backlog"] == 0:
            seen_idle = True
        await asyncio.sleep(0)
    assert not seen_idle
    await rig.stop()
