"""What may be spent, asked before every call: tokens and money a day, tokens a rule, and quiet hours.

A day is the mind's local one. Its figures are those of the ledger, and of this process where the ledger
does not know of a call yet. If the clock was set back over midnight, what the later day has cost already
counts too: nothing is opened anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from kernel_gamma.contracts.ports import Clock, Spending
from kernel_gamma.errors import BudgetSpent, QuietHours
from kernel_gamma.model.quota import (
    allow,
    day_of,
    fits,
    needed_per_day,
    next_day_of,
    next_midnight,
    quiet_until,
)
from kernel_gamma.settings import BudgetSettings

__all__ = ["Amount", "Budget", "Reservation"]


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens, and the money they cost."""

    tokens: int = 0
    money: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.money + other.money)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.money - other.money)

    def at_least(self, other: Amount) -> Amount:
        """The larger of each."""
        return Amount(max(self.tokens, other.tokens), max(self.money, other.money))


@dataclass(slots=True)
class Reservation:
    """One call that is on its way."""

    spent: Amount = Amount()
    """What it has cost; set before it ends."""


@dataclass(slots=True)
class _Day:
    """What this process knows of one day, beside the ledger."""

    name: str
    before: Amount
    """The ledger's figure at our first call of the day."""
    used: Amount = Amount()
    """By our answered calls since; a call stands here before the ledger knows of it."""
    rules: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of a rhythm rule: the same two figures, in tokens."""


class Budget:
    """Created by the gateway; one event loop uses it."""

    def __init__(self, settings: BudgetSettings, clock: Clock, spending: Spending) -> None:
        self._settings = settings
        self._clock = clock
        self._spending = spending
        self._day: _Day | None = None
        self._in_flight = Amount()
        """Reserved for calls that have not ended."""
        self._rules_in_flight: dict[str, int] = {}

    @contextmanager
    def reserve(self, wanted: Amount, *, for_people: bool, rule: str) -> Iterator[Reservation]:
        """While it is open the amount counts as spent; at its end what the call has cost takes its place.

        Raises BudgetSpent or QuietHours.
        """
        self._check(wanted, for_people, rule)
        call = Reservation()
        self._in_flight += wanted  # before anything is awaited: the next check must see it
        self._rules_in_flight[rule] = self._rules_in_flight.get(rule, 0) + wanted.tokens
        try:
            yield call
        finally:
            self._in_flight -= wanted
            self._rules_in_flight[rule] -= wanted.tokens
            day = self._day_at(self._clock.now())
            day.used += call.spent
            if rule:
                before, used = self._of_rule(day, rule)
                day.rules[rule] = (before, used + call.spent.tokens)

    def _check(self, wanted: Amount, for_people: bool, rule: str) -> None:
        settings, now = self._settings, self._clock.now()
        if not for_people and (until := quiet_until(now, settings.quiet_hours)) is not None:
            raise QuietHours(
                f"until {until:%H:%M} only messages from people are thought about"
                f" (budget.quiet_hours: {settings.quiet_hours})",
                until=until,
                holds_all=False,
            )
        day, tomorrow = self._day_at(now), next_day_of(now)
        later = Amount(*self._spending.spent_on(tomorrow))
        spent = Amount(*self._spending.spent_on(day.name)).at_least(day.before + day.used)
        spent += later + self._in_flight
        reason = self._over_tokens(spent.tokens, wanted.tokens, for_people)
        reason = reason or self._over_money(spent.money, wanted.money, for_people)
        if not reason and rule and not for_people:
            reason = self._over_rule(day, tomorrow, wanted.tokens, rule)
        if reason:
            # Who waits for a call that may use less of the day must not hold up those who may use more.
            raise BudgetSpent(reason, until=next_midnight(now), holds_all=for_people)

    def _over_tokens(self, spent: int, wanted: int, for_people: bool) -> str:
        per_day = self._settings.tokens_per_day
        share = self._settings.reserved_for_people
        if allow(spent, wanted, per_day=per_day, reserved_share=share, for_people=for_people):
            return ""
        if not allow(0, wanted, per_day=per_day, reserved_share=share, for_people=for_people):
            return _too_small(wanted, per_day, 0 if for_people else share)
        return (
            f"today's budget does not cover this call: {spent} of {per_day} tokens are"
            f" used{_kept(share, for_people)}, about {wanted} are needed (budget.tokens_per_day)"
        )

    def _over_money(self, spent: float, wanted: float, for_people: bool) -> str:
        limit = self._settings.money_per_day
        share = 0.0 if for_people else self._settings.reserved_for_people
        if fits(spent, wanted, limit=limit, reserved_share=share):
            return ""
        if share >= 1:
            return _ALL_KEPT
        if not fits(0.0, wanted, limit=limit, reserved_share=share):
            return (
                f"budget.money_per_day is too small for this call on any day: {limit:g}"
                f"{_kept(share, for_people)}, about {wanted:.4g} is needed; in config/kernel.yaml set it"
                f" to at least {wanted / (1 - share):.4g} (0 = no limit) and start again"
            )
        return (
            f"today's budget does not cover this call: {spent:.4g} of {limit:g} is spent"
            f"{_kept(share, for_people)}, about {wanted:.4g} is needed (budget.money_per_day)"
        )

    def _over_rule(self, day: _Day, tomorrow: str, wanted: int, rule: str) -> str:
        limit = self._settings.per_rule.get(rule, 0)
        if not limit:
            return ""
        before, used = self._of_rule(day, rule)
        spent = max(self._spending.tokens_of_rule(day.name, rule), before + used)
        spent += self._spending.tokens_of_rule(tomorrow, rule) + self._rules_in_flight.get(rule, 0)
        if allow(spent, wanted, per_day=limit, reserved_share=0.0, for_people=True):
            return ""
        if wanted > limit:
            return (
                f"budget.per_rule.{rule} is too small for this call on any day: {limit} tokens, about"
                f" {wanted} are needed; in config/kernel.yaml set it to at least {wanted} (0 = no limit) and"
                " start again"
            )
        return (
            f"today's budget of the rule {rule} does not cover this call: {spent} of {limit} tokens are used,"
            f" about {wanted} are needed (budget.per_rule)"
        )

    def _day_at(self, now: datetime) -> _Day:
        name = day_of(now)
        if self._day is None or self._day.name != name:
            self._day = _Day(name, before=Amount(*self._spending.spent_on(name)))
        return self._day

    def _of_rule(self, day: _Day, rule: str) -> tuple[int, int]:
        if rule not in day.rules:
            day.rules[rule] = (self._spending.tokens_of_rule(day.name, rule), 0)
        return day.rules[rule]


def _kept(share: float, for_people: bool) -> str:
    return "" if for_people or not share else f", {share:.0%} of it kept for people"


_ALL_KEPT = (
    "budget.reserved_for_people keeps every day's tokens for people, and nobody waits for this"
    " call; in config/kernel.yaml set it below 1 and start again"
)


def _too_small(wanted: int, per_day: int, share: float) -> str:
    """Why no day's budget covers a call. `share`: what of it this call may not use."""
    least = needed_per_day(wanted, reserved_share=share)
    if least is None:
        return _ALL_KEPT
    kept = f", {share:.0%} of them kept for people by budget.reserved_for_people" if share else ""
    return (
        f"budget.tokens_per_day is too small for this call on any day: {per_day} tokens{kept},"
        f" about {wanted} are needed; in config/kernel.yaml set it to at least {least} (0 = no limit)"
        " and start again"
    )
