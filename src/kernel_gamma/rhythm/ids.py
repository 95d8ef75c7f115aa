"""Ids that sort by the time they were made: a prefix and a ULID (48 bits of milliseconds, 80 of chance)."""

from __future__ import annotations

import random
import threading

from kernel_gamma.contracts.ports import Clock
from kernel_gamma.contracts.ulid import ulid_of

__all__ = ["FixedIds", "UlidIds"]

_CHANCE_BITS = 80
_CHANCE_END = 1 << _CHANCE_BITS
_LAST_MILLISECOND = (1 << 48) - 1


class UlidIds:
    """Ids of this process: never twice the same, each one sorts after the one before.

    Also when the clock steps back or several fall into one millisecond: then the last one is counted up.
    Safe to call from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._random = random.Random(random.SystemRandom().getrandbits(128))
        self._millisecond = -1
        self._chance = 0
        self._lock = threading.Lock()

    def new(self, prefix: str) -> str:
        """`<prefix>_<ULID>`."""
        now = int(self._clock.now().timestamp() * 1000)
        if not 0 <= now <= _LAST_MILLISECOND:
            # a trial may lie before 1970 or far ahead: kept within what 48 bits can say
            now = min(max(now, 0), _LAST_MILLISECOND)
        with self._lock:
            if now > self._millisecond:
                self._millisecond = now
                self._chance = self._random.getrandbits(_CHANCE_BITS)
            else:
                self._chance += 1
                if self._chance == _CHANCE_END:
                    self._millisecond, self._chance = self._millisecond + 1, 0
            return f"{prefix}_{ulid_of(self._millisecond, self._chance)}"


class FixedIds:
    """Ids for tests: counted from 1 over all prefixes, in the shape of real ones."""

    def __init__(self) -> None:
        self._count = 0

    def new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{ulid_of(0, self._count)}"
