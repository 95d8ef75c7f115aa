"""What is past its time goes, once a local day, in small steps beside everything else.

Nothing goes without a trace: what a day's look removed is told with its counts. A process that ends in
between goes on at its next start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TypeVar, cast

import structlog

from kernel_gamma.bus.disk import Disk
from kernel_gamma.bus.folders import INBOX, SELF
from kernel_gamma.bus.keep_times import KeepTimes, moment_before
from kernel_gamma.bus.ledger import Ledger, LedgerDamaged
from kernel_gamma.bus.old_files import OldFiles
from kernel_gamma.bus.old_rows import Held, Limits, OldRows, held_by_waiting
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock

__all__ = ["Tidying", "TidyingPorts"]

log = structlog.get_logger(__name__)

T = TypeVar("T")

_ACKS_EVERY = timedelta(hours=1)
_LEAP = timedelta(days=7)
"""A clock that leaps ahead may be wrong: then nothing goes until it has said so on a second day."""
_PAGES = 500
"""Given back in one transaction."""
_GRACE_SEC = 2.0
_LAST_DAY = "tidied on"
_BEGUN = "tidying since"
_NOW = "stream/now.md"


@dataclass(frozen=True, slots=True)
class TidyingPorts:
    """What it works with."""

    root: Path
    clock: Clock
    keep: KeepTimes
    disk: Disk
    ledger: Path
    real_time: bool
    """The clock is the one that stamps files."""
    tell: Callable[[Mapping[str, Json]], None]
    """Hears what a look has removed, by kind; called in a thread."""


class Tidying:
    """`look` now and then; the work is a task of its own. `stop` at the end."""

    def __init__(self, ports: TidyingPorts) -> None:
        self._ports = ports
        self._task: asyncio.Task[None] | None = None
        self._acks_due: datetime | None = None
        self._day: date | None = None

    def look(self) -> None:
        """Begin what is due, unless it is being done. Never waits, never raises."""
        if self._task is not None and not self._task.done():
            return
        now = self._ports.clock.now()
        acks_due = self._acks_due is None or not now < self._acks_due <= now + _ACKS_EVERY
        if acks_due or self._day != now.date():
            self._task = asyncio.create_task(self._tidy(now), name="tidying")

    async def finished(self) -> None:
        """What `look` began is over."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        """Soon; what is not done by then is left for the next start."""
        if self._task is not None:
            # a mind that only ever runs for a moment would else never come to the end of it
            await asyncio.wait({self._task}, timeout=_GRACE_SEC)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tidy(self, now: datetime) -> None:
        try:
            ledger = await asyncio.to_thread(Ledger.open, self._ports.ledger, read_only=True)
        except LedgerDamaged as error:
            log.warning("nothing was tidied: the ledger cannot be read", error=str(error))
            return
        try:
            await self._acks(ledger, now)
            self._acks_due = now + _ACKS_EVERY
            if self._day != now.date():
                await self._daily(ledger, now)
                self._day = now.date()
        except OSError as error:
            log.warning("old files could not be removed", error=str(error))
        finally:
            ledger.close()

    async def _acks(self, ledger: Ledger, now: datetime) -> None:
        def accepted(name: str) -> float | None:
            row = ledger.one("accepted_when", os.fsencode(name), INBOX)
            return row[0] if row is not None else None

        files = self._files(now, Held())
        gone = await asyncio.to_thread(files.acks, accepted)
        if gone:
            log.info("old acks were removed", files=gone)

    def _files(self, now: datetime, held: Held) -> OldFiles:
        ports = self._ports
        return OldFiles(ports.root, ports.keep, now, ports.real_time, frozenset(held.finals))

    async def _daily(self, ledger: Ledger, now: datetime) -> None:
        row = ledger.one("get_meta", _LAST_DAY)
        last = date.fromisoformat(row[0]) if row is not None else None
        if last == now.date():
            return
        if last is not None and abs(now.date() - last) <= _LEAP:
            await self._remove(ledger, now)
        await self._note(_LAST_DAY, f"{now:%Y-%m-%d}")

    async def _note(self, name: str, value: str) -> None:
        await self._ports.disk.attempt(lambda books: books.run("set_meta", name, value))

    async def _remove(self, ledger: Ledger, now: datetime) -> None:
        row = ledger.one("get_meta", _BEGUN)
        cut_short = row[0] if row is not None else ""
        await self._note(_BEGUN, now.isoformat())
        ports = self._ports
        held = await asyncio.to_thread(held_by_waiting, ledger)
        files = self._files(now, held)
        rows = OldRows(ledger, os.fsencode(ports.root), held, _limits(ports.keep, now))
        try:
            async for _ in _in_thread(files.steps()):
                pass
            headings = await asyncio.to_thread(_headings, ports.root / SELF / _NOW)
            async for job in _in_thread(rows.jobs(headings)):
                await ports.disk.attempt(job)
            if rows.counts:
                while await ports.disk.attempt(_give_back):
                    pass
        finally:
            counts: dict[str, Json] = {**files.counts}
            if rows.counts:
                counts["ledger"] = dict(rows.counts)
            if cut_short:
                counts["cut_short"] = f"the look begun at {cut_short} ended before it could be told"
            if counts:
                log.info("what was past its time was removed", **counts)
                await asyncio.to_thread(ports.tell, counts)
        await self._note(_BEGUN, "")


def _limits(keep: KeepTimes, now: datetime) -> Limits:
    def before(time: timedelta | None) -> float | None:
        return None if time is None else moment_before(now, time).timestamp()

    return Limits(rows=before(keep.ledger), answers=before(keep.model_calls))


def _give_back(ledger: Ledger) -> bool:
    """A few free pages go back to the file system; whether there are more that can."""
    (before,) = ledger.one("free_pages") or (0,)
    for _ in range(min(_PAGES, before)):
        ledger.run("give_back_page")
    (after,) = ledger.one("free_pages") or (0,)
    return bool(0 < after < before)


def _headings(page: Path) -> frozenset[str]:
    """Of the passages that stand in now.md: their places are kept."""
    try:
        lines = page.read_bytes().splitlines()
    except OSError:
        return frozenset()
    return frozenset(line[3:].decode("utf-8", "replace") for line in lines if line.startswith(b"## "))


async def _in_thread(steps: Iterator[T]) -> AsyncIterator[T]:
    """Each step in a thread; one that has begun is over before this ends, also when it is cancelled."""
    nothing = object()
    while True:
        step = asyncio.ensure_future(asyncio.to_thread(next, steps, nothing))
        try:
            found = await asyncio.shield(step)
        except asyncio.CancelledError:
            await asyncio.gather(step, return_exceptions=True)
            raise
        if found is nothing:
            return
        yield cast(T, found)
