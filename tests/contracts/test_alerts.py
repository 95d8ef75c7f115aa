"""Alerts: written on a change only, closed by the key they have, and gone from the prompts then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from tests.fakes import START, FakeClock

from kernel_gamma.context.core_alerts import core_alerts
from kernel_gamma.contracts.alerts import Finding, changes, standing
from kernel_gamma.contracts.effects import Record
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.truths.store import SqliteTruths, open_truths

STUCK = Finding("queue.stuck:outbox", "the outbox is stuck", "core")
FULL = Finding("disk.low:data", "the disk is nearly full")
ALL = ("queue.stuck", "disk.low")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteTruths]:
    found = open_truths(tmp_path / "memory.db", FakeClock())
    yield found
    found.close()


def write(store: SqliteTruths, records: Sequence[Record]) -> None:
    at = START + timedelta(hours=store.page(limit=1)[0])  # looks are an hour apart
    for one in records:
        trust = one.trust or "unknown"
        store.upsert(NewTruth(value=dict(one.value), category=one.category, timestamp=at, trust=trust))


def check(store: SqliteTruths, *findings: Finding, checked: Sequence[str] = ALL) -> list[str]:
    records = changes(findings, standing(store.each("alert")), checked)
    write(store, records)
    return [f"{one.value['state']} {one.value['code']}" for one in records]


def shown(store: SqliteTruths) -> int:
    return len(core_alerts(store, now=START + timedelta(days=1), count=len, max_tokens=5000))


def test_an_alert_is_written_when_it_opens_and_when_it_closes_and_never_between(store: SqliteTruths) -> None:
    assert check(store) == []
    assert check(store, STUCK, FULL) == ["open disk.low:data", "open queue.stuck:outbox"]
    assert check(store, STUCK, FULL) == []
    assert check(store, FULL) == ["closed queue.stuck:outbox"]
    assert check(store, FULL) == []


def test_a_core_alert_is_in_the_prompts_until_it_closes(store: SqliteTruths) -> None:
    check(store, STUCK, FULL)
    assert shown(store) == 1
    check(store, FULL)
    assert shown(store) == 0


def test_what_was_wrong_before_opens_anew(store: SqliteTruths) -> None:
    check(store, STUCK)
    check(store)
    assert check(store, STUCK) == ["open queue.stuck:outbox"]
    assert shown(store) == 1


def test_what_could_not_be_looked_at_stays_open(store: SqliteTruths) -> None:
    check(store, STUCK)
    assert check(store, checked=["disk.low"]) == []
    assert shown(store) == 1


def test_alerts_of_others_are_left_alone(store: SqliteTruths) -> None:
    value = {"severity": "core", "code": "disk.low:data"}
    store.upsert(NewTruth(key="alert.disk.alpha", value=value, trust="owner"))
    store.upsert(NewTruth(key="alert.disk.beta", value={**value, "by": "inspector"}, trust="known"))
    assert check(store) == []
