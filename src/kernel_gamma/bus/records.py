"""What the bus writes into the ledger: each function is one job inside a transaction of the writer."""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from kernel_gamma.bus.files import free_name
from kernel_gamma.bus.folders import ACKS, DEAD_LETTER, INBOX, NAME_MAX, fitting_name
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.plan import (
    Operation,
    Plan,
    PlannedEmit,
    Verdict,
    encode,
    record_operation,
    write_operation,
)
from kernel_gamma.bus.provenance import keep_sha, provenance
from kernel_gamma.contracts.effects import Batch, Delivery, MovePrefix
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.ports import PageStore
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.contracts.ulid import encode_ulid

__all__ = ["Accepted", "Books", "Committed", "Departure", "NewFile"]


_SHAS = 2048
"""Newest passages whose bytes are told apart; equal ones share their second."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A queue file a commit has entered into the books."""

    seq: int
    emit: PlannedEmit
    nodes: tuple[str, ...]


@dataclass(slots=True)
class Committed:
    """A commit that is in the ledger and must be applied."""

    n: int
    operations: list[Operation]
    new_files: list[NewFile] = field(default_factory=list)
    departed: list[tuple[str, str]] = field(default_factory=list)
    """(queue, name) of the files that leave."""
    verdicts: dict[int, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Departure:
    """A file that leaves its queue."""

    seq: int
    queue: str
    name: str
    path: str
    """Where it stands now, relative to the data directory."""
    origin: Literal["bus", "dropped"]
    trace_id: str | None = None
    sole: bool = False
    """Only one node ever had it, so nobody else need be asked."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A dropped file that is in the books."""

    file: Departure
    nodes: tuple[str, ...]
    trust: Trust
    """What it was trusted when the bus wrote it; `unknown` for what others drop."""


class Books:
    """The ledger together with what must be known to write it: numbers, free names, offsets."""

    def __init__(
        self, root: bytes, pages: PageStore, *, subscribers: Callable[[str, str], tuple[str, ...]]
    ) -> None:
        """`subscribers(directory, name)` are the nodes a file is meant for."""
        self._root = root
        self._pages = pages
        self._subscribers = subscribers
        self._seq = 0
        self._n = 0
        self._ends: dict[str, int] = {}
        self._ends_serial = -1
        self._reserved: dict[str, set[bytes]] = {}
        self._shas: OrderedDict[str, int] = OrderedDict()
        self.departing: set[tuple[str, str]] = set()
        """(queue, name) of files that have left by the ledger and still stand in their queue."""

    def start(self, ledger: Ledger, now: datetime) -> None:
        """Read the newest numbers, and the newest passages' bytes."""
        for (sha256,) in ledger.all("recent_shas", passage_bound(now - timedelta(minutes=1))):
            self._count_sha(sha256)
        self._seq = int((ledger.one("last_seq") or (0,))[0])
        self._n = int((ledger.one("last_commit") or (0,))[0])

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def record_commit(
        self, ledger: Ledger, plan: Plan, batch: Batch, departures: dict[int, Departure], now: datetime
    ) -> Committed | None:
        """Write a plan; None if this batch was committed before (then nothing is to be done)."""
        if not batch.fresh and ledger.one("commit_of_batch", plan.batch_id) is not None:
            return None
        self._n += 1
        plan.moves.clear()  # this job may run again after a rolled back group
        plan.farewells.clear()
        done = Committed(self._n, [], verdicts=dict(plan.verdicts))
        self._place_appends(ledger, plan)
        plan.locate()
        at = now.timestamp()
        for emit in plan.emits:
            if (new := self._add_emit(ledger, emit, self._n, at)) is not None:
                done.new_files.append(new)
        for delivery in batch:
            self._close(ledger, plan, delivery, departures[delivery.seq], done, now)
        self._add_passages(ledger, plan, at)
        for claim in plan.claims:
            until = (now + timedelta(hours=claim.hours)).timestamp()
            value = json.dumps(dict(claim.value))
            if claim.renew:
                ledger.run("renew_claim", claim.key, value, until)
            else:
                ledger.run("add_claim", claim.key, value, until, at)
        done.operations = plan.operations()
        ledger.run(
            "add_commit", self._n, plan.batch_id, plan.node, plan.trace_id, at, encode(done.operations),
            json.dumps([d.seq for d in batch]), json.dumps([f.seq for f in done.new_files]),
            json.dumps([a.passage_id for a in plan.appends if a.passage_id]), json.dumps(plan.outputs()),
        )  # fmt: skip
        return done

    def _place_appends(self, ledger: Ledger, plan: Plan) -> None:
        if self._ends_serial != ledger.serial:
            # Earlier transactions have been applied: the page itself says where it ends.
            self._ends.clear()
            self._ends_serial = ledger.serial
        for append in plan.appends:
            end = self._ends.get(append.page)
            append.offset = self._pages.next_offset(append.page) if end is None else end
            self._ends[append.page] = append.offset + len(append.data)
            if not append.occurrence:  # a job that runs again counts nothing twice
                append.occurrence = self._count_sha(append.sha256) if append.passage_id else 1

    def record_rotation(self, ledger: Ledger, move: MovePrefix, now: datetime) -> None:
        """Enter that passages have moved to the archive to make room; nothing of it is to be done again."""
        self._n += 1
        pages = [f"self/{archived.page}" for archived in move.archives]
        ledger.run(
            "add_commit", self._n, f"rotation_{self._n}_{move.sha256[:16]}", "kernel", None, now.timestamp(),
            encode([]), "[]", "[]", "[]", json.dumps(pages),
        )  # fmt: skip
        ledger.run("commit_applied", self._n)

    def _count_sha(self, sha256: str) -> int:
        """How many passages have exactly these bytes, this one included: only those of one second can."""
        count = self._shas.pop(sha256, 0) + 1
        self._shas[sha256] = count
        if len(self._shas) > _SHAS:
            self._shas.popitem(last=False)
        return count

    def applied(self, committed: Committed) -> None:
        """The effects stand on disk: names are taken for real."""
        for op in committed.operations:
            if op[0] == "move":
                directory, _, name = op[2].rpartition("/")
                self._reserved.get(directory, set()).discard(os.fsencode(name))
            elif op[0] == "write" and op[1] in self._reserved:
                self._reserved[op[1]].discard(os.fsencode(op[2]))
        for queue, name in committed.departed:
            self.departing.discard((queue, name))

    def _add_emit(self, ledger: Ledger, emit: PlannedEmit, n: int, at: float) -> NewFile | None:
        nodes = self._subscribers(emit.directory, emit.name)
        if not nodes:
            return None
        seq, envelope = self.next_seq(), emit.envelope
        expires = at + envelope.ttl_sec if envelope.ttl_sec is not None else None
        path = os.fsencode(f"{emit.directory}/{emit.name}")
        ledger.run(
            "add_file", seq, emit.directory, os.fsencode(emit.name), path, "bus", "live", emit.trust,
            envelope.id, envelope.trace_id, envelope.session_key, at, expires, n,
        )  # fmt: skip
        for node in nodes:
            ledger.run("add_delivery", node, seq)
        for other in emit.ids():
            ledger.run("add_lookup", other, seq)
        return NewFile(seq, emit, nodes)

    def _add_passages(self, ledger: Ledger, plan: Plan, at: float) -> None:
        for append in plan.appends:
            if append.passage_id is None:
                continue
            heading = append.text.split("\n", 1)[0].removeprefix("## ")
            ledger.run(
                "add_passage", append.passage_id, self._n, append.page, append.offset, len(append.data),
                append.sha256, heading, append.kind, at, plan.batch_id, plan.trace_id, append.text,
            )  # fmt: skip

    def _close(
        self, ledger: Ledger, plan: Plan, delivery: Delivery, file: Departure, done: Committed, now: datetime
    ) -> None:
        verdict = plan.verdicts[delivery.seq]
        if verdict.status == "retry":
            at = now.timestamp() + (verdict.after_sec or 0.0)
            ledger.run("retry_delivery", delivery.attempt, at, verdict.reason, plan.node, delivery.seq)
            return
        status = "finished" if verdict.status == "finished" else "dead"
        reason = f"{verdict.kind}: {verdict.reason}" if status == "dead" else None
        ledger.run(
            "land_delivery", status, now.timestamp(), reason, delivery.attempt, plan.batch_id,
            plan.started_at, plan.node, delivery.seq,
        )  # fmt: skip
        for other in verdict.ids:
            ledger.run("add_lookup", other, delivery.seq)
        if not file.sole and (ledger.one("still_open", delivery.seq) or (0,))[0]:
            return
        self._depart(ledger, plan, file, verdict, done, now)

    def _depart(
        self, ledger: Ledger, plan: Plan, file: Departure, verdict: Verdict, done: Committed, now: datetime
    ) -> None:
        """The last subscriber is through: the file goes to done/, or to dead_letter/ if any gave it up."""
        given_up = verdict.status == "dead" or not file.sole
        dead = ledger.one("any_dead", file.seq) if given_up else None
        if dead is None:
            target = self.done_path(file, now)
            outcome = verdict.reason or "done"
        else:
            node, error, attempts = dead
            kind, _, detail = str(error or "").partition(": ")
            target, writes = self.dead_path(
                file, kind, detail, node=node, attempts=attempts, now=now, raw=verdict.raw
            )
            plan.farewells.extend(writes)
            outcome = "dead"
            self._keep_sha(ledger, file)
        plan.moves.append(("move", file.path, target))
        ledger.run("leave_file", os.fsencode(target), outcome, file.seq)
        self._leaves(done, file)

    def _leaves(self, done: Committed, file: Departure) -> None:
        if file.path == f"{file.queue}/{file.name}":
            done.departed.append((file.queue, file.name))
            self.departing.add((file.queue, file.name))

    def done_path(self, file: Departure, now: datetime) -> str:
        """A free name under the queue's done/ folder of the local day."""
        return self._free(f"{file.queue}/done/{now:%Y-%m-%d}", file)

    def _free(self, directory: str, file: Departure, beside: Callable[[bytes], bytes] | None = None) -> str:
        base = os.path.join(self._root, os.fsencode(directory))
        reserved = self._reserved.setdefault(directory, set())
        chosen = free_name(base, os.fsencode(file.name), file.seq, reserved, beside)
        reserved.update([chosen] if beside is None else [chosen, beside(chosen)])
        return f"{directory}/{os.fsdecode(chosen)}"

    def dead_path(
        self,
        file: Departure,
        kind: str,
        detail: str,
        *,
        node: str,
        attempts: int,
        now: datetime,
        raw: str = "",
    ) -> tuple[str, list[Operation]]:
        """A free name under dead_letter/, with the reason beside it and the producer's ack."""
        target = self._free(f"{DEAD_LETTER}/{now:%Y-%m-%d}", file, beside=reason_name)
        reason: dict[str, Json] = {
            "path": f"{file.queue}/{file.name}",
            "error": kind or "failed",
            "detail": detail,
            "node": node,
            "attempts": attempts,
            "time": rfc3339(now),
        }
        if file.trace_id:
            reason["trace_id"] = file.trace_id
        if raw:
            reason["raw"] = raw
        writes = [write_operation(reason_path(target), reason)]
        cause = hashlib.sha256(f"dead\0{file.seq}\0{target}".encode("utf-8", "surrogatepass")).digest()
        said = {name: told for name, told in reason.items() if name != "raw"}
        told = f"set aside: {reason['error']}"
        writes.append(record_operation("error", cause, told, said, "unknown", now))
        if file.queue == INBOX and file.origin == "dropped":
            refusal = {"ok": False, "error": f"{kind}: {detail}" if kind else detail}
            writes.append(write_operation(f"{ACKS}/{file.name}", refusal))
        return target, writes

    def record_accepted(
        self, ledger: Ledger, queue: str, names: Sequence[str], at: float, taken: str | None
    ) -> list[Accepted]:
        """Enter dropped files in order, with their names-to-be in `taken` (None: they stay in place).

        What the books know at its place already is no drop, however often it is noticed.
        """
        accepted = []
        for name in names:
            if self.stands(ledger, queue, name):
                continue
            seq, nodes = self.next_seq(), self._subscribers(queue, name)
            path = f"{queue}/{name}"
            if taken is not None:
                path = f"{taken}/{os.fsdecode(fitting_name(b'%d_' % seq, os.fsencode(name)))}"
            whose = provenance(ledger, self._root, queue, name, at)
            file = Departure(seq, queue, name, path, whose.origin)
            self._enter(ledger, file, at, whose.trust)
            wanting = tuple(n for n in nodes if n in whose.gave_up) or nodes
            for node in nodes:
                ledger.run("add_delivery", node, seq)
                if node not in wanting:
                    ledger.run("close_delivery", "finished", at, "finished before", 0, node, seq)
            accepted.append(Accepted(file, wanting, whose.trust))
        return accepted

    def _keep_sha(self, ledger: Ledger, file: Departure) -> None:
        if file.origin == "bus":
            keep_sha(ledger, self._root, file.seq, file.path)

    def stands(self, ledger: Ledger, queue: str, name: str) -> bool:
        """Whether the file at this place is in the books: written by the bus, or accepted where it lies."""
        if (queue, name) in self.departing:
            return True
        path = os.fsencode(f"{queue}/{name}")
        return ledger.one("standing_file", os.fsencode(name), queue, path) is not None

    def _enter(self, ledger: Ledger, file: Departure, at: float, trust: Trust = "unknown") -> None:
        ledger.run(
            "add_file", file.seq, file.queue, os.fsencode(file.name), os.fsencode(file.path), file.origin,
            "live", trust, None, None, None, at, None, None,
        )  # fmt: skip

    def record_refused(
        self, ledger: Ledger, queue: str, name: str, kind: str, detail: str, now: datetime
    ) -> Committed | None:
        """A dropped file that can never be accepted goes straight to dead_letter/; None if it is no drop."""
        if self.stands(ledger, queue, name):
            return None
        file = Departure(self.next_seq(), queue, name, f"{queue}/{name}", "dropped")
        self._enter(ledger, file, now.timestamp())
        target, writes = self.dead_path(file, kind, detail, node="bus", attempts=0, now=now)
        return self.record_departure(
            ledger, f"refused_{file.seq}", "bus", file, target, writes, outcome="dead", now=now
        )

    def record_dead(
        self, ledger: Ledger, node: str, file: Departure, kind: str, detail: str, attempts: int, now: datetime
    ) -> Committed | None:
        """The bus gives a delivery up; the file leaves when no other node still has it."""
        error = f"{kind}: {detail}"
        ledger.run("close_delivery", "dead", now.timestamp(), error, attempts, node, file.seq)
        if (ledger.one("still_open", file.seq) or (0,))[0]:
            return None
        target, writes = self.dead_path(file, kind, detail, node=node, attempts=attempts, now=now)
        self._keep_sha(ledger, file)
        return self.record_departure(
            ledger, f"dead_{node}_{file.seq}", node, file, target, writes, outcome="dead", now=now
        )

    def record_closed(
        self, ledger: Ledger, node: str, file: Departure, reason: str, now: datetime
    ) -> Committed | None:
        """A delivery ends without its node (expired, the node is gone); the last one moves the file."""
        ledger.run("close_delivery", "finished", now.timestamp(), reason, 0, node, file.seq)
        if (ledger.one("still_open", file.seq) or (0,))[0]:
            return None
        target = self.done_path(file, now)
        return self.record_departure(
            ledger, f"closed_{node}_{file.seq}", node, file, target, [], outcome=reason, now=now
        )

    def record_vanished(self, ledger: Ledger, seq: int, now: datetime) -> list[str]:
        """A file somebody removed from its queue: nothing is left to do for it. Returns who had it open."""
        nodes = [node for (node,) in ledger.all("live_file_nodes", seq)]
        for node in nodes:
            ledger.run("close_delivery", "finished", now.timestamp(), "the file was removed", 0, node, seq)
        ledger.run("leave_file", None, "removed by somebody", seq)
        return nodes

    def record_departure(
        self, ledger: Ledger, cause: str, node: str, file: Departure, target: str, writes: list[Operation],
        *, outcome: str, now: datetime,
    ) -> Committed:  # fmt: skip
        """A file leaves its queue by a decision of the bus itself (refused, poisoned, orphaned)."""
        self._n += 1
        operations: list[Operation] = [*writes, ("move", file.path, target)]
        ledger.run(
            "add_commit", self._n, cause, node, file.trace_id, now.timestamp(), encode(operations),
            json.dumps([file.seq]), "[]", "[]", "[]",
        )  # fmt: skip
        ledger.run("leave_file", os.fsencode(target), outcome, file.seq)
        done = Committed(self._n, operations)
        self._leaves(done, file)
        return done


def reason_path(target: str) -> str:
    """Where the reason of a dead file stands."""
    directory, _, name = target.rpartition("/")
    return f"{directory}/{os.fsdecode(reason_name(os.fsencode(name)))}"


def reason_name(name: bytes) -> bytes:
    """The name of the reason beside a dead file; long names are cut so that it fits."""
    return name[: NAME_MAX - len(b".reason.json")] + b".reason.json"


def passage_bound(moment: datetime) -> str:
    """Passages written since `moment` have ids from this one on."""
    return f"psg_{encode_ulid(int(moment.timestamp() * 1000), bytes(10))}"
