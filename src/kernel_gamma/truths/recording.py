"""What commits record: gathered, and written in portions before the commits are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.errors import BadTruth, StoreDamaged
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["TruthRecorder"]

log = structlog.get_logger(__name__)


class TruthRecorder:
    """The Recorder port over a store. What is not flushed when the process dies is recorded again: the bus
    carries every commit out anew that it has not marked."""

    def __init__(self, store: SqliteTruths, heard: Callable[[NewTruth], None] = lambda truth: None) -> None:
        """`heard` is told of each, when it is taken in; it must not raise."""
        self._store = store
        self._heard = heard
        self._waiting: list[NewTruth] = []

    def record(self, truth: NewTruth) -> None:
        """Take one in; a key that stands already will be left as it is."""
        self._waiting.append(truth)
        self._heard(truth)

    def flush(self) -> None:
        """Write what waits. A store that is full keeps it waiting, and raises; nothing else holds it up."""
        if not self._waiting:
            return
        try:
            self._store.record_all(self._waiting)
        except BadTruth:  # one that will never be taken must not hold up the others, nor the mind
            for truth in self._waiting:
                self._one(truth)
        except StoreDamaged as error:
            # what was done stands in the stream and in done/: the mind goes on without these receipts
            log.error("receipts were not recorded", error=str(error), receipts=len(self._waiting))
        self._waiting = []

    def _one(self, truth: NewTruth) -> None:
        try:
            self._store.record_all([truth])
        except BadTruth as error:
            log.error("a receipt could not be kept as it was", key=truth.key, error=str(error))
            told = replace(truth, value={"refused": str(error)}, description=truth.description[:200])
            self._store.record_all([told])
