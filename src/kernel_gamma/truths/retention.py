"""Which truths are kept how long, which stand in the hash chain, which come unasked. Pure.

The shipped classes are those of config/retention.yaml; a test holds both equal.

A class lists prefixes. A key belongs to the longest prefix that its folder lies in: the folder of
`metrics.disk.root` is `metrics.disk`, so `metrics.disk.` counts before `metrics.`; a key without a dot is
its own folder. A key that no class names is kept for ever, stands in the chain and comes unasked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import json_kind
from kernel_gamma.contracts.truths import SELF_CATEGORIES, category_of, check_category
from kernel_gamma.errors import SettingsError

__all__ = ["OTHERS", "Retention", "RetentionClass", "load_retention"]

RETENTION_FILE = "config/retention.yaml"

_KEYS = ("prefixes", "keep", "chain", "unasked")
_DAYS = re.compile(r"([0-9]{1,6}) days?")
_MOST_DAYS = 36_500
_DEEPEST_ASKED = 3
"""As deep as keys.prefixes_of files a key."""


@dataclass(frozen=True, slots=True)
class RetentionClass:
    """What holds for all keys of some prefixes."""

    prefixes: tuple[str, ...]
    """Folders of keys, without the dot at their end."""
    days: int | None = None
    """Kept so long after the record's own time; None = for ever."""
    chain: bool = True
    """Each version gets a link in the hash chain; only for what is kept for ever."""
    unasked: bool = True
    """False: found only when a category names it; so are all longer prefixes."""


OTHERS = RetentionClass(())
"""Of keys that no class names."""

_OWN_PAST = RetentionClass(tuple(sorted(SELF_CATEGORIES)), chain=False)
"""An index of Markdown files: made anew whenever they change, so it is neither sealed nor pruned."""

_TOMBSTONES = RetentionClass(("tombstone",), unasked=False)
"""What was forgotten: without it the hash chain would not hold."""

_SHIPPED = (
    RetentionClass(("incident", "inspection")),
    RetentionClass(("task", "result")),
    RetentionClass(("operation", "deploy")),
    RetentionClass(("error", "alert")),
    RetentionClass(("decision", "risk")),
    RetentionClass(("style", "brand", "template", "spec")),
    RetentionClass(("static", "proposal"), unasked=False),
    RetentionClass(("metrics", "performance"), days=30, chain=False, unasked=False),
    RetentionClass(("debug", "temp"), days=7, chain=False, unasked=False),
    RetentionClass(("assembly",), days=30, chain=False, unasked=False),
    RetentionClass(("stream", "diary", "memory"), chain=False),
)


@dataclass(frozen=True)
class Retention:
    """All classes; make it with `load_retention` or `Retention.default()`."""

    classes: tuple[RetentionClass, ...]

    @classmethod
    def default(cls) -> Retention:
        """What is shipped."""
        return cls(_SHIPPED)

    @cached_property
    def _by_prefix(self) -> Mapping[str, RetentionClass]:
        own = dict.fromkeys(_OWN_PAST.prefixes, _OWN_PAST) | {"tombstone": _TOMBSTONES}
        return own | {prefix: found for found in self.classes for prefix in found.prefixes}

    @cached_property
    def _depth(self) -> int:
        return max(prefix.count(".") + 1 for prefix in self._by_prefix)

    def prefix_of(self, key: str) -> str:
        """The most specific prefix that holds for a key; its category when no class names it."""
        parts = (key.rpartition(".")[0] or key).split(".")
        for count in range(min(len(parts), self._depth), 0, -1):
            prefix = ".".join(parts[:count])
            if prefix in self._by_prefix:
                return prefix
        return category_of(key)

    def class_of(self, key: str) -> RetentionClass:
        """What holds for a key."""
        return self._by_prefix.get(self.prefix_of(key), OTHERS)

    def is_chained(self, key: str) -> bool:
        """Whether its versions get links in the hash chain; the same for all keys of one folder."""
        return self.class_of(key).chain

    def comes_unasked(self, key: str) -> bool:
        """Whether a search without categories may find it: not where any prefix of it is asked-only."""
        parts = (key.rpartition(".")[0] or key).split(".")
        return self._hidden.isdisjoint(".".join(parts[:count]) for count in range(1, len(parts) + 1))

    @cached_property
    def _hidden(self) -> frozenset[str]:
        return frozenset(prefix for prefix, found in self._by_prefix.items() if not found.unasked)

    def due(self, now: datetime) -> list[tuple[str, datetime]]:
        """(prefix, moment) of each prefix with a limit: what is older than the moment may go.

        The limit is so many times 24 hours, whatever summer time does. `now` must be aware; the moments
        are in its zone. Within a prefix a more specific one may hold longer: ask `prefix_of` for each key.
        """
        return [
            (prefix, (now.astimezone(UTC) - timedelta(days=found.days)).astimezone(now.tzinfo))
            for found in self.classes
            if found.days is not None
            for prefix in found.prefixes
        ]

    def asked_only(self) -> set[str]:
        """Prefixes (without the dot at their end) that a search must name to find what lies in them."""
        return set(self._hidden)

    def shortened(self) -> list[tuple[str, int]]:
        """(prefix, days) of what is shipped as permanent and here is not; doctor tells of it."""
        shipped = Retention.default()
        named = {prefix for found in shipped.classes for prefix in found.prefixes}
        return [
            (prefix, found.days)
            for found in self.classes
            if found.days is not None
            for prefix in found.prefixes
            if category_of(prefix) in named and shipped.class_of(f"{prefix}.x").days is None
        ]


def load_retention(document: Mapping[str, Json], file: str = RETENTION_FILE) -> Retention:
    """The retention a file describes, read by `configuration.read_yaml`; the shipped one when it is empty.

    Raises SettingsError for the first problem.
    """
    if not document:
        return Retention.default()
    for key in document:
        if key not in ("classes", "files"):
            raise SettingsError(file, key, "unknown key", "the file holds two keys, classes and files")
    if "classes" not in document:  # times of files alone: those are read by bus.keep_times
        return Retention.default()
    written = document["classes"]
    if not isinstance(written, list):
        raise SettingsError(file, "classes", f"must be a list, is {json_kind(written)}", _EXAMPLE)
    classes = tuple(_class_from(entry, f"classes[{number}]", file) for number, entry in enumerate(written))
    _check_once(classes, file)
    _check_hidden(written, classes, file)
    return Retention(classes)


_EXAMPLE = "write entries like `- {prefixes: [metrics.], keep: 30 days, chain: false}`"


def _class_from(entry: Json, key: str, file: str) -> RetentionClass:
    if not isinstance(entry, dict):
        raise SettingsError(file, key, f"must be a section, is {json_kind(entry)}", _EXAMPLE)
    for name in entry:
        if name not in _KEYS:
            close = difflib.get_close_matches(name, _KEYS, 1)
            mend = f"did you mean {close[0]}?" if close else f"it may hold {', '.join(_KEYS)}"
            raise SettingsError(file, f"{key}.{name}", "unknown key", mend)
    prefixes = tuple(_prefixes_from(entry.get("prefixes"), f"{key}.prefixes", file))
    days = _days_from(entry.get("keep"), f"{key}.keep", file)
    own = SELF_CATEGORIES.issuperset(map(category_of, prefixes))
    chain = _flag_from(entry, "chain", days is None and not own, key, file)
    if chain and days is not None:
        mend = "add chain: false, or keep: forever"
        raise SettingsError(file, f"{key}.chain", "what stands in the hash chain is kept for ever", mend)
    for prefix in prefixes:
        if category_of(prefix) == "tombstone":
            problem = f"{prefix}. tells what was forgotten: kept for ever, in the hash chain"
            raise SettingsError(file, f"{key}.prefixes", problem, "remove it from the list")
        if category_of(prefix) in SELF_CATEGORIES and (chain or days is not None):
            problem = f"{prefix}. is the index of the mind's own pages: kept as long as they are, not sealed"
            raise SettingsError(file, key, problem, "write keep: forever, chain: false")
    unasked = _flag_from(entry, "unasked", True, key, file)
    deep = next((prefix for prefix in prefixes if prefix.count(".") >= _DEEPEST_ASKED), None)
    if deep is not None and not unasked:
        problem = f"{deep}. is too deep: a search tells apart {_DEEPEST_ASKED} parts of a key"
        raise SettingsError(file, f"{key}.unasked", problem, "name a shorter prefix")
    return RetentionClass(prefixes, days, chain, unasked)


def _prefixes_from(written: Json, key: str, file: str) -> Iterator[str]:
    if not isinstance(written, list) or not written:
        raise SettingsError(file, key, f"must be a list of prefixes, is {json_kind(written)}", _EXAMPLE)
    for prefix in written:
        if not isinstance(prefix, str):
            raise SettingsError(file, key, f"a prefix is text, not {json_kind(prefix)}", "write [metrics.]")
        try:
            yield check_category(prefix)
        except ValueError as error:
            raise SettingsError(file, key, f"{prefix!r}: {error}", "write it like metrics.") from None


def _days_from(written: Json, key: str, file: str) -> int | None:
    if written == "forever":
        return None
    match = _DAYS.fullmatch(written) if isinstance(written, str) else None
    if match is None or not 1 <= int(match[1]) <= _MOST_DAYS:
        found = "is missing" if written is None else f"is no time to keep a record: {written}"
        raise SettingsError(file, key, found, f"write forever, or 30 days (1 to {_MOST_DAYS})")
    return int(match[1])


def _flag_from(entry: Mapping[str, Json], name: str, default: bool, key: str, file: str) -> bool:
    value = entry.get(name, default)
    if not isinstance(value, bool):
        raise SettingsError(file, f"{key}.{name}", f"must be true or false, is {json_kind(value)}")
    return value


def _check_once(classes: Sequence[RetentionClass], file: str) -> None:
    seen: dict[str, int] = {}
    for number, found in enumerate(classes):
        for prefix in found.prefixes:
            if prefix in seen:
                where = f"classes[{seen[prefix]}]"
                raise SettingsError(
                    file, f"classes[{number}].prefixes", f"{prefix}. stands in {where} too", "remove one"
                )
            seen[prefix] = number


def _check_hidden(written: Sequence[Json], classes: Sequence[RetentionClass], file: str) -> None:
    """A search leaves out whole folders, so nothing below an asked-only prefix can come unasked."""
    hidden = {prefix for found in classes if not found.unasked for prefix in found.prefixes}
    for number, (entry, found) in enumerate(zip(written, classes, strict=True)):
        if not isinstance(entry, dict) or entry.get("unasked") is not True:
            continue  # where nothing is written, the shorter prefix decides
        for prefix in found.prefixes:
            above = next((name for name in sorted(hidden) if prefix.startswith(f"{name}.")), None)
            if above is not None:
                problem = f"{prefix}. cannot come unasked: it lies below {above}., which must be asked for"
                mend = f"remove unasked: true here, or write unasked: true for {above}."
                raise SettingsError(file, f"classes[{number}].unasked", problem, mend)
