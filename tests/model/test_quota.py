from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.model.quota import allow, day_of, left, needed_per_day, next_midnight


def may(spent: int, wanted: int, *, people: bool) -> bool:
    return allow(spent, wanted, per_day=1000, reserved_share=0.2, for_people=people)


def test_a_call_must_fit_into_what_is_left() -> None:
    assert may(900, 100, people=True)
    assert not may(900, 101, people=True)


def test_the_reserved_share_is_for_people_only() -> None:
    assert may(700, 100, people=False)
    assert not may(701, 100, people=False)
    assert may(701, 100, people=True)
    assert left(900, per_day=1000, reserved_share=0.2, for_people=False) == 0


@pytest.mark.parametrize("share", [0.0, 0.2, 0.3, 0.9])
def test_the_budget_that_is_named_as_enough_is_just_enough(share: float) -> None:
    for wanted in (1, 7, 1000, 6013):
        least = needed_per_day(wanted, reserved_share=share)
        assert least is not None
        fits = [
            allow(0, wanted, per_day=per_day, reserved_share=share, for_people=False)
            for per_day in (least - 1, least)
            if per_day
        ]
        assert fits[-1] and not any(fits[:-1])
    assert needed_per_day(1, reserved_share=1.0) is None


def test_zero_means_no_limit() -> None:
    assert allow(10**9, 10**9, per_day=0, reserved_share=0.2, for_people=False)
    assert left(5, per_day=0, reserved_share=0.2, for_people=True) is None


def test_the_day_ends_at_local_midnight_also_when_the_clocks_change() -> None:
    paris = ZoneInfo("Europe/Paris")
    assert day_of(datetime(2026, 11, 30, 23, 59, tzinfo=paris)) == "2026-11-30"
    assert next_midnight(datetime(2026, 11, 30, 23, 59, tzinfo=paris)).isoformat() == (
        "2026-12-01T00:00:00+01:00"
    )
    assert next_midnight(datetime(2026, 3, 29, 12, tzinfo=paris)).isoformat() == ("2026-03-30T00:00:00+02:00")
