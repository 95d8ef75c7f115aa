"""The hour that autumn tells twice: moments of one zone compare by wall clock in Python, ours must not."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.transfer import export_jsonl, import_jsonl

ZONE = ZoneInfo("America/New_York")


def at(hour: int, minute: int) -> datetime:
    return datetime(2026, 11, 1, hour, minute, tzinfo=UTC).astimezone(ZONE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteTruths]:
    opened = open_truths(tmp_path / "memory.db", SystemClock("America/New_York"))
    opened.upsert(NewTruth(key="incident.first", value="disk full", timestamp=at(5, 50)))
    opened.upsert(NewTruth(key="incident.second", value="disk gone", timestamp=at(6, 10)))
    yield opened
    opened.close()


@pytest.mark.parametrize("query", ["", "disk"])
def test_a_range_across_the_doubled_hour_holds_both_tellings(store: SqliteTruths, query: str) -> None:
    found = store.search(Search(query=query, start=at(5, 30), end=at(6, 30)))
    assert {one.truth.key for one in found.results} == {"incident.first", "incident.second"}
    assert found.total == 2


@pytest.mark.parametrize("query", ["", "disk"])
def test_a_range_within_one_telling_leaves_the_other_out(store: SqliteTruths, query: str) -> None:
    found = store.search(Search(query=query, start=at(5, 40), end=at(5, 55)))
    assert [one.truth.key for one in found.results] == ["incident.first"]
    assert found.total == 1


def test_an_export_of_that_hour_comes_in_again_without_a_conflict(store: SqliteTruths) -> None:
    out = io.BytesIO()
    export_jsonl(store, out)
    report = import_jsonl(store, io.BytesIO(out.getvalue()), zone=ZONE)
    assert (report.same, report.conflict_count) == (2, 0)
