"""A process to be killed: a bus whose one node sends on and tells what it gets; 0 when all is handled."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from tests.harness import Rig, node_class

from kernel_gamma.contracts.effects import Append, Batch, Emit, Outcome
from kernel_gamma.nodes.base import Node


async def handle(node: Node, batch: Batch) -> Outcome:
    if any(d.document.get("do") == "die" for d in batch):
        os.kill(os.getpid(), signal.SIGKILL)
    told = [Append(page="stream/now.md", text=d.document["text"]) for d in batch]
    sent = [Emit(directory="outbox/out", payload={"said": d.document}) for d in batch]
    return Outcome.of(*told, *sent)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--max-attempts", type=int, default=5)
    parser.add_argument("--stay", action="store_true")
    given = parser.parse_args()
    node = node_class(handle, emit=("outbox/out/out_*.json",), batch=8, concurrency=3, key=_name)
    async with Rig(given.root, {"a": node}, max_attempts=given.max_attempts) as rig:
        if not given.stay:
            await rig.drained()
            return
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        (given.root / "ready").touch()
        await asked.wait()
        await rig.drained()


def _name(delivery: object) -> str:
    return str(getattr(delivery, "name", ""))[-6:]


if __name__ == "__main__":
    asyncio.run(main())
