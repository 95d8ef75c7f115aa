"""Questions to the ledger while it is being written: its own connection sees only what is committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.records import passage_bound
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock, PassagePlace

__all__ = ["Inquiries", "claims_under"]


def claims_under(ledger: Ledger, prefix: str, now: datetime) -> dict[str, Mapping[str, Json]]:
    """Key -> what was claimed under it, for all keys that begin with `prefix` and have not expired."""
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    rows = ledger.all("claims_between", prefix, after, now.timestamp())
    return {key: json.loads(value) for key, value in rows}


class Inquiries:
    """Read-only; used on the event loop."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._ledger = Ledger.open(path, read_only=True)
        self._clock = clock

    def seen(self, key: str) -> Mapping[str, Json] | None:
        """What was claimed under a dedupe key and has not expired."""
        row = self._ledger.one("claim", key, self._clock.now().timestamp())
        found: Mapping[str, Json] | None = json.loads(row[0]) if row else None
        return found

    def kept(self, prefix: str) -> dict[str, Mapping[str, Json]]:
        """What was claimed under all keys that begin so and has not expired."""
        return claims_under(self._ledger, prefix, self._clock.now())

    def place_of(self, passage_id: str) -> PassagePlace | None:
        """Where a passage was put."""
        row = self._ledger.one("passage", passage_id)
        return PassagePlace(*row) if row else None

    def spent_on(self, day: str) -> tuple[int, float]:
        """Prompt and answer tokens of one local day, all roles, and what they cost."""
        row = self._ledger.one("spent_on", day)
        return (int(row[0]), float(row[1])) if row else (0, 0.0)

    def tokens_of_rule(self, day: str, rule: str) -> int:
        """Of those tokens, what a rhythm rule's events led to."""
        row = self._ledger.one("tokens_of_rule", day, rule)
        return int(row[0]) if row else 0

    def last_happening(self) -> int:
        """The number of the newest event or action that is not of the rhythm itself; 0: none."""
        row = self._ledger.one("last_happening")
        return int(row[0]) if row else 0

    def recent_passages(self, since: datetime) -> list[tuple[str, str]]:
        """Id and text of the passages younger than `since` that were never put back."""
        rows = self._ledger.all("recent_passages", passage_bound(since))
        return [(passage_id, block) for passage_id, block in rows]

    def close(self) -> None:
        """No more questions."""
        self._ledger.close()
