"""A mind on a trial clock, its model counted: `async with life(home, start) as mind`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.harness import QUICK

from kernel_gamma.configuration import lay_out
from kernel_gamma.contracts.ports import Reply
from kernel_gamma.mind import Mind
from kernel_gamma.model.offline import OfflineModel
from kernel_gamma.settings import Settings


class CountedModel(OfflineModel):
    """The offline rules, and how often they were asked."""

    calls = 0

    async def complete(self, *turns: Any, **asked: Any) -> Reply:
        self.calls += 1
        return await super().complete(*turns, **asked)


@asynccontextmanager
async def life(
    home: Path, start: str, *, rate: float = 1.0, rules: str = "", **more: Any
) -> AsyncIterator[tuple[Mind, CountedModel]]:
    """`rules` replaces config/rhythm.yaml."""
    lay_out(home)
    if rules:
        (home / "config/rhythm.yaml").write_text(rules, encoding="utf-8")
    given: dict[str, Any] = {
        "bus": QUICK,
        "model": {"mode": "offline"},
        "preprocessor": {"debounce_sec": 0},
        "clock": {"zone": "Asia/Shanghai", "trial": True, "start": start, "rate": rate},
    }
    model = CountedModel()
    mind = Mind(home, Settings.model_validate(given | more), {}, model=model)
    await mind.start()
    running = asyncio.create_task(mind.run())
    try:
        yield mind, model
    finally:
        await mind.stop()
        await running


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


def state(mind: Mind) -> dict[str, Any]:
    """What rhythm/state.json says of each rule."""
    path = mind.data / "rhythm/state.json"
    found: dict[str, Any] = json.loads(path.read_bytes())["rules"] if path.exists() else {}
    return found


def triggers(mind: Mind, rule: str) -> list[str]:
    """Slots of a rule that have struck, as often as they did."""
    found = (mind.data / "rhythm/triggers").rglob("*.json")
    return sorted(p.name.removeprefix(f"{rule}_")[:16] for p in found if p.name.startswith(f"{rule}_"))
