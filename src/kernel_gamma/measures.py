"""Queues, process and disk in numbers, from the ledger and the system. Takes some milliseconds."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.ports import Clock

__all__ = ["Measures"]

_HOUR_SEC, _DAY_SEC = 3600.0, 86_400.0
_STRUCK = "rhythm/triggers"
"""That time passes is nothing that happens: what comes of it lies in other queues."""
_MOST_ROWS = 20_000
"""Newest deliveries that are looked at; a busier day is measured by them."""


@dataclass(slots=True)
class _Flow:
    """One queue."""

    came: dict[int, float] = field(default_factory=dict)
    """Number of the file -> when it was accepted."""
    ended: list[float] = field(default_factory=list)
    dwelt: list[float] = field(default_factory=list)
    retries: int = 0
    dead: int = 0

    def as_json(self, now: float) -> dict[str, Json]:
        hour = now - _HOUR_SEC
        self.dwelt.sort()
        return {
            "in_hour": sum(at >= hour for at in self.came.values()),
            "in_day": len(self.came),
            "out_hour": sum(at >= hour for at in self.ended),
            "out_day": len(self.ended),
            "dwell_p50_sec": _quantile(self.dwelt, 0.5),
            "dwell_p99_sec": _quantile(self.dwelt, 0.99),
            "retries_day": self.retries,
            "dead_day": self.dead,
        }


class Measures:
    """Of one data directory."""

    def __init__(self, data: Path, clock: Clock) -> None:
        self._data = data
        self._clock = clock
        self.last: dict[str, Json] | None = None
        """What was measured last; None before the first time."""

    def take(self) -> dict[str, Json]:
        """Measure now; blocks for some milliseconds. Raises OSError, sqlite3.Error and LedgerDamaged."""
        now = self._clock.now()
        with closing(Ledger.open(self._data / "ledger.db", read_only=True)) as ledger:
            found = _flows(ledger, now)
            row = ledger.one("spent_on", now.date().isoformat())
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.last = {
            "at": rfc3339(now),
            **found,
            "tokens_today": int(row[0]) if row else 0,
            "cpu_sec": round(used.ru_utime + used.ru_stime, 2),
            "rss_mb": _rss_mb(used.ru_maxrss),
            "disk_free_mb": round(shutil.disk_usage(self._data).free / 1e6),
        }
        return self.last


def _flows(ledger: Ledger, now: datetime) -> dict[str, Json]:
    """Of files accepted within a day, by queue; `cut` when there were more than are looked at."""
    since = now.timestamp() - _DAY_SEC
    rows = ledger.all("flow_from", _first_since(ledger, since), _MOST_ROWS)
    flows: dict[str, _Flow] = {}
    for seq, queue, accepted, status, attempts, ended in rows:
        flow = flows.setdefault(queue, _Flow())
        flow.came[seq] = accepted
        if status is None:
            continue
        flow.dead += status == "dead"
        flow.retries += attempts if status == "retry" else max(0, attempts - 1)
        if ended is not None:
            flow.ended.append(ended)
            flow.dwelt.append(max(0.0, ended - accepted))
    by_queue: dict[str, Json] = {
        queue: flow.as_json(now.timestamp()) for queue, flow in sorted(flows.items())
    }
    happened = [row for row in rows if row[1] != _STRUCK]
    return {
        "queues": by_queue,
        "last_file": max((row[0] for row in happened), default=None),
        "last_ended": max((row[5] for row in happened if row[5] is not None), default=None),
        "cut": len(rows) >= _MOST_ROWS,
    }


def _first_since(ledger: Ledger, since: float) -> int:
    """The number of the first file accepted at `since` or later: numbers and times grow together."""
    last = ledger.one("last_seq")
    low, high = 0, (int(last[0]) if last else 0) + 1
    while low < high:
        middle = (low + high) // 2
        row = ledger.one("accepted_from", middle)
        if row is None or row[1] >= since:
            high = middle
        else:
            low = int(row[0]) + 1
    return low


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest rank; None of nothing."""
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


def _rss_mb(most_kb: int) -> float:
    """Memory in use now, or the most there ever was where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return round(pages * resource.getpagesize() / 1e6, 1)
    return round(most_kb / 1024, 1)
