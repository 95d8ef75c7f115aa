"""Signs of an emergency, besides the words of a task: a loop that was stopped a little while ago. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from kernel_gamma.context.core_alerts import says_resolved
from kernel_gamma.contracts.ports import TruthStore
from kernel_gamma.contracts.truths import Truth
from kernel_gamma.errors import TruthError

__all__ = ["loop_signs"]

_LOOP = "incident.loop_"
"""What is written where a source excites itself; other incidents may tell of loops in other systems."""
_FRESH = timedelta(hours=1)
_LOOKED_AT = 20


def loop_signs(truths: TruthStore, now: datetime) -> Sequence[str]:
    """A sentence for each loop incident of the last hour that is not resolved; none while the store fails."""
    try:
        newest = truths.recent(limit=_LOOKED_AT, category="incident")
    except TruthError:
        return ()
    closed: dict[str, int] = {}
    for truth in newest:
        circuit, trip = _opening(truth)
        if circuit and says_resolved(truth.value):
            closed[circuit] = max(trip, closed.get(circuit, 0))
    return [
        f"{truth.key} is not resolved"
        for truth in newest
        if _is_open_loop(truth, now) and not _is_closed(truth, closed)
    ]


def _opening(truth: Truth) -> tuple[str, int]:
    """Which circuit a loop incident tells of, and which opening of it; its closing is a record of its own."""
    value = truth.value
    if not truth.key.startswith(_LOOP) or not isinstance(value, dict):
        return "", 0
    trip = value.get("trip")
    return str(value.get("circuit") or ""), trip if isinstance(trip, int) else 0


def _is_closed(truth: Truth, closed: Mapping[str, int]) -> bool:
    circuit, trip = _opening(truth)
    return bool(circuit) and trip <= closed.get(circuit, -1)


def _is_open_loop(truth: Truth, now: datetime) -> bool:
    if not truth.key.startswith(_LOOP) or not timedelta() <= now - truth.timestamp <= _FRESH:
        return False
    return not says_resolved(truth.value)
