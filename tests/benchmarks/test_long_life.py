"""A week of the life that benchmarks/long_life.py lives for months: everything it judges must hold."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from benchmarks.life.days import Calendar
from benchmarks.life.living import Life
from benchmarks.life.verdict import judge, table


@pytest.mark.slow
def test_a_week_with_kills_outages_and_idle_days_keeps_every_promise(tmp_path: Path) -> None:
    calendar = Calendar(7, 60, random.Random(1))
    account = Life(tmp_path, calendar, seconds_per_day=10).live()
    findings = judge(account, calendar)
    broken = [finding for finding in findings if not finding.holds]
    assert not broken, table(account, calendar, findings)
    assert account.kills == 2
    assert account.dropped == 300
