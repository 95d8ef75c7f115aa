"""What a prompt is made of: sections, pieces and parts, the request for one, and its audit. Frozen values.

`static` is Channel A, `dynamic` is Channel B, `self` is Pool A (state, stream, memories); `agent` is what the
asking agent brings itself: its instructions and tools, the time, what it was woken by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.payloads import Attachment
from kernel_gamma.contracts.ports import Role, Turn
from kernel_gamma.contracts.truths import TaskType

__all__ = [
    "Assembled",
    "Channel",
    "Drift",
    "Guess",
    "Part",
    "Piece",
    "Profile",
    "Request",
    "Section",
    "StaticTruths",
    "TaskRequest",
    "TaskRule",
]

Channel = Literal["static", "self", "dynamic", "agent"]
Profile = Literal["full", "lean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of Channel A, rendered from approved bytes: the same text until a truth changes."""

    name: str
    """`meta_axioms`, `identity`, `metalaws`, `steady_core`, `kernel_skeleton`, `operators`, `truth.<name>`"""
    file: str
    """Relative to the home; of a section that several files make, their folder."""
    text: str
    """As it stands in the prompt, without blank lines around it."""
    budget: int
    """Tokens it may take."""
    sha256: str
    """Of the approved bytes it was rendered from."""
    lean: bool = False
    """Stands in the lean profile too, with the same text."""
    forced: bool = True
    """Never trimmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One file of Channel A that is not as it was approved."""

    file: str
    """Relative to the home."""
    kind: Literal["changed", "missing", "new", "unreadable"]
    approved_sha256: str | None
    found_sha256: str | None


class StaticTruths(Protocol):
    """Channel A as the assembler reads it. Cheap at every call: files are read only when they changed."""

    def sections(
        self, profile: Profile, *, named: Sequence[str] = (), operators: Sequence[str] = ()
    ) -> Sequence[Section]:
        """In the order in which they stand; what stands in lean comes first.

        `named`: architecture truths (config/core/truth/<name>.md) to load; `operators`: ids of operators.
        """
        ...

    def operators_in(self, text: str) -> Sequence[str]:
        """Ids of registered operators that `text` names, with those they depend on."""
        ...

    def truths_in(self, text: str) -> Sequence[str]:
        """Names of architecture truths that `text` touches, the nearest first."""
        ...

    def drift(self) -> Sequence[Drift]:
        """Files that differ from what was approved; served are the approved bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRule:
    """One task type of config/task_types.yaml."""

    name: str
    profile: Profile
    budget: int
    """Tokens of Channel A and Channel B together."""
    dynamic_budget: int
    """Tokens of Channel B at most; 0 = it is not asked."""
    categories: Sequence[str] = ()
    """Categories or longer key prefixes that are searched; empty = all that come unasked."""
    hours: float | None = None
    """How far back is searched when the task names no time; None = any time."""
    static_truths: bool = False
    """Whether architecture truths that the task touches are loaded."""
    like: TaskType | None = None
    """Whose weights the search takes; None: its own name where that is one of the six, else none."""
    words: Mapping[Language, Sequence[str]] = field(default_factory=dict)
    """What tells it in each language."""
    sign: bool = False
    """Signs of an emergency (an open breaker, a loop incident) make a task one of this type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Which task type a task is of, and why."""

    rule: TaskRule
    why: str
    """One sentence for a person."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Of every type for which something speaks."""
    tied: Sequence[str] = ()
    """Types that the rules could not tell apart; the first is the rule's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The smallest thing that is kept or left out of a prompt."""

    source: str
    """A key, a page, a file or an event's id."""
    text: str
    """As it stands in the prompt: fenced and escaped where it came from outside."""
    tokens: int
    plain: str | None = None
    """What it says without its fence, for finding duplicates; None = `text`."""
    rank: int = 0
    """Its place in the order of its retrieval, from 1; 0 = it was not retrieved."""
    score: float | None = None
    """Similarity 0-1 of what was retrieved."""
    at: datetime | None = None
    count: int = 1
    """How many records it stands for."""
    sha256: str = ""
    """Of the source it was made from; empty = of `text`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Pieces of one kind, which share a heading, a place and a budget."""

    name: str
    channel: Channel
    pieces: Sequence[Piece]
    """In the order in which they stand."""
    heading: str = ""
    """The line above them; costs its tokens only when a piece is kept."""
    priority: int = 0
    """The lowest is trimmed first."""
    minimum: int = 0
    """Tokens below which it is only trimmed when nothing else is left to trim."""
    maximum: int | None = None
    """Tokens it may take at most, its heading not counted."""
    fixed: bool = False
    """Never trimmed, and none of its pieces is taken for a duplicate."""
    newest_last: bool = False
    """Trimmed from its beginning; else from its end."""
    volatile: bool = False
    """Changes from call to call; stands behind everything that does not."""
    role: Literal["system", "user"] = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of the assembler."""

    task: str
    """The words to tell the task type by, and to retrieve with; empty = general, nothing is retrieved."""
    now: datetime
    """Aware, in the mind's zone."""
    language: Language
    agent: str = ""
    """Node id; empty: nobody of this mind."""
    role: Role = "quality"
    trace_id: str = ""
    parts: Sequence[Part] = ()
    """The agent's own and Pool A, in the order in which they stand."""
    images: tuple[Attachment, ...] = ()
    task_type: str | None = None
    """None: told by the rules."""
    budget: int | None = None
    """Tokens of Channel A and Channel B together; None: the task type's."""
    hand: bool = False
    """Only carries out what was decided: lean static truths, and no records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """What a person or a program asks to see assembled; see Request."""

    task: str
    task_type: str | None = None
    agent: str = ""
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """A prompt, and the account of it."""

    turns: tuple[Turn, ...]
    audit: Mapping[str, Any] = field(repr=False)
    """What an `assembly.` truth holds (context.audit)."""
    parts: Sequence[Part] = field(default=(), repr=False)
    """What stands in the turns, in its order."""
