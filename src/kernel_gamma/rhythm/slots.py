"""When a cron rule is due, with summer time right. Pure: every moment is an argument and knows its offset.

Rules with fixed hours mean the clock on the wall: a time that is skipped in spring is due once, at the next
moment there is, and one that comes twice in autumn is due the first time only. Rules whose hour is `*` or
has a step follow the moments themselves: `0 * * * *` is due every sixty minutes, 23 or 25 times on such days.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo

from croniter import CroniterError, croniter

from kernel_gamma.contracts.envelope import Json

__all__ = ["ActiveHours", "BadCron", "Cron", "read_active_hours", "slot_name", "slot_of_name", "utc_of"]

_FIELDS = re.compile(r"[\w*,/#?-]+(?: [\w*,/#?-]+){4}")
_BY_CHANCE = re.compile(r"(?<![A-Za-z])[HhRr](?![A-Za-z])")
_BACK = timedelta(hours=3)
"""Longer than any change of summer time: what the wall shows again is looked at again."""
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d) ?- ?([01]\d|2[0-4]):([0-5]\d)")


class BadCron(ValueError):
    """`str()` says what is wrong with the expression."""


@dataclass(frozen=True, slots=True)
class ActiveHours:
    """Hours of the day, from the first up to the second; over midnight when the first is later."""

    first: time
    until: time
    """00:00 is the end of the day."""

    def hold(self, local: datetime) -> bool:
        """Whether a local moment lies within."""
        at = local.time().replace(tzinfo=None)
        if self.first < self.until:
            return self.first <= at < self.until
        return at >= self.first or at < self.until


def read_active_hours(text: str) -> ActiveHours:
    """`08:00-22:00`. Raises ValueError."""
    found = _HOURS.fullmatch(text.strip())
    if found is None or (found[3] == "24" and found[4] != "00"):
        raise ValueError(f"{text!r} is no span of hours like 08:00-22:00")
    return ActiveHours(time(int(found[1]), int(found[2])), time(int(found[3]) % 24, int(found[4])))


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields: minute, hour, day, month, weekday."""

    text: str
    by_wall: bool = field(init=False)
    """It names its hours: it follows the clock on the wall."""

    def __post_init__(self) -> None:
        """Raises BadCron, also for a day that never comes (31 February)."""
        words = " ".join(self.text.split())
        object.__setattr__(self, "text", words)
        if not _FIELDS.fullmatch(words):
            raise BadCron(f"{self.text!r} is no cron rule: write five fields, minute hour day month weekday")
        if _BY_CHANCE.search(words):
            raise BadCron(f"{self.text!r}: H and R stand for a moment by chance, and a slot must be certain")
        hour = words.split()[1]
        object.__setattr__(self, "by_wall", "*" not in hour and "/" not in hour)
        try:
            croniter(words, datetime(2026, 1, 1, tzinfo=UTC)).get_next(datetime)
        except (CroniterError, ValueError, KeyError) as error:
            raise BadCron(f"{self.text!r} is never due: {error}") from error

    def after(self, moment: datetime, zone: tzinfo) -> datetime:
        """The first slot later than `moment`, by the clock of `zone`; it wears UTC."""
        start = moment.astimezone(UTC)  # two moments of one zone would be compared by the wall
        return self._by_wall(start, zone) if self.by_wall else self._by_moment(start, zone)

    def between(self, after: datetime, until: datetime, zone: tzinfo) -> Iterator[datetime]:
        """Slots later than `after`, up to and with `until`, in order."""
        at = self.after(after, zone)
        while at <= until.astimezone(UTC):
            yield at
            at = self.after(at, zone)

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        """Times on the wall later than `wall`. They wear UTC, so that no summer time disturbs their order."""
        walls = croniter(self.text, wall)
        while True:
            yield walls.get_next(datetime)

    def _by_wall(self, moment: datetime, zone: tzinfo) -> datetime:
        for wall in self._walls(_wall(moment, zone) - _BACK):
            if (found := _moment_at(wall, zone)) > moment:
                return found
        raise AssertionError("a rule that was due once is due again")

    def _by_moment(self, moment: datetime, zone: tzinfo) -> datetime:
        start, offset = moment, _offset(moment, zone)
        while True:
            found = next(self._walls(start + offset)) - offset
            if _offset(found, zone) == offset:
                return found
            # the clock is changed before: what follows is seen from there on, by the new one
            change = _change(start, found, zone)
            offset = _offset(change, zone)
            start = change - _SECOND


def slot_name(moment: datetime) -> str:
    """`20261130T100000Z`."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def slot_of_name(text: str) -> datetime | None:
    """The moment a slot's name stands for; None when it is none."""
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def utc_of(text: Json) -> datetime | None:
    """A moment in RFC 3339 with its offset, in UTC; None for anything else."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=UTC, fold=0)


def _moment_at(wall: datetime, zone: tzinfo) -> datetime:
    """When the wall first shows `wall`, or would have but for a change of the clock: the moment of that."""
    early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if _wall(early, zone) == wall:
        return early
    return _change(min(early, late), max(early, late), zone)


def _change(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The first moment, to the second, whose offset is not that of `before`."""
    offset = _offset(before, zone)
    low = before.astimezone(UTC)
    high = min(low + _DAY, after)
    while _offset(high, zone) == offset and high < after:
        low, high = high, min(high + _DAY, after)
    while high - low > _SECOND:
        middle = low + (high - low) / 2
        if _offset(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)
