"""The breaker of one endpoint. Pure: every moment is an argument, nothing is awaited.

closed ──(failures in a row, or a refusal that says how long it lasts)──▶ open
open ──(its pause is over; one call is let through)──▶ half_open
half_open ──(that call succeeds)──▶ closed      half_open ──(it fails)──▶ open, twice as long
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

__all__ = ["Breaker", "BreakerState"]

BreakerState = Literal["closed", "open", "half_open"]

_SOON_SHARE = 0.2
"""While closed, and while a probe is on its way, others wait this share of the first pause."""


class Breaker:
    """Lets calls through, or says until when not. Not thread-safe: one event loop uses it."""

    def __init__(self, *, failures: int, pause_sec: float, max_pause_sec: float) -> None:
        """Opens after `failures` in a row; the pause doubles from `pause_sec` to `max_pause_sec`."""
        self._limit = failures
        self._first_pause_sec = pause_sec
        self._max_pause_sec = max(pause_sec, max_pause_sec)
        self._failures = 0
        self._openings = 0
        self._opened: datetime | None = None
        self._until: datetime | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._probing:
            return "half_open"
        return "closed" if self._until is None else "open"

    @property
    def until(self) -> datetime | None:
        """The end of the pause; None when closed."""
        return self._until

    def admit(self, now: datetime) -> bool:
        """Whether a call may go out now. When half open only one may, until its outcome is told."""
        if self._until is None:
            return True
        if self._opened is not None and now < self._opened:
            # The system clock was set back: the pause keeps its length instead of growing by that.
            self._until -= self._opened - now
            self._opened = now
        if self._probing or now < self._until:
            return False
        self._probing = True
        return True

    def wait_until(self, now: datetime) -> datetime:
        """When a call that just failed, or was not admitted, should be tried again."""
        if self._until is not None and not self._probing and self._until > now:
            return self._until
        return now + timedelta(seconds=self._first_pause_sec * _SOON_SHARE)

    def succeeded(self) -> None:
        """A call was answered: closed, and the next pause is a first one again."""
        self._failures = self._openings = 0
        self._opened = self._until = None
        self._probing = False

    def failed(self, now: datetime, *, retry_at: datetime | None = None, lasting: bool = False) -> None:
        """A call failed. `retry_at`: the endpoint named its own deadline, which is kept to.

        `lasting`: a refusal that another try cannot change (a wrong key): opens at once.
        """
        self._failures += 1
        opens = self._probing or lasting or retry_at is not None or self._failures >= self._limit
        self._probing = False
        if not opens:
            return
        if self._until is not None and now < self._until:
            # A call that went out before the pause began: it is the same outage, not another one.
            self._until = max(self._until, retry_at or self._until)
            return
        pause_sec = min(self._first_pause_sec * 2 ** min(self._openings, 32), self._max_pause_sec)
        self._openings += 1
        self._opened = now
        self._until = retry_at or now + timedelta(seconds=pause_sec)

    def abandoned(self) -> None:
        """The call was cancelled before its outcome was known: the next one may probe."""
        self._probing = False
