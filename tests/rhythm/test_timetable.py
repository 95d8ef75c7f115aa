"""What is due of a rule after absences and on clocks that are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kernel_gamma.errors import SettingsError
from kernel_gamma.rhythm.rules import Rule, load_rules
from kernel_gamma.rhythm.timetable import Holds, due, read_holds, read_state, upcoming

NOON = datetime(2026, 12, 4, 12, 0, tzinfo=UTC)
PUNCTUAL = timedelta(seconds=30)


def rule(**given: Any) -> Rule:
    entry = {"name": "eight", "cron": "0 8 * * *", "text": {"en": "Eight.", "zh": "八点。"}} | given
    (found,) = load_rules({"rules": [entry]}, "rhythm.yaml", UTC)
    return found


def days(slots: tuple[datetime, ...]) -> list[int]:
    return [slot.day for slot in slots]


@pytest.mark.parametrize(
    ("catch_up", "grace", "struck", "skipped"),
    [
        ("none", None, [], [2, 3, 4]),
        ("last", "6 hours", [4], [2, 3]),
        ("last", "1 hour", [], [2, 3, 4]),
        ("all", None, [2, 3, 4], []),
        ("all", "30 hours", [3, 4], [2]),
    ],
)
def test_three_days_away(catch_up: str, grace: str | None, struck: list[int], skipped: list[int]) -> None:
    found = due(
        rule(catch_up=catch_up, grace=grace),
        NOON - timedelta(days=3),
        NOON,
        punctual=PUNCTUAL,
        holds=Holds(),
    )
    assert (days(found.strikes), days(found.skipped)) == (struck, skipped)
    again = due(rule(catch_up=catch_up), found.through, NOON, punctual=PUNCTUAL, holds=Holds())
    assert again.strikes == again.skipped == ()


def test_a_clock_set_back_an_hour_strikes_nothing_twice_and_one_set_ahead_a_day_is_an_absence() -> None:
    hourly = rule(cron="0 * * * *", grace="30 min")
    first = due(hourly, NOON - timedelta(minutes=5), NOON, punctual=PUNCTUAL, holds=Holds())
    assert first.strikes == (NOON,)
    for minutes in range(-60, 60):
        now = NOON + timedelta(minutes=minutes)
        assert due(hourly, first.through, now, punctual=PUNCTUAL, holds=Holds()).strikes == ()
    ahead = NOON + timedelta(days=1, minutes=5)
    found = due(hourly, first.through, ahead, punctual=PUNCTUAL, holds=Holds())
    assert found.strikes == (NOON + timedelta(days=1),) and len(found.skipped) == 23


def test_on_a_quick_trial_clock_none_of_many_slots_is_lost() -> None:
    hourly = rule(cron="0 * * * *")
    found = due(hourly, NOON - timedelta(days=1), NOON, punctual=timedelta(days=2), holds=Holds())
    assert len(found.strikes) == 24 and found.skipped == ()


def test_very_many_slots_strike_in_portions_or_are_counted_up_to_a_bound() -> None:
    everyone = rule(cron="* * * * *", catch_up="all")
    through, struck = NOON - timedelta(hours=3), 0
    while (found := due(everyone, through, NOON, punctual=PUNCTUAL, holds=Holds())).strikes:
        struck, through = struck + len(found.strikes), found.through
    assert struck == 180
    year = due(rule(cron="* * * * *"), NOON - timedelta(days=30), NOON, punctual=PUNCTUAL, holds=Holds())
    assert year.strikes == (NOON,) and len(year.skipped) <= 10_001


def test_what_a_person_holds_back_does_not_strike() -> None:
    hourly = rule(name="hourly", cron="0 * * * *")
    holds = read_holds({"skip": {"hourly": ["20261204T120000Z"]}}, None)
    found = due(hourly, NOON - timedelta(minutes=5), NOON, punctual=PUNCTUAL, holds=holds)
    assert (found.strikes, found.held, found.through) == ((), (NOON,), NOON)
    assert upcoming(hourly, None, NOON - timedelta(minutes=5), holds) == [NOON + timedelta(hours=1)]
    for names in (["hourly"], ["*"]):
        paused = read_holds(None, {"rules": names})
        assert upcoming(hourly, None, NOON, paused) == []
        assert due(hourly, NOON - timedelta(hours=1), NOON, punctual=PUNCTUAL, holds=paused).strikes == ()


@pytest.mark.parametrize("document", [None, 3, [], {"rules": 3}, {"rules": {"a": {"through": "soon"}}}])
def test_a_broken_state_is_not_known(document: Any) -> None:
    assert read_state(document).rules == {}
    assert read_holds(document, document).skips == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cron": "0 0 31 2 *"}, "eight.cron"),
        ({"zone": "Asia/Shangai"}, "did you mean Asia/Shanghai?"),
        ({"grace": "soon"}, "eight.grace"),
        ({"active": "10:00-12:00"}, "eight.active: no slot"),
        ({"text": {"en": "Eight."}}, "eight.text.zh: is missing"),
        ({"crom": "0 8 * * *"}, "did you mean cron?"),
        ({"name": "reminder"}, "that of reminders"),
    ],
)
def test_a_wrong_rule_is_told_by_file_and_key(change: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError) as error:
        rule(**change)
    assert "rhythm.yaml" in str(error.value) and told in str(error.value)
