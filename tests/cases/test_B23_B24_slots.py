"""B23: both days on which the clock is changed. B24: hundreds of missed slots strike once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.rhythm.lives import life, state, triggers, until

from kernel_gamma.rhythm.slots import Cron

DAYS = [
    ("America/New_York", "2026-03-08", "2026-11-01", "30 1 * * *", "30 2 * * *", 23, 25),
    ("Europe/Berlin", "2026-03-29", "2026-10-25", "30 2 * * *", "30 2 * * *", 23, 25),
    ("Pacific/Auckland", "2026-09-27", "2026-04-05", "30 2 * * *", "30 2 * * *", 23, 25),
]


def _slots(cron: str, zone: str, day: str) -> list[datetime]:
    """All slots of a local day, by its own clock."""
    where = ZoneInfo(zone)
    begin = datetime.fromisoformat(day).replace(tzinfo=where)
    end = (begin.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=where)
    last = end.astimezone(UTC) - timedelta(seconds=1)
    found = Cron(cron).between(begin - timedelta(seconds=1), last, where)
    return [slot.astimezone(where) for slot in found]


@pytest.mark.parametrize(("zone", "spring", "autumn", "doubled", "skipped", "short", "long"), DAYS)
def test_B23_fixed_hours_strike_once_a_local_day_and_hours_by_star_follow_the_moments(
    zone: str, spring: str, autumn: str, doubled: str, skipped: str, short: int, long: int
) -> None:
    (in_spring,) = _slots(skipped, zone, spring)
    assert f"{in_spring:%H:%M}" == "03:00"
    (in_autumn,) = _slots(doubled, zone, autumn)
    assert in_autumn.fold == 0 and in_autumn.minute == 30
    assert (len(_slots("0 * * * *", zone, spring)), len(_slots("0 * * * *", zone, autumn))) == (short, long)


MINUTELY = """
rules:
  - {name: tick, cron: "* * * * *", text: {en: "A minute.", zh: "一分钟。"}}
"""


async def test_B24_five_hours_of_missed_minutes_strike_once(tmp_path: Path) -> None:
    async with life(tmp_path, "2026-12-01T07:00:10+08:00", rules=MINUTELY) as (mind, _):
        await until(lambda: "tick" in state(mind))
    async with life(tmp_path, "2026-12-01T12:02:45+08:00", rules=MINUTELY) as (mind, _):
        await until(lambda: state(mind)["tick"]["struck"])
        await mind.drained()
        assert triggers(mind, "tick") == ["20261201T040200Z"]
        assert state(mind)["tick"]["skipped"] == 301
