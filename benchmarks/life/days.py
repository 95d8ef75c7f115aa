"""What happens on each day: events with their moments, kills, outages, and days on which nothing comes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

__all__ = ["START", "ZONE", "Calendar", "Day", "Event", "expected_slots"]

ZONE = ZoneInfo("Europe/Berlin")
START = datetime(2026, 9, 14, 3, 0, tzinfo=ZONE)
"""A Monday; six weeks later summer time ends."""

_PEOPLE = ("alice", "bob", "小明", "王芳", "carol")
_EN = (
    "the order {word} is late, please look into it",
    "can you remember that {word} is the name of the new server?",
    "I think {word} was a good idea after all",
    "what do we know about {word}?",
)
_ZH = (
    "订单 {word} 迟到了，请查一下",
    "请记住新服务器的名字叫 {word}",
    "我觉得 {word} 其实是个好主意",
    "关于 {word} 我们知道些什么？",
)
_REPORTS = (
    ("disk-watch", "disk of web-{n} at {p} percent, all fine"),
    ("巡检", "{n} 号产线运行正常，压力 {p} 千帕，无报警"),
)


@dataclass(frozen=True)
class Event:
    """One drop."""

    number: int
    at: datetime
    """In UTC: sums of hours are right then."""
    document: dict[str, str]
    word: str
    """What finds it at the end; a report has none of its own: those that are alike are found as one."""


@dataclass(frozen=True)
class Day:
    """One day of the mind, from 03:00 to 03:00."""

    begins: datetime
    events: tuple[Event, ...]
    killed_at: datetime | None = None
    model_away: tuple[datetime, datetime] | None = None
    idle: bool = False
    quite_idle: bool = False
    """The day before was idle too: nothing at all is left to think about."""


class Calendar:
    """All days, made from a seed."""

    def __init__(self, days: int, events_per_day: int, chance: random.Random) -> None:
        self.days: list[Day] = []
        self._number = 0
        for index in range(days):
            begins = (START.astimezone(ZONE) + timedelta(days=index)).astimezone(UTC)
            idle = index % 7 in (5, 6)
            events = () if idle else self._events(begins, events_per_day, chance)
            killed = begins + timedelta(hours=chance.uniform(1, 20)) if index % 3 == 1 else None
            away = None
            if index % 10 == 3:
                first = begins + timedelta(hours=chance.uniform(4, 10))
                away = (first, first + timedelta(hours=6))
            self.days.append(Day(begins, events, killed, away, idle, idle and index % 7 == 6))
        self.ends = (START + timedelta(days=days)).astimezone(UTC)

    @property
    def events(self) -> list[Event]:
        return [event for day in self.days for event in day.events]

    def _events(self, begins: datetime, count: int, chance: random.Random) -> tuple[Event, ...]:
        moments = sorted(begins + timedelta(hours=chance.uniform(3, 20)) for _ in range(count))
        return tuple(self._event(at, chance) for at in moments)

    def _event(self, at: datetime, chance: random.Random) -> Event:
        self._number += 1
        if chance.random() < 0.6:
            source, text = chance.choice(_REPORTS)
            said = text.format(n=chance.randint(1, 4), p=chance.randint(20, 60))
            return Event(self._number, at, {"type": "report", "from": source, "text": said}, "")
        word = "".join(chance.choice("bcdfgklmnprstvz") + chance.choice("aeiou") for _ in range(4))
        word += str(self._number)
        said = chance.choice(_EN if chance.random() < 0.5 else _ZH).format(word=word)
        return Event(self._number, at, {"text": said, "from": chance.choice(_PEOPLE)}, word)


def expected_slots(first: datetime, last: datetime) -> dict[str, list[str]]:
    """Rule -> the slots that fall between two moments, as the names of their files tell them."""
    found: dict[str, list[str]] = {"hourly": [], "morning": [], "evening": [], "midnight": []}
    hour = first.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    while hour <= last:
        found["hourly"].append(_name(hour))
        hour += timedelta(hours=1)
    day: date = first.astimezone(ZONE).date()
    while day <= last.astimezone(ZONE).date():
        for rule, o_clock in (("morning", 8), ("evening", 22), ("midnight", 2)):
            slot = datetime(day.year, day.month, day.day, o_clock, tzinfo=ZONE)
            if first < slot <= last:
                found[rule].append(_name(slot))
        day += timedelta(days=1)
    return found


def _name(slot: datetime) -> str:
    return f"{slot.astimezone(UTC):%Y%m%dT%H%M%SZ}"
