"""The commit pipeline: record in the ledger, apply on disk, mark, forget; and waiting when the disk is full.

A commit that is recorded but cannot be applied (disk full, page not writable) holds everything behind it:
nothing more is recorded until it stands, so order and exactly-once survive, and the mind only waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import structlog

from kernel_gamma.bus.apply import Applier
from kernel_gamma.bus.files import sync_tree
from kernel_gamma.bus.flight_log import FlightLog
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.records import Books, Committed, passage_bound
from kernel_gamma.bus.room import ROOM_BYTES
from kernel_gamma.bus.writer import Writer, is_disk_full
from kernel_gamma.errors import Fenced, TruthError

__all__ = ["Disk", "DiskRules", "describe"]

log = structlog.get_logger(__name__)

T = TypeVar("T")

_MARK_MANY = 64
_MARK_DELAY_SEC = 0.25
_STALL_FIRST_SEC = 0.5
_STALL_LONGEST_SEC = 30.0
PUT_BACK = timedelta(minutes=30)
"""How long a passage that an editor's stale save drops is put back."""


@dataclass(frozen=True, slots=True)
class DiskRules:
    """Where, and how durable."""

    root: bytes
    full: bool
    checkpoint_sec: float


class Disk:
    """Owns the order: record → apply → mark applied → (sync) → forget."""

    def __init__(
        self,
        writer: Writer,
        books: Books,
        applier: Applier,
        rules: DiskRules,
        *,
        step: Callable[[str], None],
        now: Callable[[], datetime],
        on_stall: Callable[[str], None],
    ) -> None:
        """`on_stall(reason)` hears of it, "" when it is over."""
        self.writer = writer
        self._books = books
        self._applier = applier
        self._root = rules.root
        self.flights = FlightLog(Path(os.fsdecode(rules.root)) / "flights.log")
        """What is in the air: written beside the ledger, in no transaction."""
        self._full = rules.full
        self._checkpoint_sec = rules.checkpoint_sec
        self._step = step
        self._now = now
        self._on_stall = on_stall
        self._stuck: list[Committed] = []
        self._stuck_error = ""
        self._marks: list[Committed] = []
        self._mark_timer: asyncio.TimerHandle | None = None
        self._checkpoint: asyncio.Task[None] | None = None
        self._newest_marked = 0
        self._forgotten = ""
        """Passages up to here are not put back any more."""
        self._recovering: asyncio.Task[None] | None = None
        self.stall_reason = ""
        self.clear = asyncio.Event()
        """Set while nothing is stuck."""
        self.clear.set()
        self.stalled = asyncio.Event()
        """The opposite of `clear`."""
        self._pause_sec = _STALL_FIRST_SEC
        applier.before_moving = self._settle_earlier

    async def commit(self, record: Callable[[Ledger], Committed | None]) -> Committed | None:
        """`commit_all` of one."""
        (committed,) = await self.commit_all([record])
        return committed

    async def commit_all(
        self, records: Sequence[Callable[[Ledger], Committed | None]]
    ) -> list[Committed | None]:
        """Record in one transaction and apply in order; retried for as long as the disk is full.

        Returns once both are done. Effects that cannot be applied now stand in the ledger all the same,
        and `clear` is unset.
        """
        while True:
            await self.clear.wait()
            try:
                committed = await self.writer.submit(
                    lambda ledger: [record(ledger) for record in records], after=self._apply_all, durable=True
                )
            except OSError as error:  # a page cannot be looked at: nothing is recorded yet
                self._stall(describe(error))
                continue
            except Exception as error:
                if not is_disk_full(error):
                    raise
                self._stall_for_space(error)
                continue
            self._look_after(any(c is not None for c in committed))
            return committed

    async def attempt(self, run: Callable[[Ledger], T], *, after: Callable[[T], None] | None = None) -> T:
        """A job without effects on disk of its own; retried for as long as the disk is full."""
        while True:
            await self.clear.wait()
            try:
                return await self.writer.submit(run, after=after)
            except Exception as error:
                if not is_disk_full(error):
                    raise
                self._stall_for_space(error)

    def _apply_all(self, commits: list[Committed | None]) -> None:
        """In the writer, right after the transaction."""
        for committed in commits:
            self._apply(committed)

    def _apply(self, committed: Committed | None) -> None:
        if committed is None:
            return
        if self._stuck:
            self._stuck.append(committed)
            return
        try:
            self._applier.apply(committed.operations, redo=False)
        except OSError as error:
            self._stuck_error = describe(error)
            self._stuck.append(committed)
            return
        self._applied(committed)

    def _applied(self, committed: Committed) -> None:
        self._step("commit.applied")
        self._books.applied(committed)
        self._marks.append(committed)

    def _look_after(self, anything: bool) -> None:
        if self._stuck:
            self._stall(self._stuck_error)
        else:
            self._pause_sec = _STALL_FIRST_SEC
        if not anything:
            return
        loop = asyncio.get_running_loop()
        if len(self._marks) >= _MARK_MANY:
            self._mark()
        elif self._mark_timer is None:
            self._mark_timer = loop.call_later(min(_MARK_DELAY_SEC, self._checkpoint_sec), self._mark)

    def _mark(self) -> None:
        if self._mark_timer is not None:
            self._mark_timer.cancel()
            self._mark_timer = None
        self.writer.submit_soon(self._mark_job)
        if self._checkpoint is None:
            self._checkpoint = asyncio.create_task(self._checkpoint_later())

    def _mark_job(self, ledger: Ledger) -> None:
        """Losing these marks to a crash or a rollback only means that the effects are checked once more."""
        try:
            self._applier.flush_records()
        except TruthError as error:
            # the commits stay unmarked: they are carried out again, and record again, when there is room
            log.warning("what was done could not be recorded yet", error=str(error))
            return
        self._step("records.flushed")
        marks, self._marks = self._marks, []
        for committed in marks:
            ledger.run("commit_applied" if self._full else "forget_applied", committed.n)
            self._newest_marked = max(self._newest_marked, committed.n)

    def _settle_earlier(self) -> None:
        """In the writer, before passages move: what was applied so far is not carried out again after it."""
        self.writer.run_amid(self._mark_job)
        if not self._full:
            return
        sync_tree(self._root)
        newest = self._newest_marked
        self.writer.run_amid(lambda ledger: ledger.run("commits_synced", newest))

    async def _checkpoint_later(self) -> None:
        try:
            await asyncio.sleep(self._checkpoint_sec)
            await self.checkpoint()
        finally:
            self._checkpoint = None

    async def checkpoint(self) -> None:
        """Make what is applied power-safe (full durability) and forget what need not be kept."""
        newest, now = self._newest_marked, self._now()
        until = passage_bound(now - PUT_BACK)
        if self._full:
            try:
                await asyncio.to_thread(sync_tree, self._root)
            except OSError as error:
                log.warning("the file system could not be synced", error=describe(error))
                return
            self._step("checkpoint.synced")

        def forget(ledger: Ledger) -> None:
            if self._full:
                ledger.run("commits_synced", newest)
            ledger.run("forget_blocks", self._forgotten, until)
            ledger.run("drop_claims", now.timestamp())

        try:
            await self.writer.submit(forget)
            self._forgotten = until
        except Exception as error:
            if not is_disk_full(error):
                raise

    def stick(self, commits: list[Committed], reason: str) -> None:
        """Commits left unapplied by an earlier process that still cannot be applied."""
        self._stuck.extend(commits)
        self._stuck_error = reason
        self._stall(reason)

    @property
    def unmarked(self) -> bool:
        """Whether effects stand on disk, or should, that the ledger does not call applied yet."""
        return bool(self._marks or self._stuck)

    def _stall(self, reason: str) -> None:
        if self._recovering is not None:
            return
        self.clear.clear()
        self.stalled.set()
        self.stall_reason = reason
        log.error("the mind waits: the disk cannot be written", reason=reason)
        self._on_stall(reason)
        self._recovering = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        try:
            while not await self._is_mended():
                self.stall_reason = self._stuck_error or self.stall_reason
        except Exception:
            # Fenced, or a ledger beyond repair: whoever waits meets the same and says so.
            log.exception("the disk was not mended")
        self._recovering = None
        self.stall_reason = ""
        self.stalled.clear()
        self.clear.set()
        log.info("the mind goes on")
        self._on_stall("")
        self._mark()

    async def _is_mended(self) -> bool:
        """After a pause: whether the ledger takes a row, all that was stuck stands, and there is room."""
        await asyncio.sleep(self._pause_sec)
        self._pause_sec = min(self._pause_sec * 2, _STALL_LONGEST_SEC)
        try:
            await self.writer.submit(
                lambda ledger: ledger.run("set_meta", "disk tried", str(self._pause_sec)),
                after=lambda _: self._unstick(),
            )
        except Exception as error:
            if not is_disk_full(error):
                raise
            return False
        return not self._stuck and _free_bytes(self._root) >= ROOM_BYTES

    def _unstick(self) -> None:
        while self._stuck:
            try:
                self._applier.apply(self._stuck[0].operations, redo=True)
            except OSError as error:
                self._stuck_error = describe(error)
                return
            self._applied(self._stuck.pop(0))
        self._stuck_error = ""

    def _stall_for_space(self, error: Exception) -> None:
        """The ledger itself cannot grow: everybody waits, then tries again."""
        self._stall(f"ledger.db cannot be written: {error}; free some space and the mind goes on by itself")

    async def when_possible(self, write: Callable[[], None]) -> None:
        """A small write beside the ledger; repeated for as long as the disk does not take it."""
        while True:
            await self.clear.wait()
            try:
                write()
            except OSError as error:
                if is_disk_full(error):
                    self._stall_for_space(error)
                else:
                    self._stall(describe(error))
                continue
            return

    async def close(self) -> bool:
        """Mark what is applied, sync, end the timers.

        False where nothing can be written any more (disk full, fenced): the next start finds out for itself.
        """
        for task in (self._checkpoint, self._recovering):
            if task is not None:
                task.cancel()
        if self._mark_timer is not None:
            self._mark_timer.cancel()
        try:
            if self._stuck:
                return False
            await self.writer.submit(self._mark_job)
            await self.checkpoint()
            return True
        except Exception as error:
            if not (isinstance(error, Fenced) or is_disk_full(error)):
                raise
            log.warning("the last words could not be written", error=str(error))
            return False
        finally:
            await self.writer.drain()
            self.writer.close()


def _free_bytes(root: bytes) -> int:
    status = os.statvfs(root)
    return status.f_bavail * status.f_frsize


def describe(error: OSError) -> str:
    """One line that names the path and what to do."""
    where = error.filename
    path = where.decode(errors="replace") if isinstance(where, bytes) else str(where or "the data directory")
    mend = "free some space" if is_disk_full(error) else "make it writable"
    return f"{path}: {error.strerror or error}; {mend} and the mind goes on by itself"
