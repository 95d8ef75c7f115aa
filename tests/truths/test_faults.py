"""Hostile queries, killed processes, full disks, damaged files: nothing is lost, nothing is silent."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes import START, FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import StoreDamaged, StoreFull
from kernel_gamma.truths.store import SqliteTruths, open_truths

NASTY = [
    '"', "'", '"unbalanced', "a AND", "OR OR", "NOT x", "a NEAR b", "NEAR(a b, 5)", "*", "a*", "^a", "-a",
    "text:a", "cat:c1", "who : x", "{text who}: a", "(a", "a)", "((((", "+", "a + b", ";", "%", "_", "\\",
    "a-b", "\0",
    "a\0b", "\ud800", "熔断\udfff", "'; DROP TABLE truths; --", "1 UNION SELECT * FROM meta", "ﷺ", "\u202e",
    "0x41", "NULL", "rank", "words", "a" * 10_000, "断" * 10_000, "x " * 5_000,
    "🔥" * 300, "\t\n\r", "[]", "{}",
    "启动 AND 失败", "\x1f\x7f", "ß" * 99, "İstanbul", "e\u0301" * 50, "１２３",
]  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteTruths]:
    store = open_truths(tmp_path_factory.mktemp("small") / "memory.db", FakeClock())
    for number, text in enumerate(("启动失败 startup failure", "a b c", "NEAR AND OR NOT", "熔断🔥")):
        store.upsert(NewTruth(key=f"incident.n{number}", value=text, description=text))
    yield store
    store.close()


def ask_everything(store: SqliteTruths, text: str) -> None:
    before = store.categories()
    for fold in (True, False):
        finding = store.search(Search(query=text, fold=fold, min_similarity=0.1, token_budget=500))
        assert finding.total >= len(finding.results)
    store.search(Search(query=text, categories=[text], levels=["L2"]))
    assert store.search(Search(categories=[text, "incident"])).total >= 4
    assert store.get(text) is None or text in before
    assert store.recent(limit=3)
    assert store.delete([text + "."]) == 0
    for call in (lambda: store.page(limit=3, category=text), lambda: store.recent(limit=3, category=text)):
        try:
            call()
        except ValueError as error:
            assert "category" in str(error)
    key = store.upsert(NewTruth(key="temp.fuzz", value={text: text}, description=text)).key
    assert store.get(key) is not None
    store.search(Search(query=text, categories=["temp"], limit=2))
    store.delete([key])


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_no_query_is_taken_for_a_command(small: SqliteTruths, text: str) -> None:
    ask_everything(small, text)
    assert small.search(Search(query="启动失败")).total == 1


def test_a_query_of_a_hundred_thousand_words_is_answered(small: SqliteTruths) -> None:
    query = " ".join(f"w{number}" for number in range(100_000))
    assert small.search(Search(query=query, min_similarity=0.1, token_budget=500)).total == 0
    assert small.search(Search(query=f"启动失败 {query}")).results[0].truth.key == "incident.n0"
    assert small.get(query) is None
    key = small.upsert(NewTruth(key="temp.fuzz", value=query, description=query)).key
    assert small.search(Search(query="w0 w1", categories=["temp"])).total == 1
    small.delete([key])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec=None), max_size=60))
def test_no_text_raises(small: SqliteTruths, text: str) -> None:
    ask_everything(small, text)


# ---- killed processes

WRITER = """
import sys
from pathlib import Path
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.store import open_truths

path, name, acknowledged = Path(sys.argv[1]), sys.argv[2], open(sys.argv[3], "ab", buffering=0)
store = open_truths(path, SystemClock())
number = 0
while True:
    number += 1
    key = f"incident.{name}.n{number}"
    store.upsert_many([NewTruth(key=key, value={"number": number}, description=f"写入 written {name}"),
                       NewTruth(key=f"operation.{name}", value=number)])
    acknowledged.write(f"{key}\\n".encode())
"""
READER = """
import sys, time
from pathlib import Path
from kernel_gamma.contracts.truths import Search
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.store import open_truths

store = open_truths(Path(sys.argv[1]), SystemClock())
until = time.monotonic() + float(sys.argv[2])
seen = looks = 0
while time.monotonic() < until:
    total = store.search(Search(query="写入 written", fold=False)).total
    assert total >= seen, (total, seen)
    seen = total
    for truth in store.recent(limit=5, category="incident"):
        assert truth.value["number"] >= 1
    looks += 1
    time.sleep(0.05)
print(looks)
"""


def start(code: str, *words: object, out: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stdout=out, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str]) -> str:
    process.kill()
    return process.communicate()[1]


def live_under_kills(folder: Path, seconds: float) -> None:
    path = folder / "memory.db"
    open_truths(path, FakeClock()).close()
    generator = random.Random(7)
    readers = [start(READER, path, seconds, out=subprocess.PIPE) for _ in range(8)]
    writers: dict[str, subprocess.Popen[str]] = {}
    born, kills, until = 0, 0, time.monotonic() + seconds + 1

    def bear() -> None:
        nonlocal born
        born += 1
        writers[f"w{born}"] = start(WRITER, path, f"w{born}", folder / f"w{born}.acknowledged")

    try:
        while time.monotonic() < until:
            while len(writers) < 2:
                bear()
            time.sleep(generator.uniform(0.8, 1.6))
            name = generator.choice(list(writers))
            dead = writers[name].poll()
            assert dead is None, f"{name} ended by itself: {end(writers[name])}"
            trouble = end(writers.pop(name))
            assert trouble == ""
            kills += 1
        for reader in readers:
            looks, trouble = reader.communicate(timeout=60)
            assert (reader.returncode, trouble) == (0, "")
            assert int(looks) > 0
    finally:
        for process in (*writers.values(), *readers):
            end(process)
    acknowledged = [line for file in folder.glob("*.acknowledged") for line in file.read_text().split()]
    assert kills >= 2 and len(acknowledged) > 10
    store = open_truths(path, FakeClock())
    assert [key for key in acknowledged if store.get(key) is None] == []
    standing = store.categories()["incident"]
    assert len(acknowledged) <= standing <= len(acknowledged) + born
    report = store.verify()
    assert report.ok, report
    for number in range(1, born + 1):
        last = store.get(f"operation.w{number}")
        newest = [
            int(key.rpartition("n")[2]) for key in acknowledged if key.startswith(f"incident.w{number}.")
        ]
        if newest:
            assert last is not None and max(newest) <= last.version <= max(newest) + 1
            assert last.value == last.version
    store.close()


def test_what_was_acknowledged_stands_whoever_is_killed(tmp_path: Path) -> None:
    live_under_kills(tmp_path, 5)


@pytest.mark.slow
def test_what_was_acknowledged_stands_after_a_minute_of_kills(tmp_path: Path) -> None:
    live_under_kills(tmp_path, 60)


# ---- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk]).returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def write_until_full(store: SqliteTruths) -> int:
    for number in range(10_000):
        try:
            store.upsert(NewTruth(key=f"incident.full{number}", value="x" * 20_000, description="满 full"))
        except StoreFull as error:
            assert "free some space" in str(error)
            return number
    raise AssertionError("it was never full")


def test_a_full_disk_says_so_and_the_store_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 3_000_000)
    store = open_truths(small_disk / "memory.db", FakeClock())
    written = write_until_full(store)
    assert written > 5
    assert store.search(Search(query="full")).total == written
    with pytest.raises(StoreFull):
        store.upsert(NewTruth(category="incident", value="y" * 500_000))
    ballast.unlink()
    store.upsert(NewTruth(key="incident.after", value="z" * 100_000, description="room 有空间"))
    assert store.categories() == {"incident": written + 1}
    assert store.search(Search(query="有空间")).total == 1
    assert store.verify().ok
    store.close()


TOO_LARGE = """
import resource, signal, sys
from pathlib import Path
from tests.fakes import FakeClock
from tests.truths.test_faults import write_until_full
from kernel_gamma.truths.store import open_truths

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_truths(Path(sys.argv[1]), FakeClock())
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
written = write_until_full(store)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert write_until_full.__name__ and store.categories() == {"incident": written}
from kernel_gamma.contracts.truths import NewTruth
store.upsert(NewTruth(key="incident.after", value=1))
assert store.verify().ok and store.categories() == {"incident": written + 1}
"""


def test_a_file_that_may_not_grow_is_full_too(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", TOO_LARGE, tmp_path / "memory.db"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


# ---- a damaged file


def filled(folder: Path) -> Path:
    path = folder / "memory.db"
    store = open_truths(path, FakeClock(START))
    store.upsert_many(
        [
            NewTruth(key=f"incident.k{n}", value={"n": n, "pad": "p" * 300}, description=f"启动 word{n}")
            for n in range(1500)
        ]
    )
    store.close()
    assert not path.with_name("memory.db-wal").exists()
    return path


def read_everything(path: Path) -> None:
    store = open_truths(path, FakeClock(START))
    try:
        assert sum(1 for _ in store.each()) == 1500
        assert store.verify().ok
        for n in range(0, 1500, 7):
            assert store.get(f"incident.k{n}") is not None
            assert store.search(Search(query=f"word{n}")).total == 1
        assert store.search(Search(query="启动", fold=False)).total == 1500
        store.upsert(NewTruth(category="error", value="new"))
    finally:
        store.close()


def test_a_header_of_garbage_is_damage(tmp_path: Path) -> None:
    path = filled(tmp_path)
    read_everything(path)
    with path.open("r+b") as file:
        file.write(os.urandom(100))
    with pytest.raises(StoreDamaged, match=r"memory\.db"):
        read_everything(path)


def test_a_file_of_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_text("此文件不是数据库\n" * 1000)
    with pytest.raises(StoreDamaged, match=r"memory\.db"):
        read_everything(path)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_cut_short_is_damage(tmp_path: Path, share: float) -> None:
    path = filled(tmp_path)
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(StoreDamaged, match=r"memory\.db"):
        read_everything(path)


@pytest.mark.parametrize("seed", range(4))
def test_garbage_in_the_middle_is_damage(tmp_path: Path, seed: int) -> None:
    path = filled(tmp_path)
    size = path.stat().st_size
    generator = random.Random(seed)
    with path.open("r+b") as file:
        for page in range(3, size // 4096, 4):
            file.seek(page * 4096)
            file.write(generator.randbytes(4096))
    with pytest.raises(StoreDamaged, match=r"memory\.db"):
        read_everything(path)
