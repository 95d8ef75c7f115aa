"""A bus with nodes of the test's own, over a real folder: `async with Rig(tmp_path, {...}) as rig`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from tests.fakes import World

from kernel_gamma.bus.event_bus import BusPorts, FileEventBus
from kernel_gamma.bus.journal import LedgerJournal
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.steps import KillSwitch
from kernel_gamma.circuit import Circuit
from kernel_gamma.contracts.effects import Append, Batch, Emit, Outcome
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.nodes.base import BatchRule, Debounce, Node
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.rhythm.ids import UlidIds
from kernel_gamma.self_stream.pages import PageFiles
from kernel_gamma.settings import Settings
from kernel_gamma.topology import Declared, NodeSpec

Handler = Callable[[Node, Batch], Awaitable[Outcome]]

QUICK: dict[str, Any] = {
    "durability": "process",
    "settle_sec": 0.02,
    "settle_timeout_sec": 0.1,
    "backoff_sec": 0.01,
    "watcher": "auto",
}
"""Bus settings that make nothing wait."""


def node_class(
    handle: Handler,
    *,
    watch: Sequence[str] = ("inbox/pending/*.json",),
    emit: Sequence[str] = (),
    concurrency: int = 1,
    batch: int = 1,
    debounce: Debounce | None = None,
    key: Callable[[Any], str] | None = None,
) -> type[Node]:
    """A node that decides by `handle`; `key` orders deliveries (one order for all when None)."""
    return type(
        "ScriptedNode",
        (Node,),
        {
            "watch": tuple(watch),
            "emit": tuple(emit),
            "concurrency": concurrency,
            "batch": BatchRule(max_count=batch),
            "debounce": debounce,
            "order_by": lambda self, delivery: key(delivery) if key else "",
            "handle": handle,
        },
    )


async def finish(node: Node, batch: Batch) -> Outcome:
    """Decide nothing: the inputs are done."""
    return Outcome()


async def tell(node: Node, batch: Batch) -> Outcome:
    """Append every document's text to now.md."""
    return Outcome.of(*(Append(page="stream/now.md", text=text_of(d.document)) for d in batch))


async def forward(node: Node, batch: Batch) -> Outcome:
    """Emit every document into the first directory the node may write to."""
    directory = type(node).emit[0].rsplit("/", 1)[0]
    return Outcome.of(*(Emit(directory=directory, payload={"said": d.document}) for d in batch))


def text_of(document: Json) -> str:
    return str(document.get("text", "")) if isinstance(document, dict) else json.dumps(document)


class SteppedClock(SystemClock):
    """The real clock, set back or forth by `steps` seconds."""

    steps = 0.0

    def now(self) -> Any:
        return super().now() + timedelta(seconds=self.steps)


class Rig:
    """Ledger, pages, bus and circuit of one data directory. `kill` leaves it as SIGKILL would."""

    def __init__(
        self,
        root: Path,
        nodes: Mapping[str, type[Node]],
        *,
        clock: Clock | None = None,
        settings: Mapping[str, Any] | None = None,
        **bus: Any,
    ) -> None:
        self.root = root
        self.settings = Settings.model_validate({**(settings or {}), "bus": {**QUICK, **bus}})
        self.clock = clock or SystemClock()
        self.heard: list[tuple[str, dict[str, Any]]] = []
        root.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger.open(root / "ledger.db")
        kill = KillSwitch(None)
        self.pages = PageFiles(root / "self", kill)
        depth = self.settings.inbox.max_depth
        self.bus = FileEventBus(
            root,
            self.settings,
            self.ledger,
            BusPorts(
                clock=self.clock,
                ids=UlidIds(self.clock),
                pages=self.pages,
                parse=lambda raw: read_document(raw, max_depth=depth),
                kill=kill,
                observe=lambda what, details: self.heard.append((what, dict(details))),
            ),
        )
        world = replace(World(settings=self.settings).ports, clock=self.clock)
        ports = replace(world, journal=LedgerJournal(self.bus.disk, self.clock, kill))
        declared = [
            Declared(NodeSpec(id=name, class_name="x"), cls, cls.watch, cls.emit, cls.concurrency)
            for name, cls in nodes.items()
        ]
        self.circuit = Circuit(self.bus, declared, ports)
        self.running: asyncio.Task[None] | None = None

    async def start(self, *, circuit: bool = True) -> Self:
        """`circuit=False`: the test takes and commits batches itself."""
        self.ledger.take_over()
        await self.bus.start(self.circuit.subscribers())
        if circuit:
            self.running = asyncio.create_task(self.circuit.run())
        return self

    async def stop(self, grace_sec: float = 5.0) -> None:
        await self.circuit.stop(grace_sec)
        await self.bus.stop()
        self.ledger.close()
        if self.running is not None:
            await asyncio.gather(self.running, return_exceptions=True)

    async def kill(self) -> None:
        """End as SIGKILL would: from here on nothing reaches the ledger. Needs durability process."""
        self.ledger.run("set_meta", "boot", str(self.ledger.boot + 1))
        await self.stop(0.0)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def drained(self) -> None:
        """Nothing dropped, waiting, held, in retry or in flight any more."""
        async with asyncio.timeout(20):
            while not (await self.bus.settle() and self.bus.quiet()):
                await asyncio.sleep(0.005)

    async def accepted(self, count: int) -> None:
        """So many deliveries wait for some node."""
        await self.until(lambda: max(n["backlog"] for n in self.bus.node_states().values()) == count)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    def drop(self, name: str | bytes, document: Json = None, queue: str = "inbox/pending") -> Path:
        """Write a temporary file and rename, as a good producer does. `document` may be raw bytes."""
        return drop(self.root, name, document, queue)

    def names(self, directory: str) -> list[str]:
        """Visible files below a directory, all its days together, sorted."""
        found = (self.root / directory).rglob("*")
        return sorted(p.name for p in found if not p.name.startswith(".") and not p.is_dir())

    def documents(self, directory: str) -> list[Json]:
        base = self.root / directory
        return [json.loads(p.read_bytes()) for p in sorted(base.glob("*.json"))]

    def said(self, directory: str = "outbox/out") -> list[str]:
        """Texts that `forward` sent on, in the order of their commits."""
        found = [(d["payload"]["said"], d["envelope"]["id"]) for d in self.documents(directory)]
        return [text_of(document) for document, _ in found]

    @property
    def now_md(self) -> str:
        page = self.root / "self/stream/now.md"
        return page.read_text() if page.is_file() else ""

    def reason(self, name: str) -> dict[str, Json]:
        (path,) = (self.root / "dead_letter").glob(f"*/{name}.reason.json")
        found: dict[str, Json] = json.loads(path.read_bytes())
        return found


def drop(root: Path, name: str | bytes, document: Json = None, queue: str = "inbox/pending") -> Path:
    directory = root / queue
    directory.mkdir(parents=True, exist_ok=True)
    raw = document if isinstance(document, bytes) else json.dumps(document or {"text": str(name)}).encode()
    encoded = os.fsencode(name)
    temporary = os.path.join(os.fsencode(directory), b"." + encoded[:200] + b".tmp")
    with open(temporary, "wb") as file:
        file.write(raw)
    target = os.path.join(os.fsencode(directory), encoded)
    os.rename(temporary, target)
    return Path(os.fsdecode(target))
