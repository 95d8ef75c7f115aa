"""What stays of a permanent record that was deleted: its key and its seals, never what it said. Pure.

A tombstone is itself a permanent record, `tombstone.<time>.<ulid>`, locked and sealed like any other:

    {"key": …, "by": …, "why": …, "versions": [{"version": 1, "link": 17, "sha256": "…"}, …]}

The links of the deleted versions stay in the hash chain. A link without its record is accepted where a
tombstone names its number and its SHA-256; both must fit, so a tombstone of another store, taken in by an
import, vouches for nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.truths import NewTruth

__all__ = ["TOMBSTONES", "sealed_by_tombstones", "tombstones"]

TOMBSTONES = "tombstone"
"""Their category: kept for ever, in the chain, found only when it is named."""

_VERSIONS = 500
"""In one tombstone; a key with more versions gets several."""
_WHY_CHARS = 1000
_BY_CHARS = 200


def tombstones(key: str, links: Sequence[tuple[int, bytes, int]], *, by: str, why: str) -> Iterator[NewTruth]:
    """The records to write for a key of which sealed versions go; `links`: (link, sha256, version)."""
    for start in range(0, len(links), _VERSIONS):
        versions: list[Json] = [
            {"version": version, "link": link, "sha256": sha256.hex()}
            for link, sha256, version in links[start : start + _VERSIONS]
        ]
        value: dict[str, Json] = {
            "key": key,
            "by": by[:_BY_CHARS] or None,
            "why": why[:_WHY_CHARS] or None,
            "versions": versions,
        }
        yield NewTruth(
            category=TOMBSTONES,
            value=value,
            description=f"{key} was forgotten",
            locked=True,
            trust="owner",
        )


def sealed_by_tombstones(values: Iterable[str]) -> dict[int, bytes]:
    """Link -> SHA-256 of all that tombstones name; `values` are their JSON texts. Others are passed over."""
    found: dict[int, bytes] = {}
    for text in values:
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            versions = value.get("versions") if isinstance(value, dict) else None
            for one in versions if isinstance(versions, list) else ():
                found.update(_link(one))
    return found


def _link(one: object) -> Mapping[int, bytes]:
    if not isinstance(one, dict):
        return {}
    link, sha256 = one.get("link"), one.get("sha256")
    if type(link) is not int or not isinstance(sha256, str):
        return {}
    try:
        return {link: bytes.fromhex(sha256)}
    except ValueError:
        return {}
