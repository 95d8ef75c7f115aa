"""inspector: looks at the mind's own health every hour; what is wrong is an alert, once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

from kernel_gamma.contracts.alerts import Look, changes
from kernel_gamma.contracts.effects import Batch, Outcome, Record
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.nodes.base import Node, NodePorts

__all__ = ["Inspector"]


class Inspector(Node):
    """One record an hour, and alerts only when something opened or closed. It never wakes the mind."""

    every_sec = 3600.0

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        super().__init__(node_id, ports, config)
        self._day: date | None = None
        """The local day of the last inspection with the slow checks."""

    def pace(self) -> float:
        return self.ports.settings.inspector.every_sec

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        day = at.astimezone(self.ports.clock.zone).date()
        look: Look = "hourly" if day == self._day else "daily"
        found = await self.ports.inspect(look)
        self._day = day
        alerts = changes(found.findings, found.standing, found.checked)
        wrong: list[Json] = sorted(one.code for one in found.findings)
        value: dict[str, Json] = {"look": look, **found.facts, "wrong": wrong}
        said = f"something is wrong: {', '.join(map(str, wrong))}"[:400] if wrong else "all is well"
        return Outcome.of(
            Record(category="inspection", value=value, description=said, trust="owner"), *alerts
        )
