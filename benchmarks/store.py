"""The store at a million records: search latency, insert speed, memory, bytes a record.

    python benchmarks/store.py                  # 10,000 and 1,000,000 records, about five minutes
    python benchmarks/store.py --records 100000
    python benchmarks/store.py --chinese

Log lines of words drawn by Zipf's law, over a year, in six categories. Latency is given as wall time and as
CPU time: on a shared machine the second is the one that stays the same. `floor` is the same text put into a
bare FTS5 table with the same terms in batches of as many rows, in the same run.
"""

from __future__ import annotations

import argparse
import bisect
import gc
import http.client
import itertools
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernel_gamma.configuration import lay_out
from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.terms import index_terms

CATEGORIES = ("incident", "inspection", "task", "error", "operation", "metrics")
BATCH = 5000
SIGNS = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分"
    "对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经"
)


class Words:
    """Words drawn by Zipf's law from a made-up vocabulary."""

    def __init__(self, seed: int, *, chinese: bool) -> None:
        self.rng = random.Random(seed)
        letters = SIGNS if chinese else "abcdefghijklmnopqrstuvwxyz"
        low, high = (1, 3) if chinese else (3, 9)
        self.words = [
            "".join(self.rng.choice(letters) for _ in range(self.rng.randint(low, high)))
            for _ in range(50_000)
        ]
        self.joined = "" if chinese else " "
        self._weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(50_000)))

    def draw(self, count: int) -> str:
        found = (bisect.bisect(self._weights, self.rng.random() * self._weights[-1]) for _ in range(count))
        return self.joined.join(self.words[number] for number in found)


def fill(store: SqliteTruths, words: Words, records: int) -> float:
    """Insert in batches; returns records a second of the inserts alone (CPU and disk, not making texts)."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    step = timedelta(days=360) / records
    spent = 0.0
    for first in range(0, records, BATCH):
        batch = [
            NewTruth(
                category=words.rng.choice(CATEGORIES),
                value={"text": words.draw(12), "code": words.rng.randint(1, 999)},
                timestamp=start + step * number,
            )
            for number in range(first, min(first + BATCH, records))
        ]
        began = time.perf_counter()
        store.upsert_many(batch)
        spent += time.perf_counter() - began
    return records / spent


def floor(words: Words, folder: Path, records: int) -> float:
    """Rows a second into a bare FTS5 table, terms made beforehand."""
    db = sqlite3.connect(folder / "floor.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(
        "CREATE VIRTUAL TABLE t USING fts5 (x, content='', detail=column, columnsize=0, tokenize='ascii')"
    )
    spent = 0.0
    for first in range(0, records, BATCH):
        rows = [(n + 1, " ".join(index_terms(words.draw(12)))) for n in range(first, first + BATCH)]
        began = time.perf_counter()
        db.execute("BEGIN")
        db.executemany("INSERT INTO t (rowid, x) VALUES (?, ?)", rows)
        db.execute("COMMIT")
        spent += time.perf_counter() - began
    db.close()
    return records / spent


def searches(words: Words) -> list[tuple[str, Callable[[], Search]]]:
    year = datetime(2026, 1, 1, tzinfo=UTC)

    def in_a_week() -> Search:
        start = year + timedelta(days=words.rng.randint(0, 350))
        return Search(query=words.draw(3), categories=["error"], start=start, end=start + timedelta(days=7))

    common = " ".join(words.words[:3])
    return [
        ("one term", lambda: Search(query=words.draw(1))),
        ("three terms", lambda: Search(query=" ".join(words.draw(1) for _ in range(3)))),
        ("eight terms", lambda: Search(query=" ".join(words.draw(1) for _ in range(8)))),
        ("three commonest", lambda: Search(query=common)),
        ("category + week", in_a_week),
        ("for 2,000 tokens", lambda: Search(query=words.draw(3), limit=100, token_budget=2000)),
    ]


def latency(store: SqliteTruths, make: Callable[[], Search], times: int) -> tuple[float, float, float, float]:
    """(p50, p99) wall and (p50, p99) CPU, in milliseconds."""
    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(times):
        search = make()
        began, busy = time.perf_counter(), time.thread_time()
        store.search(search)
        wall.append((time.perf_counter() - began) * 1000)
        cpu.append((time.thread_time() - busy) * 1000)
    wall.sort()
    cpu.sort()
    high = int(times * 0.99)
    return wall[times // 2], wall[high], cpu[times // 2], cpu[high]


def rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def checkpoint(path: Path) -> None:
    """The write-ahead log is no part of a record."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def size_of(path: Path) -> int:
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


def singly(folder: Path) -> float:
    """Upserts a second, one by one over HTTP on one kept connection, the server a process of its own."""
    home = folder / "home"
    lay_out(home)
    environ = {**os.environ, "KGAMMA_BUS__DURABILITY": "process"}
    command = [sys.executable, "-m", "kernel_gamma", "gateway", "--port", "0", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1].removeprefix("http://")
        connection = http.client.HTTPConnection(address)
        began = time.perf_counter()
        for number in range(2000):
            body = json.dumps({"category": "task", "value": {"text": f"record {number} is done"}})
            connection.request("POST", "/api/truth/upsert", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 201), answer.status
        spent = time.perf_counter() - began
        server.terminate()
    return 2000 / spent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--searches", type=int, default=300, help="of each kind")
    parser.add_argument("--chinese", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the stores are made; default: the temporary one")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, SQLite {sqlite3.sqlite_version}")
    for records in options.records:
        with tempfile.TemporaryDirectory(dir=options.folder) as made:
            folder = Path(made)
            words = Words(1, chinese=options.chinese)
            store = open_truths(folder / "memory.db", SystemClock("UTC"))
            speed = fill(store, words, records)
            bare = floor(words, folder, min(records, 100_000))
            checkpoint(folder / "memory.db")
            size = size_of(folder / "memory.db")
            print(
                f"\n{records:,} records: inserts {speed:,.0f}/s (bare FTS5 {bare:,.0f}/s), "
                f"{size / records:.0f} bytes a record"
            )
            gc.collect()
            gc.freeze()  # the benchmark's own vocabulary is none of the store's garbage
            print("| search | p50 ms | p99 ms | CPU p50 | CPU p99 |\n|---|---|---|---|---|")
            for name, make in searches(words):
                figures = latency(store, make, options.searches)
                print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in figures) + " |", flush=True)
            print(f"RSS {rss_mb():.0f} MB")
            store.close()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        print(f"\nsingly over HTTP: {singly(Path(made)):,.0f} upserts/s")


if __name__ == "__main__":
    main()
