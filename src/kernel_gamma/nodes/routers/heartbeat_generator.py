"""Every minute: heartbeat/tick.json, so that anyone can see that the mind lives."""

from __future__ import annotations

from datetime import datetime

from kernel_gamma.contracts.effects import Batch, Outcome, Overwrite
from kernel_gamma.contracts.envelope import Envelope
from kernel_gamma.nodes.base import Node

__all__ = ["HeartbeatGenerator"]


class HeartbeatGenerator(Node):
    """Overwrites one file; no queue, no model."""

    every_sec = 60.0

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        count = int(at.timestamp() // 60)
        envelope = Envelope(
            id=f"tick_{count}",
            mind=self.ports.settings.mind,
            trace_id=f"trace_tick_{count}",
            timestamp=at,
            source_node=self.id,
            source_type="rhythm",
        )
        document = {"envelope": envelope.as_json(), "payload": {"beat": count, "at": at.isoformat()}}
        return Outcome.of(Overwrite(path="heartbeat/tick.json", document=document))
