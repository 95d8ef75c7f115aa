"""The seams. Each is a small Protocol; nodes know nothing else of the world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from kernel_gamma.contracts.effects import Batch, Effect
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.payloads import Action, ActionPayload, Attachment
from kernel_gamma.contracts.trust import Trust

__all__ = [
    "Clock",
    "Ids",
    "Journal",
    "Model",
    "OutcomeUnknown",
    "Page",
    "PageStore",
    "Passage",
    "PassagePlace",
    "Prompts",
    "Reply",
    "Role",
    "SelfLog",
    "Snippet",
    "Spending",
    "ToolHost",
    "ToolResult",
    "Turn",
    "Usage",
]

Role = Literal["fast", "quality", "multimodal", "embedding"]


class Clock(Protocol):
    """The only source of time."""

    @property
    def zone(self) -> tzinfo:
        """The mind's time zone: names of days follow it."""
        ...

    def now(self) -> datetime:
        """Aware, in the mind's zone. May step back when the system clock does."""
        ...

    def monotonic(self) -> float:
        """Seconds that never step back; for durations only."""
        ...


class Ids(Protocol):
    def new(self, prefix: str) -> str:
        """`<prefix>_<ULID>`; later ones sort after earlier ones within this process."""
        ...


class OutcomeUnknown(Exception):
    """A tool's intent stands in the journal without a receipt: it may or may not have run."""


class Journal(Protocol):
    """What makes a repeated handler repeat nothing."""

    async def once(
        self,
        batch: Batch,
        step: str,
        run: Callable[[], Awaitable[Json]],
        *,
        kind: Literal["model", "tool"],
        again: bool = False,
    ) -> Json:
        """Run `run` once and store its JSON result under (batch, step); later calls return it.

        The intent is stored before, the result after. A `model` intent without a result is simply
        run again. For a `tool` it raises OutcomeUnknown, unless `again` (an idempotent tool).
        """
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What one model call cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens the endpoint read from its cache; part of prompt_tokens."""
    cost: float = 0.0
    """Money, in the currency of the role's prices."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a prompt."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's whole answer."""

    text: str
    finish_reason: str
    """`stop`, `length`, `content_filter`, …; a reply cut by `length` is never applied to a page."""
    model: str
    usage: Usage
    duration_sec: float


class Model(Protocol):
    async def complete(
        self,
        role: Role,
        turns: Sequence[Turn],
        *,
        agent: str,
        trace_id: str,
        schema: Mapping[str, Json] | None = None,
        for_people: bool = True,
    ) -> Reply:
        """One answer. With `schema` (JSON Schema of an object) the endpoint is asked for JSON.

        `agent` is the node id, `trace_id` the newest trace (headers of contracts, section 7).
        `for_people`: a person waits for it, so the reserved share of the budget may be used.
        Raises ModelDown, BudgetSpent (both Park), Poison (this prompt can never be answered).
        """
        ...

    def has_role(self, role: Role) -> bool:
        """Whether the role is configured by itself (unset roles fall back to `quality`)."""
        ...

    def count_tokens(self, role: Role, text: str) -> int:
        """Tokens of `text` for the role's tokenizer; counts of whole texts are cached."""
        ...

    def window(self, role: Role) -> int:
        """The role's context window in tokens."""
        ...


class Spending(Protocol):
    """What the ledger knows of past calls."""

    def tokens_on(self, day: str) -> int:
        """Prompt and completion tokens of one local day (`YYYY-MM-DD`)."""
        ...


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of the stream: from its heading to the next."""

    heading: str
    """The time as written, `2026-11-30 10:30:05 +08:00`; empty for text above the first heading."""
    text: str
    """Without the heading, stripped."""


@dataclass(frozen=True, slots=True)
class PassagePlace:
    """Where the ledger last knew a passage."""

    passage_id: str
    page: str
    offset: int
    length: int
    sha256: str
    heading: str


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page of the self as it stood when read."""

    name: str
    text: str
    sha256: str | None
    """Hex digest of the bytes; None when there is no such page. Hand it to Replace.expect."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of the mind's past that matches a query."""

    key: str
    """e.g. `memory.about_alice`, `diary.2026-11-30`, `stream.2026-11-30`."""
    heading: str
    text: str


class SelfLog(Protocol):
    """Pool A, read-only."""

    def tail(self, max_bytes: int) -> list[Passage]:
        """The last whole passages of now.md within `max_bytes`, oldest first; reads only its end."""
        ...

    def passage(self, place: PassagePlace) -> Passage | None:
        """The passage, wherever editing or rotation has put it; None when a person removed it."""
        ...

    def state(self) -> Page:
        """state.md."""
        ...

    def page(self, name: str) -> Page:
        """Any page, `name` relative to self/."""
        ...

    def memories(self) -> list[str]:
        """Names of memory pages (without .md), newest change first."""
        ...

    def search(self, query: str, limit: int) -> list[Snippet]:
        """Best matches over memories, diary, archive and now.md; English and Chinese.

        Reads the whole past: for a question that was asked on purpose, not for every call.
        """
        ...

    def recollect(self, query: str, limit: int) -> list[Snippet]:
        """What memories and diary hold on `query`, best first; cheap at any size, reads no page."""
        ...


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What running one action came to."""

    ok: bool
    result: Json = None
    error: str = ""
    refused: bool = False
    """Not run: unknown tool, bad arguments, missing permission."""
    unknown: bool = False
    """It may or may not have run: the process died in between."""
    perceive: bool = True
    """False: noted in the stream by a template line, without a model call."""
    note: str = ""
    """The first-person line for the stream when it is only noted."""
    effects: tuple[Effect, ...] = field(default=())
    """For built-in tools: what the commit carries out together with the receipt."""


class Prompts(Protocol):
    def text(self, name: str, language: Literal["en", "zh"], **values: str) -> str:
        """The prompt `name` (e.g. `INTERNALIZER`), its `{placeholders}` filled; an unknown one raises."""
        ...

    def sources(self, language: Literal["en", "zh"]) -> Sequence[str]:
        """The raw text of every prompt file of a language, for the check that no passage quotes them."""
        ...


class PageStore(Protocol):
    """The writing side of Pool A: used by the bus's commits only."""

    def next_offset(self, page: str) -> int:
        """Byte offset at which the next append to `page` (relative to self/) will put its text."""
        ...

    def append(
        self,
        page: str,
        data: bytes,
        *,
        opening: bytes = b"",
        redo: bool = False,
        occurrence: int = 1,
    ) -> int:
        """Put exactly `data` at the end of `page`; returns the offset where it stands.

        `redo`: it may already be there: done if `data` stands at least `occurrence` times in the file.
        """
        ...

    def replace(self, page: str, data: bytes, *, expect: str | None, history: str) -> bool:
        """Put a page in place if its sha256 is `expect`; the old page is kept as `.history/<history>`.

        False: a person's page stands there, ours was kept in `.history/` instead. Repeatable.
        """
        ...


class ToolHost(Protocol):
    async def run(
        self, action: Action, order: ActionPayload, *, batch: Batch, trace_id: str, now: datetime
    ) -> ToolResult:
        """Check permission, trust and arguments, then run `action` once. Never raises for a refusal."""
        ...

    def catalogue(self, trust: Trust, language: str) -> list[dict[str, Json]]:
        """Tools an event of this trust may use: `{name, description, parameters (JSON Schema)}`."""
        ...
