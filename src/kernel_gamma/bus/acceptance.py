"""How a dropped file enters the books, and how a file leaves them without having been handled."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import structlog

from kernel_gamma.bus.disk import Disk, describe
from kernel_gamma.bus.files import FileSign, move, sync_paths, sync_tree
from kernel_gamma.bus.folders import INBOX, TAKEN, shown
from kernel_gamma.bus.intake import Arrival, Intake, Refusal
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.reading import KEEP_BYTES, Reader, envelope_of
from kernel_gamma.bus.records import Accepted, Books, Committed, Departure
from kernel_gamma.bus.subscription import Observer, QueuedFile, Subscription, departure
from kernel_gamma.contracts.effects import Delivery
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import Poison

__all__ = ["Acceptance", "AcceptancePorts"]

log = structlog.get_logger(__name__)

_SYNC_ONE_BY_ONE = 8
"""Up to so many files are made durable one by one; more share one sync of the file system."""
_LOOK_AT = 1000
"""Names looked up in one transaction, so that a full directory keeps nobody waiting."""


@dataclass(frozen=True, slots=True)
class AcceptancePorts:
    """What acceptance works with; all of it belongs to the bus."""

    root: bytes
    clock: Clock
    disk: Disk
    books: Books
    reader: Reader
    subscriptions: Mapping[str, Subscription]
    subscribers: Callable[[str, str], tuple[str, ...]]
    step: Callable[[str], None]
    observe: Observer
    full: bool
    """Accepted files survive a power cut before they are acknowledged."""


class Acceptance:
    """Takes arrivals and refusals in order; one directory at a time."""

    def __init__(self, ports: AcceptancePorts) -> None:
        self._ports = ports

    async def known(self, directory: str, names: Collection[bytes]) -> Collection[bytes]:
        """Which names of a directory are in the books where they stand, or just leaving."""
        found: list[bytes] = []
        listed = list(names)
        for start in range(0, len(listed), _LOOK_AT):
            piece = listed[start : start + _LOOK_AT]
            found += await self._ports.disk.attempt(partial(self._standing, directory=directory, names=piece))
        return found

    def _standing(self, ledger: Ledger, directory: str, names: list[bytes]) -> list[bytes]:
        return [n for n in names if self._ports.books.stands(ledger, directory, os.fsdecode(n))]

    async def accept(self, intake: Intake, found: list[Arrival | Refusal]) -> None:
        """Consecutive arrivals share a transaction, refusals come one by one, all in order."""
        arrivals: list[Arrival] = []
        for item in found:
            if isinstance(item, Arrival):
                if self._ports.subscribers(intake.directory, os.fsdecode(item.name)):
                    arrivals.append(item)
                continue
            if arrivals:
                await self._accept_arrivals(intake.directory, arrivals)
                arrivals = []
            await self._refuse(intake.directory, item)
        if arrivals:
            await self._accept_arrivals(intake.directory, arrivals)

    async def _refuse(self, directory: str, item: Refusal) -> None:
        name = os.fsdecode(item.name)
        record = partial(
            self._ports.books.record_refused,
            queue=directory,
            name=name,
            kind=item.kind,
            detail=item.detail,
            now=self._ports.clock.now(),
        )
        if await self._ports.disk.commit(record) is None:
            return
        log.warning("set aside", file=shown(name), queue=directory, error=item.kind, detail=item.detail)
        self._ports.observe("refused", {"name": name, "error": item.kind, "detail": item.detail})

    async def _accept_arrivals(self, directory: str, arrivals: list[Arrival]) -> None:
        now = self._ports.clock.now()
        by_name = {os.fsdecode(a.name): a for a in arrivals}
        record = partial(
            self._ports.books.record_accepted,
            queue=directory,
            names=list(by_name),
            at=now.timestamp(),
            taken=TAKEN if directory == INBOX else None,
        )
        intact: dict[int, bool] = {}

        held_up: list[tuple[Departure, OSError]] = []

        def after(accepted: list[Accepted]) -> None:
            self._ports.step("accept.recorded")
            for file in (a.file for a in accepted):
                try:
                    intact[file.seq] = self._take(file, by_name[file.name].sign)
                except OSError as error:
                    intact[file.seq] = False
                    held_up.append((file, error))
            self._ports.step("accept.renamed")
            if self._ports.full:
                self._make_durable(directory, [a.file for a in accepted])

        accepted = await self._ports.disk.attempt(record, after=after)
        if held_up:
            await self._rename_later(held_up)
        for item in accepted:
            arrival = by_name[item.file.name]
            document = arrival.document if intact[item.file.seq] else None
            await self._offer(item, document, size=arrival.sign.size, now=now)

    async def _rename_later(self, held_up: list[tuple[Departure, OSError]]) -> None:
        """They are in the books and must be renamed: the mind waits until it can be done."""
        moves = [("move", f"{file.queue}/{file.name}", file.path) for file, _ in held_up]
        self._ports.disk.stick([Committed(0, list(moves))], describe(held_up[0][1]))
        await self._ports.disk.clear.wait()

    def _take(self, file: Departure, sign: FileSign) -> bool:
        """Rename a dropped file to its own number; whether it is still the content that was read."""
        target = self._path(file.path)
        dropped = f"{file.queue}/{file.name}"
        if file.path != dropped:
            move(self._path(dropped), target)
        try:
            return FileSign.of(os.lstat(target)) == sign
        except OSError:
            return False

    def _path(self, relative: str) -> bytes:
        return os.path.join(self._ports.root, os.fsencode(relative))

    def _make_durable(self, directory: str, files: list[Departure]) -> None:
        paths = [self._path(f.path) for f in files]
        folders = {os.path.dirname(p) for p in paths} | {self._path(directory)}
        try:
            if len(files) > _SYNC_ONE_BY_ONE:
                sync_tree(self._ports.root)
            else:
                sync_paths([*paths, *folders])
        except OSError as error:  # they are accepted all the same: what failed is the disk
            log.error("accepted files could not be synced", error=describe(error), files=len(files))

    async def _offer(self, accepted: Accepted, document: Json, *, size: int, now: datetime) -> None:
        file, nodes = accepted.file, accepted.nodes
        delivery = Delivery(
            seq=file.seq,
            queue=file.queue,
            name=file.name,
            origin=file.origin,
            document=document,
            accepted_at=now,
            envelope=envelope_of(document) if file.queue != INBOX or file.origin == "bus" else None,
            trust=accepted.trust,
        )
        queued = QueuedFile(delivery, file.path, None, sole=len(nodes) == 1, large=size > KEEP_BYTES)
        if document is None:
            # It changed between reading and renaming: what is there now is what was dropped.
            try:
                queued.delivery = self._ports.reader.again(queued)
            except FileNotFoundError:
                await self.vanished(file.seq, counted=False)
                return
            except Poison as error:
                for node in nodes:
                    await self.give_up(node, departure(queued), error, attempts=0)
                return
        for node in nodes:
            # A copy each: attempts are counted, and large documents dropped, by node.
            self._ports.subscriptions[node].offer(replace(queued), self._ports.clock.monotonic())
        self._ports.observe("accepted", {"name": file.name, "queue": file.queue, "seq": file.seq})

    async def vanished(self, seq: int, *, counted: bool = True) -> None:
        """Somebody removed the file; with `counted` its nodes have it in their backlog.

        A node that has it in memory finishes it by itself; for the others it is finished here.
        """
        now = self._ports.clock.now()
        nodes = await self._ports.disk.attempt(
            lambda ledger: self._ports.books.record_vanished(ledger, seq, now)
        )
        log.warning("a file was removed from its queue by somebody", seq=seq)
        for node in nodes if counted else ():
            sub = self._ports.subscriptions.get(node)
            if sub is not None and seq not in sub.held:
                sub.finished(seq)

    async def give_up(self, node: str, file: Departure, error: Poison, *, attempts: int) -> None:
        """A file that cannot be read any more goes to dead_letter/ with the reason."""
        record = partial(
            self._ports.books.record_dead,
            node=node,
            file=file,
            kind=error.kind,
            detail=str(error),
            attempts=attempts,
            now=self._ports.clock.now(),
        )
        await self._ports.disk.commit(record)
        self._ports.observe("refused", {"name": file.name, "error": error.kind, "detail": str(error)})

    async def expired(self, node: str, file: Departure) -> None:
        """The producer's time to live is over: to done/, with a note."""
        record = partial(
            self._ports.books.record_closed,
            node=node,
            file=file,
            reason="expired",
            now=self._ports.clock.now(),
        )
        await self._ports.disk.commit(record)
        log.info("expired", file=shown(file.name), queue=file.queue)
