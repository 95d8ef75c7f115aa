"""A time word beside other words: the record of that time is found however many others say the same words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.fakes import START, FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.truths.store import SqliteTruths, open_truths

ROOT_CAUSE = "incident.startup_loop_20260911.root_cause"
SAID = ("启动", "失败", "startup", "failure", "任务", "result", "成功", "service", "端口", "retry")
CATEGORIES = ("task", "operation", "incident", "result", "error")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteTruths]:
    opened = open_truths(tmp_path / "memory.db", FakeClock())
    yield opened
    opened.close()


def put_all(store: SqliteTruths, truths: list[tuple[str, str, datetime]]) -> None:
    store.upsert_many([NewTruth(key=k, description=d, value=None, timestamp=at) for k, d, at in truths])


def fill(store: SqliteTruths, many: int) -> None:
    """Records of two months in which the words of the query are common, and 500 that say the same."""
    generator = random.Random(4)
    words = ["".join(generator.choices("bcdfghklmnprstvw", k=7)) for _ in range(3000)]
    step = timedelta(days=59) / many
    portion: list[tuple[str, str, datetime]] = []
    for number in range(many - 500):
        text = f"{generator.choice(SAID)} {' '.join(generator.choices(words, k=6))} {generator.choice(SAID)}"
        key = f"{CATEGORIES[number % 5]}.s{number % 40}.n{number}"
        portion.append((key, text, START - timedelta(days=60) + number * step))
        if len(portion) == 5000:
            put_all(store, portion)
            portion = []
    put_all(store, portion)
    begin = START - timedelta(days=2)
    times = [begin + number * timedelta(minutes=3) for number in range(500)]
    reports = [
        (f"inspection.hourly.{at:%Y%m%dT%H%M%SZ}", f"巡检正常 inspection {n} cpu {n % 97} 节点 {n % 5}", at)
        for n, at in enumerate(times)
    ]
    put_all(store, reports)


def found_among(store: SqliteTruths, many: int) -> None:
    fill(store, many)
    yesterday, long_ago = START - timedelta(days=1), START - timedelta(days=40)
    put_all(store, [(ROOT_CAUSE, "启动失败 startup failure: 端口 8080 被占用", yesterday)])
    put_all(store, [("incident.long_ago", "启动失败 startup failure: 证书过期", long_ago)])
    for query in ("昨天 启动失败", "yesterday startup failure"):
        finding = store.search(Search(query=query, task_type="ops_debug"))
        assert finding.results[0].truth.key == ROOT_CAUSE, query
    for query in ("巡检正常", "inspection cpu"):
        reports = [
            one
            for one in store.search(Search(query=query)).results
            if one.truth.key.startswith("inspection.")
        ]
        assert [one.count for one in reports] == [500], query


def test_yesterdays_incident_is_found_among_twenty_thousand(store: SqliteTruths) -> None:
    found_among(store, 20_000)


@pytest.mark.slow
def test_yesterdays_incident_is_found_among_a_hundred_thousand(store: SqliteTruths) -> None:
    found_among(store, 100_000)
