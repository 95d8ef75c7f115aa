"""What a start finds and puts right, before anything is delivered.

Commits that were recorded but not applied are applied again, oldest first (after a reboot also those that
were not synced). Deliveries that were in flight are suspects: the batch that killed the process is among
them. Each is delivered again alone; only a death while alone counts, and enough of them set it aside. A
death while the model is asked counts little: what waits does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog

from kernel_gamma.bus.adoption import adopt_passages
from kernel_gamma.bus.apply import Applier
from kernel_gamma.bus.disk import describe
from kernel_gamma.bus.files import list_names, move
from kernel_gamma.bus.flight_log import InFlight
from kernel_gamma.bus.folders import INBOX, TAKEN, matches, shown
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.plan import decode
from kernel_gamma.bus.records import Books, Committed, Departure
from kernel_gamma.bus.writer import Writer
from kernel_gamma.errors import TruthError

__all__ = ["Recovered", "Suspect", "recover"]

log = structlog.get_logger(__name__)

_PATIENCE = 10
"""So many deaths while a model is asked count as one in handling."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A batch to be delivered alone."""

    node: str
    seqs: tuple[int, ...]


@dataclass(slots=True)
class Recovered:
    """What the bus goes on with."""

    suspects: list[Suspect] = field(default_factory=list)
    backlog: dict[str, int] = field(default_factory=dict)
    """Open deliveries by node."""
    stuck: list[Committed] = field(default_factory=list)
    stuck_reason: str = ""


def recover(
    writer: Writer,
    books: Books,
    applier: Applier,
    *,
    root: bytes,
    nodes: Mapping[str, tuple[str, ...]],
    now: datetime,
    in_flight: Sequence[InFlight],
    max_deaths: int,
) -> Recovered:
    """Put the folder and the ledger in step. `nodes` are the subscribers with their watch patterns."""
    found = Recovered()
    writer.run_now(lambda ledger: books.start(ledger, now))
    _redo(writer, applier, found)
    writer.run_now(lambda ledger: _finish_renames(ledger, books, root, now, all_applied=not found.stuck))
    _put_back_strays(writer, root)
    writer.run_now(lambda ledger: adopt_passages(ledger, books, root, nodes, now), full=True)
    departures: list[Committed] = []
    writer.run_now(lambda ledger: departures.extend(_close_orphans(ledger, books, nodes, now)), full=True)
    found.suspects = writer.run_now(
        lambda ledger: _suspects(ledger, books, in_flight, max_deaths, now, departures), full=True
    )
    _carry_out(writer, applier, departures, found)
    writer.run_now(lambda ledger: _join(ledger, nodes))
    for node in nodes:
        row = writer.run_now(partial(_open_count, node=node))
        found.backlog[node] = int(row[0]) if row else 0
    return found


def _open_count(ledger: Ledger, node: str) -> tuple[int, ...] | None:
    return ledger.one("count_open", node)


def _redo(writer: Writer, applier: Applier, found: Recovered) -> None:
    """Apply again what may not stand on disk."""
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    known = writer.run_now(_boot_id_row)
    rebooted = known is not None and known[0] != boot
    query = "unsynced" if rebooted else "unapplied"
    rows = writer.run_now(lambda ledger: ledger.all(query))
    commits = [Committed(n, decode(plan)) for n, plan in rows if plan is not None]
    _carry_out(writer, applier, commits, found)
    if not found.stuck:
        writer.run_now(lambda ledger: ledger.run("set_meta", "boot_id", boot))
    if commits:
        log.info("commits of the last run were carried out again", commits=len(commits), rebooted=rebooted)


def _boot_id_row(ledger: Ledger) -> tuple[str, ...] | None:
    return ledger.one("get_meta", "boot_id")


def _carry_out(writer: Writer, applier: Applier, commits: list[Committed], found: Recovered) -> None:
    for committed in commits:
        if not found.stuck:
            try:
                applier.apply(committed.operations, redo=True, left=lambda d, n: _left(writer, d, n))
                applier.flush_records()
            except OSError as error:
                found.stuck_reason = describe(error)
            except TruthError as error:
                found.stuck_reason = str(error)
            else:
                writer.run_now(partial(_mark, committed=committed))
                continue
        found.stuck.append(committed)


def _mark(ledger: Ledger, committed: Committed) -> None:
    ledger.run("commit_applied", committed.n)


def _left(writer: Writer, directory: str, name: str) -> bool:
    """Whether every subscriber has finished an emitted file, so that it must not be written again."""
    row = writer.run_now(lambda ledger: ledger.one("file_state", os.fsencode(name), directory))
    return row is not None and row[0] != "live"


def _finish_renames(ledger: Ledger, books: Books, root: bytes, now: datetime, *, all_applied: bool) -> None:
    """Files that were accepted but not yet renamed when the process died; and those somebody removed.

    Without `all_applied` some files of the bus are not written yet: their absence means nothing.
    """
    for seq, queue, name, path, origin in ledger.all("live_files"):
        target = os.path.join(root, path)
        if os.path.lexists(target):
            continue
        dropped = os.path.join(root, os.fsencode(queue), name)
        if dropped != target and os.path.lexists(dropped):
            move(dropped, target)
            continue
        if origin == "bus" and not all_applied:
            continue
        books.record_vanished(ledger, seq, now)
        log.warning("a queued file is gone", queue=queue, file=shown(os.fsdecode(name)), seq=seq)


def _put_back_strays(writer: Writer, root: bytes) -> None:
    """Files in inbox/taken/ that no ledger knows (it was lost) are dropped again."""
    base = os.path.join(root, os.fsencode(TAKEN))
    known = {os.path.basename(row[3]) for row in writer.run_now(lambda ledger: ledger.all("live_files"))}
    strays = [n for n in list_names(base) if n not in known and not n.startswith(b".")]
    for name in sorted(strays, key=_number_of):
        original = name.partition(b"_")[2] or name
        target = os.path.join(root, os.fsencode(INBOX), original)
        if os.path.lexists(target):
            target = os.path.join(root, os.fsencode(INBOX), name)
        move(os.path.join(base, name), target)
    if strays:
        log.warning("files without a ledger entry were dropped again", files=len(strays))


def _number_of(name: bytes) -> tuple[int, bytes]:
    number = name.partition(b"_")[0]
    return (int(number) if number.isdigit() else 0, name)


def _close_orphans(
    ledger: Ledger, books: Books, nodes: Mapping[str, tuple[str, ...]], now: datetime
) -> list[Committed]:
    """Deliveries of nodes that left the topology end, on the record."""
    departures = []
    for (node,) in ledger.all("orphan_deliveries"):
        if node in nodes:
            continue
        for (seq,) in ledger.all("orphan_files", node):
            file = _departure(ledger, seq)
            if file is None:
                continue
            reason = f"node {node} is not in the topology any more"
            if (done := books.record_closed(ledger, node, file, reason, now)) is not None:
                departures.append(done)
        log.warning("deliveries of a removed node were closed", node=node)
    return departures


def _suspects(
    ledger: Ledger,
    books: Books,
    in_flight: Sequence[InFlight],
    max_deaths: int,
    now: datetime,
    departures: list[Committed],
) -> list[Suspect]:
    aloft = [(flight, _still_aloft(ledger, flight)) for flight in in_flight]
    aloft = [(f, rows) for f, rows in aloft if rows and ledger.one("commit_of_batch", f.batch_id) is None]
    suspects: list[Suspect] = []
    for flight, rows in aloft:
        if len(aloft) > 1:
            for row in rows:
                _suspect(ledger, flight, row)
            suspects.append(Suspect(flight.node, tuple(row.seq for row in rows)))
            continue
        charged = [_charged(flight, row, max_deaths) for row in rows]
        if flight.waiting and not any(row.guilty for row in charged):
            for row in charged:
                _suspect(ledger, flight, row)
            suspects.append(Suspect(flight.node, tuple(row.seq for row in rows)))
        elif len(rows) > 1:
            # A whole batch died alone: its members one by one, and nobody is charged yet.
            for row in rows:
                _suspect(ledger, flight, replace(row, waits=0, solo=1), batch_id=None)
                suspects.append(Suspect(flight.node, (row.seq,)))
        elif not charged[0].guilty:
            _suspect(ledger, flight, charged[0])
            suspects.append(Suspect(flight.node, (charged[0].seq,)))
        elif (gone := _killer(ledger, books, flight, charged[0], now)) is not None:
            departures.append(gone)
    return suspects


@dataclass(frozen=True, slots=True)
class _Record:
    """How often a delivery was there, alone, when the process died."""

    seq: int
    deaths: int
    waits: int
    """Deaths while the model was asked."""
    solo: int
    guilty: bool = False


def _still_aloft(ledger: Ledger, flight: InFlight) -> list[_Record]:
    """Those that are not through."""
    found = (ledger.one("delivery_in_the_air", flight.node, seq) for seq in flight.seqs)
    return [_Record(*row) for row in found if row is not None]


def _suspect(ledger: Ledger, flight: InFlight, row: _Record, batch_id: str | None = "") -> None:
    """Back in its queue with its record; as the same batch unless another `batch_id` is given."""
    batch = flight.batch_id if batch_id == "" else batch_id
    ledger.run("suspect_delivery", row.deaths, row.waits, row.solo, batch, flight.node, row.seq)


def _charged(flight: InFlight, row: _Record, max_deaths: int) -> _Record:
    """With this death. Whoever waits for the model is hardly to blame: a person's kill, a power cut, a
    machine that ran out of memory is far likelier; so many more such deaths are needed."""
    if flight.waiting:
        waits = row.waits + 1
        return replace(row, waits=waits, guilty=waits >= _PATIENCE * max_deaths)
    deaths = row.deaths + 1
    return replace(row, deaths=deaths, guilty=deaths >= max_deaths)


def _killer(ledger: Ledger, books: Books, flight: InFlight, row: _Record, now: datetime) -> Committed | None:
    """It has ended the process often enough."""
    file = _departure(ledger, row.seq)
    if file is None:
        return None
    deaths = row.waits if flight.waiting else row.deaths
    when = "the model was asked about this" if flight.waiting else "this was handled"
    detail = f"the process died {deaths} times while {when} alone"
    return books.record_dead(ledger, flight.node, file, "killed_the_process", detail, deaths, now)


def _join(ledger: Ledger, nodes: Mapping[str, tuple[str, ...]]) -> None:
    """Nodes that joined the topology see what still stands in their queues; a file for nobody stays."""
    for node, patterns in nodes.items():
        for seq, queue, name in ledger.all("add_missing_deliveries", node):
            if any(matches(pattern, queue, os.fsdecode(name)) for pattern in patterns):
                ledger.run("add_delivery", node, seq)


def _departure(ledger: Ledger, seq: int) -> Departure | None:
    row = ledger.one("file_by_seq", seq)
    if row is None or row[6] != "live":
        return None
    return Departure(row[0], row[1], os.fsdecode(row[2]), os.fsdecode(row[3]), row[4], row[5])
