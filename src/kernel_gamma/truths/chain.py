"""The hash chain over the records that are kept for ever: no version can be altered, lost or put in unseen.

What a link is, so that anybody can recompute it with any SHA-256:

    link = SHA-256( the link before: 32 raw bytes, all of them zero before the first
                  + field(key) + field(version) + field(category)
                  + field(description) + field(at) + field(value) )

    field(x) = the length of x in bytes as 8 bytes, big-endian, then the bytes of x

- key, category (the first dotted part of the key), description: UTF-8
- version, at: decimal digits, ASCII (with a minus sign where negative); at = the record's own time in
  microseconds since 1970-01-01T00:00:00Z
- value: the JSON text, UTF-8, byte for byte as it stands in the column `value` of memory.db

The lengths keep neighbours apart: ("ab", "c") and ("a", "bc") make different links. What may change without
a new version (the lock, trust, when it was written, the row it stands in) is not hashed. Links follow each
other in the order of writing, numbered 1, 2, 3, … without a gap, one for each version, superseded ones too.
A forgotten record leaves its link here, and a tombstone further on that names it: see tombstones.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["GENESIS", "Broken", "Link", "first_broken", "link_of"]

GENESIS = bytes(32)
"""What stands before the first link."""


class Link(NamedTuple):
    """One stored link with the record it seals; `key` and what follows it are None when that is missing."""

    link: int
    """Its number, from 1."""
    sha256: bytes
    key: str | None = None
    version: int | None = None
    category: str | None = None
    description: str | None = None
    at_us: int | None = None
    value_json: str | None = None


class Broken(NamedTuple):
    """The first place where a chain does not hold."""

    link: int
    """The number that is missing or does not fit."""
    key: str | None
    """Its record; None when there is none."""
    reason: str
    checked: int
    """Links before it that fit."""


def link_of(
    prev: bytes, key: str, version: int, category: str, description: str, at_us: int, value_json: str
) -> bytes:
    """The 32 bytes of the link that follows `prev`; see above for what is hashed."""
    fields = [
        text.encode("utf-8", "surrogatepass")  # what a damaged file holds must not stop the walk
        for text in (key, str(version), category, description, str(at_us), value_json)
    ]
    framed = [part for field in fields for part in (len(field).to_bytes(8, "big"), field)]
    return hashlib.sha256(b"".join((prev, *framed))).digest()


def first_broken(links: Iterable[Link], forgotten: Mapping[int, bytes] | None = None) -> Broken | int:
    """Walk a whole chain, links in the order of their numbers, from the first on.

    `forgotten`: link -> SHA-256 of what tombstones name; such a link may lack its record. It still seals
    what stands before it: the next link was made of it.
    How many there are when all of them fit, else where it breaks. Lost links at the end cannot be seen in
    the chain alone: compare the number of the last one with what was noted elsewhere.
    """
    prev, checked = GENESIS, 0
    for found in links:
        if found.link != checked + 1:
            return Broken(checked + 1, None, f"link {checked + 1} is missing", checked)
        gone = found.key is None and forgotten is not None and forgotten.get(found.link) == found.sha256
        reason = "" if gone else _misfit(prev, found)
        if reason:
            return Broken(found.link, found.key, reason, checked)
        prev, checked = found.sha256, found.link
    return checked


def _misfit(prev: bytes, found: Link) -> str:
    _, sha256, key, version, category, description, at_us, value_json = found
    if (
        key is None
        or version is None
        or category is None
        or description is None
        or at_us is None
        or value_json is None
    ):
        return "its record is missing"
    if link_of(prev, key, version, category, description, at_us, value_json) != sha256:
        return "the record is not what was sealed, or the link before it was changed"
    return ""
