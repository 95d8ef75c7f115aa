"""dead_letter_router: tells of what nobody takes up. It deletes nothing and moves nothing."""

from __future__ import annotations

from datetime import datetime

from kernel_gamma.contracts.alerts import changes
from kernel_gamma.contracts.effects import Batch, Outcome
from kernel_gamma.nodes.base import Node

__all__ = ["DeadLetterRouter"]


class DeadLetterRouter(Node):
    """Alerts when something became stale and when it is taken up; the counts stand in the status."""

    every_sec = 300.0

    def pace(self) -> float:
        return self.ports.settings.dead_letter_router.every_sec

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        found = await self.ports.inspect("stale")
        return Outcome.of(*changes(found.findings, found.standing, found.checked))
