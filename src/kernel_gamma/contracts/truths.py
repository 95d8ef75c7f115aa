"""Channel B: what is stored, asked for and found. Frozen values; the port is `ports.TruthStore`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.trust import Trust

__all__ = [
    "KEY",
    "RESERVED_KEYS",
    "SELF_CATEGORIES",
    "TASK_TYPES",
    "Finding",
    "Found",
    "Level",
    "NewTruth",
    "Search",
    "TaskType",
    "Truth",
    "VerifyReport",
    "category_of",
    "check_category",
    "check_key",
]

KEY = re.compile(r"[A-Za-z0-9_.-]{1,200}\Z")
"""What a key may be (dual-channel.md)."""

RESERVED_KEYS = frozenset({"search", "recent", "categories", "category", "upsert", "feedback"})
"""They are endpoints under /api/truth/."""

SELF_CATEGORIES = frozenset({"stream", "diary", "memory"})
"""The mind's own past: an index of the Markdown files, which stay the truth. Not for writers from outside."""

Level = Literal["L1", "L2", "L3"]
"""Of the mind's own past: L1 now.md, L2 archive and diary, L3 memories."""

TaskType = Literal[
    "ops_debug", "dev_deploy", "decision_analysis", "content_creation", "general_query", "emergency_block"
]
TASK_TYPES: tuple[TaskType, ...] = (
    "ops_debug",
    "dev_deploy",
    "decision_analysis",
    "content_creation",
    "general_query",
    "emergency_block",
)


def category_of(key: str) -> str:
    """The first dotted part of a key."""
    return key.split(".", 1)[0]


def check_key(key: str) -> str:
    """The key itself. Raises ValueError with a sentence when it cannot be one."""
    if not KEY.match(key):
        raise ValueError("a key is 1 to 200 of the characters A-Z a-z 0-9 _ . -")
    if key in RESERVED_KEYS:
        raise ValueError(f"the key {key!r} is the name of an endpoint: put a category before it")
    if not category_of(key) or ".." in key or key.endswith("."):
        raise ValueError("a key begins with its category and has no empty part between dots")
    return key


def check_category(name: str) -> str:
    """A category or a longer key prefix, without a dot at its end (one is taken off).

    Raises ValueError with a sentence when it cannot be one.
    """
    name = name.removesuffix(".")
    if not KEY.match(name) or not category_of(name) or ".." in name:
        raise ValueError("a category is made of the characters A-Z a-z 0-9 _ . -")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTruth:
    """What a writer hands in."""

    value: Json
    key: str | None = None
    """None: `<category>.<UTC timestamp>.<ulid>` is made."""
    category: str | None = None
    """Needed when there is no key; with a key it must be the key's own."""
    description: str = ""
    timestamp: datetime | None = None
    """Aware; None = now."""
    locked: bool | None = None
    """True locks it; None leaves it as it is. Unlocking has its own call."""
    expect_version: int | None = None
    """The version this write follows: 0 = there must be none yet; None = whatever stands."""
    trust: Trust = "unknown"
    """How far its source is believed; shown where it is recalled."""
    level: Level | None = None
    """Only for the mind's own past."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One stored version of one truth."""

    key: str
    value: Json
    category: str
    description: str
    timestamp: datetime
    """Aware, in the mind's zone."""
    version: int
    locked: bool
    sha256: str | None
    """Of this version, its content and the link before it; None outside the chain."""
    prev_sha256: str | None
    """The link before; None for the first link and outside the chain."""
    trust: Trust
    level: Level | None = None
    written_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A question to the store; every field of the seed's request, all optional."""

    query: str = ""
    categories: Sequence[str] = ()
    """Categories or longer key prefixes; empty = all that come unasked."""
    start: datetime | None = None
    """Aware, inclusive."""
    end: datetime | None = None
    """Aware, inclusive."""
    limit: int = 10
    min_similarity: float = 0.0
    task_type: TaskType | None = None
    token_budget: int | None = None
    """For prompts: results are cut to excerpts that fit together in as many tokens."""
    fold: bool = True
    """Near-duplicates count as one, with how many there are."""
    levels: Sequence[Level] = ()
    """Only the mind's own past of these levels; empty = any."""
    counted: bool = True
    """False: `total` is only at least so many; among a million records counting takes as long as finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One result."""

    truth: Truth
    similarity: float
    """0-1, and means the same from query to query; 1 without a query."""
    excerpt: str
    """The piece of its text that answers best, cut around the query's words."""
    count: int = 1
    """How many records differ from it only in times and numbers, itself included."""
    first: datetime | None = None
    last: datetime | None = None
    """Of those records; None when it stands alone."""
    tokens: int = 0
    """Of the label and the excerpt; 0 unless a token budget was given."""
    why: Mapping[str, float] = field(default_factory=dict)
    """What made its score: lexical, neighbours, semantic, boosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a search came to."""

    total: int
    """Records that match; exact up to `total_bound`."""
    results: Sequence[Found]
    bounded: bool = False
    """`total` stands at the bound: there are at least as many."""
    terms: Sequence[str] = ()
    """The words the query was taken for."""
    start: datetime | None = None
    end: datetime | None = None
    """The time range that was searched, also when a time word of the query named it."""
    categories: Sequence[str] = ()
    """Categories that words of the query named: their records count more, or stand alone first."""
    left_out: Sequence[tuple[str, str]] = ()
    """(key, reason) of ranked records that are not among the results: folded, no budget, below similarity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify` found."""

    ok: bool
    links: int
    """Links of the hash chain that were checked."""
    broken_key: str | None = None
    """The first record that does not fit."""
    broken_link: int | None = None
    reason: str = ""
    forgotten: int = 0
    """Of the links as many are of forgotten records: a tombstone stands for them."""
