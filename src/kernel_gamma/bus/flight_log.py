"""Which batches are in the air, written down before their handlers start: the suspects after a death.

A line is one write to an appended file: it survives a killed process, costs a few microseconds and waits for
no transaction. What it says matters only when the process dies, so a power cut may lose it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from kernel_gamma.contracts.effects import Batch

__all__ = ["FlightLog", "InFlight"]

InFlight = tuple[str, str, tuple[int, ...]]
"""(batch id, node, seqs)."""

_LONGEST = 1_000_000
"""Bytes after which the file is written anew with what is still in the air."""


class FlightLog:
    """Open once per process, after `read` has told what the last one left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._size = 0
        self._aloft: dict[str, bytes] = {}

    def read(self) -> Iterator[InFlight]:
        """Batches that took off and did not land, oldest first. A torn last line is passed over."""
        aloft: dict[str, InFlight] = {}
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            try:
                batch_id, node, seqs = json.loads(line)
                aloft.pop(batch_id, None)
                if seqs:
                    aloft[batch_id] = (batch_id, node, tuple(seqs))
            except (ValueError, TypeError):
                continue
        yield from aloft.values()

    def open(self) -> None:
        """Begin anew: nothing is in the air."""
        self._aloft.clear()
        self._rewrite()

    def takes_off(self, batch: Batch) -> None:
        """A handler is about to start. Raises OSError when the line cannot be written."""
        line = json.dumps([batch.id, batch.node, [d.seq for d in batch]]).encode() + b"\n"
        if self._size > _LONGEST:
            self._rewrite()
        self._aloft[batch.id] = line
        self._write(line)

    def lands(self, batch: Batch) -> None:
        """Its commit stands, or it is back in its queue. A line that is missing is only a suspicion."""
        if self._aloft.pop(batch.id, None) is not None:
            self._write(json.dumps([batch.id, batch.node, []]).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        self._size += os.write(self._fd, line)

    def _rewrite(self) -> None:
        beside = self._path.with_name(f".{self._path.name}.tmp")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, 0
        for line in self._aloft.values():
            self._write(line)
        beside.rename(self._path)

    def close(self, *, orderly: bool) -> None:
        """The end; after an orderly one nothing is in the air."""
        if self._fd < 0:
            return
        if orderly:
            self._aloft.clear()
            self._rewrite()
        os.close(self._fd)
        self._fd = -1
