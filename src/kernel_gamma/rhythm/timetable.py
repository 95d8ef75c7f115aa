"""What is due, what comes next, and how far each rule is settled. Pure: the scheduler and the CLI ask it.

A rule is settled `through` a moment: every slot up to it has struck, was skipped or was held back. That one
moment makes a slot strike once, whatever the clock does: one set back only waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.rhythm.rules import Rule
from kernel_gamma.rhythm.slots import slot_name, slot_of_name, utc_of

__all__ = ["MOST_AT_ONCE", "Due", "Holds", "Settled", "State", "due", "read_holds", "read_state", "upcoming"]

MOST_AT_ONCE = 64
"""Slots of one rule that strike in one go; the rest follows at once."""
TOO_FAR_AHEAD = timedelta(days=2)
"""Settled further ahead than this: a clock that stood wrong has been set right."""
_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Settled:
    """How far one rule is, and what became of its slots since it is known."""

    through: datetime
    last: datetime | None = None
    """The newest slot that struck."""
    struck: int = 0
    idle: int = 0
    """Of those, the ones since whose forerunner nothing had happened."""
    skipped: int = 0
    last_skipped: datetime | None = None
    seen: int = 0
    """What NodePorts.last_happening said at the last slot."""

    def as_json(self) -> dict[str, Json]:
        """For rhythm/state.json."""
        return {
            "through": slot_time(self.through),
            "last": slot_time(self.last),
            "struck": self.struck,
            "idle": self.idle,
            "skipped": self.skipped,
            "last_skipped": slot_time(self.last_skipped),
            "seen": self.seen,
        }


@dataclass(frozen=True, slots=True)
class State:
    """rhythm/state.json."""

    rules: Mapping[str, Settled] = field(default_factory=dict)
    reminders: Mapping[str, datetime] = field(default_factory=dict)
    """Reminders that come again: the moment each is settled through."""

    def as_json(self) -> dict[str, Json]:
        return {
            "rules": {name: settled.as_json() for name, settled in self.rules.items()},
            "reminders": {name: slot_time(through) for name, through in self.reminders.items()},
        }


@dataclass(frozen=True, slots=True)
class Holds:
    """What a person holds back: control/skip.json and rhythm/paused.json."""

    skips: Mapping[str, frozenset[datetime]] = field(default_factory=dict)
    """Single slots by rule."""
    paused: frozenset[str] = frozenset()
    """Rules that do not strike; `*`: none does."""

    def pauses(self, name: str) -> bool:
        return name in self.paused or "*" in self.paused

    def skips_slot(self, name: str, slot: datetime) -> bool:
        return slot in self.skips.get(name, ())


@dataclass(frozen=True, slots=True)
class Due:
    """What a moment brings for one rule."""

    strikes: tuple[datetime, ...]
    skipped: tuple[datetime, ...]
    """Missed, and too late or not caught up with; the oldest ones first."""
    held: tuple[datetime, ...]
    """A person has skipped them, or paused the rule."""
    through: datetime


def due(rule: Rule, through: datetime, now: datetime, *, punctual: timedelta, holds: Holds) -> Due:
    """Which slots of (through, now] strike. `punctual`: what is no later than this was not missed.

    Of many that were missed only so many are named, the newest for sure.
    """
    now = now.astimezone(UTC)
    slots = list(_slots(rule, through, now))
    end = slots[-1] if slots else through
    held = [s for s in slots if holds.pauses(rule.name) or holds.skips_slot(rule.name, s)]
    kept = [s for s in slots if s not in set(held)]
    strikes = [s for s in kept if now - s <= punctual]
    missed = kept[: len(kept) - len(strikes)]
    if rule.catch_up == "all":
        strikes = [s for s in missed if now - s <= rule.grace] + strikes
    elif rule.catch_up == "last" and missed and not strikes and now - missed[-1] <= rule.grace:
        strikes = [missed[-1]]
    if len(strikes) > MOST_AT_ONCE:
        strikes = strikes[:MOST_AT_ONCE]
        end = strikes[-1]
    struck = set(strikes)
    skipped = tuple(s for s in missed if s not in struck and s <= end)
    return Due(tuple(strikes), skipped, tuple(s for s in held if s <= end), end)


def _slots(rule: Rule, through: datetime, now: datetime) -> Iterable[datetime]:
    """All slots of the span; of more than can be counted the newest, found by going back from now."""
    found: list[datetime] = []
    for slot in takewhile(lambda s: s <= now, rule.slots(through)):
        found.append(slot)
        if len(found) == _COUNTED:
            first, span = found[0], found[-1] - found[0]
            newest = [s for s in takewhile(lambda s: s <= now, rule.slots(now - span)) if s > found[-1]]
            return [first, *newest] if newest else found
    return found


def upcoming(
    rule: Rule, settled: Settled | None, now: datetime, holds: Holds, count: int = 1
) -> list[datetime]:
    """The next slots that will strike; none while the rule is paused."""
    if holds.pauses(rule.name):
        return []
    start = now if settled is None or settled.through - now > TOO_FAR_AHEAD else max(settled.through, now)
    found: list[datetime] = []
    for slot in rule.slots(start):
        if not holds.skips_slot(rule.name, slot):
            found.append(slot)
        if len(found) == count:
            break
    return found


def read_state(document: Json) -> State:
    """What rhythm/state.json says; whatever it says wrongly is not known."""
    said = document if isinstance(document, dict) else {}
    rules, reminders = _object(said.get("rules")), _object(said.get("reminders"))
    found = {name: _settled(entry) for name, entry in rules.items()}
    moments = {name: _moment(text) for name, text in reminders.items()}
    return State(
        {name: settled for name, settled in found.items() if settled is not None},
        {name: moment for name, moment in moments.items() if moment is not None},
    )


def _settled(entry: Json) -> Settled | None:
    said = _object(entry)
    through = _moment(said.get("through"))
    if through is None:
        return None
    settled = Settled(through, _moment(said.get("last")), last_skipped=_moment(said.get("last_skipped")))
    counts = {key: said[key] for key in ("struck", "idle", "skipped", "seen") if type(said.get(key)) is int}
    return replace(settled, **counts)


def read_holds(skip: Json, paused: Json) -> Holds:
    """What control/skip.json and rhythm/paused.json say; whatever they say wrongly holds nothing back.

    `{"skip": {"hourly": ["20261201T020000Z"]}}` or one slot, `{"rule": "hourly", "slot": "…"}`; and
    `{"rules": ["hourly"]}`, where "*" stands for all.
    """
    said = _object(skip)
    skips = {name: _moments(slots) for name, slots in _object(said.get("skip")).items()}
    if isinstance(rule := said.get("rule"), str):
        skips[rule] = skips.get(rule, frozenset()) | _moments(said.get("slot"))
    names = _object(paused).get("rules")
    return Holds(
        skips, frozenset(n for n in names if isinstance(n, str)) if isinstance(names, list) else frozenset()
    )


def _moments(written: Json) -> frozenset[datetime]:
    found = (_moment(text) for text in (written if isinstance(written, list) else [written]))
    return frozenset(moment for moment in found if moment is not None)


def _moment(text: Json) -> datetime | None:
    """A slot's name, or RFC 3339 with its offset."""
    if not isinstance(text, str):
        return None
    return slot_of_name(text) or utc_of(text)


def slot_time(moment: datetime | None) -> str | None:
    """As it is written into rhythm/state.json: to the second, or exactly where there is a fraction."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat() if moment.microsecond else slot_name(moment)


def newest(names: Sequence[str]) -> dict[str, datetime]:
    """By rule the newest slot of files named `<rule>_<slot>.json`."""
    found: dict[str, datetime] = {}
    for name in names:
        rule, _, slot = name.partition(".")[0].rpartition("_")
        moment = slot_of_name(slot)
        if rule and moment is not None and moment > found.get(rule, moment - timedelta(1)):
            found[rule] = moment
    return found


def _object(found: Json) -> dict[str, Json]:
    return found if isinstance(found, dict) else {}
