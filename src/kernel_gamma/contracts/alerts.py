"""When an alert is written: once when something is found wrong, once when it is found no more. Pure.

What stands open is read from the `alert.` truths themselves, so a restart neither opens an alert again nor
forgets to close it. The record that closes names the key of the one it closes under `resolves`, which is
what takes a core alert out of the prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from kernel_gamma.contracts.effects import Record
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.contracts.truths import Truth

__all__ = ["Finding", "changes", "standing"]

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


def standing(alerts: Iterable[Truth]) -> dict[str, tuple[str, ...]]:
    """Code -> keys of the alerts of the inspector that are open, from `alert.` truths in any order."""
    opened: dict[str, str] = {}
    closed: set[str] = set()
    for truth in alerts:
        key, value = truth.key, truth.value
        if truth.trust != _TRUST or not isinstance(value, dict) or value.get("by") != _BY:
            continue
        code, resolves = value.get("code"), value.get("resolves")
        if isinstance(resolves, list):
            closed.update(one for one in resolves if isinstance(one, str))
        elif isinstance(code, str):
            opened[key] = code
    found: dict[str, tuple[str, ...]] = {}
    for key in sorted(opened.keys() - closed):
        found[opened[key]] = (*found.get(opened[key], ()), key)
    return found


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
    return Record(category="alert", value=value, description=text, trust=_TRUST)
