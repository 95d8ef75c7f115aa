"""Passages into memories: what the consolidator is shown, and what of its answer may be applied. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kernel_gamma.context.asking import Answer
from kernel_gamma.context.fences import Count, escape, recalled_fence
from kernel_gamma.context.novelty import Known, sentences, without
from kernel_gamma.context.own_parts import OwnParts
from kernel_gamma.contracts.context import Part, Piece, Request
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.ports import Page, Passage, Role
from kernel_gamma.model.json_reply import read_object
from kernel_gamma.self_stream.passages import check_passage, parse_reply, slug

__all__ = [
    "SCHEMA",
    "Desk",
    "NewPage",
    "Settled",
    "mark_of",
    "request_for",
    "stopped_mark",
    "topic_of",
    "understand",
    "words_of",
]

SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "memories": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"topic": {"type": "string"}, "page": {"type": "string"}},
                "required": ["topic", "page"],
                "additionalProperties": False,
            },
        },
        "keep_from": {"type": ["string", "null"]},
    },
    "required": ["memories", "keep_from"],
    "additionalProperties": False,
}
_HEADINGS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "pages": "# Your memory pages on this, as they stand",
        "topics": "# Your other memory pages, by name",
        "span": "# What you have lived through since",
    },
    "zh": {
        "pages": "# 你在这些事上的记忆页，现在的样子",
        "topics": "# 你的其他记忆页，只列名字",
        "span": "# 自那以后你经历的",
    },
}
_MOST_TOPICS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """All that lies before the consolidator."""

    span: Sequence[Passage]
    """Passages that were never consolidated, oldest first."""
    shown: Mapping[str, Page]
    """Memory pages that are shown whole, by their name without .md."""
    names: Sequence[str]
    """Of all memory pages."""
    page_of: Callable[[str], Page]
    """A memory page as it stands now, by its name."""
    told_elsewhere: Callable[[str], Sequence[tuple[str, str]]]
    """(key, text) of what memories and diary hold on a sentence, e.g. (`memory.tea`, …)."""
    fixed: Sequence[str]
    """What is true of the mind by its static truths and its persona: no news."""
    prompts: Sequence[str]
    max_shrink: float


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page of memories/ as it is to be."""

    name: str
    text: str
    expect: str | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What an answer comes to."""

    span: tuple[Passage, ...]
    """The passages that were shown when it was given, as far as they still stand so."""
    pages: tuple[NewPage, ...]
    keep_from: str
    """Heading of the first passage that stays; empty: none moves."""
    refused: tuple[str, ...] = ()
    """One sentence for each page that was left as it is."""
    dropped: int = 0
    """Sentences that were no news."""


def mark_of(passage: Passage) -> str:
    """The key by which it is remembered that a passage was consolidated."""
    digest = hashlib.sha256(passage.text.encode("utf-8", "replace")).hexdigest()[:16]
    return f"consolidated:{passage.heading}:{digest}"


def stopped_mark(passage: Passage, *, first: bool = False) -> str:
    """The key by which it is remembered that a run whose last passage this was came to nothing."""
    return f"{'barren' if first else 'stopped'}:{mark_of(passage)}"


def topic_of(name: str) -> str:
    """The name of a memory page as a topic."""
    return name.replace("_", " ")


def request_for(
    desk: Desk, own: OwnParts, *, agent: str, role: Role, trace_id: str, language: Language, now: datetime,
    count: Count,
) -> Request:  # fmt: skip
    """Persona, instructions, the pages in fences, the other names, the time, the passages."""
    heads = _HEADINGS[language]
    pages = [
        _piece(f"memories/{name}.md", _fenced(name, page), count, sha256=page.sha256 or "")
        for name, page in desk.shown.items()
    ]
    others = [name for name in desk.names if name not in desk.shown][:_MOST_TOPICS]
    topics = [_piece("memories", _names(others), count)] if others else []
    span = [
        _piece(f"stream {one.heading}", f"## {one.heading}\n\n{escape(one.text)}", count) for one in desk.span
    ]
    return Request(
        agent=agent,
        role=role,
        trace_id=trace_id,
        language=language,
        now=now,
        task="",
        parts=[
            own.persona(language),
            own.instructions("CONSOLIDATOR", language),
            _part("pages", pages, heads["pages"]),
            _part("topics", topics, heads["topics"]),
            own.now(now, language),
            _part("span", span, heads["span"]),
        ],
        hand=True,
    )


def _fenced(name: str, page: Page) -> str:
    return recalled_fence(f"memory.{name}", page.text.strip(), trust="unknown", time="")


def _names(names: Sequence[str]) -> str:
    return recalled_fence(
        "memories", "\n".join(f"- {topic_of(name)}" for name in names), trust="unknown", time=""
    )


def _piece(source: str, text: str, count: Count, *, sha256: str = "") -> Piece:
    return Piece(source=source, text=text, tokens=count(text), sha256=sha256)


def _part(name: str, pieces: Sequence[Piece], heading: str) -> Part:
    return Part(name=name, channel="agent", pieces=pieces, heading=heading, fixed=True, volatile=True)


# ---- the answer


@dataclass(slots=True)
class _Reading:
    """An answer being read, page by page."""

    desk: Desk
    is_last: bool
    seen: Mapping[str, str | None]
    """Pages that were shown when the answer was given, with their hashes."""
    pages: dict[str, NewPage] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    dropped: int = 0


def understand(desk: Desk, answer: Answer) -> Settled:
    """What an answer comes to. Raises ValueError, fit to be shown to the model, for what is wrong with it;
    with the last answer only the pages that are wrong are left out, as long as anything is right."""
    found = read_object(answer.text, ("memories",))
    listed = found["memories"]
    if not isinstance(listed, list):
        raise ValueError("`memories` must be a list")
    then = frozenset(answer.remembered["span"])
    desk = replace(desk, span=[passage for passage in desk.span if mark_of(passage) in then])
    if not desk.span:
        raise ValueError("the passages that were shown stand no more")
    reading = _Reading(desk, answer.is_last, answer.remembered["pages"])
    for entry in listed:
        try:
            _take(reading, entry)
        except ValueError as error:
            if not answer.is_last:
                raise
            reading.refused.append(str(error))
    keep_from = _kept_from(desk, found.get("keep_from"), forgiving=answer.is_last)
    if reading.refused and not reading.pages and not keep_from:
        raise ValueError(reading.refused[0])
    pages = _news_only(reading)
    return Settled(tuple(desk.span), pages, keep_from, tuple(reading.refused), reading.dropped)


def _take(reading: _Reading, entry: Json) -> None:
    topic, text = (entry.get("topic"), entry.get("page")) if isinstance(entry, dict) else (None, None)
    if not isinstance(topic, str) or not isinstance(text, str) or not topic.strip():
        raise ValueError("each entry of `memories` needs a `topic` and a `page`, both strings")
    desk = reading.desk
    name = _name_of(topic, desk.names)
    if name in reading.pages:
        raise ValueError(f"`{topic}` is named twice; write one whole page for it")
    stands, seen = desk.page_of(name), name in reading.seen
    page = parse_reply(text).passage
    own_words = [stands.text, *(passage.text for passage in desk.span)]
    if problem := check_passage(page, prompt_sources=desk.prompts, event_texts=own_words):
        raise ValueError(f"`{topic}`: {problem}")
    if not seen and stands.text.strip():
        page = _added_to(stands.text.strip(), _without_title(page))
    elif len(page) < (1 - desk.max_shrink) * len(stands.text.strip()):
        raise ValueError(
            f"`{topic}` would shrink from {len(stands.text.strip())} to {len(page)} characters;"
            " give the whole page, with all that stays true"
        )
    reading.pages[name] = NewPage(name, page, reading.seen[name] if seen else stands.sha256)


def _name_of(topic: str, names: Sequence[str]) -> str:
    bare = topic.strip().removeprefix("memories/").removesuffix(".md")
    return next((known for known in (bare, slug(bare)) if known in names), slug(bare))


def _added_to(stands: str, page: str) -> str:
    """A page that was not seen is only added to: with what it does not say yet."""
    known, standing = Known([stands]), set(sentences(stands))
    told = [s for s in sentences(page) if s in standing or known.says(s)]
    return f"{stands}\n\n{without(page, told)}".strip()


def _without_title(page: str) -> str:
    first, _, rest = page.partition("\n")
    return rest.strip() if first.startswith("# ") else page


def _kept_from(desk: Desk, found: Json, *, forgiving: bool) -> str:
    if found is None or (isinstance(found, str) and not found.strip()):
        return ""
    wanted = found.strip().lstrip("#").strip() if isinstance(found, str) else ""
    fitting = [p.heading for p in desk.span if wanted and p.heading.startswith(wanted)]
    if fitting:
        return fitting[0]
    if forgiving:
        return ""
    raise ValueError(
        "`keep_from` must be the time above one of the passages you were shown, exactly as it stands there,"
        " or null"
    )


# ---- what of it is news


def _news_only(reading: _Reading) -> tuple[NewPage, ...]:
    """The pages without what is told elsewhere already; those that are left as they were are left out."""
    desk = reading.desk
    fixed, lived = Known(desk.fixed), Known(passage.text for passage in desk.span)
    before = {name: desk.page_of(name).text for name in reading.pages}
    kept = {name: _kept(before[name], page.text) for name, page in reading.pages.items()}
    pages: list[NewPage] = []
    for name, page in reading.pages.items():
        others = Known(
            [
                *(text for other, text in kept.items() if other != name),
                *(shown.text for other, shown in desk.shown.items() if other not in reading.pages),
            ]
        )
        standing = set(sentences(before[name]))
        unwanted = [
            sentence
            for sentence in sentences(page.text)
            if sentence not in standing
            and (
                fixed.says(sentence)
                or others.says(sentence)
                or _is_told_elsewhere(reading, name, sentence, lived)
            )
        ]
        reading.dropped += len(unwanted)
        text = kept[name] = without(page.text, unwanted)
        if text != before[name].strip() and any(sentences(text)):
            pages.append(NewPage(name, f"{text}\n", page.expect))
    return tuple(pages)


def _kept(before: str, after: str) -> str:
    """What stands in both: a page that keeps a sentence is the one to tell it."""
    standing = set(sentences(before))
    return "\n".join(sentence for sentence in sentences(after) if sentence in standing)


def _is_told_elsewhere(reading: _Reading, name: str, sentence: str, lived: Known) -> bool:
    """Whether another memory page holds it, or a page of the diary does and the passages do not."""
    for key, text in reading.desk.told_elsewhere(sentence):
        kind, _, page = key.partition(".")
        if kind == "memory" and page in reading.pages:
            continue
        if (kind == "memory" or not lived.says(sentence)) and Known([text]).says(sentence):
            return True
    return False


def words_of(passages: Iterable[Passage]) -> str:
    """The passages as one text."""
    return "\n\n".join(passage.text for passage in passages)
