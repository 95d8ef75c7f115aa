"""The parts of a key: what a truth is filed under. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

__all__ = ["generated_key", "key_of_second", "prefixes_of"]

_TIMESTAMP = re.compile(r"\d{8}T\d{6}Z?|\d{4}-\d{2}-\d{2}(?:T[\d-]+Z?)?|\d{8,17}")
_DEEPEST = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def prefixes_of(key: str) -> tuple[str, ...]:
    """The folders a key lies in, the shortest (its category) first, the longest last.

    `incident.startup_loop.root_cause` lies in `incident` and `incident.startup_loop`;
    `incident.20260911T080000Z.01J…` in `incident` alone: a time is no folder. At most three.
    """
    return _folders(key.rpartition(".")[0] or key)


@lru_cache(maxsize=4096)
def _folders(path: str) -> tuple[str, ...]:
    folders: list[str] = []
    for number, part in enumerate(path.split(".")[:_DEEPEST]):
        if number and _TIMESTAMP.fullmatch(part):
            break
        folders.append(f"{folders[-1]}.{part}" if folders else part)
    return tuple(folders)


def generated_key(category: str, timestamp: datetime, ulid: str) -> str:
    """`<category>.<UTC timestamp>.<ulid>`, as dual-channel.md has it."""
    return key_of_second(category, (timestamp - _EPOCH) // timedelta(seconds=1), ulid)


def key_of_second(category: str, second: int, ulid: str) -> str:
    """The same, of so many seconds since 1970."""
    day, second = divmod(second, 86_400)
    minute, second = divmod(second, 60)
    return f"{category}.{_day(day)}T{minute // 60:02d}{minute % 60:02d}{second:02d}Z.{ulid}"


@lru_cache(maxsize=1024)
def _day(number: int) -> str:
    """The number counts days since 1970."""
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat().replace("-", "")
