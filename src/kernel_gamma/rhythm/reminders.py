"""Reminders: files in rhythm/reminders/ that strike once, or at each slot of a cron rule. Pure.

A reminder is never dropped: what was missed strikes late, once. One that strikes once then moves to
rhythm/reminders/done/<day>/; one that comes again stays until a person cancels it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.trust import TRUST_ORDER, Trust
from kernel_gamma.rhythm.slots import BadCron, Cron, slot_name, slot_of_name, utc_of

__all__ = ["REMINDERS", "Reminder", "due_slot", "next_of", "read_reminders", "struck_slots"]

REMINDERS = "rhythm/reminders"
"""Where they stand, below the data directory."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(?:_[A-Za-z0-9-]+)*")
_ID_CHARS = 80
_SOON = timedelta(hours=1)
_NEVER = datetime.min.replace(tzinfo=UTC)
_TOLD: Mapping[Language, tuple[str, str]] = {
    "en": ("Reminder (set {set}): {text}", "Reminder (set {set}, due {due}, it comes late): {text}"),
    "zh": ("提醒（{set} 定下）：{text}", "提醒（{set} 定下，应在 {due}，来晚了）：{text}"),
}


@dataclass(frozen=True, slots=True)
class Reminder:
    """What to say, when, and to whom; either `at` or `cron` is set."""

    id: str
    text: str
    asked: datetime
    session: str
    channel: str = "console"
    to: str | None = None
    """Who asked for it; a reply goes back to them."""
    trust: Trust = "unknown"
    """That of the event in which it was asked for."""
    at: datetime | None = None
    cron: Cron | None = None
    hops: int = 0
    """Of the action that set it."""

    def as_json(self) -> dict[str, Json]:
        """The file."""
        return {
            "id": self.id,
            "text": self.text,
            "at": rfc3339(self.at) if self.at is not None else None,
            "cron": self.cron.text if self.cron is not None else None,
            "asked": rfc3339(self.asked),
            "session": self.session,
            "channel": self.channel,
            "to": self.to,
            "trust": self.trust,
            "hops": self.hops,
        }

    def hops_at(self, slot: datetime) -> int:
        """One that was set to come soon carries the count on: she cannot wake herself without end."""
        soon = self.cron is None and slot - self.asked < _SOON
        return self.hops + 1 if soon else 0

    def trigger_name(self, slot: datetime) -> str:
        """Names the slot, so that it is known to have struck even without a state or a ledger."""
        return f"reminder_{slot_name(slot)}_{self.id}.json"

    def told(self, slot: datetime, language: Language, zone: tzinfo, *, late: bool) -> str:
        """The text of one slot."""
        asked, due = (f"{moment.astimezone(zone):%Y-%m-%d %H:%M}" for moment in (self.asked, slot))
        return _TOLD[language][late].format(set=asked, due=due, text=self.text)


def next_of(reminder: Reminder, through: datetime | None, zone: tzinfo) -> datetime:
    """When it strikes next, in UTC; `through`: settled up to that moment. It may lie in the past."""
    if reminder.cron is None:
        return (reminder.at or _NEVER).astimezone(UTC)
    return reminder.cron.after(through or reminder.asked, zone)


def due_slot(reminder: Reminder, through: datetime | None, now: datetime, zone: tzinfo) -> datetime | None:
    """The slot that strikes now: of several that were missed the newest. None: not yet."""
    slot = next_of(reminder, through, zone)
    if slot > now:
        return None
    if reminder.cron is None:
        return slot
    # Found by going back from now in growing steps: years of missed slots are not counted one by one.
    back = timedelta(minutes=1)
    while (start := now - back) > slot:
        if (found := reminder.cron.after(start, zone)) <= now:
            slot = found
            break
        back *= 2
    while (after := reminder.cron.after(slot, zone)) <= now:
        slot = after
    return slot


def read_reminders(files: Mapping[str, Json]) -> list[Reminder]:
    """Those that can be read, by the names of their files without .json, in the order of the names."""
    found = (_read(name, document) for name, document in sorted(files.items()))
    return [reminder for reminder in found if reminder is not None]


def _read(name: str, document: Json) -> Reminder | None:
    if not isinstance(document, dict) or not _ID.fullmatch(name) or len(name) > _ID_CHARS:
        return None
    text, at, cron = document.get("text"), utc_of(document.get("at")), _cron(document.get("cron"))
    if not isinstance(text, str) or not text.strip() or (at is None) == (cron is None):
        return None
    to, trust, hops = document.get("to"), document.get("trust"), document.get("hops")
    return Reminder(
        id=name,
        text=text.strip(),
        asked=utc_of(document.get("asked")) or at or datetime(2026, 1, 1, tzinfo=UTC),
        session=_word(document.get("session")) or "rhythm:reminder",
        channel=_word(document.get("channel")) or "console",
        to=_word(to),
        trust=next((level for level in TRUST_ORDER if level == trust), "unknown"),
        at=at,
        cron=cron,
        hops=hops if type(hops) is int and hops >= 0 else 0,
    )


def _word(found: Json) -> str | None:
    return found if isinstance(found, str) and found.strip() else None


def _cron(text: Json) -> Cron | None:
    try:
        return Cron(text) if isinstance(text, str) else None
    except BadCron:
        return None


def struck_slots(names: Sequence[str]) -> dict[str, datetime]:
    """By reminder the newest slot of triggers named `reminder_<slot>_<id>.json`."""
    found: dict[str, datetime] = {}
    for name in names:
        kind, _, rest = name.removesuffix(".json").partition("_")
        slot, _, reminder = rest.partition("_")
        moment = slot_of_name(slot)
        if kind == "reminder" and reminder and moment is not None:
            found[reminder] = max(moment, found.get(reminder, moment))
    return found
