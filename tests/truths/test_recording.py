"""What commits record stands exactly once, whenever the process dies."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.accounting import Account
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import Script, expect, furnish, read_presses
from tests.fakes import FakeClock
from tests.harness import QUICK, drop
from tests.scripted_server import ScriptedServer

from kernel_gamma.bus.steps import STEPS
from kernel_gamma.configuration import lay_out
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.errors import BadTruth, TruthError
from kernel_gamma.mind import Mind
from kernel_gamma.settings import Settings
from kernel_gamma.truths.recording import TruthRecorder
from kernel_gamma.truths.store import open_truths
from kernel_gamma.truths.writing import Limits

RECEIPTS = ("task", "result", "error")


def test_what_waits_is_written_at_the_flush_and_never_over_what_stands(tmp_path: Path) -> None:
    store = open_truths(tmp_path / "memory.db", FakeClock())
    recorder = TruthRecorder(store)
    recorder.record(NewTruth(key="task.a", value=1))
    assert store.get("task.a") is None
    recorder.flush()
    recorder.record(NewTruth(key="task.a", value=2))
    recorder.record(NewTruth(key="task.b", value=3))
    recorder.record(NewTruth(key="task.b", value=4))
    recorder.flush()
    recorder.flush()
    found = [(truth.key, truth.value, truth.version) for truth in store.each()]
    assert found == [("task.a", 1, 1), ("task.b", 3, 1)]
    store.close()


def test_what_could_not_be_written_waits_on(tmp_path: Path) -> None:
    store = open_truths(tmp_path / "memory.db", FakeClock())
    recorder = TruthRecorder(store)
    recorder.record(NewTruth(key="task.a", value=1))
    holder = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    with store.database.write() as connection:
        writer = connection.db
    writer.execute("PRAGMA busy_timeout = 50")
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(TruthError):
        recorder.flush()
    holder.execute("ROLLBACK")
    holder.close()
    recorder.flush()
    assert store.get("task.a") is not None
    store.close()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as opened:
        yield opened


def receipts(data: Path) -> dict[str, tuple[str, int]]:
    """Key -> (value, version) of all receipts."""
    store = open_truths(data / "memory.db", FakeClock())
    found = {
        truth.key: (json.dumps(truth.value), truth.version)
        for category in RECEIPTS
        for truth in store.each(category)
    }
    assert store.verify().ok
    store.close()
    return found


@pytest.mark.parametrize(
    "step", ["commit.recorded:4", "commit.applied:4", "records.flushed:1", "records.flushed:2"]
)
def test_a_receipt_stands_exactly_once_whenever_the_process_dies(
    tmp_path: Path, nursery: Nursery, step: str
) -> None:
    assert step.partition(":")[0] in STEPS
    home = make_home(tmp_path)
    furnish(home)
    dropper = Dropper(home)
    script = Script(dropper)
    script.drop(0)
    with ScriptedServer(script) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "CRASH_TOOL_FILE": str(home / "presses.txt")}
        deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": step}
        assert nursery.once(home, {**environ, **deadly}) == -signal.SIGKILL
        script.drop_all()
        before = receipts(dropper.data)
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
        after = receipts(dropper.data)
        assert nursery.once(home, environ) == 0
        assert receipts(dropper.data) == after
    expect(Account(dropper.data, dropper.files), read_presses(home / "presses.txt"))
    assert before.items() <= after.items()
    assert {version for _, version in after.values()} == {1}
    values = Counter(value for value, _ in after.values())
    assert [value for value, times in values.items() if times > 1] == []
    assert {key.split(".")[0] for key in after} == set(RECEIPTS)


async def test_a_whole_trip_leaves_its_receipts(tmp_path: Path) -> None:
    lay_out(tmp_path)
    settings = Settings.model_validate(
        {"bus": QUICK, "model": {"mode": "offline"}, "preprocessor": {"debounce_sec": 0}}
    )
    mind = Mind(tmp_path, settings, {})
    await mind.start()
    running = asyncio.create_task(mind.run())
    try:
        drop(mind.data, "good.json", {"text": "你好 hello", "from": "alice"})
        path = mind.data / "inbox/pending/bad.json"
        path.write_bytes(b'{"text": "never fini')
        async with asyncio.timeout(30):
            assert await mind.drained() == ""
    finally:
        await mind.stop()
        await running
    store = open_truths(mind.data / "memory.db", FakeClock())
    counted = store.categories()
    assert all(counted.get(category, 0) >= 1 for category in RECEIPTS), counted
    traces = {
        truth.value["trace_id"]
        for category in ("task", "result")
        for truth in store.each(category)
        if isinstance(truth.value, dict)
    }
    assert len(traces) == 1
    (error,) = store.each("error")
    assert "bad.json" in json.dumps(error.value)
    assert store.verify().ok
    store.close()


def test_a_receipt_that_can_never_be_written_says_why(tmp_path: Path) -> None:
    store = open_truths(tmp_path / "memory.db", FakeClock())
    recorder = TruthRecorder(store)
    recorder.record(NewTruth(key="no key", value=1))
    with pytest.raises(BadTruth, match="key"):
        recorder.flush()
    store.close()


def test_one_receipt_that_cannot_be_kept_holds_up_no_other(tmp_path: Path) -> None:
    store = open_truths(tmp_path / "memory.db", FakeClock())
    recorder = TruthRecorder(store)
    deep: object = "end"
    for _ in range(400):
        deep = [deep]
    recorder.record(NewTruth(key="task.before", value="a"))
    recorder.record(NewTruth(key="task.bad", value=deep))
    recorder.record(NewTruth(key="task.after", value="b"))
    recorder.flush()
    recorder.record(NewTruth(key="task.later", value="c"))
    recorder.flush()
    assert sorted(truth.key for truth in store.each("task")) == [
        "task.after",
        "task.bad",
        "task.before",
        "task.later",
    ]
    refused = store.get("task.bad")
    assert refused is not None and "too deep" in refused.value["refused"]
    store.close()


def test_a_small_limit_for_requests_is_none_for_receipts(tmp_path: Path) -> None:
    store = open_truths(tmp_path / "memory.db", FakeClock(), limits=Limits(value_bytes=1024))
    recorder = TruthRecorder(store)
    recorder.record(NewTruth(key="task.long", value={"text": "磁盘已满" * 1000}))
    recorder.flush()
    kept = store.get("task.long")
    assert kept is not None and kept.value["text"] == "磁盘已满" * 1000
    store.close()
