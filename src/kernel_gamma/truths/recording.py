"""What commits record: gathered, and written in portions before the commits are forgotten."""

from __future__ import annotations

from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["TruthRecorder"]


class TruthRecorder:
    """The Recorder port over a store. What is not flushed when the process dies is recorded again: the bus
    carries every commit out anew that it has not marked."""

    def __init__(self, store: SqliteTruths) -> None:
        self._store = store
        self._waiting: list[NewTruth] = []

    def record(self, truth: NewTruth) -> None:
        """Take one in; a key that stands already will be left as it is."""
        self._waiting.append(truth)

    def flush(self) -> None:
        """Write what waits. When it cannot be written it waits on, and the TruthError is raised."""
        if self._waiting:
            self._store.record_all(self._waiting)
            self._waiting = []
