"""The seams. Each is a small Protocol; nodes know nothing else of the world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from kernel_gamma.contracts.effects import Batch, Effect, MovePrefix
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.payloads import Action, ActionPayload, Attachment
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.contracts.truths import Finding, Level, NewTruth, Search, Truth, VerifyReport

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
    "Past",
    "PastEntry",
    "Prompts",
    "Recorder",
    "Reply",
    "Role",
    "SelfLog",
    "Snippet",
    "Spending",
    "ToolHost",
    "ToolResult",
    "TruthStore",
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

    async def kept(self, batch: Batch, step: str) -> Json:
        """The stored result; None when the step was never begun. Raises OutcomeUnknown when it was begun."""
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
        rule: str = "",
    ) -> Reply:
        """One answer. With `schema` (JSON Schema of an object) the endpoint is asked for JSON.

        `agent` is the node id, `trace_id` the newest trace (headers of contracts, section 7).
        `for_people`: a person waits for it, so the reserved share of the budget may be used, also in quiet
        hours. `rule`: the rhythm rule it comes from, whose own budget holds then.
        Raises ModelDown, BudgetSpent, QuietHours (all Park), Unusable (an answer without an end), Poison
        (this prompt can never be answered).
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

    def spent_on(self, day: str) -> tuple[int, float]:
        """Prompt and completion tokens of one local day (`YYYY-MM-DD`), and the money they cost."""
        ...

    def tokens_of_rule(self, day: str, rule: str) -> int:
        """Of those tokens, what a rhythm rule's events led to."""
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

    def archive_dates(self) -> list[str]:
        """Days (`YYYY-MM-DD`) that have an archive page, oldest first."""
        ...

    def moving(self, keep_from: str) -> MovePrefix | None:
        """The effect that moves what stands in now.md before the passage headed `keep_from` to the archive.

        None when nothing does, or when there is no such passage.
        """
        ...

    def recollect(self, query: str, limit: int) -> list[Snippet]:
        """What memories and diary hold on `query`, best first; cheap at any size, reads no page."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEntry:
    """One piece of the mind's past, as the index of the self keeps it."""

    key: str
    """`stream.…`, `diary.…` or `memory.…`; changes with the text, not with the page a passage moves to."""
    page: str
    """Relative to self/."""
    heading: str
    """As written, without its `#`; empty when there is none."""
    text: str
    timestamp: datetime | None
    """Aware; None: the page does not tell."""
    level: Level


class Past(Protocol):
    """Pool A as the index of the self reads it: every page of the stream, the diary and the memories."""

    def marks(self, pages: Collection[str] | None = None) -> dict[str, tuple[int, int, int]]:
        """Page -> (inode, size, mtime in ns): differs after any save. All pages, or those among `pages`.

        Names are relative to self/. What cannot be looked at may be missing: only `entries` tells.
        """
        ...

    def entries(self, page: str) -> list[PastEntry]:
        """What a page holds, in its order, no key twice; nothing when there is no such page (any more).

        Raises OSError for what cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What running one action came to."""

    ok: bool
    result: Json = None
    error: str = ""
    refused: bool = False
    """Not run: unknown tool, bad arguments, missing permission."""
    expired: bool = False
    """Not run: its time was over."""
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

        `redo`: it may already be there: done if `data` stands at least `occurrence` times in the file,
        or in the archive to which it may have moved since.
        """
        ...

    def replace(self, page: str, data: bytes, *, expect: str | None, history: str) -> bool:
        """Put a page in place if its sha256 is `expect`; the old page is kept as `.history/<history>`.

        False: a person's page stands there, ours was kept in `.history/` instead. Repeatable.
        """
        ...

    def room_for(self, page: str, incoming: int) -> MovePrefix | None:
        """What must leave `page` before `incoming` bytes are appended, so that it keeps to its limit."""
        ...

    def move_prefix(self, move: MovePrefix) -> bool:
        """Move the beginning of a page to other pages; what stands there already is not added again.

        False: the page begins otherwise, and nothing happened. Repeatable.
        """
        ...


class Recorder(Protocol):
    """Where a commit's records go: the memory store, or nowhere. Used by one thread at a time."""

    def record(self, truth: NewTruth) -> None:
        """Take one in; its key is its identity: a key that stands already is left as it is."""
        ...

    def flush(self) -> None:
        """Everything taken in stands when this returns. A store that cannot take it raises TruthError."""
        ...


class ToolHost(Protocol):
    async def run(
        self,
        action: Action,
        order: ActionPayload,
        *,
        batch: Batch,
        trace_id: str,
        now: datetime,
        late: bool = False,
    ) -> ToolResult:
        """Check permission, trust and arguments, then run `action` once. Never raises for a refusal.

        `late`: its time is over. What ran before has its receipt; nothing is begun any more.
        """
        ...

    def catalogue(self, trust: Trust, language: str) -> list[dict[str, Json]]:
        """Tools an event of this trust may use: `{name, description, parameters (JSON Schema)}`."""
        ...


class TruthStore(Protocol):
    """Channel B: stored truths and their retrieval. Safe to call from several threads.

    Every call may raise StoreFull (507: free some space) and StoreDamaged; see errors.py.
    """

    def upsert(self, truth: NewTruth) -> Truth:
        """Write one: a new key at version 1, a standing one at its next version, the old one is kept.

        Raises TruthLocked, VersionConflict, and BadTruth for a key or value that cannot be stored.
        """
        ...

    def upsert_many(self, truths: Sequence[NewTruth]) -> list[str]:
        """Write all of them in one transaction, or none; returns their keys in order. Raises as upsert."""
        ...

    def get(self, key: str, version: int | None = None) -> Truth | None:
        """The newest version, or the one asked for; None when there is none."""
        ...

    def versions(self, key: str) -> list[Truth]:
        """Every kept version of a key, oldest first."""
        ...

    def page(self, *, limit: int, offset: int = 0, category: str | None = None) -> tuple[int, list[Truth]]:
        """(total, truths), newest first. `category` may be a longer key prefix."""
        ...

    def recent(self, *, limit: int, category: str | None = None) -> list[Truth]:
        """The newest by timestamp. Without a category: none of those that come only when asked for."""
        ...

    def categories(self) -> dict[str, int]:
        """Category -> number of truths, most first."""
        ...

    def search(self, search: Search) -> Finding:
        """Retrieval: see docs/memory.md."""
        ...

    def unlock(self, key: str) -> bool:
        """Take the lock off; False when there is no such truth. Only the command line calls it."""
        ...

    def verify(self) -> VerifyReport:
        """Walk the hash chain from its first link."""
        ...

    def feedback(self, key: str, query: str, *, relevant: bool, by: str = "") -> bool:
        """Remember a judgement, which weighs in later searches; False when there is no such truth."""
        ...
