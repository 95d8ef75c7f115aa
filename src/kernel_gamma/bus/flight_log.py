"""Which batches are in the air, written down before their handlers start: the suspects after a death.

A line is one write to an appended file: it survives a killed process, costs a few microseconds and waits for
no transaction. What it says matters only when the process dies, so a power cut may lose it.

    takes off ─▶ handled ─waits─▶ the model is asked ─is back─▶ handled ─lands─▶ through, or in its queue

A death while the model is asked says little of the batch: nothing of it is being worked on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_gamma.contracts.effects import Batch

__all__ = ["FlightLog", "InFlight"]


@dataclass(frozen=True, slots=True)
class InFlight:
    """A batch that took off and did not land."""

    batch_id: str
    node: str
    seqs: tuple[int, ...]
    waiting: bool = False
    """The model had been asked and had not answered."""


_LONGEST = 1_000_000
"""Bytes after which the file is written anew with what is still in the air."""


class FlightLog:
    """Open once per process, after `read` has told what the last one left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._size = 0
        self._stale = False
        """A line could not be written, or not whole: the file is written anew before the next one."""
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
                batch_id, node, seqs, *waiting = json.loads(line)
                aloft.pop(batch_id, None)
                if seqs:
                    aloft[batch_id] = InFlight(batch_id, node, tuple(seqs), bool(waiting))
            except (ValueError, TypeError):
                continue
        yield from aloft.values()

    def open(self) -> None:
        """Begin anew: nothing is in the air. Raises OSError when the file cannot be written."""
        self._aloft.clear()
        self._rewrite()

    def takes_off(self, batch: Batch) -> None:
        """A handler is about to start. Raises OSError when the line cannot be written."""
        line = _line(batch)
        if self._stale or self._size > _LONGEST:
            self._rewrite()
        self._write(line)
        self._aloft[batch.id] = line

    def waits(self, batch: Batch) -> None:
        """The model is being asked about it. A line that is missing only makes a death count more."""
        self._note(batch, _line(batch, waiting=True))

    def is_back(self, batch: Batch) -> None:
        """The model has answered, or has not: its handler goes on."""
        self._note(batch, _line(batch))

    def lands(self, batch: Batch) -> None:
        """Its commit stands, or it is back in its queue. A line that is missing is only a suspicion."""
        if self._aloft.pop(batch.id, None) is not None:
            self._try(json.dumps([batch.id, batch.node, []]).encode() + b"\n")

    def _note(self, batch: Batch, line: bytes) -> None:
        if batch.id in self._aloft:
            self._aloft[batch.id] = line
            self._try(line)

    def _try(self, line: bytes) -> None:
        with suppress(OSError):
            if self._stale:
                self._rewrite()  # the line is in what is written anew
            else:
                self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            _write_all(self._fd, line)
        except OSError:
            self._stale = True
            raise
        self._size += len(line)

    def _rewrite(self) -> None:
        beside = self._path.with_name(f".{self._path.name}.tmp")
        whole = b"".join(self._aloft.values())
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, whole)
            beside.rename(self._path)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self._stale = fd, len(whole), False

    def close(self, *, orderly: bool) -> None:
        """The end; after an orderly one nothing is in the air."""
        if self._fd < 0:
            return
        if orderly:
            self._aloft.clear()
            with suppress(OSError):
                self._rewrite()
        os.close(self._fd)
        self._fd = -1


def _line(batch: Batch, *, waiting: bool = False) -> bytes:
    said: list[object] = [batch.id, batch.node, [d.seq for d in batch]]
    return json.dumps([*said, 1] if waiting else said).encode() + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    """A write may take only a part: a nearly full disk, a signal."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
