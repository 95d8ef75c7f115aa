"""Channel B of one mind: opened, kept in step with its pages, pruned, and told what the daemon does.

What commits record comes through the bus, exactly once. What is told here directly (starts, stops, waits,
load) is written at once and at most once: a process that dies in between has not told it.
"""

from __future__ import annotations

import asyncio
import resource
import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from kernel_gamma.bus.setting_aside import set_database_aside
from kernel_gamma.context.sums import Sums
from kernel_gamma.contracts.alerts import ALERTS
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock, Past
from kernel_gamma.contracts.truths import NewTruth, Truth, category_of
from kernel_gamma.errors import StoreDamaged, TruthError
from kernel_gamma.meanings import Meanings
from kernel_gamma.settings import Settings
from kernel_gamma.truths.pruning import prune_daily
from kernel_gamma.truths.recording import TruthRecorder
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.self_index import SelfIndex
from kernel_gamma.truths.static.webhook import Webhook
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.writing import Limits

__all__ = ["Keeping"]

log = structlog.get_logger(__name__)

_METRICS_EVERY_SEC = 300.0
_PRUNE_LOOK_SEC = 600.0
_ALERTS_READ = 500


class Keeping:
    """Owns memory.db while the mind lives; `close` at the end."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        environ: Mapping[str, str],
        clock: Clock,
        past: Past,
        retention: Retention,
    ) -> None:
        """Open the store; a damaged one is set aside whole and a new one begun, which `look` fills again
        as far as the mind's pages reach. Raises StoreFull, SettingsError when a newer version wrote it or
        the encoder that is asked for cannot be had."""
        self._clock = clock
        self._meanings = Meanings(settings, environ, clock, retention)
        self._aside = ""
        try:
            self.store = self._open(path, settings, clock, retention)
        except StoreDamaged as error:
            self._aside = set_database_aside(path)
            log.error("the memory store was damaged and set aside", error=str(error), kept=self._aside)
            self.store = self._open(path, settings, clock, retention)
        self._meanings.start(self.store)
        self._alerts: dict[str, NewTruth] = {}
        """Of the inspector, by key: a commit is recorded a while before the store has it."""
        self.webhook: Webhook | None = None
        """Told of proposals while the mind lives; set by the mind, which knows what they change."""
        self.sums = Sums()
        """Of the calls since this was opened."""
        self.recorder = TruthRecorder(self.store, self._heard)
        self._index = SelfIndex(self.store, past, clock)
        self._looking = threading.Lock()
        self._committed = 0
        self._metrics_due = clock.monotonic() + _METRICS_EVERY_SEC
        self._prune_due = 0.0
        self._waiting: dict[str, str] = {}

    def _heard(self, truth: NewTruth) -> None:
        category = truth.category or category_of(truth.key or "")
        if category == "proposal" and self.webhook is not None:
            self.webhook.wake()
        if truth.key is not None and truth.key.startswith(f"{ALERTS}."):
            self._alerts[truth.key] = truth
            while len(self._alerts) > _ALERTS_READ:
                del self._alerts[next(iter(self._alerts))]
        if category == "assembly" and isinstance(truth.value, dict):
            self.sums.add(truth.value)

    def alerts(self) -> list[Truth | NewTruth]:
        """The newest alerts of the inspector, opened and closed. Raises TruthError."""
        return [*self.store.recent(limit=_ALERTS_READ, category=ALERTS), *list(self._alerts.values())]

    async def look(self) -> None:
        """Take in what changed in the pages, write the load, prune when the day's turn has come."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        if not self._looking.acquire(blocking=False):
            return
        try:
            self._index.refresh()
            now = self._clock.monotonic()
            if self._committed and now >= self._metrics_due:
                self._metrics_due = now + _METRICS_EVERY_SEC
                self._tell_load()
            if now >= self._prune_due:
                self._prune_due = now + _PRUNE_LOOK_SEC
                prune_daily(self.store, self.store.retention, self._clock.now())
        except TruthError as error:
            log.warning("the memory store could not be kept in step", error=str(error))
        except OSError as error:
            log.warning("the mind's pages could not be read for the index", error=str(error))
        finally:
            self._looking.release()

    def _tell_load(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        value = {
            "commits": self._committed,
            "cpu_sec": round(used.ru_utime + used.ru_stime, 2),
            "max_rss_mb": round(used.ru_maxrss / 1024, 1),
            "embedding_tokens": self._meanings.tokens_sent,
        }
        self._committed = 0
        self.tell("metrics", "load of the daemon", value)

    def committed(self, node: str) -> None:
        """One more commit of the bus: only a mind that does something has a load to tell."""
        self._committed += 1
        if self._waiting:
            self.waits(node, "")

    def began(self, version: str, boot: int, pid: int) -> None:
        """The daemon started."""
        if self.webhook is not None:
            self.webhook.start()
        self.tell("operation", "the daemon started", {"version": version, "boot": boot, "pid": pid})
        if self._aside:
            self.tell(
                "alert",
                "the memory store was damaged and set aside",
                {
                    "kept": self._aside,
                    "rebuilt": "the mind's own past, from its pages",
                    "missing": "all other truths: receipts, incidents, operations, errors, what others wrote",
                },
            )

    def ended(self, reason: str) -> None:
        """The daemon stops."""
        self.tell("operation", "the daemon stopped", {"reason": reason})

    def removed(self, counts: Mapping[str, Json]) -> None:
        """Files and rows of the ledger past their time are gone: how many, by kind."""
        self.tell("operation.retention", "files and rows past their time were removed", counts)

    def waits(self, node: str, reason: str) -> None:
        """A node waits, or goes on (`reason` empty): told once, however often it is put off again."""
        if reason and node not in self._waiting:
            self._waiting[node] = reason
            self.tell("alert", f"{node} waits: {reason}"[:400], {"node": node, "reason": reason})
        elif not reason and (waited := self._waiting.pop(node, None)):
            self.tell("operation", f"{node} goes on", {"node": node, "waited_for": waited})

    def tell(self, category: str, description: str, value: Mapping[str, Json]) -> None:
        """Write one truth of our own. A store that cannot take it is logged, and the mind goes on."""
        truth = NewTruth(category=category, description=description, value=dict(value), trust="owner")
        try:
            self.store.upsert(truth)
        except TruthError as error:
            log.warning("a truth was not written", category=category, error=str(error))

    def close(self) -> None:
        """Write what waits, and close the store."""
        if self.webhook is not None:
            self.webhook.stop()
        try:
            self.recorder.flush()
        except TruthError as error:
            log.warning("the last receipts were not written; the next start does", error=str(error))
        self._meanings.stop()
        with self._looking:
            self.store.close()

    def _open(self, path: Path, settings: Settings, clock: Clock, retention: Retention) -> SqliteTruths:
        return open_truths(
            path,
            clock,
            retention=retention,
            full=settings.bus.durability == "full",
            limits=Limits(value_bytes=settings.gateway.max_bytes),
            semantic=self._meanings.vectors,
        )
