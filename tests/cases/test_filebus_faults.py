"""What happens around the bus: floods, deaths, editors, full disks: B01, B08, B17, B20 to B22, F02, F16."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.harness import QUICK, Rig, SteppedClock, drop, forward, node_class, tell

from kernel_gamma.bus.lock import Held, hold, holder
from kernel_gamma.configuration import lay_out
from kernel_gamma.contracts.effects import Append, Batch, Emit, Outcome, Replace
from kernel_gamma.errors import Fenced, SettingsError
from kernel_gamma.mind import Mind
from kernel_gamma.nodes.base import Node
from kernel_gamma.settings import Settings

ROOT = Path(__file__).parents[2]
VICTIM = Path(__file__).parents[1] / "conformance/victim.py"
FORWARD = node_class(forward, emit=("outbox/out/out_*.json",), batch=64)
TELL = node_class(tell, batch=64)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def victim(root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A process of its own with one bus; ends with 0 when all is handled."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(VICTIM), str(root), *arguments], env=environment)


def said(root: Path) -> list[str]:
    found = (root / "outbox/out").glob("*.json")
    return sorted(json.loads(p.read_bytes())["payload"]["said"]["text"] for p in found)


def _until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


@pytest.mark.parametrize("files", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_B01_a_flood_while_the_process_is_stopped_is_handled_whole(tmp_path: Path, files: int) -> None:
    process = victim(tmp_path, "--stay")
    try:
        _until(lambda: (tmp_path / "ready").exists())
        process.send_signal(signal.SIGSTOP)
        for number in range(files):
            drop(tmp_path, f"{number}.json", {"text": str(number)})
        process.send_signal(signal.SIGCONT)
        _until(lambda: not any((tmp_path / "inbox/pending").glob("*.json")), 60 + files / 100)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    done = [p for p in (tmp_path / "inbox/pending/done").glob("*/*")]
    left = list((tmp_path / "inbox/taken").iterdir())
    assert len(done) + len(left) == files


def test_B20_an_event_that_kills_the_process_ends_in_dead_letter_and_the_others_flow(tmp_path: Path) -> None:
    drop(tmp_path, "killer.json", {"text": "killer", "do": "die"})
    for number in range(5):
        drop(tmp_path, f"{number}.json", {"text": str(number)})
    deaths = 0
    while (code := victim(tmp_path, "--max-attempts", "3").wait(60)) != 0:
        assert code == -signal.SIGKILL
        deaths += 1
        assert deaths <= 8
    assert deaths >= 3
    assert said(tmp_path) == list("01234")
    (reason,) = (tmp_path / "dead_letter").glob("*/killer.json.reason.json")
    found = json.loads(reason.read_bytes())
    assert (found["error"], found["attempts"], found["node"]) == ("killed_the_process", 3, "a")


def test_kills_at_any_moment_lose_and_double_nothing(tmp_path: Path) -> None:
    expected = [f"{n:03}" for n in range(300)]
    for text in expected:
        drop(tmp_path, f"{text}.json", {"text": text})
    for round_ in range(12):
        process = victim(tmp_path)
        time.sleep(0.3 + 0.06 * round_)
        process.send_signal(signal.SIGKILL)
        if process.wait(30) == 0:
            break
    assert victim(tmp_path).wait(60) == 0
    assert said(tmp_path) == expected
    assert len(list((tmp_path / "inbox/pending/done").glob("*/*"))) == 300
    page = (tmp_path / "self/stream/now.md").read_text()
    assert sorted(page.split()) == expected


def test_B21_the_lock_file_is_never_removed_and_excludes(tmp_path: Path) -> None:
    lock = hold(tmp_path)
    inode = (tmp_path / "daemon.lock").stat().st_ino
    script = "import sys, pathlib, kernel_gamma.bus.lock as l; l.hold(pathlib.Path(sys.argv[1]))"
    other = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert other.returncode != 0
    assert f"process {os.getpid()}" in other.stderr
    lock.release()
    assert (tmp_path / "daemon.lock").stat().st_ino == inode
    assert holder(tmp_path) is None
    (tmp_path / "daemon.json").write_text('{"pid": 1}')  # a pid left behind blocks nobody
    again = hold(tmp_path)
    again.release()


def test_B21_asking_for_the_holder_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            holder(tmp_path)
            time.sleep(0.001)

    (tmp_path / "daemon.lock").touch()
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(10):
            hold(tmp_path).release()
    except Held:
        pytest.fail("a look at the holder passed for a daemon")
    finally:
        stop.set()
        asking.join()


async def test_B22_a_full_done_folder_makes_nothing_slower_to_find(tmp_path: Path) -> None:
    day = tmp_path / "inbox/pending/done/2020-01-01"
    day.mkdir(parents=True)
    for number in range(2000):
        (day / f"{number}.json").touch()
    async with Rig(tmp_path, {"a": FORWARD}) as rig:
        for number in range(50):
            rig.drop(f"{number}.json", {"text": str(number)})
        await rig.drained()
        assert len(rig.said()) == 50


async def test_an_idle_bus_wakes_ever_more_seldom(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": FORWARD}) as rig:
        rig.drop("e.json", {"text": "x"})
        await rig.drained()
        wakes = 0
        listed = asyncio.Event()

        async def count() -> None:
            nonlocal wakes
            wakes += 1
            listed.set()

        rig.bus.on_listing = count
        await rig.bus.settle()
        before = wakes
        await asyncio.sleep(0.5)
        assert wakes - before <= 1, "at most one look in the first half second"


async def test_B08_with_the_watcher_off_the_listing_finds_everything(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": FORWARD}, watcher="polling", poll_sec=0.02) as rig:
        assert rig.bus.watcher_state[0] == "polling"
        drop(tmp_path, "e.json", {"text": "found"})
        await rig.until(rig.said)
        assert rig.said() == ["found"]


async def test_F02_a_program_that_polls_the_outbox_never_sees_half_a_reply(tmp_path: Path) -> None:
    await _torn_output(tmp_path, replies=60, size=300_000)


@pytest.mark.slow
async def test_F02_at_full_size(tmp_path: Path) -> None:
    await _torn_output(tmp_path, replies=500, size=1_000_000)


async def _torn_output(root: Path, *, replies: int, size: int) -> None:
    async def shout(node: Node, batch: Batch) -> Outcome:
        text = "字" * (size // 3)
        return Outcome.of(
            *(Emit(directory="outbox/out", payload={"n": d.document["n"], "text": text}) for d in batch)
        )

    seen: set[int] = set()
    torn: list[str] = []
    stop = threading.Event()

    def poll() -> None:
        read: set[str] = set()
        while not stop.is_set() or len(seen) < replies:
            for path in (root / "outbox/out").glob("out_*.json"):
                if path.name in read:
                    continue
                try:
                    document = json.loads(path.read_bytes())
                    assert len(document["payload"]["text"]) == size // 3
                    seen.add(document["payload"]["n"])
                    read.add(path.name)
                except (ValueError, AssertionError) as error:
                    torn.append(f"{path.name}: {error}")
                    return
            if stop.is_set() and torn:
                return

    async with Rig(root, {"a": node_class(shout, emit=("outbox/out/out_*.json",))}) as rig:
        reader = threading.Thread(target=poll)
        reader.start()
        for number in range(replies):
            rig.drop(f"{number}.json", {"n": number})
        await rig.drained()
        stop.set()
        await asyncio.to_thread(reader.join, 60)
    assert torn == []
    assert len(seen) == replies


# A person at the pages


async def test_now_md_deleted_while_running_is_begun_anew(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": TELL}) as rig:
        rig.drop("1.json", {"text": "first"})
        await rig.drained()
        (tmp_path / "self/stream/now.md").unlink()
        rig.drop("2.json", {"text": "second"})
        await rig.drained()
        assert rig.now_md == "second\n\n"


async def test_B11_an_editor_that_saves_by_rename_loses_no_later_passage(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": TELL}) as rig:
        page = tmp_path / "self/stream/now.md"
        for number in range(3):
            rig.drop(f"{number}.json", {"text": f"passage {number}"})
            await rig.drained()
            draft = page.with_name("now.md~")
            draft.write_text(page.read_text() + f"a person's line {number}\n\n")
            draft.rename(page)
        for number in range(3):
            assert rig.now_md.count(f"passage {number}") == 1
            assert rig.now_md.count(f"line {number}") == 1


async def test_a_page_that_cannot_be_written_holds_the_mind_until_it_can(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": TELL}) as rig:
        page = tmp_path / "self/stream/now.md"
        rig.drop("0.json", {"text": "passage 0"})
        await rig.drained()
        kept = page.rename(tmp_path / "kept.md")
        page.mkdir()
        for number in (1, 2, 3):
            rig.drop(f"{number}.json", {"text": f"passage {number}"})
        await rig.until(lambda: rig.bus.disk.stall_reason)
        assert "now.md" in rig.bus.disk.stall_reason
        assert rig.bus.blocked() == rig.bus.disk.stall_reason
        page.rmdir()
        kept.rename(page)
        await rig.drained()
        assert [rig.now_md.count(f"passage {n}") for n in range(4)] == [1, 1, 1, 1]
        assert rig.bus.disk.stall_reason == ""
        assert ("stalled", {"reason": ""}) in rig.heard


@as_root
async def test_a_read_only_page_holds_the_mind_until_it_is_writable(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": TELL}) as rig:
        page = tmp_path / "self/stream/now.md"
        rig.drop("0.json", {"text": "passage 0"})
        await rig.drained()
        if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", str(page)]).returncode:
            pytest.skip("files cannot be made immutable here")
        try:
            rig.drop("1.json", {"text": "passage 1"})
            await rig.until(lambda: rig.bus.disk.stall_reason)
        finally:
            subprocess.run(["chattr", "-i", str(page)], check=True)
        await rig.drained()
        assert [rig.now_md.count(f"passage {n}") for n in range(2)] == [1, 1]


async def test_a_stop_while_the_mind_waits_for_the_disk_ends_at_once_and_loses_nothing(
    tmp_path: Path,
) -> None:
    page = tmp_path / "self/stream/now.md"
    page.mkdir(parents=True)
    rig = await Rig(tmp_path, {"a": TELL}).start()
    for number in range(3):
        rig.drop(f"{number}.json", {"text": f"passage {number}"})
        await asyncio.sleep(0.02)
    await rig.until(lambda: rig.bus.disk.stall_reason)
    await asyncio.wait_for(rig.stop(0.1), 10)
    again = await Rig(tmp_path, {"a": TELL}).start()
    await again.until(lambda: again.bus.disk.stall_reason)
    page.rmdir()
    await again.drained()
    await again.stop()
    assert [again.now_md.count(f"passage {n}") for n in range(3)] == [1, 1, 1]


async def test_files_still_to_be_written_at_a_start_are_not_taken_for_removed(tmp_path: Path) -> None:
    async def both(node: Node, batch: Batch) -> Outcome:
        page = Append(page="stream/now.md", text="told")
        return Outcome.of(page, Emit(directory="pipeline/message_queue", payload={"text": "inner"}))

    nodes = {
        "a": node_class(both, emit=("pipeline/message_queue/msg_*.json",)),
        "b": node_class(
            forward, watch=("pipeline/message_queue/msg_*.json",), emit=("outbox/out/out_*.json",)
        ),
    }
    page = tmp_path / "self/stream/now.md"
    page.mkdir(parents=True)
    rig = await Rig(tmp_path, nodes).start()
    rig.drop("e.json", {"text": "x"})
    await rig.until(lambda: rig.bus.disk.stall_reason)
    await rig.stop(0.0)
    again = await Rig(tmp_path, nodes).start()
    await asyncio.sleep(0.1)
    page.rmdir()
    await again.drained()
    await again.stop()
    (out,) = again.documents("outbox/out")
    assert out["payload"]["said"]["payload"] == {"text": "inner"}
    assert again.now_md.count("told") == 1


async def test_a_page_changed_by_a_person_stays_and_ours_is_kept_and_told(tmp_path: Path) -> None:
    async def replace_state(node: Node, batch: Batch) -> Outcome:
        if batch[0].document.get("type") == "page.conflict":
            return Outcome.of(Append(page="stream/now.md", text="conflict told"))
        return Outcome.of(Replace(page="state.md", text="mine\n", expect=None))

    (tmp_path / "self").mkdir()
    (tmp_path / "self/state.md").write_text("a person's\n")
    async with Rig(tmp_path, {"a": node_class(replace_state)}) as rig:
        rig.drop("e.json", {"text": "go"})
        await rig.drained()
        assert (tmp_path / "self/state.md").read_text() == "a person's\n"
        assert rig.now_md.count("conflict told") == 1
        (ours,) = (tmp_path / "self/.history").glob("*.ours")
        assert ours.read_text() == "mine\n"


async def test_the_clock_set_back_an_hour_delays_and_loses_nothing(tmp_path: Path) -> None:
    clock = SteppedClock()
    async with Rig(tmp_path, {"a": FORWARD}, clock=clock) as rig:
        rig.drop("1.json", {"text": "before"})
        await rig.drained()
        clock.steps = -3600.0
        rig.drop("2.json", {"text": "after"})
        await rig.drained()
        assert sorted(rig.said()) == ["after", "before"]


async def test_a_usurped_bus_stops_accepting_and_says_so(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, {"a": FORWARD}).start()
    await rig.bus.settle()
    rig.ledger.run("set_meta", "boot", str(rig.ledger.boot + 1))
    rig.drop("e.json", {"text": "not mine"})
    assert rig.running is not None
    with pytest.raises(Fenced):
        await asyncio.wait_for(asyncio.shield(rig.running), 10)
    await rig.stop(0.0)
    assert (tmp_path / "inbox/pending/e.json").exists()
    assert not list((tmp_path / "inbox/taken").iterdir())


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk]).returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1_048_576, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


@pytest.mark.parametrize("durability", ["process", "full"])
async def test_a_full_disk_parks_the_mind_and_everything_is_told_once_when_there_is_room(
    small_disk: Path, durability: str
) -> None:
    async with Rig(small_disk, {"a": TELL}, durability=durability) as rig:
        rig.drop("0.json", {"text": "passage 0."})
        await rig.drained()
        dropped = []
        for number in range(1, 40):
            dropped.append(rig.drop(f"{number}.tmp", {"text": f"passage {number}." + "x" * 2000}))
        ballast = fill(small_disk)
        for path in dropped:
            path.rename(path.with_suffix(".json"))
        await rig.until(lambda: rig.bus.disk.stall_reason)
        await asyncio.sleep(0.7)
        assert rig.names("dead_letter") == []
        assert "space" in rig.bus.disk.stall_reason
        ballast.unlink()
        await rig.drained()
        assert [rig.now_md.count(f"passage {n}.") for n in range(40)] == [1] * 40
        assert len(rig.names("inbox/pending/done")) == 40


async def test_a_disk_full_at_the_stop_too_loses_nothing(small_disk: Path) -> None:
    rig = await Rig(small_disk, {"a": TELL}).start()
    dropped = [rig.drop(f"{n}.tmp", {"text": f"passage {n}." + "x" * 2000}) for n in range(30)]
    ballast = fill(small_disk)
    for path in dropped:
        path.rename(path.with_suffix(".json"))
    await rig.until(lambda: rig.bus.disk.stall_reason)
    await asyncio.wait_for(rig.stop(0.1), 20)
    ballast.unlink()
    async with Rig(small_disk, {"a": TELL}) as again:
        await again.drained()
        assert [again.now_md.count(f"passage {n}.") for n in range(30)] == [1] * 30


async def test_a_mind_on_a_full_disk_says_so_in_its_status(small_disk: Path) -> None:
    home = small_disk / "home"
    lay_out(home)
    settings = Settings.model_validate({"bus": QUICK, "model": {"mode": "offline"}})
    mind = Mind(home, settings, {})
    await mind.start()
    running = asyncio.create_task(mind.run())
    try:
        dropped = [drop(mind.data, f"{n}.tmp", {"text": "x" * 3000, "from": str(n)}) for n in range(30)]
        ballast = fill(small_disk)
        for path in dropped:
            path.rename(path.with_suffix(".json"))
        status = mind.data / "metrics/status.json"
        async with asyncio.timeout(20):
            assert "space" in await mind.drained()
            while not json.loads(status.read_bytes())["stalled"]:
                await asyncio.sleep(0.05)
        ballast.unlink()
        async with asyncio.timeout(30):
            while await mind.drained():
                await asyncio.sleep(0.1)
    finally:
        await mind.stop()
        await running
    assert not list((mind.data / "inbox/pending").glob("*.json"))
    assert len(list((mind.data / "inbox/pending/done").glob("*/*"))) == 30


@as_root
def test_B17_a_folder_on_another_file_system_is_refused_with_the_reason(
    small_disk: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    lay_out(home)
    pending = home / "data/kernel/inbox/pending"
    pending.mkdir(parents=True, exist_ok=True)
    (pending / "done").symlink_to(small_disk)
    with pytest.raises(SettingsError, match="another file system"):
        Mind(home, Settings(), {})
