from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.model.quota import allow, day_of, fits, left, needed_per_day, next_midnight, quiet_until


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


PARIS = ZoneInfo("Europe/Paris")


def until(hours: str, *at: int, fold: int = 0) -> str | None:
    found = quiet_until(datetime(*at, tzinfo=PARIS, fold=fold), hours)
    return None if found is None else found.isoformat()


def test_quiet_hours_may_lie_across_midnight() -> None:
    assert until("23:00-07:00", 2026, 11, 30, 22, 59) is None
    assert until("23:00-07:00", 2026, 11, 30, 23, 0) == "2026-12-01T07:00:00+01:00"
    assert until("23:00-07:00", 2026, 12, 1, 6, 59) == "2026-12-01T07:00:00+01:00"
    assert until("23:00-07:00", 2026, 12, 1, 7, 0) is None
    assert until("12:00-14:00", 2026, 12, 1, 13, 0) == "2026-12-01T14:00:00+01:00"
    assert until("12:00-14:00", 2026, 12, 1, 14, 0) is None
    assert quiet_until(datetime(2026, 12, 1, 3, tzinfo=PARIS), None) is None


def test_quiet_hours_on_the_days_when_the_clocks_change() -> None:
    assert until("22:00-06:00", 2026, 3, 29, 3, 30) == "2026-03-29T06:00:00+02:00"
    assert until("22:00-06:00", 2026, 10, 25, 2, 30, fold=1) == "2026-10-25T06:00:00+01:00"
    # 02:30 comes twice that night: the quiet hours end with the first and do not begin again
    assert until("22:00-02:30", 2026, 10, 25, 2, 10) == "2026-10-25T02:30:00+02:00"
    assert until("22:00-02:30", 2026, 10, 25, 2, 10, fold=1) is None
    # 02:30 does not come at all: they end half an hour after the leap
    assert until("22:00-02:30", 2026, 3, 29, 3, 10) == "2026-03-29T03:30:00+02:00"
    assert until("22:00-02:30", 2026, 3, 29, 3, 30) is None


def test_money_is_checked_like_tokens() -> None:
    assert fits(0.7, 0.1, limit=1.0, reserved_share=0.2)
    assert not fits(0.7, 0.2, limit=1.0, reserved_share=0.2)
    assert fits(0.7, 0.2, limit=1.0)
    assert fits(1e9, 1e9, limit=0.0, reserved_share=0.2)
