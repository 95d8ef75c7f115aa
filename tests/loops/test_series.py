"""Near-identical events: a few are perceived, the rest are one event with their count."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from tests.fakes import START

from kernel_gamma.contracts.effects import Claim
from kernel_gamma.contracts.payloads import Event
from kernel_gamma.loops.series import Came, due_at, foldable, series_key, taken_in, told
from kernel_gamma.settings import LoopSettings

RULES = LoopSettings()


def event(text: str = "disk at 91 %", **fields: Any) -> Event:
    given = {"id": "e", "type": "disk.alarm", "text": text, "from": "web-01", "session": "ops", "time": START}
    return Event.model_validate(given | fields)


class Series:
    """Events that come one after the other."""

    def __init__(self, rules: LoopSettings = RULES) -> None:
        self.rules = rules
        self.now = START
        self.claim: Claim | None = None
        self._ids = count(1)

    def comes(self, one: Event) -> Came:
        before = self.claim.value if self.claim is not None else None
        n = next(self._ids)
        came = taken_in(before, one, now=self.now, rules=self.rules, new_ids=(f"evt_{n}", f"trace_{n}"))
        self.claim = came.claim
        return came

    def tell(self) -> Event:
        assert self.claim is not None
        found, self.claim = told(self.claim.value, self.now, self.rules)
        return found


def test_the_first_three_are_perceived_and_the_rest_are_one() -> None:
    series = Series()
    intos = [series.comes(event(f"disk at {90 + n} %")).into for n in range(6)]
    assert intos == [None, None, None, "evt_4", "evt_4", "evt_4"]
    series.now += timedelta(minutes=10)
    found = series.tell()
    assert found.text == "×3 since 10:30: disk at 95 %"
    assert (found.id, found.trace_id, found.type, found.from_) == ("evt_4", "trace_4", "disk.alarm", "web-01")
    assert found.data["folded"]["count"] == 3


def test_chinese_is_counted_in_chinese() -> None:
    series = Series()
    for number in range(5):
        series.comes(event(f"磁盘已用 {number} %"))
    assert series.tell().text == "自 10:30 起 ×2：磁盘已用 4 %"


def test_what_is_folded_is_due_after_the_window_and_not_forgotten_before() -> None:
    series = Series()
    for _ in range(4):
        series.comes(event())
    assert series.claim is not None
    assert due_at(series.claim.value) == START.timestamp() + 600
    assert series.claim.hours > 24 * 30
    series.tell()
    assert due_at(series.claim.value) is None and series.claim.hours == pytest.approx(600 / 3600)


def test_a_series_that_goes_on_is_told_more_and_more_rarely() -> None:
    series = Series()
    for _ in range(3):
        series.comes(event())
    windows = []
    for _ in range(5):
        series.comes(event())
        assert series.claim is not None
        windows.append(float(due_at(series.claim.value) or 0) - series.now.timestamp())
        series.tell()
    assert windows == [600, 1200, 2400, 3600, 3600]


def test_the_tenth_the_hundredth_and_so_on_is_told_at_once() -> None:
    series = Series()
    at_once = []
    for number in range(1, 1005):
        if series.comes(event()).due:
            at_once.append(number - 3)
            series.tell()
    assert at_once == [10, 100, 1000]


def test_one_that_comes_when_the_time_is_past_brings_the_rest_along() -> None:
    series = Series()
    for _ in range(4):
        series.comes(event())
    series.now += timedelta(hours=1)
    assert series.comes(event()).due


@pytest.mark.parametrize(
    "other",
    [
        event("disk is full"),
        event("磁盘已满"),
        event(**{"from": "web-02"}),
        event(session="home"),
        event(type="disk.ok"),
        event(trust="web"),
        event(data={"mount": "/home"}),
    ],
)
def test_whatever_differs_in_more_than_numbers_is_another_series(other: Event) -> None:
    assert series_key(other) != series_key(event())


def test_numbers_times_and_ids_make_no_difference() -> None:
    one = event("job 12 failed at 10:30:01", data={"id": 7, "at": "2026-11-30T10:30:01Z"})
    two = event("job 13 failed at 11:42:55", data={"id": 8, "at": "2026-11-30T11:42:55Z"})
    assert series_key(one) == series_key(two)


@pytest.mark.parametrize(
    "never",
    [
        event(type="message"),
        event(type="message.private"),
        event(type="rhythm.hourly"),
        event(type="action.failed"),
        event(attachments=[{"url": "https://x.example/a.png"}]),
    ],
)
def test_messages_the_clock_and_her_own_doings_are_never_folded(never: Event) -> None:
    assert not foldable(never)
    assert foldable(event())
