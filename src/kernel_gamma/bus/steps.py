"""The named moments at which a crash test may end the process, and the switch that does it."""

from __future__ import annotations

import os
import signal
from collections import Counter

from kernel_gamma.errors import SettingsError

__all__ = ["STEPS", "KillSwitch"]

STEPS: dict[str, str] = {
    "accept.recorded": "a dropped file is in the ledger, not yet renamed to inbox/taken/",
    "accept.renamed": "the file stands in inbox/taken/",
    "deliver.marked": "a batch is marked as in flight, its handler has not started",
    "journal.intent": "the intent of a tool run is stored, the tool has not run",
    "journal.ran": "the tool has run, its receipt is not stored",
    "journal.result": "a receipt or a model's answer is stored, the handler goes on",
    "commit.before": "inside the transaction, everything written, not committed",
    "commit.recorded": "the transaction is committed, no effect is on disk",
    "apply.append.before": "a passage is about to be appended",
    "apply.append.half": "half of a passage is in the page",
    "apply.append.after": "the passage is in the page",
    "apply.replace.kept": "the old page is kept in self/.history/",
    "apply.replace.written": "the new page is written beside the old one",
    "apply.replace.renamed": "the new page is in place",
    "apply.rotate.before": "passages are about to move from now.md to the archive",
    "apply.rotate.half": "half of the moving passages stands in a page of the archive",
    "apply.rotate.archived": "all of them stand in the archive, and in now.md still",
    "apply.rotate.written": "the shortened now.md is written beside the old one",
    "apply.rotate.renamed": "the shortened now.md is in place",
    "apply.emit.before": "a queue file is about to be written",
    "apply.emit.after": "a queue file stands in its queue",
    "apply.plain.before": "an ack or a reason is about to be written",
    "apply.plain.after": "an ack or a reason stands",
    "apply.move.before": "an input is about to leave its queue",
    "apply.move.after": "an input is in done/ or dead_letter/",
    "records.flushed": "what commits record stands in the memory store, the commits are not yet marked",
    "commit.applied": "all effects are on disk, not yet marked in the ledger",
    "checkpoint.synced": "everything is synced, not yet marked in the ledger",
}
"""Step → what is true at that moment."""


class KillSwitch:
    """Called with each step's name; ends this process with SIGKILL at the chosen one."""

    def __init__(self, kill_at: str | None) -> None:
        """`kill_at` is `step` or `step:n` (the n-th time); None never kills."""
        name, _, count = (kill_at or "").partition(":")
        if name and name not in STEPS:
            raise SettingsError("debug.kill_at", name, "no such step", f"one of {', '.join(STEPS)}")
        if count and not (count.isdigit() and int(count) > 0):
            raise SettingsError("debug.kill_at", kill_at or "", "the count is no number from 1", "step:3")
        self._name = name
        self._at = int(count or 1)
        self._seen: Counter[str] = Counter()

    def __call__(self, step: str) -> None:
        if step != self._name:
            return
        self._seen[step] += 1
        if self._seen[step] == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def armed(self) -> bool:
        """Whether it may kill at all; writes are then split so that half a passage can be left behind."""
        return bool(self._name)
