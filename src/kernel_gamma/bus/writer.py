"""The one writer of the ledger: jobs that coincide share a transaction.

With `durability: process` everything happens on the event loop: a transaction costs less than a thread
switch. With `full` it happens in one worker thread, because an fsync takes milliseconds, and whatever is
submitted meanwhile rides in the next transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.standstill import Gate

__all__ = ["Writer", "is_disk_full"]

T = TypeVar("T")

_GATE_SEC = 0.02
"""How often a closed gate is tried."""
_FULL_CODES = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_disk_full(error: BaseException) -> bool:
    """Whether the error says that no byte more fits."""
    if isinstance(error, sqlite3.OperationalError):
        return "full" in str(error) or "disk I/O" in str(error)
    return isinstance(error, OSError) and error.errno in _FULL_CODES


@dataclass(slots=True)
class _Job:
    run: Callable[[Ledger], Any]
    after: Callable[[Any], None] | None
    durable: bool
    future: asyncio.Future[Any] | None


class Writer:
    """Group commit. `submit` from the loop only."""

    def __init__(
        self, ledger: Ledger, *, full: bool, step: Callable[[str], None], gate: Gate | None = None
    ) -> None:
        """While the `gate` is closed jobs wait."""
        self._gate = gate
        self._ledger = ledger
        self._full = full
        self._step = step
        self._jobs: list[_Job] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._flushing = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ledger") if full else None
        self._idle: asyncio.Event | None = None

    async def submit(
        self,
        run: Callable[[Ledger], T],
        *,
        after: Callable[[T], None] | None = None,
        durable: bool = False,
    ) -> T:
        """Run a job inside the next transaction, then `after(result)` once it is committed.

        `durable`: with full durability, fsynced before it returns. A job that raises takes nothing else
        down: the group is rolled back and each job runs in a transaction of its own.
        """
        result: T = await self.enqueue(run, after=after, durable=durable)
        return result

    def enqueue(
        self,
        run: Callable[[Ledger], T],
        *,
        after: Callable[[T], None] | None = None,
        durable: bool = False,
    ) -> asyncio.Future[T]:
        """`submit` for later: what is enqueued before the loop runs again shares a transaction."""
        loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._enqueue(_Job(run, after, durable, future))
        return future

    def submit_soon(self, run: Callable[[Ledger], Any]) -> None:
        """Run a job inside the next transaction; nobody waits, a failure is the next waiter's too."""
        self._loop = asyncio.get_running_loop()
        self._enqueue(_Job(run, None, False, None))

    def _enqueue(self, job: _Job) -> None:
        self._jobs.append(job)
        if not self._scheduled and not self._flushing:
            assert self._loop is not None
            self._scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        if not self._jobs or self._flushing:
            return
        assert self._loop is not None
        if self._gate is not None and not self._gate.enter():
            self._scheduled = True
            self._loop.call_later(_GATE_SEC, self._begin)
            return
        group, self._jobs = self._jobs, []
        if self._pool is None:
            results = self._flush(group)
            self._leave()
            self._settle(group, results)
            return
        self._flushing = True
        running = self._loop.run_in_executor(self._pool, self._flush, group)
        running.add_done_callback(lambda done: self._flushed(group, done))

    def _flushed(self, group: list[_Job], done: asyncio.Future[list[Any]]) -> None:
        self._flushing = False
        self._leave()
        if (error := done.exception()) is not None:
            self._settle(group, [error] * len(group))
        else:
            self._settle(group, done.result())
        if self._jobs:
            self._begin()

    def _leave(self) -> None:
        if self._gate is not None:
            self._gate.leave()

    def _settle(self, group: list[_Job], results: list[Any]) -> None:
        for job, result in zip(group, results, strict=True):
            if job.future is None or job.future.done():
                continue
            if isinstance(result, BaseException):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)

    def _flush(self, group: list[_Job]) -> list[Any]:
        """One transaction for the group; results in order, an exception in place of a failed one."""
        durable = any(job.durable for job in group)
        full = self._full and durable
        try:
            with self._ledger.transaction(full=full):
                results = [job.run(self._ledger) for job in group]
                if durable:
                    self._step("commit.before")
            if durable:
                self._step("commit.recorded")
        except Exception as error:  # noqa: BLE001 - every waiter gets it
            if len(group) == 1:
                return [error]
            return [result for job in group for result in self._flush([job])]
        for index, job in enumerate(group):
            if job.after is not None:
                try:
                    job.after(results[index])
                except Exception as error:  # noqa: BLE001 - this waiter gets it
                    results[index] = error
        return results

    def run_now(self, run: Callable[[Ledger], T], *, full: bool = False) -> T:
        """A transaction right here: at start and stop, while nothing has been submitted, or in `after`."""
        with self._ledger.transaction(full=full and self._full):
            return run(self._ledger)

    def run_amid(self, run: Callable[[Ledger], T]) -> T:
        """`run_now` while effects are being carried out: a full disk is an OSError, as theirs would be."""
        try:
            return self.run_now(run)
        except sqlite3.OperationalError as error:
            if not is_disk_full(error):
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._ledger.path)) from error

    async def drain(self) -> None:
        """Wait until everything submitted so far is through."""
        while self._jobs or self._flushing or self._scheduled:
            with contextlib.suppress(Exception):  # told to those who wait for the jobs themselves
                await self.submit(lambda _: None)

    def close(self) -> None:
        """End the worker thread; call after `drain`."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._gate is not None:
            self._gate.close()
