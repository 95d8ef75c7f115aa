"""Names inside a mind's folder: which directories there are, and which files a pattern means. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "ACKS",
    "ATTACHMENTS",
    "DEAD_LETTER",
    "INBOX",
    "OUTBOX",
    "SELF",
    "SKELETON",
    "STATUS_FILE",
    "TAKEN",
    "directory_of",
    "fitting_name",
    "matches",
    "prefix_for",
    "shown",
    "valid_pattern",
]

INBOX = "inbox/pending"
TAKEN = "inbox/taken"
ACKS = "inbox/acks"
ATTACHMENTS = "inbox/attachments"
DEAD_LETTER = "dead_letter"
OUTBOX = "outbox"
SELF = "self"
STATUS_FILE = "metrics/status.json"

SKELETON = (
    INBOX,
    TAKEN,
    ACKS,
    ATTACHMENTS,
    "pipeline/message_queue",
    "pipeline/internalized",
    "pipeline/action_queue",
    OUTBOX,
    "heartbeat",
    "rhythm/triggers",
    "control",
    "loops/tripped",
    "tools",
    "approvals/pending",
    DEAD_LETTER,
    "metrics",
    "logs",
    "self/stream/archive",
    "self/memories",
    "self/diary",
    "self/.history",
)
"""Directories a mind has from its first start."""

NAME_MAX = 255
"""Longest file name in bytes on the file systems we know."""

_PATTERN = re.compile(r"(?:[\w.-]+|\*)(?:/(?:[\w.-]+|\*))*/(?:\*|[a-z]+_\*)\.json")


def valid_pattern(pattern: str) -> bool:
    """`<queue>/*.json` or `<queue>/<prefix>_*.json`; `*` may stand for one folder; no `..`, `**`, classes."""
    return bool(_PATTERN.fullmatch(pattern)) and ".." not in pattern.split("/")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", "[^/]*"), re.DOTALL)


def matches(pattern: str, directory: str, name: str) -> bool:
    """Whether the file `directory/name` is meant by `pattern`."""
    return _compiled(pattern).fullmatch(f"{directory}/{name}") is not None


def directory_of(pattern: str) -> str:
    """The directory part of a pattern."""
    return pattern.rsplit("/", 1)[0]


@lru_cache(maxsize=512)
def prefix_for(patterns: tuple[str, ...], directory: str) -> str | None:
    """The name prefix (without `_`) for files emitted into `directory`; None if no pattern allows it.

    A pattern without a prefix (`inbox/pending/*.json`) gives `evt`.
    """
    for pattern in patterns:
        if _compiled(directory_of(pattern)).fullmatch(directory):
            last = pattern.rsplit("/", 1)[1]
            return last.split("_", 1)[0] if "_" in last else "evt"
    return None


def shown(name: str) -> str:
    """A file name that any terminal and any log can take: bytes that are no UTF-8 as `\\xff`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def fitting_name(prefix: bytes, name: bytes) -> bytes:
    """`prefix` + `name`, cut in the middle if the file system could not hold it; the ending stays."""
    room = NAME_MAX - len(prefix)
    if len(name) <= room:
        return prefix + name
    return prefix + name[: room - 5] + name[-5:]
