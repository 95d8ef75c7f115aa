"""The day's budget, and the hours that are quiet. Pure: numbers and a moment in, a verdict out."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta

__all__ = ["allow", "day_of", "fits", "left", "needed_per_day", "next_day_of", "next_midnight", "quiet_until"]


def fits(spent: float, wanted: float, *, limit: float, reserved_share: float = 0.0) -> bool:
    """Whether `wanted` (money) fits into what is left of the limit, the share aside; 0 = no limit."""
    return limit == 0 or wanted <= limit * (1 - reserved_share) - spent


def left(spent: int, *, per_day: int, reserved_share: float, for_people: bool) -> int | None:
    """Tokens that may still be used today; None = no limit. The reserved share is for people only."""
    if per_day == 0:
        return None
    usable = per_day if for_people else int(per_day * (1 - reserved_share))
    return max(usable - spent, 0)


def allow(spent: int, wanted: int, *, per_day: int, reserved_share: float, for_people: bool) -> bool:
    """Whether a call of about `wanted` tokens fits into what is left of the day."""
    rest = left(spent, per_day=per_day, reserved_share=reserved_share, for_people=for_people)
    return rest is None or wanted <= rest


def needed_per_day(wanted: int, *, reserved_share: float) -> int | None:
    """The least daily budget that covers such a call; None if the reserved share leaves nothing."""
    if reserved_share >= 1:
        return None
    least = math.ceil(wanted / (1 - reserved_share))
    while int(least * (1 - reserved_share)) < wanted:  # as `left` rounds
        least += 1
    return least


def day_of(now: datetime) -> str:
    """The local day of an aware moment, `YYYY-MM-DD`."""
    return now.date().isoformat()


def next_midnight(now: datetime) -> datetime:
    """When the next local day begins in the zone of the aware moment `now`."""
    return datetime.combine(now.date() + timedelta(days=1), time.min, tzinfo=now.tzinfo)


def next_day_of(now: datetime) -> str:
    """The local day after that of an aware moment."""
    return (now.date() + timedelta(days=1)).isoformat()


def quiet_until(now: datetime, hours: str | None) -> datetime | None:
    """When the quiet hours (`23:00-07:00`, local) that `now` falls into are over; None outside of them.

    They are spans between two moments: hours that come twice when the clocks are set back are quiet once,
    and a beginning or end that the clocks skip comes as late as if they had not been set.
    """
    if hours is None:
        return None
    begins, ends = (time.fromisoformat(part) for part in hours.split("-"))
    longer = timedelta(days=1 if ends <= begins else 0)
    for first in (now.date() - timedelta(days=1), now.date()):
        end = _moment(first + longer, ends, now)
        if _moment(first, begins, now) <= now.astimezone(UTC) < end:
            return end.astimezone(now.tzinfo)
    return None


def _moment(day: date, at: time, now: datetime) -> datetime:
    """In UTC: two aware moments of one zone are compared by their wall clocks."""
    return datetime.combine(day, at, tzinfo=now.tzinfo).astimezone(UTC)
