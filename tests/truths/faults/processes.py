"""Run as a child: `processes.py write|read PATH NAME`. Prints a line for every act that is acknowledged."""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.store import SqliteTruths, open_truths


def write(store: SqliteTruths, name: str) -> None:
    for number in range(1_000_000):
        if number % 3:
            keys = [
                store.upsert(NewTruth(key=f"incident.{name}.n{number}", value=f"disk 磁盘 w{number}")).key
            ]
        else:
            batch = [f"task.{name}.n{number}-{part}" for part in range(20)]
            keys = store.upsert_many([NewTruth(key=key, value="job of the disk") for key in batch])
        for key in keys:
            print(key, flush=False)
        sys.stdout.flush()


def read(store: SqliteTruths) -> None:
    while True:
        for query in ("disk", "磁盘", "job of the disk"):
            found = store.search(Search(query=query, limit=5))
            if found.total < len(found.results):
                raise AssertionError(found)
        total, page = store.page(limit=5)
        for truth in page:
            if store.get(truth.key) is None:
                raise AssertionError(f"{truth.key} was listed among {total} and is gone")
        print("read", flush=True)


if __name__ == "__main__":
    opened = open_truths(Path(sys.argv[2]), SystemClock("UTC"))
    if sys.argv[1] == "write":
        write(opened, sys.argv[3])
    else:
        read(opened)
