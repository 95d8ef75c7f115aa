"""One event's whole journey, read from the ledger and the folders. Changes nothing.

The walk: from the files an id names up to what was dropped, then down through batches and commits to all
that followed. Where events of other traces were handled in the same batch they are named as company and
not followed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from kernel_gamma.bus.files import Unreadable, read_regular
from kernel_gamma.bus.folders import OUTBOX
from kernel_gamma.bus.journal import result_in
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.records import reason_path
from kernel_gamma.contracts.envelope import Json, rfc3339

__all__ = ["Handling", "Journey", "Output", "PassageAdded", "Step", "TracedFile", "journey"]

_MOST_FILES = 500
_LARGEST_REASON = 1_048_576


@dataclass(frozen=True, slots=True)
class Step:
    """One model call or tool run."""

    step: str
    kind: str
    role: str | None
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    cost: float | None
    duration_sec: float | None
    """None: it was started and left no result."""
    failed: str | None
    """What a tool said when it failed."""


@dataclass(frozen=True, slots=True)
class PassageAdded:
    """One passage a batch added to a page."""

    passage_id: str
    page: str
    offset: int
    length: int
    heading: str
    kind: str


@dataclass(frozen=True, slots=True)
class Output:
    """A page or file a batch wrote."""

    path: str
    """Relative to the data directory; where it stands now if it was moved to done/."""
    exists: bool


@dataclass(frozen=True, slots=True)
class Handling:
    """What one node did with one file."""

    node: str
    status: str
    batch_id: str | None
    company: tuple[str, ...]
    """Other files of the same batch."""
    wait_sec: float | None
    """From acceptance to the last start of its handler."""
    handling_sec: float | None
    attempts: int
    deaths: int
    next_try: str | None
    error: str | None
    commit: int | None
    steps: tuple[Step, ...]
    passages: tuple[PassageAdded, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class TracedFile:
    """One queue file."""

    seq: int
    queue: str
    name: str
    path: str
    """Where it is now, relative to the data directory."""
    exists: bool
    state: str
    """live, leaving or gone."""
    outcome: str | None
    """done, dead, expired, …; None while it is in its queue."""
    origin: str
    trust: str
    file_id: str | None
    trace_id: str | None
    session_key: str | None
    accepted_at: str
    parents: tuple[int, ...]
    """Numbers of the files it was made from."""
    reason: Json
    """Content of its .reason.json if it was set aside."""
    handled: tuple[Handling, ...]


@dataclass(slots=True)
class Journey:
    """Everything known of an id."""

    asked: str
    traces: list[str] = field(default_factory=list)
    files: list[TracedFile] = field(default_factory=list)
    """In the order of their numbers: causes before what they caused."""
    cut: bool = False
    """There is more than is shown."""

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


def journey(ledger: Ledger, root: bytes, asked: str, zone: tzinfo) -> Journey | None:
    """The journey of an event, trace, file, passage or dropped name; None when nothing is known of it.

    `root` is the data directory; times are told in `zone`.
    """
    asked = asked.strip().removeprefix("/")
    walk = _Walk(ledger)
    named = walk.named(asked)
    if not named:
        return None
    shown = walk.around(named)
    reader = _Reader(ledger, root, zone)
    found = Journey(asked, cut=walk.cut)
    for seq in sorted(shown):
        found.files.append(reader.file(seq, walk.parents(seq)))
    seen = (file.trace_id for file in found.files if file.trace_id)
    found.traces = list(dict.fromkeys(seen))
    return found


class _Walk:
    """Which files belong to a journey."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._parents: dict[int, tuple[int, ...]] = {}
        self.cut = False

    def named(self, asked: str) -> set[int]:
        """Files an id or a name stands for, without their kin."""
        if asked.isprintable():  # ids are; a name of bytes that are no UTF-8 is not, nor can SQLite take it
            found = {row[0] for row in self._ledger.all("trace_files", asked, asked, asked, asked)}
            if found:
                return found
        name = asked.rpartition("/")[2]
        for candidate in (name, f"{name}.json"):
            rows = self._ledger.all("trace_named", os.fsencode(candidate))
            if rows:
                return {row[0] for row in rows}
        # as it stands in the JSON list of a commit's outputs
        written = json.dumps("/" + name.removesuffix(".json") + ".json")[1:]
        row = self._ledger.one("trace_output", written)
        if row is None and asked.isprintable():
            row = self._ledger.one("trace_passage", asked)
        return self._members(row[0]) if row else set()

    def around(self, named: set[int]) -> set[int]:
        """`named` with all causes and all consequences, at most 500 files."""
        found = set(named)
        todo = [seq for seq in named if not named.intersection(self.parents(seq))]
        while todo:
            for parent in self.parents(todo.pop()):
                if parent not in found:
                    found.add(parent)
                    todo.append(parent)
        todo = sorted(named)
        while todo:
            for child in self._children(todo.pop(0)):
                if child in found:
                    continue
                if len(found) >= _MOST_FILES:
                    self.cut = True
                    return found
                found.add(child)
                todo.append(child)
        return found

    def parents(self, seq: int) -> tuple[int, ...]:
        """The files whose handling wrote this one."""
        if seq not in self._parents:
            row = self._ledger.one("trace_file", seq)
            batch = self._ledger.one("trace_batch_of_commit", row[11]) if row and row[11] else None
            self._parents[seq] = tuple(sorted(self._members(batch[0]))) if batch else ()
        return self._parents[seq]

    def _members(self, batch_id: str) -> set[int]:
        return {row[0] for row in self._ledger.all("trace_batch_members", batch_id)}

    def _children(self, seq: int) -> Iterator[int]:
        for row in self._ledger.all("trace_deliveries", seq):
            commit = self._ledger.one("trace_commit_of_batch", row[2]) if row[2] else None
            if commit is not None:
                yield from (child[0] for child in self._ledger.all("trace_children", commit[0]))


class _Reader:
    """Rows to values."""

    def __init__(self, ledger: Ledger, root: bytes, zone: tzinfo) -> None:
        self._ledger = ledger
        self._root = root
        self._zone = zone

    def file(self, seq: int, parents: tuple[int, ...]) -> TracedFile:
        row = self._ledger.one("trace_file", seq)
        if row is None:
            raise KeyError(seq)
        _, queue, name, path, origin, state, trust, file_id, trace_id, session, accepted_at, *rest = row
        _, final, outcome = rest
        path, exists = self._now_at(path, final)
        return TracedFile(
            seq=seq,
            queue=queue,
            name=os.fsdecode(name),
            path=path,
            exists=exists,
            state=state,
            outcome=outcome,
            origin=origin,
            trust=trust,
            file_id=file_id,
            trace_id=trace_id,
            session_key=session,
            accepted_at=self._moment(accepted_at) or "",
            parents=parents,
            reason=self._reason(path) if outcome == "dead" else None,
            handled=tuple(
                self._handling(seq, accepted_at, found) for found in self._ledger.all("trace_deliveries", seq)
            ),
        )

    def _now_at(self, path: bytes, final: bytes | None) -> tuple[str, bool]:
        """The ledger says where it should be; the folders say whether it is there."""
        for place in (final, path):
            if place is not None and os.path.lexists(os.path.join(self._root, place)):
                return os.fsdecode(place), True
        return os.fsdecode(final or path), False

    def _handling(self, seq: int, accepted_at: float, row: tuple[Any, ...]) -> Handling:
        node, status, batch_id, attempts, deaths, next_try, error, started_at, ended_at = row
        commit = self._ledger.one("trace_commit_of_batch", batch_id) if batch_id else None
        # A batch id outlives a failed attempt; only a commit of this very node carries it out.
        mine = commit is not None and commit[2] == node
        n, outputs = (commit[0], commit[5]) if commit is not None and mine else (None, "[]")
        return Handling(
            node=node,
            status=status,
            batch_id=batch_id,
            company=tuple(self._company(batch_id, seq)) if batch_id else (),
            wait_sec=_between(accepted_at, started_at),
            handling_sec=_between(started_at, ended_at),
            attempts=attempts,
            deaths=deaths,
            next_try=self._moment(next_try) if status == "retry" else None,
            error=error,
            commit=n,
            steps=tuple(self._steps(batch_id)) if batch_id else (),
            passages=tuple(PassageAdded(*found) for found in self._ledger.all("trace_passages", n)),
            outputs=tuple(self._output(path) for path in json.loads(outputs)),
        )

    def _company(self, batch_id: str, seq: int) -> Iterable[str]:
        for (other,) in self._ledger.all("trace_batch_members", batch_id):
            row = self._ledger.one("trace_file", other) if other != seq else None
            if row is not None:
                yield os.fsdecode(row[2])

    def _steps(self, batch_id: str) -> Iterator[Step]:
        for row in self._ledger.all("trace_steps", batch_id):
            step, kind, started_at, ended_at, role, model, prompt, completion, cached, cost, result = row
            failed = _failure(result) if kind == "tool" else None
            duration = _between(started_at, ended_at)
            yield Step(step, kind, role, model, prompt, completion, cached, cost, duration, failed)

    def _output(self, path: str) -> Output:
        places = [path]
        if path.startswith(f"{OUTBOX}/"):
            folder, _, name = path.rpartition("/")
            places.append(f"{folder}/done/{name}")
        for place in places:
            if os.path.lexists(os.path.join(self._root, os.fsencode(place))):
                return Output(place, True)
        return Output(path, False)

    def _reason(self, path: str) -> Json:
        full = os.path.join(self._root, os.fsencode(reason_path(path)))
        try:
            return json.loads(read_regular(full, _LARGEST_REASON)[0])
        except (FileNotFoundError, Unreadable, ValueError):
            return None

    def _moment(self, epoch: float | None) -> str | None:
        return None if epoch is None else rfc3339(datetime.fromtimestamp(epoch, self._zone))


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds; the clock may have been stepped back in between."""
    return None if start is None or end is None else round(max(0.0, end - start), 6)


def _failure(result: str | bytes | None) -> str | None:
    try:
        found = result_in(result or "null")
    except ValueError:
        return None
    return str(found.get("error")) if isinstance(found, dict) and found.get("ok") is False else None
