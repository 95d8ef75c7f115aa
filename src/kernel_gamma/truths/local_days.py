"""The mind's days around a moment, and what one time expression says about them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

__all__ = ["Calendar", "Mark", "in_part", "one_day"]


@dataclass(frozen=True, slots=True)
class Mark:
    """What one expression says."""

    at: int
    to: int
    days: tuple[date, date] | None = None
    """Local days, the second one exclusive."""
    span: tuple[datetime, datetime] | None = None
    """Instants, where no whole days are meant."""
    minutes: tuple[int, int] | None = None
    """Of the day, from midnight; equal ones are a moment."""
    kind: str = "days"
    """days, weekday, week, span, part (of a day), daypart (of a known day), clock, dayclock, weak (a clock
    only if a word or a day beside it says so)."""
    vague: bool = False
    """The hour may be of either half of the day."""
    free: tuple[int, int] | None = None
    """Month and day (0 = all of it) whose year is not named."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The mind's days around a moment."""

    now: datetime

    @property
    def today(self) -> date:
        return self.now.date()

    def at(self, day: date, minutes: int = 0, *, late: bool = False) -> datetime:
        """The moment of a wall time; `late` takes the second one of an hour told twice. A wall time that
        does not exist is the moment at which the clocks were moved."""
        wall = datetime.combine(day, time()) + timedelta(minutes=minutes)
        both = [wall.replace(tzinfo=self.now.tzinfo, fold=fold).astimezone(UTC) for fold in (0, 1)]
        return (max(both) if late else both[0]).astimezone(self.now.tzinfo)

    def before(self, length: timedelta) -> datetime:
        """So long ago, in real time."""
        return (self.now.astimezone(UTC) - length).astimezone(self.now.tzinfo)

    def month(self, year: int, month: int) -> tuple[date, date]:
        """All days of a month; months beyond 1-12 are of other years."""
        year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
        return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)

    def resolve(self, free: tuple[int, int], year: int | None = None) -> tuple[date, date]:
        """The days of a month, or of one day of it; without a year the last ones that have begun."""
        month, day = free
        for guess in [year] if year is not None else range(self.today.year, self.today.year - 9, -1):
            try:
                days = one_day(date(guess, month, day)) if day else self.month(guess, month)
            except ValueError:  # the 29th of February
                continue
            if year is not None or days[0] <= self.today:
                return days
        raise ValueError("no such day")

    def period(self, unit: str, step: int) -> tuple[date, date]:
        """The week, month, quarter or year that lies `step` after this one."""
        today = self.today
        if unit == "month":
            return self.month(today.year, today.month + step)
        if unit == "quarter":
            first = 3 * ((today.month - 1) // 3) + 1 + 3 * step
            return self.month(today.year, first)[0], self.month(today.year, first + 2)[1]
        if unit == "year":
            return date(today.year + step, 1, 1), date(today.year + step + 1, 1, 1)
        monday = today - timedelta(days=today.weekday() - 7 * step)
        if unit == "weekend":
            return monday + timedelta(days=5), monday + timedelta(days=7)
        return monday, monday + timedelta(days=7)


def one_day(day: date) -> tuple[date, date]:
    """The day and the one after it."""
    return day, day + timedelta(days=1)


def in_part(minutes: int, part: tuple[int, int]) -> int:
    """The wall time of either half of the day that lies in, or nearest to, a part of the day."""
    guesses = [minutes % 720 + half for half in (0, 720, 1440)]
    return min(guesses, key=lambda guess: max(part[0] - guess, guess - part[1] + 1, 0))
