"""The driver: starts, kills and feeds the daemon while its clock runs fast, and looks at its folder."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.life.days import START, Calendar, Day, Event
from benchmarks.life.endpoint import Endpoint
from kernel_gamma.configuration import lay_out

__all__ = ["Account", "Life"]

_SETTINGS: Mapping[str, str] = {
    "KGAMMA_BUS__DURABILITY": "process",
    "KGAMMA_BUS__SETTLE_SEC": "0.05",
    "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0",
    "KGAMMA_MODEL__STREAM": "off",
    "KGAMMA_BUDGET__TOKENS_PER_DAY": "0",
    "KGAMMA_CLOCK__TRIAL": "true",
    "KGAMMA_CLOCK__ZONE": "Europe/Berlin",
    "KGAMMA_LOG__LEVEL": "warning",
    "OPENAI_API_KEY": "none",
}


@dataclass
class Account:
    """What was seen."""

    home: Path
    dropped: int = 0
    largest: dict[str, int] = field(default_factory=dict)
    """Page -> the most bytes it ever had."""
    starts: list[tuple[int, float]] = field(default_factory=list)
    """(day, seconds from the start of the process until it serves)."""
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """(day, bytes of the whole folder)."""
    events: dict[int, int] = field(default_factory=dict)
    """Day -> events dropped."""
    lasted_sec: float = 0.0
    kills: int = 0
    first: datetime = START
    last: datetime = START
    endpoint: Endpoint | None = None
    left: dict[str, int] = field(default_factory=dict)
    """What was still waiting at the end."""
    exit_code: int = 0

    @property
    def data(self) -> Path:
        return self.home / "data/kernel"


class Life:
    """One mind lived through a calendar."""

    def __init__(self, home: Path, calendar: Calendar, *, seconds_per_day: float) -> None:
        self._home = home
        self._calendar = calendar
        self._rate = 86_400 / seconds_per_day
        self._endpoint = Endpoint()
        self._account = Account(home, endpoint=self._endpoint)
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._at = self._calendar.days[0].begins
        """The mind's time at `_began`."""
        self._late = timedelta()
        """Whole days by which life is behind the calendar, because the machine was."""

    def live(self) -> Account:
        """From the first morning to the last night."""
        lay_out(self._home)
        begun = time.monotonic()
        try:
            for number, day in enumerate(self._calendar.days):
                self._endpoint.day = number
                self._live_day(number, day)
            self._endpoint.day = len(self._calendar.days)
            self._account.last = self._now()
            self._end()
        finally:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._endpoint.close()
        self._account.lasted_sec = time.monotonic() - begun
        return self._account

    def _now(self) -> datetime:
        """The mind's time, as far as one can tell from outside."""
        return self._at + timedelta(seconds=(time.monotonic() - self._began) * self._rate)

    def _live_day(self, number: int, day: Day) -> None:
        if self._process is None:
            self._start(number)
        if day.idle:
            self._catch_up()  # a slow machine may still have yesterday's events before it
        late = timedelta(
            days=max(0, math.ceil((self._now() - day.begins - self._late) / timedelta(days=1)) - 1)
        )
        self._late += late
        waiting = list(day.events)
        killed = day.killed_at
        ends = day.begins + timedelta(days=1)
        while (now := self._now() - self._late) < ends:
            away = day.model_away
            self._endpoint.away = away is not None and away[0] <= now < away[1]
            if killed is not None and now >= killed:
                killed = None
                self._kill(number)
                continue
            while waiting and waiting[0].at <= now:
                self._drop(waiting.pop(0))
            self._look()
            time.sleep(0.02)
        for event in waiting:
            self._drop(event)
        self._account.events[number] = len(day.events)
        self._account.sizes.append((number, _bytes_below(self._account.data)))
        print(
            f"day {number + 1}: {len(day.events)} events, {self._endpoint.calls[number]} calls, "
            f"now.md {self._account.largest.get('stream/now.md', 0):,} bytes at most",
            file=sys.stderr,
        )

    def _start(self, number: int, *options: str) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
        environ |= {
            **_SETTINGS,
            "KGAMMA_CLOCK__START": self._at.isoformat(),
            "KGAMMA_CLOCK__RATE": str(self._rate),
            "OPENAI_BASE_URL": self._endpoint.server.base_url,
        }
        command = [sys.executable, "-m", "kernel_gamma", "run", "--no-gateway", "--home", str(self._home)]
        spawned = time.monotonic()
        with (self._home / "output.txt").open("ab") as output:
            self._process = subprocess.Popen([*command, *options], env=environ, stdout=output, stderr=output)
        while self._status().get("pid") != self._process.pid:
            if self._process.poll() is not None:
                raise RuntimeError((self._home / "output.txt").read_text()[-2000:])
            time.sleep(0.01)
        self._account.starts.append((number, time.monotonic() - spawned))
        # its clock began a little before it served: what it wrote then tells when
        self._at = datetime.fromisoformat(str(self._status()["written_at"]))
        self._began = time.monotonic()
        if len(self._account.starts) == 1:
            self._account.first = self._at  # a mind has no slots from before it was there

    def _status(self) -> dict[str, object]:
        with suppress(OSError, ValueError):
            found: dict[str, object] = json.loads((self._account.data / "metrics/status.json").read_bytes())
            return found
        return {}

    def _kill(self, number: int) -> None:
        assert self._process is not None
        self._at = self._now()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._account.kills += 1
        self._start(number)

    def _drop(self, event: Event) -> None:
        folder = self._account.data / "inbox/pending"
        temporary = folder / f".e{event.number}.tmp"
        temporary.write_text(json.dumps(event.document, ensure_ascii=False))
        temporary.rename(folder / f"e{event.number}.json")
        self._account.dropped += 1

    def _look(self) -> None:
        for page in ("stream/now.md", "state.md"):
            with suppress(OSError):
                size = (self._account.data / "self" / page).stat().st_size
                self._account.largest[page] = max(size, self._account.largest.get(page, 0))

    def _catch_up(self) -> None:
        """Wait for as long as anything waits, two minutes at most."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and any(_waiting(self._account.data).values()):
            self._look()
            time.sleep(0.1)

    def _end(self) -> None:
        """All that waits is worked off, then the process is asked to stop."""
        assert self._process is not None
        self._catch_up()
        self._account.last = self._now()
        self._account.left = _waiting(self._account.data)
        self._process.send_signal(signal.SIGTERM)
        self._account.exit_code = self._process.wait(60)


def _waiting(data: Path) -> dict[str, int]:
    queues = ("inbox/pending", "inbox/taken", "rhythm/triggers", "pipeline/message_queue")
    queues += ("pipeline/internalized", "pipeline/action_queue")
    return {queue: sum(1 for _ in (data / queue).glob("*.json")) for queue in queues}


def _bytes_below(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(where, name)).st_blocks * 512
    return total
