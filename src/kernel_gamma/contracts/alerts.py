"""When an alert is written: once when something is found wrong, once when it is found no more. Pure.

What stands open is read from the `alert.` truths themselves, so a restart neither opens an alert again nor
forgets to close it. The record that closes names the key of the one it closes under `resolves`, which is
what takes a core alert out of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from kernel_gamma.contracts.effects import Record
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.contracts.truths import NewTruth, Truth

__all__ = [
    "ALERTS",
    "Finding",
    "Inspection",
    "Look",
    "changes",
    "open_after",
    "standing",
    "told",
]

ALERTS = "alert.inspector"
"""What the keys of these alerts begin with: asked for by it, they are not crowded out by other alerts."""

Look: TypeAlias = Literal["hourly", "daily", "stale"]
"""What is looked at: daily has all of hourly and what takes longer; stale is what nobody takes up."""

_BY = "inspector"
_TRUST: Trust = "owner"
"""So that nothing from outside closes an alert, or passes for one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong now."""

    code: str
    """What is wrong, and where: `queue.stuck:outbox`. One alert stands per code."""
    text: str
    severity: Literal["core", "warning"] = "warning"
    """core: it stands in every prompt until it is closed."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one look came to."""

    findings: tuple[Finding, ...] = ()
    checked: frozenset[str] = frozenset()
    """Kinds of codes that could be looked at."""
    standing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """As of `standing`, just before."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Numbers that were found, for the record."""


def standing(alerts: Iterable[Truth | NewTruth]) -> dict[str, tuple[str, ...]]:
    """Code -> keys of the alerts of the inspector that are open, from `alert.` truths in any order."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in _open(alerts).items():
        code = str(value["code"])
        found[code] = (*found.get(code, ()), key)
    return found


def told(
    alerts: Iterable[Truth | NewTruth], shown: Callable[[datetime], str] = str
) -> dict[str, dict[str, Json]]:
    """Code -> `text`, `severity` and `since` of the alerts that are open, for the status."""
    alerts = list(alerts)
    times = {one.key: one.timestamp for one in alerts}
    found: dict[str, dict[str, Json]] = {}
    for key, value in _open(alerts).items():
        at = times[key]
        one = {"text": value.get("text"), "severity": value.get("severity")}
        found[str(value["code"])] = {**one, "since": shown(at) if at is not None else None}
    return found


def open_after(
    before: Mapping[str, Mapping[str, Json]], inspection: Inspection, now: str
) -> dict[str, dict[str, Json]]:
    """`told`, once an inspection has been written; `now` is its time."""
    wrong = {one.code: one for one in inspection.findings}
    found = {
        code: dict(one)
        for code, one in before.items()
        if code in wrong or code.partition(":")[0] not in inspection.checked
    }
    for code, one in sorted(wrong.items()):
        found.setdefault(code, {"text": one.text, "severity": one.severity, "since": now})
    return found


def _open(alerts: Iterable[Truth | NewTruth]) -> dict[str, dict[str, Json]]:
    opened: dict[str, dict[str, Json]] = {}
    closed: set[str] = set()
    for truth in alerts:
        key, value = truth.key, truth.value
        if key is None or truth.trust != _TRUST or not isinstance(value, dict) or value.get("by") != _BY:
            continue
        resolves = value.get("resolves")
        if isinstance(resolves, list):
            closed.update(one for one in resolves if isinstance(one, str))
        elif isinstance(value.get("code"), str):
            opened[key] = value
    return {key: opened[key] for key in sorted(opened.keys() - closed)}


def changes(
    findings: Iterable[Finding], open_now: Mapping[str, tuple[str, ...]], checked: Iterable[str]
) -> list[Record]:
    """Records of what opened and what closed, by code; none when nothing changed.

    `checked` are the kinds of codes (before the colon) that could be looked at this time: what could not
    be looked at stays open.
    """
    wrong = {one.code: one for one in findings}
    looked_at = frozenset(checked)
    records = [
        _record(
            {"by": _BY, "code": code, "severity": one.severity, "state": "open", "text": one.text}, one.text
        )
        for code, one in sorted(wrong.items())
        if code not in open_now
    ]
    for code, keys in sorted(open_now.items()):
        if code not in wrong and code.partition(":")[0] in looked_at:
            value: dict[str, Json] = {
                "by": _BY,
                "code": code,
                "state": "closed",
                "resolves": [*keys],
                "text": f"over: {code}",
            }
            records.append(_record(value, f"over: {code}"))
    return records


def _record(value: Mapping[str, Json], text: str) -> Record:
    return Record(category=ALERTS, value=value, description=text, trust=_TRUST)
