"""Trust: how much the source of an event is believed. It follows everything that grows from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

__all__ = ["TRUST_ORDER", "Trust", "least", "reaches"]

Trust = Literal["web", "unknown", "known", "owner"]

TRUST_ORDER: tuple[Trust, ...] = ("web", "unknown", "known", "owner")


def least(levels: Iterable[Trust]) -> Trust:
    """The least trusted of `levels`; `unknown` when there is none."""
    return min(levels, key=TRUST_ORDER.index, default="unknown")


def reaches(have: Trust, need: Trust) -> bool:
    """Whether `have` is at least `need`."""
    return TRUST_ORDER.index(have) >= TRUST_ORDER.index(need)
