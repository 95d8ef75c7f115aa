"""`kgamma rhythm`: the rules, their next slots, and what a person holds back. Needs no daemon."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from kernel_gamma.bus.files import move, write_whole
from kernel_gamma.bus.signals import read_folder, read_signal
from kernel_gamma.cli.home import Place, open_place
from kernel_gamma.cli.terminal import Failed, HomeOption, JsonOption, print_json, print_table, say
from kernel_gamma.configuration import Home
from kernel_gamma.contracts.envelope import Json, encode_document, rfc3339
from kernel_gamma.rhythm.ids import UlidIds
from kernel_gamma.rhythm.reminders import REMINDERS, Reminder, next_of, read_reminders
from kernel_gamma.rhythm.rules import REMINDER, Rule, day_of, read_rules, spoken_language
from kernel_gamma.rhythm.slots import slot_name
from kernel_gamma.rhythm.timetable import Holds, State, read_holds, read_state, upcoming
from kernel_gamma.self_stream.stream import SelfStream

__all__ = ["app", "fire", "next_slots"]

app = typer.Typer(rich_markup_mode=None)
rhythm = typer.Typer(
    help="What strikes, and when: list, next, skip, pause, resume, cancel.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(rhythm, name="rhythm")

_SKIP, _PAUSED = "control/skip.json", "rhythm/paused.json"
_SHOWN = 10
_KEPT = timedelta(days=7)
"""How long a slot that was skipped stays named: a mind that was away may yet look back on it."""

RuleArgument = Annotated[str, typer.Argument(metavar="RULE", show_default=False)]
RuleOrAll = Annotated[
    str, typer.Argument(metavar="[RULE]", help="All rules unless named.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class _Board:
    """Rules, how far they are, and what is held back."""

    place: Place
    rules: tuple[Rule, ...]
    state: State
    holds: Holds

    def coming(self, rule: Rule, count: int = 1) -> list[datetime]:
        now = self.place.clock.now().astimezone(UTC)
        return upcoming(rule, self.state.rules.get(rule.name), now, self.holds, count)

    def rule(self, name: str) -> Rule:
        found = next((rule for rule in self.rules if rule.name == name), None)
        if found is None:
            known = ", ".join(rule.name for rule in self.rules) or "none"
            raise Failed(f"there is no rule {name}; there are {known} (config/rhythm.yaml)")
        return found


def _board(place: Place) -> _Board:
    holds = read_holds(read_signal(place.data, _SKIP), read_signal(place.data, _PAUSED))
    state = read_state(read_signal(place.data, "rhythm/state.json"))
    return _Board(place, read_rules(Home(place.home).config_dir, place.clock.zone), state, holds)


def next_slots(place: Place, count: int = _SHOWN) -> list[dict[str, Any]]:
    """The next slots of all rules, `{"rule", "at", "slot"}`, the soonest first. Raises SettingsError."""
    board = _board(place)
    found = [(slot, rule) for rule in board.rules for slot in board.coming(rule, count)]
    found.sort(key=lambda one: (one[0], one[1].name))
    return [
        {"rule": rule.name, "at": rfc3339(slot.astimezone(rule.zone)), "slot": slot_name(slot)}
        for slot, rule in found[:count]
    ]


def fire(place: Place, name: str, *, sender: str) -> str:
    """Let a rule strike now, whatever its slots; the name of the file that was dropped. Raises Failed."""
    rule = _board(place).rule(name)
    now, ids = place.clock.now(), UlidIds(place.clock)
    ends = time.fromisoformat(place.settings.rhythm.day_ends_at)
    language = spoken_language(place.settings.language, SelfStream(place.self_dir))
    payload = {
        "rule": rule.name,
        "slot": slot_name(now),
        "text": rule.told(now, language, ends),
        "day": str(day_of(now, ends)),
        "from": sender,
        "idle": False,
    }
    envelope = {
        "id": ids.new("evt"),
        "timestamp": rfc3339(now),
        "source_node": "kgamma",
        "source_type": "rhythm",
        "session_key": f"rhythm:{rule.name}",
    }
    dropped = f"{ids.new('fired')}.json"
    _write(place.data, f"rhythm/triggers/{dropped}", {"envelope": envelope, "payload": payload})
    return dropped


@rhythm.command("list")
def list_rules(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Every rule with its next slot and what became of the last ones; and the reminders that wait."""
    place = open_place(home)
    board = _board(place)
    found = [_told(board, rule) for rule in board.rules]
    waiting = [
        _told_reminder(board, reminder) for reminder in read_reminders(read_folder(place.data, REMINDERS))
    ]
    waiting.sort(key=lambda one: str(one["at"]))
    if as_json:
        print_json(found + waiting)
        return
    rows = [
        [
            one["rule"],
            one["cron"],
            one["next"] or "paused",
            str(one["struck"]),
            str(one["idle"]),
            str(one["skipped"]),
        ]
        for one in found
    ]
    print_table(["rule", "cron", "next", "struck", "of them idle", "skipped"], rows)
    if waiting:
        say("")
        shown = [[one["reminder"], one["next"], one["cron"] or "once", one["text"]] for one in waiting]
        print_table(["reminder", "next", "cron", "text"], shown)


def _told_reminder(board: _Board, reminder: Reminder) -> dict[str, Any]:
    zone = board.place.clock.zone
    coming = next_of(reminder, board.state.reminders.get(reminder.id), zone)
    return {
        "rule": REMINDER,
        "reminder": reminder.id,
        "at": slot_name(coming),
        "next": rfc3339(coming.astimezone(zone)),
        "cron": reminder.cron.text if reminder.cron is not None else None,
        "text": reminder.text,
        "session": reminder.session,
        "trust": reminder.trust,
    }


@rhythm.command()
def cancel(
    reminder: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """A reminder does not come any more; its file moves to rhythm/reminders/done/."""
    place = open_place(home)
    waiting = [one.id for one in read_reminders(read_folder(place.data, REMINDERS))]
    if reminder not in waiting:
        known = ", ".join(waiting) or "none"
        raise Failed(f"there is no reminder {reminder}; there are {known} (kgamma rhythm list)")
    folder, name = place.data / REMINDERS, f"{reminder}.json"
    day = str(place.clock.now().date())
    if not move(os.fsencode(folder / name), os.fsencode(folder / "done" / day / name)):
        raise Failed(f"{reminder} has just struck: there is nothing left to cancel")
    if as_json:
        print_json({"cancelled": reminder})
    else:
        say(f"cancelled {reminder}")


def _told(board: _Board, rule: Rule) -> dict[str, Any]:
    coming, settled = board.coming(rule), board.state.rules.get(rule.name)
    counts = settled.as_json() if settled is not None else {}
    return {
        "rule": rule.name,
        "cron": rule.cron.text,
        "zone": str(rule.zone),
        "catch_up": rule.catch_up,
        "grace_sec": int(rule.grace.total_seconds()),
        "always": rule.always,
        "paused": board.holds.pauses(rule.name),
        "next": rfc3339(coming[0].astimezone(rule.zone)) if coming else None,
        "last": counts.get("last"),
        "last_skipped": counts.get("last_skipped"),
        **{key: counts.get(key, 0) for key in ("struck", "idle", "skipped")},
    }


@rhythm.command("next")
def show_next(
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many.")] = _SHOWN,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The next slots of all rules."""
    found = next_slots(open_place(home), count)
    if as_json:
        print_json(found)
    else:
        print_table(["at", "rule"], [[one["at"], one["rule"]] for one in found])


@rhythm.command()
def skip(rule: RuleArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """The next slot of a rule does not strike."""
    place = open_place(home)
    board = _board(place)
    found = board.rule(rule)
    coming = board.coming(found)
    if not coming:
        raise Failed(f"{rule} is paused: it has no next slot to skip")
    oldest = place.clock.now() - _KEPT
    skips = {name: {s for s in slots if s > oldest} for name, slots in board.holds.skips.items()}
    skips.setdefault(rule, set()).add(coming[0])
    _write(place.data, _SKIP, {"skip": {n: sorted(map(slot_name, s)) for n, s in skips.items() if s}})
    told = {"rule": rule, "skipped": rfc3339(coming[0].astimezone(found.zone))}
    if as_json:
        print_json(told)
    else:
        say(f"{rule} does not strike at {told['skipped']}")


@rhythm.command()
def pause(rule: RuleOrAll = "*", home: HomeOption = None, as_json: JsonOption = False) -> None:
    """A rule, or all of them, does not strike until `resume`; what is missed then is not caught up with."""
    place = open_place(home)
    board = _board(place)
    name = rule if rule == "*" else board.rule(rule).name
    _pause(place, board.holds.paused | {name}, as_json)


@rhythm.command()
def resume(rule: RuleOrAll = "*", home: HomeOption = None, as_json: JsonOption = False) -> None:
    """A paused rule, or all of them, strikes again."""
    place = open_place(home)
    paused = _board(place).holds.paused
    if rule != "*" and "*" in paused:
        raise Failed("all rules are paused together: resume all of them, or none")
    _pause(place, frozenset() if rule == "*" else paused - {rule}, as_json)


def _pause(place: Place, paused: frozenset[str], as_json: bool) -> None:
    _write(place.data, _PAUSED, {"rules": sorted(paused)})
    if as_json:
        print_json({"paused": sorted(paused)})
    elif paused:
        say("paused: " + ("all rules" if "*" in paused else ", ".join(sorted(paused))))
    else:
        say("no rule is paused")


def _write(data: Path, path: str, document: Json) -> None:
    directory, _, name = path.rpartition("/")
    (data / directory).mkdir(parents=True, exist_ok=True)
    write_whole(os.fsencode(data / directory), name.encode(), encode_document(document))
