"""`kgamma budget`: what today has cost, what is left, and until when. Works without a daemon or a ledger."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

import typer

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.cli.home import Place, open_place, read_ledger
from kernel_gamma.cli.terminal import HomeOption, JsonOption, print_json, print_table, say
from kernel_gamma.contracts.envelope import rfc3339
from kernel_gamma.model.quota import day_of, next_midnight, quiet_until
from kernel_gamma.settings import BudgetSettings

__all__ = ["app", "budget_of"]

app = typer.Typer(rich_markup_mode=None)

_DAYS_SHOWN = 7


@app.command()
def budget(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """What models have cost today and in the last days, and what is left of the limits."""
    found = budget_of(open_place(home))
    if as_json:
        print_json(found)
    else:
        _show(found)


def budget_of(place: Place) -> dict[str, Any]:
    """Everything `budget --json` prints. `left` is None where there is no limit; money has no unit."""
    limits, now = place.settings.budget, place.clock.now()
    today = day_of(now)
    first = day_of(now - timedelta(days=_DAYS_SHOWN - 1))
    with read_ledger(place.data) as ledger:
        rows = _spending(ledger, today) if ledger is not None else []
        days = ledger.all("usage_since", first) if ledger is not None else []
    days = [row for row in days if row[0] <= today]
    tokens, money = next(((int(row[2]), float(row[3])) for row in days if row[0] == today), (0, 0.0))
    quiet = quiet_until(now, limits.quiet_hours)
    return {
        "day": today,
        "now": rfc3339(now),
        "resets_at": rfc3339(next_midnight(now)),
        "tokens": _against(tokens, limits.tokens_per_day, limits.reserved_for_people),
        "money": _against(money, limits.money_per_day, limits.reserved_for_people),
        "reserved_for_people": limits.reserved_for_people,
        "rules": {rule: _against(_of_rule(rows, rule), limit, 0) for rule, limit in _rules(limits, rows)},
        "quiet_hours": limits.quiet_hours,
        "quiet_until": rfc3339(quiet) if quiet is not None else None,
        "spent": [
            {
                "node": node,
                "role": role,
                "rule": rule or None,
                "calls": calls,
                "tokens": prompt + completion,
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "cached_tokens": cached,
                "money": cost,
            }
            for node, role, rule, calls, prompt, completion, cached, cost in rows
        ],
        "days": [
            {"day": day, "calls": calls, "tokens": tokens, "money": cost} for day, calls, tokens, cost in days
        ],
    }


def _spending(ledger: Ledger, day: str) -> list[tuple[Any, ...]]:
    try:
        return ledger.all("spending_on", day)
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return []  # no daemon of this version has opened it yet


def _rules(limits: BudgetSettings, rows: list[tuple[Any, ...]]) -> list[tuple[str, int]]:
    named = dict.fromkeys((*limits.per_rule, *(row[2] for row in rows if row[2])))
    return [(rule, limits.per_rule.get(rule, 0)) for rule in named]


def _of_rule(rows: list[tuple[Any, ...]], rule: str) -> int:
    return sum(row[4] + row[5] for row in rows if row[2] == rule)


def _against(spent: float, limit: float, kept: float) -> dict[str, Any]:
    """`left` is for messages from people, `left_for_others` for what nobody waits for."""
    if not limit:
        return {"spent": spent, "limit": None, "left": None, "left_for_others": None}
    others = limit * (1 - kept)
    others = int(others) if isinstance(limit, int) else others
    return {
        "spent": spent,
        "limit": limit,
        "left": max(limit - spent, 0),
        "left_for_others": max(others - spent, 0),
    }


def _show(found: dict[str, Any]) -> None:
    say(f"today    {found['day']}, a new day begins at {found['resets_at']}")
    say(f"tokens   {_in_words(found['tokens'])}")
    say(f"money    {_in_words(found['money'])}")
    if found["tokens"]["limit"] or found["money"]["limit"]:
        say(f"people   {found['reserved_for_people']:.0%} of each limit is kept for messages from people")
    for rule, state in found["rules"].items():
        say(f"rule     {rule}: {_in_words(state)}")
    if found["quiet_hours"]:
        until = f", now until {found['quiet_until']}" if found["quiet_until"] else ""
        say(f"quiet    {found['quiet_hours']}{until}")
    if found["spent"]:
        say()
        columns = ["node", "role", "rule", "calls", "tokens", "of them cached", "money"]
        print_table(columns, [_row(one) for one in found["spent"]])
    if found["days"]:
        say()
        rows = [
            [day["day"], str(day["calls"]), str(day["tokens"]), f"{day['money']:.4g}"]
            for day in found["days"]
        ]
        print_table(["day", "calls", "tokens", "money"], rows)


def _in_words(state: dict[str, Any]) -> str:
    if state["limit"] is None:
        return f"{state['spent']:.10g} spent, no limit"
    others = state["left_for_others"]
    told = f", {others:.10g} of it for what nobody waits for" if others != state["left"] else ""
    return f"{state['spent']:.10g} of {state['limit']:.10g} spent, {state['left']:.10g} left{told}"


def _row(one: dict[str, Any]) -> list[str]:
    return [
        one["node"],
        one["role"],
        one["rule"] or "",
        str(one["calls"]),
        str(one["tokens"]),
        str(one["cached_tokens"]),
        f"{one['money']:.4g}",
    ]
