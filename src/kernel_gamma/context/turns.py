"""What the two agents are shown: a stable prefix first, what changes after it, fences last.

A prompt is one system turn, the same bytes for every call in a language, and one user turn. The
order inside the user turn goes from what changes least to what is new. All that came from outside
stands inside a fence; the state page and the stream are the mind's own words and need none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kernel_gamma.context.fences import (
    MAX_CHARS_PER_TOKEN,
    Count,
    escape,
    event_fence,
    excerpt,
    is_image,
    passage_fence,
    readable,
    recalled_fence,
)
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.payloads import Event
from kernel_gamma.contracts.ports import Page, Passage, Prompts, SelfLog, Turn
from kernel_gamma.self_stream.passages import heading
from kernel_gamma.settings import InternalizerSettings

__all__ = ["Part", "Parts", "Prompt", "TurnBuilder", "event_weight"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a prompt and its size."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The sizes of a prompt, in the order in which its parts stand."""

    items: tuple[Part, ...]

    @property
    def total(self) -> int:
        return sum(part.tokens for part in self.items)

    def as_json(self) -> list[dict[str, Json]]:
        return [{"name": part.name, "tokens": part.tokens} for part in self.items]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one call sends, and what it is made of."""

    turns: tuple[Turn, ...]
    parts: Parts

    def asked_again(self, problem: str, language: Language) -> tuple[Turn, ...]:
        """The same turns, the last one ending with what was wrong with the first answer."""
        last = self.turns[-1]
        note = _WORDS[language]["again"].format(problem=escape(problem))
        return (*self.turns[:-1], Turn(last.role, f"{last.text}\n\n{note}", last.images))


_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "state": "# Your state page",
        "memory": "# What you remember of this",
        "stream": "# Your stream so far",
        "now": "# Now",
        "events": "# What has just happened",
        "passage": "# The new passage",
        "again": (
            "# Once more\n\nYour first answer could not be used: {problem}\n"
            "Give the whole answer again, mended."
        ),
        "required": "required",
        "optional": "optional",
        "arguments": "arguments",
        "days": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    },
    "zh": {
        "state": "# 你的状态页",
        "memory": "# 与此有关的记忆",
        "stream": "# 你的流，到此刻为止",
        "now": "# 此刻",
        "events": "# 刚刚发生的事",
        "passage": "# 新的一段",
        "again": "# 再来一次\n\n你的第一次回答无法使用：{problem}\n请改好，把完整的回答重新给出。",
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
_SYSTEM_TURNS = 16
_DATA_CHARS_PER_TOKEN = 3
_QUERY_BYTES = 500
"""Measured as a page is: a Chinese character says about as much as three letters."""
_LEAST_SHARE = 60


class TurnBuilder:
    """Builds the prompts of one agent; its system turns are made once for each text and catalogue."""

    def __init__(
        self, prompts: Prompts, self_log: SelfLog, count: Count, budgets: InternalizerSettings
    ) -> None:
        self._prompts = prompts
        self._self_log = self_log
        self._count = count
        self._budgets = budgets
        self._system: dict[tuple[Hashable, ...], tuple[Turn, Part, Sequence[Json] | None]] = {}
        # By the text of the prompts and the identity of the catalogue, which is kept alive here.
        self._labels = {
            language: {name: (label, count(label)) for name, label in words.items() if label[0] == "#"}
            for language, words in _WORDS.items()
        }

    def experience(
        self,
        events: Sequence[Event],
        *,
        state: Page,
        language: Language,
        now: datetime,
        see_images: bool,
    ) -> Prompt:
        """The internalizer's prompt: state, memories, tail of the stream, the time, the events.

        `state` is the page as it was read, so that who replaces it knows what was shown.
        """
        system, part = self._system_turn("INTERNALIZER", language)
        tail = self._tail(language)
        fences = [
            event_fence(
                in_zone(event, now),
                max_tokens=self._budgets.event_max_tokens,
                count=self._count,
                language=language,
                images_shown=see_images,
            )
            for event in events
        ]
        images = tuple(a for event in events for a in event.attachments if is_image(a))
        return self._prompt(
            (system, part),
            {
                "state": self._state(state, language),
                "memory": self._recalled(events, tail),
                "stream": tail,
                "now": [_moment(now, language)],
                "events": fences,
            },
            language,
            Turn("user", "", images if see_images else ()),
        )

    def decisions(
        self, passage: Passage, *, tools: Sequence[Json], language: Language, now: datetime
    ) -> Prompt:
        """The externalizer's prompt: tools, the stream before `passage`, the time, the passage."""
        system, part = self._system_turn("EXTERNALIZER", language, tools)
        written = _block(passage)
        blocks = {
            "stream": [block for block in self._tail(language) if block != written],
            "now": [_moment(now, language)],
            "passage": [passage_fence(passage.text)],
        }
        return self._prompt((system, part), blocks, language, Turn("user", ""))

    def _prompt(
        self,
        system: tuple[Turn, Part],
        blocks: Mapping[str, Sequence[str]],
        language: Language,
        user: Turn,
    ) -> Prompt:
        texts: list[str] = []
        parts = [system[1]]
        for name, pieces in blocks.items():
            if pieces:
                label, tokens = self._labels[language][name]
                texts.append(label)
                texts.extend(pieces)
                parts.append(Part(name, tokens + sum(map(self._count, pieces))))
        turn = Turn(user.role, "\n\n".join(texts), user.images)
        return Prompt((system[0], turn), Parts(tuple(parts)))

    def _system_turn(
        self, name: str, language: Language, tools: Sequence[Json] | None = None
    ) -> tuple[Turn, Part]:
        key = (name, language, id(tools), *self._prompts.sources(language))
        found = self._system.get(key)
        if found is None:
            soul = self._prompts.text("SOUL", language).strip()
            values = {} if tools is None else {"tools": _catalogue(tools, language)}
            text = f"{soul}\n\n{self._prompts.text(name, language, **values).strip()}"
            found = Turn("system", text), Part("system", self._count(text)), tools
            if len(self._system) >= _SYSTEM_TURNS:
                self._system.clear()
            self._system[key] = found
        return found[0], found[1]

    def _state(self, page: Page, language: Language) -> list[str]:
        text = page.text.strip()
        limit = self._budgets.state_tokens
        if not text or not limit:
            return []
        return [escape(self._excerpt(text, limit, language, "state.md"))]

    def _excerpt(self, text: str, limit: int, language: Language, pointer: str) -> str:
        return excerpt(text, max_tokens=limit, count=self._count, language=language, pointer=pointer)

    def _tail(self, language: Language) -> list[str]:
        """The newest passages that fit, oldest first; the newest one is excerpted if it must be."""
        left = self._budgets.tail_tokens
        kept: list[str] = []
        # A newest passage longer than the budget is shown in part rather than no stream at all.
        passages = self._self_log.tail(left * _BYTES_PER_TOKEN) if left else []
        if left and not passages:
            passages = self._self_log.tail(_LONGEST_PASSAGE_BYTES)
        for passage in reversed(passages):
            block = _block(passage)
            cost = self._count(block)
            if cost > left:
                if not kept:
                    kept.append(self._excerpt(block, left, language, "stream/now.md"))
                break
            left -= cost
            kept.append(block)
        kept.reverse()
        return kept

    def _recalled(self, events: Iterable[Event], tail: Sequence[str]) -> list[str]:
        """What the past holds on these events and the tail does not already show."""
        left = self._budgets.memory_tokens
        query = _query(events) if left else ""
        shown = "\n\n".join(tail)
        kept: list[str] = []
        for snippet in self._self_log.recollect(query, _RECALLED) if query else ():
            if escape(snippet.text.strip()) in shown:
                continue
            # Pages do not say who taught them what they hold, so nothing recalled is trusted.
            fence = recalled_fence(snippet.key, snippet.text, trust="unknown", time=snippet.heading)
            cost = self._count(fence)
            if cost <= left:
                left -= cost
                kept.append(fence)
        return kept


def in_zone(event: Event, now: datetime) -> Event:
    """The event with its time in the zone of `now`: the mind tells hours as its own clock shows them."""
    if event.time.utcoffset() == now.utcoffset():
        return event
    return event.model_copy(update={"time": event.time.astimezone(now.tzinfo)})


def event_weight(payload: Mapping[str, Json], count: Count, budgets: InternalizerSettings) -> int:
    """About how many tokens the events of a `msg_` payload take in a prompt; at least one each."""
    events = payload.get("events")
    number = len(events) if isinstance(events, list) else 1
    most = number * budgets.event_max_tokens
    text = str(payload.get("text", ""))
    if len(text) > most * MAX_CHARS_PER_TOKEN:
        return most  # longer than what will be shown of it: not worth counting
    data = sum(len(str(e["data"])) for e in events or () if isinstance(e, dict) and e.get("data"))
    return max(number, min(most, count(text) + data // _DATA_CHARS_PER_TOKEN))


def _block(passage: Passage) -> str:
    text = escape(passage.text)
    return f"## {passage.heading}\n\n{text}" if passage.heading else text


def _query(events: Iterable[Event]) -> str:
    """The words to search the past with: of what people and time say, not of the mind's own acts.

    Each event has its share of the query, so that a long one does not hide the rest.
    """
    telling = [event for event in events if event.text and not event.type.startswith("action.")]
    share = max(_QUERY_BYTES // max(len(telling), 1), _LEAST_SHARE)
    words = (f"{event.from_} {event.text}" if event.is_message else event.text for event in telling)
    return _cut(" ".join(_cut(word, share) for word in words), _QUERY_BYTES)


def _cut(text: str, max_bytes: int) -> str:
    return text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def _moment(now: datetime, language: Language) -> str:
    day = _WORDS[language]["days"].split(" ")[now.weekday()]
    return f"{heading(now)}, {day}"


def _catalogue(tools: Sequence[Json], language: Language) -> str:
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
