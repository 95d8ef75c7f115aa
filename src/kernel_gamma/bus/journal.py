"""What makes a repeated handler repeat nothing: the result of every model call and tool run, by cause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from kernel_gamma.bus.disk import Disk
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.steps import KillSwitch
from kernel_gamma.contracts.effects import Batch
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.packed_text import packed, unpacked
from kernel_gamma.contracts.ports import Clock, OutcomeUnknown

__all__ = ["LedgerJournal", "result_in"]

_CHEAP_SEC = 0.002
"""An answer that took longer is stored before anything else happens, so that it is never paid for twice."""


class LedgerJournal:
    """The Journal port over the ledger."""

    def __init__(self, disk: Disk, clock: Clock, kill: KillSwitch) -> None:
        self._disk = disk
        self._clock = clock
        self._step = kill

    async def once(
        self,
        batch: Batch,
        step: str,
        run: Callable[[], Awaitable[Json]],
        *,
        kind: Literal["model", "tool"],
        again: bool = False,
    ) -> Json:
        """See ports.Journal. The result of a `model` step may carry usage, which the ledger sums by day."""
        now = self._clock.now().timestamp()

        def begin(ledger: Ledger) -> tuple[Any, ...] | None:
            row = ledger.one("journal_result", batch.id, step)
            if row is None or (row[0] is None and (kind == "model" or again)):
                ledger.run("journal_intent", batch.id, step, batch.node, kind, batch.trace_id, now)
            return row

        # Nothing is written down of a batch made just now. That a model was asked is worth no wait: asked
        # again after a crash it does no harm, so its intent rides in whatever transaction comes next.
        if kind == "model" and batch.fresh:
            self._disk.writer.submit_soon(begin)
            row = None
        else:
            row = await self._disk.attempt(begin)
        if row is not None and row[0] is not None:
            return result_in(row[1])
        if row is not None and kind == "tool" and not again:
            raise OutcomeUnknown(f"{step} was started before the process ended and left no receipt")
        self._step("journal.intent")
        begun = self._clock.monotonic()
        result = await (self._answered(batch, run) if kind == "model" else run())
        self._step("journal.ran")
        values = self._row(result)

        def finish(ledger: Ledger) -> None:
            ledger.run("journal_done", *values, batch.id, step)
            if (day := values[2]) is not None:
                prompt, completion, cached, cost = (value or 0 for value in values[5:9])
                ledger.run("add_usage", day, prompt, completion, cost)
                who = (batch.node, values[3] or "", batch.rule)
                ledger.run("add_spending", day, *who, prompt, completion, cached, cost)

        if kind == "model" and self._clock.monotonic() - begun < _CHEAP_SEC:
            self._disk.writer.submit_soon(finish)  # the commit that follows is behind it in the same queue
        else:
            await self._disk.attempt(finish)
        self._step("journal.result")
        return result

    async def kept(self, batch: Batch, step: str) -> Json:
        """See ports.Journal."""
        row = await self._disk.attempt(lambda ledger: ledger.one("journal_result", batch.id, step))
        if row is None:
            return None
        if row[0] is None:
            raise OutcomeUnknown(f"{step} was started before the process ended and left no receipt")
        return result_in(row[1])

    async def _answered(self, batch: Batch, run: Callable[[], Awaitable[Json]]) -> Json:
        """The flight log says while the model is waited for: who dies then has done no harm.

        Said when the call first lets go of the loop; a model that answers at once is not waited for.
        """
        noted = False

        def waits() -> None:
            nonlocal noted
            noted = True
            self._disk.flights.waits(batch)

        soon = asyncio.get_running_loop().call_soon(waits)
        try:
            return await run()
        except asyncio.CancelledError:
            noted = False  # the daemon stops: the batch goes back to its queue, nothing more is done to it
            raise
        finally:
            soon.cancel()
            if noted:
                self._disk.flights.is_back(batch)

    def _row(self, result: Json) -> tuple[Any, ...]:
        """Columns of `journal_done`, the usage taken from a model's result."""
        now = self._clock.now()
        found = result if isinstance(result, dict) else {}
        usage = found.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return (
            now.timestamp(),
            packed(json.dumps(result)),
            f"{now:%Y-%m-%d}" if usage else None,
            found.get("role"),
            found.get("model"),
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            usage.get("cached_tokens"),
            usage.get("cost"),
        )


def result_in(column: str | bytes) -> Json:
    """What a step's column `result` holds. Raises ValueError for what nobody wrote."""
    return json.loads(unpacked(column))
