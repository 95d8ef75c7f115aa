from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import START, FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.truths.pruning import prune, prune_daily
from kernel_gamma.truths.retention import Retention, RetentionClass
from kernel_gamma.truths.store import SqliteTruths, open_truths

DAY = 86_400
PERMANENT = [
    "incident", "inspection", "task", "result", "operation", "deploy", "error", "alert", "decision", "risk",
    "style", "brand", "template", "spec", "unheard_of",
]  # fmt: skip
LIMITS = {"metrics": 30, "performance": 30, "debug": 7, "temp": 7, "assembly": 30}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SqliteTruths]:
    found = open_truths(tmp_path / "memory.db", clock)
    yield found
    found.close()


def keys(store: SqliteTruths) -> set[str]:
    return {truth.key for truth in store.each()}


def old(key: str, days: float, **more: object) -> NewTruth:
    return NewTruth(key=key, value={"note": "满了"}, timestamp=START - timedelta(days=days), **more)  # type: ignore[arg-type]


def day_of(number: int) -> list[NewTruth]:
    """One record of every category, at the same time of each day."""
    at = START + timedelta(days=number)
    return [
        NewTruth(key=f"{category}.day{number}", value=f"第 {number} 天: 温度 {number % 40}", timestamp=at)
        for category in (*PERMANENT, *LIMITS)
    ]


def test_over_a_year_exactly_what_its_class_keeps_is_there(store: SqliteTruths, clock: FakeClock) -> None:
    for block in range(0, 365, 73):
        days = range(block, block + 73)
        store.upsert_many([truth for day in days for truth in day_of(day)])
        store.put_own([NewTruth(key=f"diary.day{day}", value="it rained", level="L2") for day in days])
        for day in days:
            gone = prune(store, Retention.default(), clock.now())
            assert gone == {category: 1 for category, limit in LIMITS.items() if day > limit}
            clock.advance(DAY)
        expected = {f"{category}.day{day}" for day in range(days.stop) for category in (*PERMANENT, "diary")}
        for category, limit in LIMITS.items():
            expected |= {f"{category}.day{day}" for day in range(days.stop - 1 - limit, days.stop)}
        assert keys(store) == expected
    assert store.categories() == {
        **dict.fromkeys((*PERMANENT, "diary"), 365), "metrics": 31, "performance": 31, "assembly": 31,
        "debug": 8, "temp": 8,
    }  # fmt: skip
    report = store.verify()
    assert (report.ok, report.links) == (True, 365 * len(PERMANENT))


def test_what_was_pruned_is_not_found_any_more(store: SqliteTruths, clock: FakeClock) -> None:
    store.upsert_many([old("debug.a.x", 8), old("debug.a.y", 6)])
    assert prune(store, Retention.default(), clock.now()) == {"debug": 1}
    found = store.search(Search(query="满了", categories=["debug"]))
    assert [one.truth.key for one in found.results] == ["debug.a.y"]
    assert store.get("debug.a.x") is None
    assert store.versions("debug.a.x") == []


def test_the_limit_is_exact_to_the_microsecond(store: SqliteTruths, clock: FakeClock) -> None:
    tick = 1 / (DAY * 1_000_000)
    store.upsert_many([old("temp.before", 7 + tick), old("temp.at", 7), old("temp.after", 7 - tick)])
    assert prune(store, Retention.default(), clock.now()) == {"temp": 1}
    assert keys(store) == {"temp.at", "temp.after"}


def test_what_is_locked_stays_until_it_is_unlocked(store: SqliteTruths, clock: FakeClock) -> None:
    store.upsert_many([old("temp.kept", 99, locked=True), old("temp.gone", 99)])
    assert prune(store, Retention.default(), clock.now()) == {"temp": 1}
    assert prune(store, Retention.default(), clock.now()) == {}
    store.unlock("temp.kept")
    assert prune(store, Retention.default(), clock.now()) == {"temp": 1}
    assert keys(store) == set()


def test_a_dry_run_counts_the_same_and_deletes_nothing(store: SqliteTruths, clock: FakeClock) -> None:
    store.upsert_many([old(f"metrics.cpu.{n}", 40 - n) for n in range(20)])
    store.upsert_many([old("performance.p95", 50), old("performance.p95", 40), old("performance.p95", 1)])
    store.upsert_many([old("debug.twice", 50), old("debug.twice", 40)])
    told = prune(store, Retention.default(), clock.now(), dry_run=True)
    assert told == {"metrics": 10, "performance": 2, "debug": 1}
    assert len(keys(store)) == 22
    assert len(store.versions("performance.p95")) == 3
    assert prune(store, Retention.default(), clock.now()) == told


def test_old_versions_go_while_the_newest_stays(store: SqliteTruths, clock: FakeClock) -> None:
    for _ in range(40):
        store.upsert(NewTruth(key="metrics.disk.root", value={"free": clock.now().day}))
        clock.advance(DAY)
    assert prune(store, Retention.default(), clock.now()) == {"metrics": 10}
    versions = [truth.version for truth in store.versions("metrics.disk.root")]
    assert versions == list(range(11, 41))
    assert store.upsert(NewTruth(key="metrics.disk.root", value=0)).version == 41


def test_more_than_one_batch(store: SqliteTruths, clock: FakeClock) -> None:
    store.upsert_many([old(f"temp.n{n}", 9) for n in range(450)])  # all in one millisecond
    store.upsert_many([old("debug.again", 30 - n / 100) for n in range(450)])
    store.upsert(NewTruth(key="debug.again", value="now"))
    assert prune(store, Retention.default(), clock.now()) == {"temp": 450, "debug": 450}
    assert keys(store) == {"debug.again"}


def test_a_longer_prefix_keeps_its_own_limit(tmp_path: Path, clock: FakeClock) -> None:
    retention = Retention(
        (
            RetentionClass(("metrics",), 30, chain=False),
            RetentionClass(("metrics.keep",), chain=False),
            RetentionClass(("metrics.raw",), 2, chain=False),
            RetentionClass(("garden.pots",), 5, chain=False),
        )
    )
    store = open_truths(tmp_path / "memory.db", clock, retention=retention)
    folders = ("metrics", "metrics.keep", "metrics.raw", "garden", "garden.pots")
    names = [f"{folder}.d{age}" for folder in folders for age in (1, 4, 20, 90)]
    store.upsert_many([old(name, float(name.rpartition(".d")[2])) for name in names])
    gone = prune(store, retention, clock.now())
    assert gone == {"metrics": 1, "metrics.raw": 3, "garden.pots": 2}
    assert keys(store) == {
        "metrics.d1", "metrics.d4", "metrics.d20", "metrics.raw.d1", "garden.pots.d1", "garden.pots.d4",
        *(name for name in names if name.startswith(("metrics.keep.", "garden.d"))),
    }  # fmt: skip
    store.close()


def test_what_is_written_again_while_others_go_stays_by_the_limit_of_its_own_class(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, short = (
        RetentionClass(("metrics",), 30, chain=False),
        RetentionClass(("metrics.raw",), 2, chain=False),
    )
    store = open_truths(tmp_path / "memory.db", clock, retention=Retention((long, short)))
    store.upsert_many([old("metrics.a", 40), old("metrics.raw.a", 3)])
    delete = store.delete

    def meanwhile(keys: list[str], **more: Any) -> int:
        store.upsert(old("metrics.a", 20))  # younger than its own limit, older than that of metrics.raw.
        return delete(keys, **more)

    monkeypatch.setattr(store, "delete", meanwhile)
    prune(store, store.retention, clock.now())
    assert keys(store) == {"metrics.a"}
    store.close()


def test_what_was_sealed_before_its_class_was_shortened_stays(tmp_path: Path, clock: FakeClock) -> None:
    sealed = open_truths(tmp_path / "memory.db", clock)
    sealed.upsert_many([old("incident.sealed", 90), old("incident.both", 90)])
    sealed.close()
    shortened = Retention((RetentionClass(("incident",), 10, chain=False),))
    store = open_truths(tmp_path / "memory.db", clock, retention=shortened)
    store.upsert_many([old("incident.both", 80), old("incident.loose", 80)])
    assert prune(store, shortened, clock.now()) == {"incident": 1}
    assert keys(store) == {"incident.sealed", "incident.both"}
    assert store.verify().ok
    store.close()


def test_what_others_write_meanwhile_stays(tmp_path: Path, clock: FakeClock) -> None:
    one, other = (open_truths(tmp_path / "memory.db", clock) for _ in range(2))
    one.upsert_many([old(f"temp.n{n}", 9) for n in range(300)])
    other.upsert(NewTruth(key="temp.n7", value="written again"))
    prune(one, Retention.default(), clock.now())
    assert keys(other) == {"temp.n7"}
    one.close()
    other.close()


def test_a_day_is_pruned_once_whoever_asks(tmp_path: Path, clock: FakeClock) -> None:
    one, other = (open_truths(tmp_path / "memory.db", clock) for _ in range(2))
    one.upsert(old("temp.x", 8))
    assert prune_daily(one, Retention.default(), clock.now()) == {"temp": 1}
    one.upsert(old("temp.y", 8))
    clock.advance(3600)
    assert prune_daily(other, Retention.default(), clock.now()) is None
    clock.advance(DAY)
    assert prune_daily(other, Retention.default(), clock.now()) == {"temp": 1}
    one.close()
    other.close()


def test_an_empty_store_and_a_retention_without_limits(store: SqliteTruths, clock: FakeClock) -> None:
    assert prune(store, Retention.default(), clock.now()) == {}
    store.upsert(old("temp.x", 999))
    assert prune(store, Retention(()), clock.now()) == {}
