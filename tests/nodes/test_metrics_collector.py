"""An hour's numbers are kept once, and nothing while nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.fakes import World, batch, of_kind

from kernel_gamma.contracts.effects import Record
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.nodes.keepers.metrics_collector import MetricsCollector


class Hours:
    def __init__(self) -> None:
        self.world = World()
        self.measured: dict[str, Json] = {"last_file": 7, "last_ended": 1.5, "tokens_today": 0}
        self.node = MetricsCollector("m", replace(self.world.ports, measures=self.measure), {})

    async def measure(self) -> Mapping[str, Json]:
        return self.measured

    async def after(self, seconds: float) -> int:
        """Records of the beat so much later."""
        self.world.clock.advance(seconds)
        outcome = await self.node.beat(batch(), self.world.clock.now())
        return len(of_kind(outcome, Record))


async def test_one_record_an_hour_while_things_happen() -> None:
    hours = Hours()
    assert await hours.after(0) == 1
    hours.measured["last_file"] = 8
    assert await hours.after(60) == 0
    assert await hours.after(3600) == 1


async def test_none_when_nothing_happened_since_or_ever() -> None:
    hours = Hours()
    assert await hours.after(0) == 1
    assert [await hours.after(3600) for _ in range(5)] == [0] * 5
    hours.measured |= {"last_file": None, "last_ended": None}
    assert await hours.after(3600) == 0
    hours.measured["tokens_today"] = 50
    assert await hours.after(3600) == 1
