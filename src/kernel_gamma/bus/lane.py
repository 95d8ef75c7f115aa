"""One node's commits, in order: what is decided while the ledger is busy shares the next transaction.

A commit that is queued will happen, before everything queued after it: the node may go on. Only a killed
process loses the queue, and everything behind it, together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from kernel_gamma.bus.disk import Disk
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.records import Committed

__all__ = ["Lane", "QueuedCommit"]

_MOST_AHEAD = 16
"""Commits a node may be ahead of the ledger."""


@dataclass(slots=True, eq=False)
class QueuedCommit:
    """A commit on its way."""

    record: Callable[[Ledger], Committed | None]
    landed: Callable[[Committed | None], None]
    failed: Callable[[Exception], Coroutine[None, None, None]]
    """The ledger would not take it; called unless somebody waits, who then gets the error."""
    refused: Callable[[], None]
    """The same, in both cases, first."""
    waited: bool = False
    error: Exception | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Lane:
    """Created by the bus for each subscription."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._queue: list[QueuedCommit] = []
        self._ahead = 0
        self._room = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._failures: set[asyncio.Task[None]] = set()

    def push(self, commit: QueuedCommit) -> None:
        """Queue a commit."""
        self._queue.append(commit)
        self._ahead += 1
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="lane")

    async def stands(self, commit: QueuedCommit) -> None:
        """Wait for one commit; raises what the ledger said if it was refused."""
        commit.waited = True
        await commit.done.wait()
        if commit.error is not None:
            raise commit.error

    async def room(self) -> None:
        """Wait until the node is not too far ahead."""
        while self._ahead >= _MOST_AHEAD:
            self._room.clear()
            await self._room.wait()

    async def _run(self) -> None:
        while self._queue:
            group, self._queue = self._queue, []
            try:
                landed = await self._disk.commit_all([c.record for c in group])
            except Exception:  # noqa: BLE001 - one of them cannot be recorded: find out which
                await self._one_by_one(group)
            else:
                for commit, committed in zip(group, landed, strict=True):
                    self._settle(commit, committed)
        self._runner = None

    async def _one_by_one(self, group: list[QueuedCommit]) -> None:
        for commit in group:
            try:
                (committed,) = await self._disk.commit_all([commit.record])
            except Exception as error:  # noqa: BLE001 - as if its handler had raised it
                self._ahead -= 1
                self._room.set()
                commit.refused()
                commit.error = error
                commit.done.set()
                if not commit.waited:
                    # It may end in a commit of this very lane, so the lane must not wait for it.
                    task = asyncio.create_task(commit.failed(error))
                    self._failures.add(task)
                    task.add_done_callback(self._failures.discard)
            else:
                self._settle(commit, committed)

    def _settle(self, commit: QueuedCommit, committed: Committed | None) -> None:
        self._ahead -= 1
        self._room.set()
        commit.landed(committed)
        commit.done.set()

    async def drain(self) -> None:
        """Wait until all that is queued is through."""
        while self._runner is not None or self._failures:
            await asyncio.wait([*self._failures, *([self._runner] if self._runner else [])])

    def cancel(self) -> None:
        """Give up what the disk does not take; it is in the air still, and comes again after a start."""
        if self._runner is not None:
            self._runner.cancel()
