"""Rows of the ledger that are past their time: found beside the loop, deleted in small transactions.

What may go is what no redo, no retry and no later commit asks for:

- files that have left, with their deliveries and other ids; not those that were set aside and still lie
  there (their bytes are known again by their row), nor what a waiting file came from;
- commits that stand and are synced; never the newest of commits and files, whose numbers are counted on;
- passages that are not in now.md any more and that no waiting file names;
- model calls and tool runs of batches that will not be handed over again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kernel_gamma.bus.ledger import Ledger, Row

__all__ = ["Held", "Limits", "OldRows", "held_by_waiting"]

_STEP = 500
"""Rows looked at for one transaction: other writers get their turn in between."""

Job = Callable[[Ledger], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Epoch seconds before which rows may go; None = never."""

    rows: float | None
    answers: float | None


@dataclass(slots=True)
class Held:
    """What is not through came from these."""

    files: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)
    batches: set[str] = field(default_factory=set)
    finals: set[str] = field(default_factory=set)
    """Where the files stand that have left, relative to the data directory."""


def held_by_waiting(ledger: Ledger) -> Held:
    """Walk from all that waits up to what was dropped."""
    held = Held(batches={batch for (batch,) in ledger.all("waiting_batches")})
    above: list[int] = []
    for seq, commit in ledger.all("waiting_files"):
        held.files.add(seq)
        if commit is not None:
            above.append(commit)
    while above:
        number = above.pop()
        if number in held.commits:
            continue
        held.commits.add(number)
        row = ledger.one("causes_of_commit", number)
        if row is None:
            continue
        held.batches.add(row[0])
        above += _ascend(ledger, held, json.loads(row[1]))
    return held


def _ascend(ledger: Ledger, held: Held, members: list[int]) -> Iterator[int]:
    for seq in members:
        row = None if seq in held.files else ledger.one("cause_of_file", seq)
        if row is None:
            continue
        held.files.add(seq)
        if row[1] is not None:
            held.finals.add(os.fsdecode(row[1]))
        if row[0] is not None:
            yield row[0]


class OldRows:
    """Walks one ledger through a connection of its own; the deleting is handed to whoever may write."""

    def __init__(self, ledger: Ledger, root: bytes, held: Held, limits: Limits) -> None:
        """`ledger` is only read here."""
        self._ledger = ledger
        self._root = root
        self._held = held
        self._limits = limits
        self.counts: dict[str, int] = {}
        """Rows by kind that the jobs so far delete."""

    def jobs(self, headings: frozenset[str]) -> Iterator[Job]:
        """Jobs for the writer, each a small transaction. `headings` are those that stand in now.md.

        Each one is made when it is asked for: let the one before be done first.
        """
        yield from self._answers_and_steps()
        if self._limits.rows is None:
            return
        yield from self._passages(headings, self._limits.rows)
        yield from self._files(self._limits.rows)
        yield from self._commits(self._limits.rows)
        yield from self._lookup()

    def _count(self, kind: str, rows: list[Row]) -> None:
        if rows:
            self.counts[kind] = self.counts.get(kind, 0) + len(rows)

    def _pages(self, query: str, *start: object) -> Iterator[list[Row]]:
        """Rows of a walk, a step at a time; the last key of one step begins the next."""
        after = start
        while rows := self._ledger.all(query, *after, _STEP):
            yield rows
            if len(rows) < _STEP:
                return
            after = tuple(rows[-1][: len(start)])

    def _answers_and_steps(self) -> Iterator[Job]:
        rows, answers = self._limits.rows, self._limits.answers
        for page in self._pages("walk_steps", "", ""):
            through = [row for row in page if row[0] not in self._held.batches]
            gone = [row[:2] for row in through if rows is not None and row[3] < rows]
            going = set(gone)
            emptied = [
                row[:2]
                for row in through
                if row[2] == "model" and not row[4] and answers is not None and row[3] < answers
            ]
            emptied = [key for key in emptied if key not in going]
            self._count("steps", gone)
            self._count("answers", emptied)
            if gone or emptied:
                yield _deleting(("prune_step", gone), ("forget_answer", emptied))

    def _passages(self, headings: frozenset[str], before: float) -> Iterator[Job]:
        for page in self._pages("walk_passages", ""):
            gone: list[Row] = [
                (passage_id,)
                for passage_id, at, commit, heading in page
                if at < before and commit not in self._held.commits and heading not in headings
            ]
            self._count("passages", gone)
            if gone:
                yield _deleting(("prune_passage", gone))

    def _files(self, before: float) -> Iterator[Job]:
        (newest,) = self._ledger.one("last_seq") or (0,)
        for page in self._pages("walk_files", 0):
            gone: list[Row] = [
                (row[0],)
                for row in page
                if row[1] < before
                and row[0] < newest
                and row[0] not in self._held.files
                and not self._may_come_back(row)
            ]
            self._count("files", gone)
            if gone:
                yield _deleting(("prune_file", gone), ("prune_deliveries", gone))
            if all(row[1] >= before for row in page):
                return  # numbers follow time, but for a clock that was set back

    def _may_come_back(self, row: Row) -> bool:
        """Whether a file was set aside and a person may yet have it tried again: it is known by its bytes."""
        _, _, outcome, queue, name, final, sha256 = row
        if outcome != "dead" or sha256 is None:
            return False
        places = (final, os.fsencode(queue) + b"/" + name)
        return any(place and os.path.lexists(os.path.join(self._root, place)) for place in places)

    def _commits(self, before: float) -> Iterator[Job]:
        (newest,) = self._ledger.one("last_commit") or (0,)
        for page in self._pages("walk_commits", 0):
            gone: list[Row] = [
                (n,) for n, at in page if at < before and n < newest and n not in self._held.commits
            ]
            self._count("commits", gone)
            if gone:
                yield _deleting(("prune_commit", gone))
            if all(at >= before for _, at in page):
                return

    def _lookup(self) -> Iterator[Job]:
        if "files" not in self.counts:
            return
        for page in self._pages("walk_lookup", "", 0):
            gone: list[Row] = [(name, seq) for name, seq, stands in page if not stands]
            if gone:
                yield _deleting(("prune_lookup", gone))


def _deleting(*statements: tuple[str, list[Row]]) -> Job:
    def job(ledger: Ledger) -> None:
        for name, rows in statements:
            ledger.run_many(name, rows)

    return job
