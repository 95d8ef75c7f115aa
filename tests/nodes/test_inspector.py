"""A record for each look, the slow checks once a local day, alerts only when something changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fakes import World, batch, of_kind

from kernel_gamma.contracts.alerts import Finding, Inspection, Look
from kernel_gamma.contracts.effects import Record
from kernel_gamma.nodes.keepers.dead_letter_router import DeadLetterRouter
from kernel_gamma.nodes.keepers.inspector import Inspector

FULL = Finding("disk.full", "the disk is full", "core")


class Body:
    def __init__(self, node: type[Inspector] | type[DeadLetterRouter] = Inspector) -> None:
        self.world = World()
        self.looks: list[Look] = []
        self.found = Inspection(checked=frozenset({"disk.full"}), facts={"disk_free_mb": 7})
        self.node = node("n", replace(self.world.ports, inspect=self.inspect), {})

    async def inspect(self, look: Look) -> Inspection:
        self.looks.append(look)
        return self.found

    async def beat(self, hours: float = 1) -> list[Any]:
        self.world.clock.advance(hours * 3600)
        outcome = await self.node.beat(batch(), self.world.clock.now())
        assert len(of_kind(outcome, Record)) == len(outcome.effects)  # nothing that wakes the mind
        return [(one.category, one.value.get("code"), one.value.get("state")) for one in outcome.effects]  # type: ignore[union-attr]


async def test_the_slow_checks_are_made_once_a_local_day() -> None:
    body = Body()
    for _ in range(26):
        await body.beat()
    # from half past eleven on; midnight comes between the 13th look and the next
    assert [number for number, look in enumerate(body.looks) if look == "daily"] == [0, 13]


async def test_an_alert_is_written_only_when_it_opens_or_closes() -> None:
    body = Body()
    assert await body.beat() == [("inspection", None, None)]
    body.found = replace(body.found, findings=(FULL,))
    assert await body.beat() == [("inspection", None, None), ("alert.inspector", "disk.full", "open")]
    body.found = replace(body.found, standing={"disk.full": ("alert.inspector.1",)})
    assert await body.beat() == [("inspection", None, None)]
    body.found = replace(body.found, findings=())
    assert await body.beat() == [("inspection", None, None), ("alert.inspector", "disk.full", "closed")]


async def test_what_is_stale_leaves_no_record_while_nothing_changes() -> None:
    body = Body(DeadLetterRouter)
    assert await body.beat() == [] and body.looks == ["stale"]
    body.found = replace(body.found, findings=(FULL,))
    assert await body.beat() == [("alert.inspector", "disk.full", "open")]
