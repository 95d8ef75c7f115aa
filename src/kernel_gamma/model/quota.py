"""The day's budget of tokens. Pure: numbers and a moment in, a verdict out."""

from __future__ import annotations

import math
from datetime import datetime, time, timedelta

__all__ = ["allow", "day_of", "left", "needed_per_day", "next_midnight"]


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
