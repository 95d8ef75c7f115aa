"""Record, apply, mark, forget: and nothing is recorded behind a commit that cannot be applied."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.harness import Rig, forward, node_class, tell

from kernel_gamma.bus.disk import describe
from kernel_gamma.contracts.effects import Append, Batch, Emit, Outcome, Overwrite
from kernel_gamma.nodes.base import Node

TELL = node_class(tell)


async def plans(rig: Rig) -> list[tuple[int, int, bool]]:
    """(applied, synced, plan kept) of every commit."""
    rows = rig.ledger._db.execute("SELECT applied, synced, plan IS NOT NULL FROM commits ORDER BY n")
    return [(a, s, bool(p)) for a, s, p in rows.fetchall()]


async def test_an_applied_commit_is_forgotten_when_a_killed_process_is_all_there_is_to_fear(
    tmp_path: Path,
) -> None:
    rig = await Rig(tmp_path, {"a": TELL}).start()
    rig.drop("e.json", {"text": "x"})
    await rig.drained()
    await rig.until(lambda: not rig.bus.disk.unmarked)
    await rig.bus._writer.drain()
    assert await plans(rig) == [(1, 1, False)]
    await rig.stop()


async def test_against_a_power_cut_it_is_kept_until_the_disk_was_synced(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": TELL}, durability="full", checkpoint_sec=3600).start()
    rig.drop("e.json", {"text": "x"})
    await rig.drained()
    await rig.until(lambda: not rig.bus.disk.unmarked)
    await rig.bus._writer.drain()
    assert await plans(rig) == [(1, 0, True)]
    await rig.bus.disk.checkpoint()
    assert await plans(rig) == [(1, 1, False)]
    await rig.stop()


async def test_behind_a_commit_that_cannot_be_applied_nothing_is_recorded(tmp_path: Path) -> None:
    async def both(node: Node, batch: Batch) -> Outcome:
        if batch[0].document["text"] == "blocked":
            return Outcome.of(Overwrite(path="metrics/wall/x.json", document={}))
        return await forward(node, batch)

    node = node_class(both, emit=("outbox/out/out_*.json",), concurrency=2, key=lambda d: d.name)
    async with Rig(tmp_path, {"a": node}) as rig:
        wall = tmp_path / "metrics/wall"
        wall.touch()  # a file where a folder must be
        rig.drop("0.json", {"text": "blocked"})
        await rig.until(lambda: rig.bus.disk.stall_reason)
        assert "metrics/wall" in rig.bus.disk.stall_reason
        rig.drop("1.json", {"text": "behind"})
        await asyncio.sleep(0.1)
        assert rig.said() == []
        assert (tmp_path / "inbox/pending/1.json").exists()
        wall.unlink()
        await rig.drained()
        assert rig.said() == ["behind"]
        assert (wall / "x.json").exists()


async def test_one_commit_s_effects_stand_in_order_whatever_it_holds(tmp_path: Path) -> None:
    async def everything(node: Node, batch: Batch) -> Outcome:
        return Outcome.of(
            Append(page="stream/now.md", text="one", opening="# Now"),
            Append(page="stream/now.md", text="two"),
            Emit(directory="outbox/out", payload={"said": {"text": "three"}}),
            Overwrite(path="inbox/acks/e.json", document={"ok": True}),
        )

    async with Rig(tmp_path, {"a": node_class(everything, emit=("outbox/out/out_*.json",))}) as rig:
        rig.drop("e.json", {"text": "x"})
        await rig.drained()
        assert rig.now_md == "# Now\n\none\n\ntwo\n\n"
        assert rig.said() == ["three"]
        assert (tmp_path / "inbox/acks/e.json").read_text() == '{"ok": true}\n'


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "/x/now.md"), "free some space"),
        (OSError(30, "Read-only file system", b"/x/now.md"), "make it writable"),
    ],
)
def test_a_stall_names_the_path_and_what_to_do(error: OSError, words: str) -> None:
    assert words in describe(error) and "/x/now.md" in describe(error)
