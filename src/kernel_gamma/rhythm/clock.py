"""The only reader of the clock. The rest of the code is handed a Clock and asks it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from kernel_gamma.contracts.ports import Clock
from kernel_gamma.settings import ClockSettings

__all__ = ["SystemClock", "TrialClock", "clock_for", "system_zone"]

_LOCALTIME = Path("/etc/localtime")
_ZONE_FOLDER = "zoneinfo/"


def clock_for(settings: ClockSettings) -> Clock:
    """The clock the settings ask for; they were checked when they were loaded."""
    if not settings.trial:
        return SystemClock(settings.zone)
    zone = _zone(settings.zone)
    if settings.start is None:
        return TrialClock(datetime.now(zone), settings.rate, zone)
    start = datetime.fromisoformat(settings.start)
    return TrialClock(start if start.tzinfo else start.replace(tzinfo=zone), settings.rate, zone)


class SystemClock:
    """The machine's time in the mind's zone."""

    def __init__(self, zone: str | None = None) -> None:
        """`zone` is an IANA name, None the system's. Raises ZoneInfoNotFoundError for an unknown one."""
        self._zone = _zone(zone)

    @property
    def zone(self) -> tzinfo:
        return self._zone

    def now(self) -> datetime:
        return datetime.now(self._zone)

    def monotonic(self) -> float:
        return time.monotonic()


class TrialClock:
    """A time of its own: from `start` on, `rate` trial seconds pass in one real second.

    `monotonic` stays in real seconds: it measures waits, and waits are real.
    """

    def __init__(
        self,
        start: datetime,
        rate: float,
        zone: tzinfo,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start` must be aware."""
        self._monotonic = monotonic
        self._start = start.astimezone(UTC)
        self._rate = rate
        self._zone = zone
        self._began = monotonic()

    @property
    def zone(self) -> tzinfo:
        return self._zone

    def now(self) -> datetime:
        # added in UTC: in a zone with summer time a sum of wall-clock hours would be off by one
        passed = timedelta(seconds=(self._monotonic() - self._began) * self._rate)
        return (self._start + passed).astimezone(self._zone)

    def monotonic(self) -> float:
        return self._monotonic()


def system_zone(environ: Mapping[str, str], localtime: Path = _LOCALTIME) -> tzinfo:
    """The system's zone with its rules for summer time wherever they can be found.

    TZ first (a name or a path, as libc reads it), then what `localtime` points to or holds, else the
    offset of this moment.
    """
    name = environ.get("TZ")
    if name is not None:
        return _from_tz(name.removeprefix(":"))
    target = os.path.realpath(localtime)
    if _ZONE_FOLDER in target:
        named = _named(target.split(_ZONE_FOLDER, 1)[1])
        if named is not None:
            return named
    return _from_file(Path(target)) or _offset_of_now()


def _zone(name: str | None) -> tzinfo:
    return ZoneInfo(name) if name else system_zone(os.environ)


def _from_tz(name: str) -> tzinfo:
    if not name:
        return UTC
    if name.startswith("/"):
        short = name.split(_ZONE_FOLDER, 1)[1] if _ZONE_FOLDER in name else ""
        return (_named(short) if short else None) or _from_file(Path(name)) or _offset_of_now()
    return _named(name) or _offset_of_now()


def _named(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name.removeprefix("posix/"))
    except (OSError, ValueError, KeyError):  # no such zone is a KeyError, a folder an OSError
        return None


def _from_file(path: Path) -> ZoneInfo | None:
    try:
        with path.open("rb") as file:
            return ZoneInfo.from_file(file, key=None)
    except (OSError, ValueError):
        return None


def _offset_of_now() -> tzinfo:
    return datetime.now().astimezone().tzinfo or UTC
