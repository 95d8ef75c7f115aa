"""A disk that takes no more: StoreFull, nothing half written, and it goes on when there is space."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import StoreFull
from kernel_gamma.truths.store import open_truths

LIMITED = """
import resource, sys
from pathlib import Path
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.errors import StoreFull
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.store import open_truths
store = open_truths(Path(sys.argv[1]), SystemClock("UTC"))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
written = 0
try:
    for number in range(1000):
        store.upsert(NewTruth(key=f"incident.n{number}", value="disk " + "x" * 10_000))
        written += 1
except StoreFull as error:
    assert "free some space" in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert store.page(limit=1)[0] == written, (store.page(limit=1)[0], written)
store.upsert(NewTruth(key="incident.after", value="disk"))
assert store.verify().ok
print(written)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_file_that_may_not_grow_is_a_full_store(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    child = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert 0 < int(child.stdout) < 1000
    store = open_truths(path, FakeClock())
    assert store.page(limit=1)[0] == int(child.stdout) + 1
    store.close()


def test_a_full_disk_refuses_writes_answers_reads_and_goes_on_when_there_is_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    store = open_truths(small_disk / "memory.db", FakeClock())
    written = 0
    with pytest.raises(StoreFull, match=r"memory\.db: .*free some space"):
        for written in range(1000):
            store.upsert_many(
                [
                    NewTruth(key=f"incident.n{written}.p{part}", value="disk " + "x" * 5000)
                    for part in range(3)
                ]
            )
    assert store.page(limit=1)[0] == 3 * written
    assert store.search(Search(query="disk", fold=False)).total == 3 * written
    with pytest.raises(StoreFull):
        store.upsert_many([NewTruth(key=f"task.big{n}", value="x" * 500_000) for n in range(9)])
    ballast.unlink()
    store.upsert(NewTruth(key="incident.after", value="disk"))
    assert store.page(limit=1)[0] == 3 * written + 1
    assert store.verify().ok
    store.close()


def test_a_store_that_cannot_even_be_made_says_so(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 4 * 1024 * 1024)
    with pytest.raises(StoreFull):
        open_truths(small_disk / "memory.db", FakeClock())
    (small_disk / "ballast").unlink()
    store = open_truths(small_disk / "memory.db", FakeClock())
    assert store.upsert(NewTruth(key="incident.x", value=1)).version == 1
    store.close()
