"""From a row of the books to a delivery with its content."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from kernel_gamma.bus.files import Unreadable, read_regular
from kernel_gamma.bus.subscription import QueuedFile
from kernel_gamma.contracts.effects import Delivery
from kernel_gamma.contracts.envelope import Envelope, Json
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import Poison

__all__ = ["KEEP_BYTES", "LARGEST_OWN", "Reader"]

KEEP_BYTES = 32_768
"""Larger documents are dropped from the window and read again when their turn comes."""

LARGEST_OWN = 256 * 1024 * 1024
"""Files the bus wrote itself may be larger than what may be dropped, within reason."""

_DEEPEST_OWN = 500


class Reader:
    """Reads queue files."""

    def __init__(self, root: bytes, clock: Clock, parse: Callable[[bytes], Json], max_bytes: int) -> None:
        self._root = root
        self._clock = clock
        self._parse = parse
        self._max_bytes = max_bytes

    def queued(self, row: tuple[Any, ...]) -> QueuedFile:
        """The delivery of a row of `open_deliveries`.

        Raises FileNotFoundError when somebody removed the file, Poison when it cannot be read.
        """
        seq, _, attempts, deaths, _, _, _, queue, name, path, origin, trust, accepted_at, expires_at = row
        document, size = self._document(os.fsdecode(path), origin)
        delivery = Delivery(
            seq=seq,
            queue=queue,
            name=os.fsdecode(name),
            origin=origin,
            document=document,
            accepted_at=datetime.fromtimestamp(accepted_at, self._clock.zone),
            envelope=envelope_of(document),
            attempt=attempts + 1,
            trust=trust,
        )
        return QueuedFile(delivery, os.fsdecode(path), expires_at, deaths, large=size > KEEP_BYTES)

    def again(self, queued: QueuedFile) -> Delivery:
        """The delivery with its content, read once more where it was dropped from the window."""
        if queued.delivery.document is not None:
            return queued.delivery
        document, _ = self._document(queued.path, queued.delivery.origin)
        return replace(queued.delivery, document=document, envelope=envelope_of(document))

    def _document(self, path: str, origin: str) -> tuple[Json, int]:
        limit = self._max_bytes if origin == "dropped" else LARGEST_OWN
        try:
            raw, sign = read_regular(os.path.join(self._root, os.fsencode(path)), limit)
        except Unreadable as error:
            raise Poison(str(error), kind=error.kind) from error
        # What the bus wrote around a dropped document nests deeper than the document itself may.
        parse = self._parse if origin == "dropped" else _read_own
        return parse(raw), sign.size


def _read_own(raw: bytes) -> Json:
    return read_document(raw, max_depth=_DEEPEST_OWN)


def envelope_of(document: Json) -> Envelope | None:
    """The document's envelope, if it wears a valid one."""
    if not isinstance(document, dict) or not isinstance(document.get("payload"), dict):
        return None
    try:
        return Envelope.model_validate(document.get("envelope"))
    except ValidationError:
        return None
