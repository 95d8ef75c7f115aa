"""config/rhythm.yaml: the rules of the rhythm, checked."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_gamma.configuration import defaults_dir, read_yaml
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language, language_of
from kernel_gamma.contracts.ports import SelfLog
from kernel_gamma.errors import SettingsError
from kernel_gamma.rhythm.slots import ActiveHours, BadCron, Cron, read_active_hours

__all__ = ["REMINDER", "CatchUp", "Rule", "day_of", "load_rules", "read_rules", "spoken_language"]

REMINDER = "reminder"
"""The name under which reminders are told; no rule may have it."""

CatchUp = Literal["none", "last", "all"]

_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?(s|sec|seconds?|min|minutes?|h|hours?|d|days?)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_GRACE: Mapping[str, str] = {"none": "0 s", "last": "1 hour", "all": "7 days"}
_TAIL_BYTES = 2000
_LOOKED_AT = 5000
"""Slots of a rule that are looked at for one within its active hours."""


class _Text(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    en: Annotated[str, Field(min_length=1)]
    zh: Annotated[str, Field(min_length=1)]


class _Written(BaseModel):
    """One entry of `rules:`."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,47}$")]
    cron: str
    text: _Text
    zone: str | None = None
    catch_up: CatchUp = "last"
    grace: str | None = None
    active: str | None = None
    always: bool = False
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """When something strikes, and what is said then."""

    name: str
    cron: Cron
    zone: tzinfo
    text: Mapping[str, str]
    """By language, en and zh; {date}, {time} and {day} stand for the slot's own."""
    catch_up: CatchUp = "last"
    """Of the slots missed: none, the last one, or all."""
    grace: timedelta = timedelta(hours=1)
    """How late a missed slot may be."""
    active: ActiveHours | None = None
    always: bool = False
    """It is perceived even if nothing has happened since its last slot."""

    def after(self, moment: datetime) -> datetime:
        """The first slot later than `moment`, in UTC."""
        return next(self.slots(moment))

    def slots(self, moment: datetime) -> Iterator[datetime]:
        """The slots later than `moment`, without end."""
        while True:
            moment = self.cron.after(moment, self.zone)
            if self.active is None or self.active.hold(moment.astimezone(self.zone)):
                yield moment

    def told(self, slot: datetime, language: Language, day_ends_at: time) -> str:
        """The text of one slot."""
        local = slot.astimezone(self.zone)
        values = {
            "date": str(local.date()),
            "time": f"{local:%H:%M}",
            "day": str(day_of(local, day_ends_at)),
        }
        return re.sub(r"\{(date|time|day)\}", lambda found: values[found[1]], self.text[language])


def spoken_language(setting: Literal["auto", "en", "zh"], log: SelfLog) -> Language:
    """In which language a slot is told: that of the settings, else the one the stream is written in."""
    if setting != "auto":
        return setting
    return language_of("\n".join(passage.text for passage in log.tail(_TAIL_BYTES)))


def day_of(local: datetime, day_ends_at: time) -> date:
    """The mind's day that a moment looks back on: at the very moment it ends it is still the one."""
    wall = local.replace(tzinfo=UTC, fold=0)
    ends = timedelta(hours=day_ends_at.hour, minutes=day_ends_at.minute)
    return (wall - ends - timedelta(microseconds=1)).date()


def read_rules(config_dir: Path, zone: tzinfo) -> tuple[Rule, ...]:
    """The rules of a home; the shipped ones where there is no rhythm.yaml yet. Raises SettingsError.

    `zone` is the mind's, for rules that name none.
    """
    file = config_dir / "rhythm.yaml"
    if not file.exists() and not file.is_symlink():  # a home that was laid out before there was one
        file = defaults_dir() / "config" / "rhythm.yaml"
    return load_rules(read_yaml(file), str(file), zone)


def load_rules(document: Mapping[str, Json], file: str, zone: tzinfo) -> tuple[Rule, ...]:
    """The enabled rules of a parsed file, in its order. Raises SettingsError naming the rule and the key."""
    for key in document:
        if key != "rules":
            raise SettingsError(file, str(key), "unknown key", "the file holds one key: rules")
    entries = document.get("rules") or []
    if not isinstance(entries, list):
        raise SettingsError(file, "rules", "must be a list of rules", "write - {name: …, cron: …, text: …}")
    written = [_written(file, number, entry) for number, entry in enumerate(entries)]
    seen: set[str] = set()
    for one in written:
        if one.name in seen or one.name == REMINDER:
            problem = "two rules have this name" if one.name in seen else "this name is that of reminders"
            raise SettingsError(file, one.name, problem, "give it another name")
        seen.add(one.name)
    return tuple(_rule(file, one, zone) for one in written if one.enabled)


def _written(file: str, number: int, entry: Json) -> _Written:
    name = entry.get("name", f"rules[{number}]") if isinstance(entry, dict) else f"rules[{number}]"
    try:
        return _Written.model_validate(entry)
    except ValidationError as error:
        # an unknown key comes first: it is mostly the missing one, misspelt
        first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        raise _explained(file, str(name), dict(first)) from None


def _explained(file: str, name: str, found: Mapping[str, Any]) -> SettingsError:
    key = ".".join(str(part) for part in found["loc"])
    where = f"{name}.{key}" if key else name
    if found["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, _Written.model_fields, 1)
        mend = f"did you mean {near[0]}?" if near else f"keys are {', '.join(_Written.model_fields)}"
        return SettingsError(file, where, "unknown key", mend)
    if found["type"] == "missing":
        mend = "every rule has a text in both languages" if "text" in found["loc"] else "write it"
        return SettingsError(file, where, "is missing", mend)
    if found["type"] == "string_pattern_mismatch":
        return SettingsError(file, where, "is no name", "use a-z, 0-9 and _, up to 48, a letter first")
    return SettingsError(file, where, str(found["msg"]).replace("Input should be", "must be"))


def _rule(file: str, written: _Written, zone: tzinfo) -> Rule:
    def refused(key: str, problem: object, mend: str) -> SettingsError:
        return SettingsError(file, f"{written.name}.{key}", str(problem), mend)

    try:
        cron = Cron(written.cron)
    except BadCron as error:
        raise refused("cron", error, "e.g. 0 8 * * * is every day at eight") from None
    if written.zone is not None:
        zone = _zone(written.zone, refused)
    active = None
    if written.active is not None:
        try:
            active = read_active_hours(written.active)
        except ValueError as error:
            raise refused("active", error, "write it in quotes: from, a dash, until") from None
    grace = _span(written.grace or _GRACE[written.catch_up])
    if grace is None:
        raise refused("grace", f"{written.grace!r} is no span of time", "write e.g. 30 min, 6 hours, 3 days")
    text = {"en": written.text.en, "zh": written.text.zh}
    rule = Rule(written.name, cron, zone, text, written.catch_up, grace, active, written.always)
    if active is not None and not _comes(rule, active):
        raise refused("active", "no slot of the rule lies within these hours", "change cron, or the hours")
    return rule


def _comes(rule: Rule, active: ActiveHours) -> bool:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    every = Rule(rule.name, rule.cron, rule.zone, rule.text)
    return any(active.hold(slot.astimezone(rule.zone)) for slot in islice(every.slots(start), _LOOKED_AT))


def _zone(name: str, refused: Any) -> tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        close = difflib.get_close_matches(name, zoneinfo.available_timezones(), 1)
        mend = f"did you mean {close[0]}?" if close else "write an IANA name like Asia/Shanghai"
        raise refused("zone", f"there is no time zone {name}", mend) from None


def _span(text: str) -> timedelta | None:
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        return None
    return timedelta(seconds=float(found[1]) * _UNITS[found[2][0]])
