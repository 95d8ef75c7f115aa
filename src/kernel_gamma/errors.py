"""Every error the runtime acts on. The class says what follows.

KernelError
├── Retry         the same input may succeed soon: backoff, an attempt is counted
│   └── Unusable      the model's answer was no answer; a batch is split first
├── Park          nothing is wrong with the input: the node waits, the queue stays
│   ├── ModelDown     endpoint away, refusing or out of quota
│   ├── BudgetSpent   the day's tokens or money are used up
│   ├── QuietHours    only messages from people are thought about now
│   └── DiskFull      nothing more can be written
├── Poison        this input can never succeed: dead-letter
│   └── TooLarge      it does not fit into a prompt, whatever is left out
├── Fenced        another daemon took over the mind: stop at once, commit nothing
├── TruthError    the memory store refuses or cannot
│   ├── BadTruth        key or value cannot be stored as it is
│   ├── TruthLocked     a locked truth is not written over
│   ├── VersionConflict another version stands than the writer expected
│   ├── StoreFull       the disk is full: nothing was written
│   └── StoreDamaged    memory.db is no readable database
└── Stop          configuration: the daemon ends and says what to mend
    └── SettingsError   which file, which key, what is wrong, how to mend it
"""

from __future__ import annotations

from datetime import datetime

__all__ = [
    "BadTruth",
    "BudgetSpent",
    "DiskFull",
    "Fenced",
    "KernelError",
    "ModelDown",
    "Park",
    "Poison",
    "QuietHours",
    "Retry",
    "SettingsError",
    "Stop",
    "StoreDamaged",
    "StoreFull",
    "TooLarge",
    "TruthError",
    "TruthLocked",
    "Unusable",
    "VersionConflict",
]


class KernelError(Exception):
    """Root of the tree; `str()` is a sentence for a person."""


class Retry(KernelError):
    """Try the same input again after a pause; counts as one attempt.

    `after_sec` overrides the bus's own backoff when given.
    """

    def __init__(self, reason: str, *, after_sec: float | None = None) -> None:
        super().__init__(reason)
        self.after_sec = after_sec


class Unusable(Retry):
    """The model answered twice without a usable answer, or without coming to an end.

    `raw` is its last reply, whole.
    """

    def __init__(self, reason: str, *, raw: str = "") -> None:
        super().__init__(reason)
        self.raw = raw


class Park(KernelError):
    """The node must wait until `until` (aware); no attempt is counted, nothing is dropped.

    With `holds_all` False only these inputs wait; the node goes on with those of other sessions.
    """

    def __init__(self, reason: str, *, until: datetime, holds_all: bool = True) -> None:
        super().__init__(reason)
        self.until = until
        self.holds_all = holds_all


class ModelDown(Park):
    """The model cannot be reached or refuses for now."""


class BudgetSpent(Park):
    """The day's budget does not cover this call."""


class QuietHours(Park):
    """Nobody waits for this call, and it is no time for others."""


class DiskFull(Park):
    """The data directory cannot take another byte."""


class Poison(KernelError):
    """The input can never succeed. `kind` is a short word for the `.reason.json`."""

    def __init__(self, detail: str, *, kind: str = "invalid") -> None:
        super().__init__(detail)
        self.kind = kind


class TooLarge(Poison):
    """What may not be left out of a prompt is larger than the prompt may be; `str()` has the numbers."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, kind="too_large")


class Fenced(KernelError):
    """The ledger carries a newer boot number than ours: this process must not write."""


class TruthError(KernelError):
    """A call of the memory store did nothing; `str()` says why."""


class BadTruth(TruthError):
    """Key, category, value or description cannot be stored as they are."""


class TruthLocked(TruthError):
    """The truth is locked; only `kgamma truths unlock KEY` takes the lock off."""


class VersionConflict(TruthError):
    """The writer expected another version than `version`, the one that stands (0 = none)."""

    def __init__(self, detail: str, *, version: int) -> None:
        super().__init__(detail)
        self.version = version


class StoreFull(TruthError):
    """The disk took no more; the write was undone whole."""


class StoreDamaged(TruthError):
    """memory.db is no readable database."""


class Stop(KernelError):
    """The daemon cannot run as configured."""


class SettingsError(Stop):
    """A setting is wrong: names the file, the key, what is wrong and how to mend it."""

    def __init__(self, file: str, key: str, problem: str, mend: str = "") -> None:
        super().__init__(f"{file}: {key}: {problem}" + (f" ({mend})" if mend else ""))
        self.file = file
        self.key = key
        self.problem = problem
        self.mend = mend
