"""What a bus must offer to be tried: the seam between the suite and one back end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.harness import Rig, node_class, text_of

from kernel_gamma.contracts.effects import Batch, Outcome
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.nodes.base import Node


@dataclass(frozen=True)
class Subscribing:
    """A node of the suite: where it reads, where it writes, how many at a time."""

    watch: Sequence[str] = ("inbox/pending/*.json",)
    emit: Sequence[str] = ("outbox/out/out_*.json",)
    batch: int = 1
    keyed: bool = False
    """Ordered by the document's `key`; else all in one order."""


class Subject(Protocol):
    """One bus, driven by hand. `start` after `stop` or `kill` opens what the last one left."""

    async def start(self, nodes: Mapping[str, Subscribing], **settings: Any) -> None: ...
    async def stop(self) -> None: ...
    async def kill(self) -> None:
        """End without a word: nothing more is written."""
        ...

    async def drop(self, name: str, document: Json, queue: str = "inbox/pending") -> None: ...
    async def next_batch(self, node: str) -> Batch: ...
    async def commit(self, batch: Batch, outcome: Outcome) -> None: ...
    async def fail(self, batch: Batch, error: BaseException) -> None: ...
    async def take_suspects(self) -> list[Batch]:
        """What was in flight at the last death, handed over alone, one after the other."""
        ...

    async def settle(self) -> None:
        """What was dropped is accepted, as far as there is room."""
        ...

    def idle(self) -> bool: ...
    async def usurp(self) -> None:
        """Let another process take the mind over, behind this one's back."""
        ...

    def outputs(self) -> list[str]:
        """Texts sent to outbox/out, in order."""
        ...

    def waiting(self, queue: str = "inbox/pending") -> list[str]: ...
    def done(self, queue: str = "inbox/pending") -> list[str]: ...
    def dead(self) -> list[str]: ...
    def pages(self) -> str:
        """now.md."""
        ...


async def _never(node: Node, batch: Batch) -> Outcome:
    raise AssertionError("the suite handles batches itself")


class FileBus:
    """The first subject."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rig: Rig | None = None

    async def start(self, nodes: Mapping[str, Subscribing], **settings: Any) -> None:
        classes = {
            name: node_class(
                _never,
                watch=s.watch,
                emit=s.emit,
                batch=s.batch,
                key=_key if s.keyed else None,
            )
            for name, s in nodes.items()
        }
        self.rig = await Rig(self.root, classes, **settings).start(circuit=False)

    @property
    def _open(self) -> Rig:
        assert self.rig is not None
        return self.rig

    async def stop(self) -> None:
        if self.rig is not None:
            rig, self.rig = self.rig, None
            await rig.stop(0.0)

    async def kill(self) -> None:
        if self.rig is not None:
            rig, self.rig = self.rig, None
            await rig.kill()

    async def drop(self, name: str, document: Json, queue: str = "inbox/pending") -> None:
        self._open.drop(name, document, queue)

    async def next_batch(self, node: str) -> Batch:
        return await self._open.bus.next_batch(node)

    async def commit(self, batch: Batch, outcome: Outcome) -> None:
        await self._open.bus.commit(batch, outcome)

    async def fail(self, batch: Batch, error: BaseException) -> None:
        await self._open.bus.fail(batch, error)

    async def take_suspects(self) -> list[Batch]:
        bus = self._open.bus
        return [b for s in bus.suspects() if (b := await bus.take_suspect(s)) is not None]

    async def settle(self) -> None:
        await self._open.bus.settle()
        await asyncio.sleep(0.05)  # past the time a file must stand still that nobody closed
        await self._open.bus.settle()

    def idle(self) -> bool:
        return self._open.bus.quiet()

    async def usurp(self) -> None:
        rig = self._open
        rig.ledger.run("set_meta", "boot", str(rig.ledger.boot + 1))

    def outputs(self) -> list[str]:
        found = [p for p in (self.root / "outbox/out").glob("*.json")]
        rig = Rig.documents
        ordered = sorted(rig(self, "outbox/out"), key=lambda d: d["payload"]["n"]) if found else []  # type: ignore[arg-type]
        return [text_of(d["payload"]["said"]) for d in ordered]

    def waiting(self, queue: str = "inbox/pending") -> list[str]:
        base = self.root / queue
        return sorted(p.name for p in base.glob("*.json")) if base.is_dir() else []

    def done(self, queue: str = "inbox/pending") -> list[str]:
        return sorted(p.name for p in (self.root / queue / "done").glob("*/*"))

    def dead(self) -> list[str]:
        found = (self.root / "dead_letter").glob("*/*")
        return sorted(p.name for p in found if not p.name.endswith(".reason.json"))

    def pages(self) -> str:
        page = self.root / "self/stream/now.md"
        return page.read_text() if page.exists() else ""


def _key(delivery: Any) -> str:
    return str(delivery.document.get("key", ""))
