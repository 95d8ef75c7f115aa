"""`loop_` files → what is told of a circuit that opened; by its beats, what is over is told to be over.

The circuits themselves are opened by the message_preprocessor, in the commit that keeps the event back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from kernel_gamma.contracts.effects import (
    Append,
    Batch,
    Claim,
    DeadLetter,
    Effect,
    Outcome,
    PassageRef,
    Replace,
)
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language, language_of
from kernel_gamma.loops.circuits import CIRCUITS, WORRIES
from kernel_gamma.loops.rumination import with_worries
from kernel_gamma.loops.telling import incident, notice, over
from kernel_gamma.nodes.base import Node
from kernel_gamma.self_stream.passages import render

__all__ = ["LoopBreaker"]

_REMEMBERED_HOURS = 24.0 * 7


class LoopBreaker(Node):
    """Tells the mind once of a loop, records its beginning and its end, keeps the worries of state.md."""

    watch = ("loops/tripped/loop_*.json",)

    async def handle(self, batch: Batch) -> Outcome:
        delivery = batch[0]
        circuit = delivery.payload.get("circuit")
        if delivery.origin == "dropped" or not isinstance(circuit, dict):
            return Outcome.of(DeadLetter("foreign", "not written by this mind: loops are noticed, not told"))
        now = self.ports.clock.now()
        effects: list[Effect] = [incident(circuit, now)]
        if circuit["trip"] == 1:
            text = render(now, notice(circuit, self._language(circuit), now))
            ref = PassageRef(self.ports.ids.new("psg"), "note")
            effects.append(Append(page="stream/now.md", text=text, passage=ref))
        return Outcome.of(*effects)

    def _language(self, circuit: Mapping[str, Json]) -> Language:
        setting = self.ports.settings.language
        if setting != "auto":
            return setting
        last = self.ports.self_log.tail(2000)
        return language_of(last[-1].text if last else str(circuit["source"]))

    def next_beat(self, now: datetime) -> datetime | None:
        """When the next circuit closes, or the next worry has not come back for long enough."""
        due = [float(one["until"]) for one in (*self._circuits(), *self._worries())]
        return datetime.fromtimestamp(min(due), now.tzinfo) if due else None

    def _circuits(self) -> Iterator[Mapping[str, Json]]:
        """Those whose end is not told yet."""
        for circuit in self.ports.kept(CIRCUITS).values():
            if self.ports.seen(_told(circuit)) is None:
                yield circuit

    def _worries(self) -> Iterator[Mapping[str, Json]]:
        return (one for one in self.ports.kept(WORRIES).values() if not one.get("closed"))

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        moment = max(at, self.ports.clock.now()).timestamp()
        effects: list[Effect] = []
        for circuit in self._circuits():
            if float(circuit["until"]) <= moment:
                effects.append(over(circuit))
                effects.append(Claim(key=_told(circuit), value={}, hours=_REMEMBERED_HOURS))
        return Outcome.of(*effects, *self._let_go(moment))

    def _let_go(self, moment: float) -> Iterator[Effect]:
        """Worries that did not come back leave state.md."""
        open_ones = list(self._worries())
        standing = [one for one in open_ones if float(one["until"]) > moment]
        if len(standing) == len(open_ones):
            return
        for one in open_ones:
            if one not in standing:
                value = {**one, "closed": True}
                yield Claim(key=str(one["key"]), value=value, hours=_REMEMBERED_HOURS, renew=True)
        page = self.ports.self_log.state()
        text = with_worries(page.text, standing)
        if page.sha256 is not None and text != page.text:
            yield Replace(page="state.md", text=text, expect=page.sha256)


def _told(circuit: Mapping[str, Json]) -> str:
    """Marks that the end of this opening was told."""
    return f"loop.told:{circuit['key']}:{circuit['trip']}:{circuit['until']}"
