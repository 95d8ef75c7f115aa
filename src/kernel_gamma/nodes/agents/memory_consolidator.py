"""Passages → pages of memories/, and out of now.md: in the evening, at midnight, or when much has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from kernel_gamma.context.asking import Question
from kernel_gamma.context.consolidation import (
    SCHEMA,
    Desk,
    Settled,
    mark_of,
    request_for,
    stopped_mark,
    topic_of,
    understand,
    words_of,
)
from kernel_gamma.context.own_parts import OwnParts
from kernel_gamma.context.turns import Prompt
from kernel_gamma.contracts.context import Assembled
from kernel_gamma.contracts.effects import Batch, Claim, Delivery, Effect, Outcome, Record, Replace
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import language_of
from kernel_gamma.contracts.ports import Page, Passage, Role
from kernel_gamma.errors import Poison, Unusable
from kernel_gamma.nodes.base import BatchRule, Node, NodePorts
from kernel_gamma.self_stream.passages import split

__all__ = ["MemoryConsolidator"]

_NOW_BYTES = 4_194_304
"""Of now.md: more than its limit, whatever a person may have set."""
_DAYS_BACK = 30
"""Days of the archive that are looked through for what was never consolidated."""
_MARKS = 3
"""Last passages of a span that carry the mark, in case one of them is reworded."""
_MARK_HOURS = 24 * 366.0
_HELD = 8
"""Pieces of the past that are asked for a sentence."""
_QUERY_CHARS = 400
_STOPPED = "no progress twice, it rests until there is something new"


class MemoryConsolidator(Node):
    """Asks the model once for all that was lived through since, and lets the settled part go."""

    watch = ("rhythm/triggers/*.json",)
    every_sec = 60.0
    batch = BatchRule(max_count=64)

    def __init__(self, node_id: str, ports: NodePorts, config: Mapping[str, Json]) -> None:
        super().__init__(node_id, ports, config)
        self._role: Role = config.get("role") or "quality"
        settings = ports.settings
        self._rules = settings.consolidate
        self._own = OwnParts(
            ports.prompts, ports.self_log, self._count, settings.internalizer, settings.context
        )

    def order_by(self, delivery: Delivery) -> str:
        return ""

    async def handle(self, batch: Batch) -> Outcome:
        if not any(delivery.payload.get("rule") in self._rules.rules for delivery in batch):
            return Outcome()
        return await self._consolidate(batch)

    async def beat(self, batch: Batch, at: datetime) -> Outcome:
        fresh = [passage for passage in self._fresh() if passage.heading]
        size = sum(len(f"## {one.heading}\n\n{one.text}\n\n".encode()) for one in fresh)
        return await self._consolidate(batch) if size > self._rules.threshold_bytes else Outcome()

    # ---- what there is

    def _fresh(self) -> list[Passage]:
        """Passages of now.md that were never consolidated, oldest first."""
        return self._since_the_mark(self.ports.self_log.tail(_NOW_BYTES))[0]

    def _unsettled(self) -> list[Passage]:
        """Those of the archive too: a rotation may have been quicker."""
        found, marked = self._since_the_mark(self.ports.self_log.tail(_NOW_BYTES))
        if not marked:
            log = self.ports.self_log
            for day in reversed(log.archive_dates()[-_DAYS_BACK:]):
                earlier, marked = self._since_the_mark(split(log.page(f"stream/archive/{day}.md").text))
                found = [*(one for one in earlier if one not in found), *found]
                if marked:
                    break
        return found

    def _since_the_mark(self, passages: Sequence[Passage]) -> tuple[list[Passage], bool]:
        """Those after the last one that is marked, and whether there is one."""
        found: list[Passage] = []
        for passage in reversed(passages):
            if passage.heading and self.ports.seen(mark_of(passage)) is not None:
                return found[::-1], True
            if passage.heading and passage.text:
                found.append(passage)
        return found[::-1], False

    def _within_budget(self, passages: Sequence[Passage]) -> list[Passage]:
        """The oldest that fit; at least one."""
        left, span = self._rules.span_tokens, list[Passage]()
        for passage in passages:
            left -= self._count(passage.text)
            if span and left < 0:
                break
            span.append(passage)
        return span

    # ---- the question

    async def _consolidate(self, batch: Batch) -> Outcome:
        if getattr(self.ports.model, "offline", False):
            return Outcome()  # rules cannot tell what is worth keeping; rotation needs no model
        waiting = self._unsettled()
        if not waiting:
            return Outcome()
        span = self._within_budget(waiting)
        try:
            return await self._settle(batch, span)
        except (Unusable, Poison) as error:
            return Outcome.of(*self._without_progress(span, str(error)))

    async def _settle(self, batch: Batch, span: Sequence[Passage]) -> Outcome:
        ports, setting = self.ports, self.ports.settings.language
        language = language_of(words_of(span)) if setting == "auto" else setting
        shown = self._pages_on(span)
        desk = Desk(
            span=span,
            shown=shown,
            names=ports.self_log.memories(),
            page_of=self._page,
            told_elsewhere=self._told_elsewhere,
            fixed=(),
            prompts=ports.prompts.sources(language),
            max_shrink=self._rules.max_shrink,
        )
        request = request_for(
            desk,
            self._own,
            agent=self.id,
            role=self._role,
            trace_id=batch.trace_id,
            language=language,
            now=ports.clock.now(),
            count=self._count,
        )
        assembled = await ports.assemble(request)
        question = Question(
            batch=batch,
            agent=self.id,
            role=self._role,
            prompt=Prompt.of(assembled),
            language=language,
            for_people=False,
            schema=SCHEMA,
            remember={
                "pages": {name: page.sha256 for name, page in shown.items()},
                "span": [mark_of(passage) for passage in span],
            },
        )
        desk = _with_fixed(desk, assembled)
        asked = await question.ask(ports.journal, ports.model, partial(understand, desk))
        return Outcome.of(*self._effects(asked.result), *asked.receipts)

    def _pages_on(self, span: Sequence[Passage]) -> dict[str, Page]:
        """Memory pages that touch what was lived through, the most touched first, within the budget."""
        met: Counter[str] = Counter()
        for passage in span:
            for snippet in self.ports.self_log.recollect(passage.text[:_QUERY_CHARS], _HELD):
                kind, _, name = snippet.key.partition(".")
                if kind == "memory":
                    met[name] += 1
        left, shown = self._rules.pages_tokens, dict[str, Page]()
        for name, _ in met.most_common():
            page = self._page(name)
            left -= (tokens := self._count(page.text))
            if left < 0:
                left += tokens
            elif page.text.strip():
                shown[name] = page
        return shown

    def _page(self, name: str) -> Page:
        return self.ports.self_log.page(f"memories/{name}.md")

    def _told_elsewhere(self, sentence: str) -> list[tuple[str, str]]:
        found = self.ports.self_log.recollect(sentence[:_QUERY_CHARS], _HELD)
        return [(snippet.key, snippet.text) for snippet in found]

    # ---- what comes of it

    def _effects(self, settled: Settled) -> list[Effect]:
        span = settled.span
        move = self.ports.self_log.moving(settled.keep_from) if settled.keep_from else None
        if not settled.pages and move is None:
            refused = "; ".join(settled.refused)
            return self._without_progress(span, refused or "the answer changes no page and lets nothing go")
        effects: list[Effect] = [
            Replace(page=f"memories/{page.name}.md", text=page.text, expect=page.expect)
            for page in settled.pages
        ]
        if move is not None:
            effects.append(move)
        topics = [topic_of(page.name) for page in settled.pages]
        moved = sum(len(archived.ranges) for archived in move.archives) if move is not None else 0
        effects.append(
            Record(
                category="operation",
                description=f"consolidated {len(span)} passages into {len(topics)} memory pages",
                value={
                    "passages": len(span),
                    "topics": topics,
                    "moved": moved,
                    "refused": list(settled.refused),
                    "no_news": settled.dropped,
                },
                trust="owner",
            )
        )
        return [*effects, *_marks(span)]

    def _without_progress(self, span: Sequence[Passage], reason: str) -> list[Effect]:
        """The first time the passages wait for the next run; the second time it is said, and they rest."""
        barren = stopped_mark(span[-1], first=True)
        if self.ports.seen(barren) is None:
            told = Record(
                category="error",
                description=f"{self.id}: a run came to nothing: {reason}"[:400],
                value={"reason": reason, "passages": len(span)},
                trust="owner",
            )
            return [told, Claim(key=barren, value={"reason": reason}, hours=_MARK_HOURS)]
        told = Record(
            category="alert",
            description=f"{self.id}: {_STOPPED}: {reason}"[:400],
            value={"reason": reason, "passages": len(span), "severity": "warning"},
            trust="owner",
        )
        stopped = Claim(key=stopped_mark(span[-1]), value={"reason": reason}, hours=_MARK_HOURS)
        return [told, stopped, *_marks(span)]

    def _count(self, text: str) -> int:
        return self.ports.model.count_tokens(self._role, text)


def _marks(span: Sequence[Passage]) -> list[Effect]:
    return [
        Claim(key=mark_of(passage), value={"consolidated": True}, hours=_MARK_HOURS)
        for passage in span[-_MARKS:]
    ]


def _with_fixed(desk: Desk, assembled: Assembled) -> Desk:
    """What the prompt says of the mind that is no memory: static truths and persona."""
    fixed = [
        piece.text
        for part in assembled.parts
        if part.channel == "static" or part.name == "persona"
        for piece in part.pieces
    ]
    return replace(desk, fixed=fixed)
