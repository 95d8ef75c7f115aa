from __future__ import annotations

import shutil
import zoneinfo
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import time_machine

from kernel_gamma.rhythm.clock import SystemClock, TrialClock, clock_for, system_zone
from kernel_gamma.settings import ClockSettings

SUMMER = datetime(2026, 7, 1, 12, tzinfo=UTC)
WINTER = datetime(2026, 12, 1, 12, tzinfo=UTC)


def zone_file(name: str) -> Path:
    return Path(str(files("tzdata").joinpath("zoneinfo", name)))


def test_the_system_clock_tells_the_time_in_the_zone_of_the_mind() -> None:
    clock = SystemClock("Asia/Shanghai")
    with time_machine.travel("2026-11-30T02:30:05+00:00", tick=False):
        assert clock.now().isoformat() == "2026-11-30T10:30:05+08:00"
    assert clock.zone == ZoneInfo("Asia/Shanghai")


def test_the_system_clock_follows_summer_time() -> None:
    clock = SystemClock("Europe/Berlin")
    offsets = []
    for moment in (SUMMER, WINTER):
        with time_machine.travel(moment, tick=False):
            offsets.append(clock.now().utcoffset())
    assert offsets == [timedelta(hours=2), timedelta(hours=1)]


def test_monotonic_never_steps_back() -> None:
    clock = SystemClock("UTC")
    first = clock.monotonic()
    assert clock.monotonic() >= first


def test_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(zoneinfo.ZoneInfoNotFoundError):
        SystemClock("Mars/Olympus")


@pytest.mark.parametrize(
    "tz", ["America/New_York", ":America/New_York", "/usr/share/zoneinfo/America/New_York"]
)
def test_tz_names_the_zone(tz: str, tmp_path: Path) -> None:
    assert system_zone({"TZ": tz}, tmp_path / "none") == ZoneInfo("America/New_York")


def test_an_empty_tz_is_utc(tmp_path: Path) -> None:
    assert system_zone({"TZ": ""}, tmp_path / "none").utcoffset(SUMMER) == timedelta(0)


def test_a_tz_that_names_no_zone_falls_back_to_an_offset(tmp_path: Path) -> None:
    zone = system_zone({"TZ": "XYZ-3:30"}, tmp_path / "none")
    assert zone.utcoffset(SUMMER) is not None


def test_localtime_that_is_a_link_gives_the_name(tmp_path: Path) -> None:
    target = tmp_path / "zoneinfo" / "Europe"
    target.mkdir(parents=True)
    shutil.copy(zone_file("Europe/Berlin"), target / "Berlin")
    link = tmp_path / "localtime"
    link.symlink_to(target / "Berlin")
    assert system_zone({}, link) == ZoneInfo("Europe/Berlin")


def test_localtime_that_is_a_copy_still_knows_summer_time(tmp_path: Path) -> None:
    copy = tmp_path / "localtime"
    shutil.copy(zone_file("Europe/Berlin"), copy)
    zone = system_zone({}, copy)
    assert zone.utcoffset(SUMMER.replace(tzinfo=None)) == timedelta(hours=2)
    assert zone.utcoffset(WINTER.replace(tzinfo=None)) == timedelta(hours=1)


@pytest.mark.parametrize("content", [None, b"", b"no zone"])
def test_without_a_usable_localtime_there_is_still_an_offset(content: bytes | None, tmp_path: Path) -> None:
    localtime = tmp_path / "localtime"
    if content is not None:
        localtime.write_bytes(content)
    assert system_zone({}, localtime).utcoffset(SUMMER) is not None


class Stopwatch:
    """Real seconds, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_trial_time_starts_where_it_is_told_and_runs_at_its_rate() -> None:
    start = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)
    real = Stopwatch()
    clock = TrialClock(start, 3600.0, ZoneInfo("Asia/Shanghai"), real)
    assert clock.now().isoformat() == "2026-11-30T15:00:00+08:00"
    real.seconds += 2
    assert clock.now() - start == timedelta(hours=2)
    assert clock.monotonic() == real.seconds
    assert clock.zone == ZoneInfo("Asia/Shanghai")


def test_trial_time_crosses_the_change_to_winter_time_without_a_jump() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    real = Stopwatch()
    clock = TrialClock(datetime(2026, 10, 25, 1, 30, tzinfo=berlin), 3600.0, berlin, real)
    real.seconds += 2
    assert clock.now().isoformat() == "2026-10-25T02:30:00+01:00"


def test_settings_choose_the_clock() -> None:
    assert isinstance(clock_for(ClockSettings(zone="UTC")), SystemClock)
    trial = clock_for(ClockSettings(zone="Asia/Shanghai", trial=True, start="2026-11-30T08:00:00", rate=2))
    assert isinstance(trial, TrialClock)
    assert trial.now().isoformat().startswith("2026-11-30T08:00:0")
    assert trial.now().utcoffset() == timedelta(hours=8)


def test_a_trial_without_a_start_begins_now() -> None:
    with time_machine.travel(WINTER, tick=False):
        moment = clock_for(ClockSettings(zone="UTC", trial=True)).now()
    assert WINTER <= moment < WINTER + timedelta(hours=1)


def test_no_zone_in_the_settings_is_the_zone_of_the_system() -> None:
    assert clock_for(ClockSettings()).now().utcoffset() is not None
