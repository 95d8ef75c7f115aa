"""What is asked of every event from outside: is it a loop, is it one more of a series? Pure.

One Gate serves one batch: what it decided of the first event it knows when it sees the second. What must be
remembered is collected in `claims` and goes into the batch's commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kernel_gamma.contracts.effects import Claim
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.events import ParsedEvent
from kernel_gamma.contracts.payloads import Event
from kernel_gamma.loops.circuits import (
    Kind,
    acted_key,
    circuit_key,
    held,
    is_open,
    run_key,
    tripped,
    turns_of,
)
from kernel_gamma.loops.own_words import Echo, echo_of, saying
from kernel_gamma.loops.series import foldable, series_key, taken_in, told
from kernel_gamma.settings import LoopSettings

__all__ = ["Gate", "Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of an event."""

    passes: bool
    hops: int = 0
    """Of an event that passes: an echo goes on with the trace it came from."""
    reason: str = ""
    """Why it does not pass, in a few words, for the ack and the trace."""
    into: str | None = None
    """The event it is told with."""
    tells: Event | None = None
    """A folded event whose time has come with this one."""


@dataclass(slots=True)
class Gate:
    """Created for each batch."""

    rules: LoopSettings
    now: datetime
    seen: Callable[[str], Mapping[str, Json] | None]
    new_id: Callable[[str], str]
    claims: dict[str, Claim] = field(default_factory=dict)
    trips: list[Mapping[str, Json]] = field(default_factory=list)
    """Circuits that opened now."""

    def _state(self, key: str) -> Mapping[str, Json] | None:
        claim = self.claims.get(key)
        return claim.value if claim is not None else self.seen(key)

    def _remember(self, claim: Claim) -> None:
        self.claims[claim.key] = claim

    def waits(self, event: Event, accepted_at: datetime) -> Mapping[str, Json] | None:
        """The circuit behind which an event waits, because she and its source excite one another.

        What waited passes when the circuit is half open; the next turn opens it again, for longer.
        """
        if event.trust == "owner" and event.is_message:
            return None
        rules, now = self.rules, self.now
        acted = self._state(acted_key(event.session))
        if acted is None:
            return None
        key = circuit_key("turns", event.session, event.from_)
        circuit = self._state(key)
        if is_open(circuit, now):
            return circuit
        if turns_of(acted, event.from_, now, rules.window_sec) < rules.max_turns:
            return None
        if circuit is not None and accepted_at.timestamp() <= float(circuit["until"]):
            return None
        return self._trip("turns", event, circuit)

    def _trip(self, kind: Kind, event: Event, before: Mapping[str, Json] | None) -> Mapping[str, Json]:
        claim = tripped(
            before, kind=kind, session=event.session, source=event.from_, now=self.now, rules=self.rules
        )
        self._remember(claim)
        self.trips.append(claim.value)
        return claim.value

    def judge(self, one: ParsedEvent) -> Verdict:
        """Whether an event that does not wait is perceived."""
        verdict = self._echo(one)
        if not verdict.passes or not self.rules.fold_window_sec or not foldable(one.event):
            return verdict
        came = taken_in(
            self._state(series_key(one.event)),
            one.event,
            now=self.now,
            rules=self.rules,
            new_ids=(self.new_id("evt"), self.new_id("trace")),
        )
        self._remember(came.claim)
        if came.into is None:
            return verdict
        tells = None
        if came.due:
            tells, after = told(came.claim.value, self.now, self.rules)
            self._remember(after)
        return Verdict(False, reason=f"folded into {came.into}", into=came.into, tells=tells)

    def _echo(self, one: ParsedEvent) -> Verdict:
        event, passes = one.event, Verdict(True, hops=one.hops)
        said = saying(event.text) if self.rules.echo_hours and event.text else None
        echo = echo_of(said, self.seen) if said is not None else None
        if echo is not None and one.own_name:
            return Verdict(False, reason="an echo of her own words, under her own name")
        run = run_key(event.session, event.from_)
        fresh = echo is not None and self.now.timestamp() - echo.at <= self.rules.window_sec
        if echo is None or (echo.short and not (fresh and echo.session == event.session)):
            if self._count(run):
                self._remember(self._run_of(run, 0))
            return passes
        return self._came_back(one, echo, run, max(one.hops, echo.hops + 1 if fresh else 1))

    def _came_back(self, one: ParsedEvent, echo: Echo, run: str, hops: int) -> Verdict:
        """Her own words under another name: a few are perceived, then the circuit opens."""
        event, rules = one.event, self.rules
        circuit = self._state(circuit_key("echo", event.session, event.from_))
        count = self._count(run) + (0 if echo.short else 1)
        too_many = count > rules.max_echoes or hops > rules.max_hops
        if circuit is not None and is_open(circuit, self.now):
            self._remember(held(circuit, self.now, rules))
        elif circuit is not None and too_many and not circuit["passed"]:
            self._remember(held(circuit, self.now, rules, passed=True))
            return Verdict(True, hops=hops)
        elif too_many:
            self._trip("echo", event, circuit)
        else:
            self._remember(self._run_of(run, count))
            return Verdict(True, hops=hops)
        return Verdict(False, reason=f"an echo of her own words from {event.from_}, whose circuit is open")

    def _count(self, run: str) -> int:
        found = self._state(run)
        return int(found["count"]) if found else 0

    def _run_of(self, run: str, count: int) -> Claim:
        return Claim(key=run, value={"count": count}, hours=self.rules.window_sec / 3600, renew=True)
