"""A start puts the folder and the ledger in step, whatever the last process left."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness import Rig, drop, finish, forward, node_class

from kernel_gamma.contracts.effects import Outcome

FORWARD = node_class(forward, emit=("outbox/out/out_*.json",))


async def test_a_file_accepted_but_not_yet_renamed_is_renamed(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD}).start(circuit=False)
    rig.drop("e.json", {"text": "x"})
    await rig.accepted(1)
    (taken,) = (tmp_path / "inbox/taken").iterdir()
    await rig.stop()
    taken.rename(tmp_path / "inbox/pending/e.json")  # as if it had died in between
    async with Rig(tmp_path, {"a": FORWARD}) as again:
        await again.drained()
        assert again.said() == ["x"]
        assert again.names("inbox/pending/done") == ["e.json"]


async def test_a_queued_file_somebody_removed_meanwhile_is_closed(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD, "b": FORWARD}).start(circuit=False)
    rig.drop("e.json", {"text": "x"})
    await rig.accepted(1)
    await rig.stop()
    for path in (tmp_path / "inbox/taken").iterdir():
        path.unlink()
    async with Rig(tmp_path, {"a": FORWARD, "b": FORWARD}) as again:
        await again.drained()
        assert again.said() == []


async def test_files_the_ledger_does_not_know_are_dropped_again_in_their_order(tmp_path: Path) -> None:
    taken = tmp_path / "inbox/taken"
    taken.mkdir(parents=True)
    for number in (10, 9, 11):
        (taken / f"{number}_e.json").write_text(json.dumps({"text": str(number)}))
    (taken / "odd.json").write_text('{"text": "odd"}')
    async with Rig(tmp_path, {"a": FORWARD}) as rig:
        await rig.drained()
        assert sorted(rig.said()) == ["10", "11", "9", "odd"]
        assert list(taken.iterdir()) == []


async def test_after_a_reboot_what_was_not_synced_is_carried_out_again(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD}, durability="full", checkpoint_sec=3600).start()
    rig.drop("e.json", {"text": "x"})
    await rig.drained()
    await rig.until(lambda: not rig.bus.disk.unmarked)
    (out,) = (tmp_path / "outbox/out").glob("*.json")
    whole = out.read_bytes()
    rig.ledger._db.execute("PRAGMA wal_checkpoint")
    await rig.bus._writer.drain()
    rig.ledger.run("set_meta", "boot_id", "another boot")
    rig.ledger._db.execute("UPDATE meta SET value = '99' WHERE key = 'boot'")  # it dies here
    await rig.stop(0.0)
    out.write_bytes(b"\0" * 3)  # what a power cut leaves of a file that was never synced
    async with Rig(tmp_path, {"a": FORWARD}) as again:
        await again.drained()
        assert out.read_bytes() == whole
        assert len(again.said()) == 1


async def test_a_file_that_no_node_wants_any_more_stays_where_it_is(tmp_path: Path) -> None:
    drop(tmp_path, "msg_1.json", {"text": "x"}, "q")
    async with Rig(tmp_path, {"a": node_class(finish)}) as rig:
        await rig.drained()
        assert (tmp_path / "q/msg_1.json").exists()


async def test_a_retry_keeps_its_count_and_its_pause_across_a_restart(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD}, backoff_sec=0.3).start(circuit=False)
    rig.drop("e.json", {"text": "x"})
    await rig.bus.fail(await rig.bus.next_batch("a"), ValueError("no"))
    await rig.stop()
    again = await Rig(tmp_path, {"a": FORWARD}, backoff_sec=0.3).start(circuit=False)
    batch = await again.bus.next_batch("a")
    assert batch[0].attempt == 2
    await again.bus.commit(batch, Outcome())
    await again.stop()
