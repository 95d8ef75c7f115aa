"""Files of ours that outlived their ledger: an `int_` file is known by the passage that it names.

Only a ledger that knows nothing adopts, once, at its first start; what comes later is anybody's. The file
must name bytes that stand in now.md or in the archive, under a heading: so it asks for nothing but what the
mind has lived through. Who was behind it is not known any more: it is trusted `unknown` at most.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from pydantic import ValidationError

from kernel_gamma.bus.files import Unreadable, list_names, read_regular
from kernel_gamma.bus.folders import SELF, directory_of, matches
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.reading import envelope_of
from kernel_gamma.bus.records import Books
from kernel_gamma.contracts.envelope import Envelope
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.contracts.payloads import PassagePayload
from kernel_gamma.contracts.trust import least
from kernel_gamma.errors import Poison

__all__ = ["adopt_passages"]

log = structlog.get_logger(__name__)

_PREFIX = "int_"
_NOW = "stream/now.md"
_LARGEST = 1_048_576
_LONGEST_PAGE = 64 * _LARGEST
_DAYS = 3
_HEADINGS = re.compile(rb"^## (?=[0-9]{4}-)", re.MULTILINE)
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class _Found:
    """An `int_` file whose passage stands."""

    queue: str
    name: bytes
    envelope: Envelope
    told: PassagePayload
    heading: str
    place: tuple[str, int]
    """Page and offset: rotation may have moved it since the file was written."""


def adopt_passages(
    ledger: Ledger, books: Books, root: bytes, nodes: Mapping[str, Sequence[str]], now: datetime
) -> None:
    """Enter the `int_` files that stand in `nodes`' queues, with their passages, if the ledger is new."""
    if (ledger.one("last_seq") or (0,))[0] or (ledger.one("last_commit") or (0,))[0]:
        return
    taken: set[tuple[str, int]] = set()
    adopted: set[str] = set()
    for found in _standing(root, nodes):
        told = found.told
        if found.place in taken or told.passage_id in adopted:
            continue  # one passage, one translation
        taken.add(found.place)
        adopted.add(told.passage_id)
        _enter(ledger, books, found, nodes, now.timestamp())
    if adopted:
        log.warning("passages that no ledger knows were taken up again", passages=len(adopted))


def _enter(
    ledger: Ledger, books: Books, found: _Found, nodes: Mapping[str, Sequence[str]], at: float
) -> None:
    seq, told, worn, name = books.next_seq(), found.told, found.envelope, os.fsdecode(found.name)
    expires = at + worn.ttl_sec if worn.ttl_sec is not None else None
    ledger.run(
        "add_file", seq, found.queue, found.name, os.fsencode(found.queue) + b"/" + found.name, "bus", "live",
        least(("unknown", told.trust)), worn.id, worn.trace_id, worn.session_key, at, expires, None,
    )  # fmt: skip
    for node, patterns in nodes.items():
        if any(matches(pattern, found.queue, name) for pattern in patterns):
            ledger.run("add_delivery", node, seq)
    for trace in told.traces:
        ledger.run("add_lookup", trace, seq)
    ledger.run(
        "add_passage", told.passage_id, 0, *found.place, told.length, told.sha256, found.heading,
        "experience", at, "adopted", worn.trace_id, None,
    )  # fmt: skip


def _standing(root: bytes, nodes: Mapping[str, Sequence[str]]) -> Iterator[_Found]:
    patterns = {p for watched in nodes.values() for p in watched if p.rpartition("/")[2].startswith(_PREFIX)}
    pages = _Pages(root)
    for queue in sorted({directory_of(pattern) for pattern in patterns}):
        for name in sorted(list_names(os.path.join(root, os.fsencode(queue)))):
            if any(matches(pattern, queue, os.fsdecode(name)) for pattern in patterns):
                found = _read(root, queue, name, pages)
                if found is not None:
                    yield found


def _read(root: bytes, queue: str, name: bytes, pages: _Pages) -> _Found | None:
    """The file, if it is one of ours and its passage stands."""
    try:
        raw, _ = read_regular(os.path.join(root, os.fsencode(queue), name), _LARGEST)
        document = read_document(raw, max_depth=_DEEPEST)
        envelope = envelope_of(document)
        if envelope is None or not isinstance(document, dict):
            return None
        told = PassagePayload.model_validate(document["payload"])
    except (OSError, Unreadable, Poison, ValidationError):
        return None
    found = pages.place_of(told)
    return _Found(queue, name, envelope, told, *found) if found else None


class _Pages:
    """now.md and the newest pages of the archive, read once."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._texts: dict[str, bytes] | None = None

    def place_of(self, told: PassagePayload) -> tuple[str, tuple[str, int]] | None:
        """(heading, (page, offset)) of the passage the payload names; None when it stands nowhere."""
        if told.stream_offset < 0 or not 0 < told.length <= _LARGEST:
            return None
        if self._texts is None:
            self._texts = self._read()
        for page, text in self._texts.items():
            places = [told.stream_offset] if page == _NOW else []
            places += [match.start() for match in _HEADINGS.finditer(text)]
            for at in places:
                if heading := _heading(text, at, told):
                    return heading, (page, at)
        return None

    def _read(self) -> dict[str, bytes]:
        archive = f"{_NOW.rpartition('/')[0]}/archive"
        days = sorted(list_names(os.path.join(self._root, os.fsencode(f"{SELF}/{archive}"))))
        names = [_NOW, *(f"{archive}/{os.fsdecode(day)}" for day in reversed(days[-_DAYS:]))]
        texts: dict[str, bytes] = {}
        for name in names:
            try:
                path = os.path.join(self._root, os.fsencode(f"{SELF}/{name}"))
                texts[name] = read_regular(path, _LONGEST_PAGE)[0]
            except (OSError, Unreadable):
                continue
        return texts


def _heading(page: bytes, at: int, told: PassagePayload) -> str:
    """Of the passage that stands at `at`; empty when it is another."""
    block = page[at : at + told.length]
    if len(block) != told.length or hashlib.sha256(block).hexdigest() != told.sha256:
        return ""
    if at and page[at - 1 : at] != b"\n":
        return ""
    first = block.split(b"\n", 1)[0].decode(errors="replace")
    return first.removeprefix("## ") if first.startswith("## ") else ""
