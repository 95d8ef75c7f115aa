"""Two processes that write and eight that read one file while the writers are killed without warning."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fakes import FakeClock

from kernel_gamma.contracts.truths import Search
from kernel_gamma.truths.store import open_truths

CHILD = Path(__file__).with_name("processes.py")


def start(role: str, path: Path, name: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out, log.with_suffix(".err").open("ab") as err:
        return subprocess.Popen([sys.executable, str(CHILD), role, str(path), name], stdout=out, stderr=err)


def run(folder: Path, seconds: float) -> None:
    path = folder / "memory.db"
    chance = random.Random(5)
    logs = {n: folder / f"w{n}-0.log" for n in range(2)}
    writers = {n: start("write", path, log.stem, log) for n, log in logs.items()}
    readers = [start("read", path, f"r{n}", folder / f"r{n}.log") for n in range(8)]
    life = 0
    try:
        wait_for(list(logs.values()))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.3, 1.5))
            life += 1
            killed = chance.randrange(2)
            writers[killed].send_signal(signal.SIGKILL)
            writers[killed].wait()
            log = folder / f"w{killed}-{life}.log"
            writers[killed] = start("write", path, log.stem, log)
            wait_for([log])
            assert all(reader.poll() is None for reader in readers)
    finally:
        for process in [*readers, *writers.values()]:
            process.kill()
            process.wait()
    check(folder, path, least_lives=life)


def wait_for(logs: list[Path]) -> None:
    """Until each has acknowledged something: a process that is killed before it wrote proves nothing."""
    end = time.monotonic() + 60
    while not all(log.stat().st_size for log in logs):
        assert time.monotonic() < end, "a writer acknowledged nothing in a minute"
        time.sleep(0.02)


def check(folder: Path, path: Path, *, least_lives: int) -> None:
    assert least_lives > 0
    for said in folder.glob("*.err"):
        assert said.read_text() == "", said.name
    acknowledged = {
        line
        for log in folder.glob("w*.log")
        for line in log.read_text().split("\n")[:-1]  # a kill may cut the last line short
    }
    assert len(acknowledged) > 50
    assert any("read" in log.read_text() for log in folder.glob("r*.log"))
    store = open_truths(path, FakeClock())
    there = {truth.key for truth in store.each()}
    assert acknowledged <= there
    batches: dict[str, int] = {}
    for key in there:
        if key.startswith("task."):
            batches[key.rpartition("-")[0]] = batches.get(key.rpartition("-")[0], 0) + 1
    assert set(batches.values()) <= {20}
    assert store.verify().ok
    assert sum(store.categories().values()) == len(there) == store.page(limit=1)[0]
    assert store.search(Search(query="disk")).total == min(len(there), 10_000)
    with store.database.read() as connection:
        assert connection.db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()


def test_everything_acknowledged_is_there_after_kills(tmp_path: Path) -> None:
    run(tmp_path, 6)


@pytest.mark.slow
def test_everything_acknowledged_is_there_after_a_minute_of_kills(tmp_path: Path) -> None:
    run(tmp_path, 60)
