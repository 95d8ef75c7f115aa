"""The parts of a prompt that are the mind's own: persona, instructions, state, stream, memories; and what it
was woken by. Channel A and Channel B are the assembler's.

All that came from outside stands inside a fence; the state page and the stream are the mind's own words and
need none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from kernel_gamma.context.fences import (
    Count,
    escape,
    event_fence,
    excerpt,
    passage_fence,
    readable,
    recalled_fence,
)
from kernel_gamma.contracts.context import Part, Piece
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.payloads import Event
from kernel_gamma.contracts.ports import Page, Passage, Prompts, SelfLog, Snippet
from kernel_gamma.self_stream.passages import heading
from kernel_gamma.settings import ContextSettings, InternalizerSettings

__all__ = ["HEADINGS", "OwnParts", "in_zone", "query_of"]

HEADINGS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "state": "# Your state page",
        "memory": "# What you remember of this",
        "stream": "# Your stream so far",
        "dynamic": "# What the records say of this",
        "core_alerts": "# What is wrong and not mended yet",
        "now": "# Now",
        "events": "# What has just happened",
        "passage": "# The new passage",
        "task": "# The task",
    },
    "zh": {
        "state": "# 你的状态页",
        "memory": "# 与此有关的记忆",
        "stream": "# 你的流，到此刻为止",
        "dynamic": "# 记录里与此有关的",
        "core_alerts": "# 出了问题、还没有修好的",
        "now": "# 此刻",
        "events": "# 刚刚发生的事",
        "passage": "# 新的一段",
        "task": "# 任务",
    },
}
_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "required": "required",
        "optional": "optional",
        "arguments": "arguments",
        "days": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    },
    "zh": {
        "required": "必填",
        "optional": "可选",
        "arguments": "参数",
        "days": "星期一 星期二 星期三 星期四 星期五 星期六 星期日",
    },
}
_BYTES_PER_TOKEN = 6
"""More than prose needs in either language: what is read of now.md to fill a token budget."""
_LONGEST_PASSAGE_BYTES = 65_536
_RECALLED = 8
_CATALOGUES = 16
_QUERY_BYTES = 500
"""Measured as a page is: a Chinese character says about as much as three letters."""
_LEAST_SHARE = 60
_PERSONA, _STATE, _STREAM, _MEMORY = 100, 60, 50, 40
"""Priorities: Channel B (10) is trimmed before any of them."""


class OwnParts:
    """Makes the parts of one agent; instructions are made once for each text and catalogue."""

    def __init__(
        self,
        prompts: Prompts,
        self_log: SelfLog,
        count: Count,
        budgets: InternalizerSettings,
        context: ContextSettings,
    ) -> None:
        self._prompts = prompts
        self._self_log = self_log
        self._count = count
        self._budgets = budgets
        self._context = context
        # By the text of the prompts and the identity of the catalogue, which is kept alive here.
        self._made: dict[tuple[Hashable, ...], tuple[Part, Sequence[Json] | None]] = {}

    # ---- what does not change from call to call

    def persona(self, language: Language) -> Part:
        """prompts/<language>/SOUL.md, paragraph by paragraph, at most `context.persona_tokens` of it."""
        text = self._prompts.text("SOUL", language).strip()
        file = f"prompts/{language}/SOUL.md"
        paragraphs = [block for block in text.split("\n\n") if block.strip()]
        return Part(
            name="persona",
            channel="self",
            pieces=[self._piece(file, block) for block in paragraphs],
            priority=_PERSONA,
            minimum=self._context.persona_tokens,
            maximum=self._context.persona_tokens,
            role="system",
        )

    def instructions(
        self, name: str, language: Language, tools: Sequence[Mapping[str, Json]] | None = None
    ) -> Part:
        """The agent's own prompt, its tools listed in it."""
        key = (name, language, id(tools), *self._prompts.sources(language))
        found = self._made.get(key)
        if found is None:
            values = {} if tools is None else {"tools": _catalogue(tools, language)}
            text = self._prompts.text(name, language, **values).strip()
            piece = self._piece(f"prompts/{language}/{name}.md", text)
            part = Part(name="instructions", channel="agent", pieces=[piece], fixed=True, role="system")
            found = part, tools
            if len(self._made) >= _CATALOGUES:
                self._made.clear()
            self._made[key] = found
        return found[0]

    # ---- Pool A

    def state(self, page: Page, language: Language) -> Part:
        """state.md, excerpted to its budget."""
        text = page.text.strip()
        limit = self._budgets.state_tokens
        pieces = []
        if text and limit:
            shown = escape(self._excerpt(text, limit, language, "state.md"))
            pieces.append(self._piece("state.md", shown, sha256=page.sha256 or ""))
        return Part(
            name="state",
            channel="self",
            pieces=pieces,
            heading=HEADINGS[language]["state"],
            priority=_STATE,
            minimum=limit,
            volatile=True,
        )

    def stream(self, language: Language, *, without: Passage | None = None) -> Part:
        """The newest passages that fit, oldest first; the newest one is excerpted if it must be."""
        limit = self._budgets.tail_tokens
        left_out = None if without is None else _block(without)
        pieces: list[Piece] = []
        # A newest passage longer than the budget is shown in part rather than no stream at all.
        passages = self._self_log.tail(limit * _BYTES_PER_TOKEN) if limit else []
        if limit and not passages:
            passages = self._self_log.tail(_LONGEST_PASSAGE_BYTES)
        for passage in passages:
            block = _block(passage)
            if block != left_out:
                source = f"stream/now.md {passage.heading}".strip()
                pieces.append(self._piece(source, block, plain=escape(passage.text)))
        if pieces and pieces[-1].tokens > limit:
            shown = self._excerpt(pieces[-1].text, limit, language, "stream/now.md")
            pieces = [self._piece(pieces[-1].source, shown)]
            limit = max(limit, pieces[0].tokens)  # the line that says how much is left out comes on top
        return Part(
            name="stream",
            channel="self",
            pieces=pieces,
            heading=HEADINGS[language]["stream"],
            priority=_STREAM,
            maximum=limit,
            newest_last=True,
            volatile=True,
        )

    def memory(self, snippets: Iterable[Snippet], language: Language) -> Part:
        """What the past holds on this, best first."""
        limit = self._budgets.memory_tokens
        pieces = []
        for rank, snippet in enumerate(snippets, 1):
            # Pages do not say who taught them what they hold, so nothing recalled is trusted.
            fence = recalled_fence(snippet.key, snippet.text, trust="unknown", time=snippet.heading)
            pieces.append(self._piece(snippet.key, fence, plain=escape(snippet.text.strip()), rank=rank))
        return Part(
            name="memory",
            channel="self",
            pieces=pieces,
            heading=HEADINGS[language]["memory"],
            priority=_MEMORY,
            maximum=limit,
            volatile=True,
        )

    def recollected(self, query: str) -> Sequence[Snippet]:
        """Memories and diary on `query`, cheaply; nothing while the budget for it is 0."""
        return self._self_log.recollect(query, _RECALLED) if query and self._budgets.memory_tokens else ()

    # ---- what it was woken by

    def now(self, now: datetime, language: Language) -> Part:
        """The time, as the mind's own clock shows it."""
        day = _WORDS[language]["days"].split(" ")[now.weekday()]
        piece = self._piece("clock", f"{heading(now)}, {day}")
        return _brought("now", [piece], language)

    def events(
        self, events: Sequence[Event], language: Language, *, now: datetime, images_shown: bool
    ) -> Part:
        """Each event in its fence."""
        pieces = []
        for event in events:
            fence = event_fence(
                in_zone(event, now),
                max_tokens=self._budgets.event_max_tokens,
                count=self._count,
                language=language,
                images_shown=images_shown,
            )
            pieces.append(self._piece(event.id, fence, plain=escape(event.text)))
        return _brought("events", pieces, language)

    def passage(self, passage: Passage, language: Language) -> Part:
        """The new passage, for whoever translates it."""
        piece = self._piece(f"stream {passage.heading}".strip(), passage_fence(passage.text))
        return _brought("passage", [piece], language)

    def task(self, task: str, language: Language) -> Part:
        """What a person or a program asks for, without an event of its own."""
        return _brought("task", [self._piece("task", escape(task))], language)

    # ----

    def _piece(
        self, source: str, text: str, *, plain: str | None = None, rank: int = 0, sha256: str = ""
    ) -> Piece:
        return Piece(
            source=source, text=text, tokens=self._count(text), plain=plain, rank=rank, sha256=sha256
        )

    def _excerpt(self, text: str, limit: int, language: Language, pointer: str) -> str:
        return excerpt(text, max_tokens=limit, count=self._count, language=language, pointer=pointer)


def _brought(name: str, pieces: Sequence[Piece], language: Language) -> Part:
    """What the agent was woken by: never trimmed, and last."""
    return Part(
        name=name,
        channel="agent",
        pieces=pieces,
        heading=HEADINGS[language][name],
        fixed=True,
        volatile=True,
    )


def in_zone(event: Event, now: datetime) -> Event:
    """The event with its time in the zone of `now`: the mind tells hours as its own clock shows them."""
    if event.time.utcoffset() == now.utcoffset():
        return event
    return event.model_copy(update={"time": event.time.astimezone(now.tzinfo)})


def query_of(events: Iterable[Event]) -> str:
    """The words to search the past with: of what people and time say, not of the mind's own acts.

    Each event has its share of the query, so that a long one does not hide the rest.
    """
    telling = [event for event in events if event.text and not event.type.startswith("action.")]
    share = max(_QUERY_BYTES // max(len(telling), 1), _LEAST_SHARE)
    words = (f"{event.from_} {event.text}" if event.is_message else event.text for event in telling)
    return _cut(" ".join(_cut(word, share) for word in words), _QUERY_BYTES)


def _cut(text: str, max_bytes: int) -> str:
    return text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def _block(passage: Passage) -> str:
    text = escape(passage.text)
    return f"## {passage.heading}\n\n{text}" if passage.heading else text


def _catalogue(tools: Sequence[Mapping[str, Json]], language: Language) -> str:
    return "\n\n".join("\n".join(_tool(tool, _WORDS[language])) for tool in tools) or "—"


def _tool(tool: Mapping[str, Json], words: Mapping[str, str]) -> Iterator[str]:
    yield f"### {tool['name']}"
    yield str(tool["description"])
    schema = tool["parameters"]
    properties: Mapping[str, Mapping[str, Json]] = schema.get("properties", {})
    if properties:
        yield f"{words['arguments']}:"
    for name, rule in properties.items():
        need = words["required" if name in schema.get("required", ()) else "optional"]
        kind = rule.get("type", "")
        about = rule.get("description", "")
        yield f"- `{name}` ({kind}, {need})" + (f": {about}" if about else "")
        rest = {k: v for k, v in rule.items() if k not in ("type", "description")}
        yield from readable(rest, indent=1)
