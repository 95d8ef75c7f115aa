"""metrics_collector: has the queues, the process and the disk measured, and keeps an hour's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kernel_gamma.contracts.effects import Batch, Outcome, Record
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.nodes.base import Node, NodePorts

__all__ = ["MetricsCollector"]


class MetricsCollector(Node):
    """The status has what each beat measured; a record is made once an hour, if something happened."""

    every_sec = 60.0

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        super().__init__(node_id, ports, config)
        self._hour: float | None = None
        """The last one that was looked at for a record, in multiples of `record_every_sec`."""
        self._moved: tuple[Any, ...] | None = None

    def pace(self) -> float:
        return self.ports.settings.metrics.every_sec

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        measures = dict(await self.ports.measures())
        hour = at.timestamp() // self.ports.settings.metrics.record_every_sec
        if hour == self._hour:
            return Outcome()
        self._hour = hour
        moved = _moved(measures)
        if moved is None or moved == self._moved:
            return Outcome()
        self._moved = moved
        return Outcome.of(
            Record(category="metrics", value=measures, description="measures of the queues", trust="owner")
        )


def _moved(measures: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What changes whenever something happens; None when nothing did for a day."""
    if measures.get("last_file") is None and not measures.get("tokens_today"):
        return None
    return measures.get("last_file"), measures.get("last_ended"), measures.get("tokens_today")
