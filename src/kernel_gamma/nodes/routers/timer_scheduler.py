"""Due slots → rhythm/triggers/<rule>_<slot>.json, each once. How far it is stands in rhythm/state.json.

The state is written by the very commit that writes the triggers: either both stand, or neither.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

from kernel_gamma.contracts.effects import Batch, Effect, Emit, Move, Outcome, Overwrite, Record
from kernel_gamma.contracts.envelope import rfc3339
from kernel_gamma.contracts.language import language_of
from kernel_gamma.nodes.base import Node
from kernel_gamma.rhythm.reminders import (
    REMINDERS,
    Reminder,
    due_slot,
    next_of,
    read_reminders,
    struck_slots,
)
from kernel_gamma.rhythm.rules import REMINDER, Rule, day_of, spoken_language
from kernel_gamma.rhythm.slots import slot_name
from kernel_gamma.rhythm.timetable import (
    MOST_AT_ONCE,
    TOO_FAR_AHEAD,
    Due,
    Holds,
    Settled,
    State,
    due,
    newest,
    read_holds,
    read_state,
)

__all__ = ["TimerScheduler"]

_PUNCTUAL_SEC = 30.0
"""Real seconds: what is no later was not missed."""


class TimerScheduler(Node):
    """Time as a sense: the rules of config/rhythm.yaml strike, and so do reminders."""

    emit = ("rhythm/triggers/*.json",)
    heeds = (REMINDERS,)

    def next_beat(self, now: datetime) -> datetime | None:
        """The earliest slot that is not settled; at once for a rule that is not known yet."""
        state = self._state()
        moments = [self._wanted(rule, state.rules.get(rule.name), now) for rule in self.ports.rhythm]
        zone = self.ports.clock.zone
        for reminder in read_reminders(self.ports.reminders()):
            moments.append(next_of(reminder, self._through(reminder, state, now), zone))
        return min(moments).astimezone(now.tzinfo) if moments else None

    def _wanted(self, rule: Rule, settled: Settled | None, now: datetime) -> datetime:
        if settled is None or settled.through - now > TOO_FAR_AHEAD:
            return now.astimezone(UTC)
        return rule.after(settled.through)

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        now, state, holds = self.ports.clock.now().astimezone(UTC), self._state(), self._holds()
        known: dict[str, datetime] | None = None
        effects: list[Effect] = []
        settled: dict[str, Settled] = {}
        for rule in self.ports.rhythm:
            before = state.rules.get(rule.name)
            if before is None:
                known = newest(self.ports.triggers_made()) if known is None else known
                before = Settled(known.get(rule.name, now))
            if before.through - now > TOO_FAR_AHEAD:
                effects.append(self._set_right(rule, before, now))
                before = replace(before, through=now)
            found = due(rule, before.through, now, punctual=self._punctual(), holds=holds)
            settled[rule.name] = self._settle(rule, before, found, effects)
        after = State(settled, self._remind(state, now, effects))
        if after != state:
            effects.append(Overwrite(path="rhythm/state.json", document=after.as_json()))
        return Outcome.of(*effects)

    def _settle(self, rule: Rule, before: Settled, found: Due, effects: list[Effect]) -> Settled:
        seen = self.ports.last_happening()
        idle = 0
        for slot in found.strikes:
            # of several slots at once only the first can have something to look back on
            quiet = not rule.always and (before.seen == seen or seen == 0 or slot != found.strikes[0])
            idle += quiet
            effects.append(self._trigger(rule, slot, idle=quiet))
        if idle and self.ports.settings.rhythm.idle == "note":
            value = {"rule": rule.name, "slots": idle, "last": slot_name(found.strikes[-1])}
            effects.append(
                Record(category="metrics", value=value, description=f"{rule.name}: idle", trust="owner")
            )
        for slots, why in ((found.skipped, "missed"), (found.held, "held back by a person")):
            if slots:
                value = {"rule": rule.name, "count": len(slots), "why": why}
                value |= {"first": slot_name(slots[0]), "last": slot_name(slots[-1])}
                told = f"{rule.name}: {len(slots)} skipped, {why}"
                effects.append(Record(category="operation", value=value, description=told, trust="owner"))
        strikes = found.strikes
        return replace(
            before,
            through=found.through,
            last=strikes[-1] if strikes else before.last,
            struck=before.struck + len(strikes),
            idle=before.idle + idle,
            skipped=before.skipped + len(found.skipped) + len(found.held),
            last_skipped=found.skipped[-1] if found.skipped else before.last_skipped,
            seen=seen if strikes else before.seen,
        )

    def _trigger(self, rule: Rule, slot: datetime, *, idle: bool) -> Emit:
        ends = time.fromisoformat(self.ports.settings.rhythm.day_ends_at)
        local = slot.astimezone(rule.zone)
        language = spoken_language(self.ports.settings.language, self.ports.self_log)
        payload = {
            "rule": rule.name,
            "slot": slot_name(slot),
            "text": rule.told(slot, language, ends),
            "time": rfc3339(local),
            "day": str(day_of(local, ends)),
            "idle": idle,
        }
        return Emit(
            directory="rhythm/triggers",
            payload=payload,
            name=f"{rule.name}_{slot_name(slot)}.json",
            source_type="rhythm",
            session_key=f"rhythm:{rule.name}",
            trust="owner",
        )

    def _through(self, reminder: Reminder, state: State, now: datetime) -> datetime | None:
        through = state.reminders.get(reminder.id)
        return now if through is not None and through - now > TOO_FAR_AHEAD else through

    def _remind(self, state: State, now: datetime, effects: list[Effect]) -> dict[str, datetime]:
        """Let the reminders strike that are due; how far each is settled that comes again."""
        settled: dict[str, datetime] = {}
        struck: dict[str, datetime] | None = None
        many = 0
        for reminder in read_reminders(self.ports.reminders()):
            through = self._through(reminder, state, now)
            slot = due_slot(reminder, through, now, self.ports.clock.zone)
            if slot is not None and many < MOST_AT_ONCE:
                many += 1
                struck = struck_slots(self.ports.triggers_made()) if struck is None else struck
                before = struck.get(reminder.id)
                if before is None or before < slot.replace(microsecond=0):
                    effects.append(self._reminding(reminder, slot, now))
                if reminder.cron is None:
                    name = f"{reminder.id}.json"
                    day = now.astimezone(self.ports.clock.zone).date()
                    effects.append(Move(path=f"{REMINDERS}/{name}", to=f"{REMINDERS}/done/{day}/{name}"))
                through = slot
            if reminder.cron is not None and through is not None:
                settled[reminder.id] = through
        return settled

    def _reminding(self, reminder: Reminder, slot: datetime, now: datetime) -> Emit:
        zone, language = self.ports.clock.zone, self.ports.settings.language
        spoken = language_of(reminder.text) if language == "auto" else language
        late = now - slot > self._punctual()
        payload = {
            "rule": REMINDER,
            "slot": slot_name(slot),
            "text": reminder.told(slot, spoken, zone, late=late),
            "time": rfc3339(slot.astimezone(zone)),
            "channel": reminder.channel,
            "reminder": reminder.id,
            "late_sec": int((now - slot).total_seconds()) if late else 0,
            "idle": False,
        }
        if reminder.to is not None:
            payload["from"] = reminder.to
        return Emit(
            directory="rhythm/triggers",
            payload=payload,
            name=reminder.trigger_name(slot),
            source_type="rhythm",
            session_key=reminder.session,
            hops=reminder.hops_at(slot),
            trust=reminder.trust,
        )

    def _set_right(self, rule: Rule, before: Settled, now: datetime) -> Record:
        value = {"rule": rule.name, "was_through": slot_name(before.through), "now": slot_name(now)}
        told = f"{rule.name}: the clock stood wrong; its slots count from now"
        return Record(category="operation", value=value, description=told, trust="owner")

    def _punctual(self) -> timedelta:
        return timedelta(seconds=_PUNCTUAL_SEC * self.ports.settings.clock.per_real_sec)

    def _state(self) -> State:
        return read_state(self.ports.signal("rhythm/state.json"))

    def _holds(self) -> Holds:
        return read_holds(self.ports.signal("control/skip.json"), self.ports.signal("rhythm/paused.json"))
