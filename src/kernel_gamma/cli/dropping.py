"""How a command speaks to a mind: a whole file renamed into the inbox, then its ack, then the reply."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_gamma.bus.folders import ACKS, INBOX, OUTBOX
from kernel_gamma.bus.lock import holder
from kernel_gamma.cli.home import Place

__all__ = ["Inbox", "Replies", "answers", "is_running"]


def is_running(place: Place) -> bool:
    """Whether a daemon holds the mind right now."""
    return place.data.is_dir() and holder(place.data) is not None


@dataclass(frozen=True, slots=True)
class Inbox:
    """The inbox of one mind."""

    place: Place

    def drop(self, name: str, raw: bytes) -> Path:
        """Put a file into the inbox, whole or not at all. With durability full it survives a power cut
        once this returns."""
        durable = self.place.settings.bus.durability == "full"
        directory = self.place.data / INBOX
        directory.mkdir(parents=True, exist_ok=True)
        temporary, target = directory / f".{name}.tmp", directory / name
        try:
            _write(temporary, raw, durable=durable)
            temporary.rename(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            _sync_directory(directory)
        return target

    def ack(self, name: str) -> dict[str, Any] | None:
        """What the mind said to a dropped file: `{"ok": …}`; None as long as it has not."""
        return _read_object(self.place.data / ACKS / name)


@dataclass(slots=True)
class Replies:
    """Messages in the outbox that were not there before."""

    data: Path
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._seen = {path.name for path in self._files()}

    def fresh(self) -> list[dict[str, Any]]:
        """Payloads of the messages that came since the last call, oldest first."""
        found = []
        fresh = [path for path in self._files() if path.name not in self._seen]
        for path in sorted(fresh, key=lambda path: path.name):
            self._seen.add(path.name)
            payload = (_read_object(path) or {}).get("payload")
            if isinstance(payload, dict):
                found.append(payload)
        return found

    def _files(self) -> Iterator[Path]:
        """Consumers move what they took into done/, with or without a folder for the day."""
        outbox = self.data / OUTBOX
        for pattern in ("*/out_*.json", "*/done/out_*.json", "*/done/*/out_*.json"):
            yield from outbox.glob(pattern)


def answers(payload: dict[str, Any], traces: set[str]) -> bool:
    """Whether a message of the outbox answers one of `traces`."""
    told = payload.get("in_reply_to") or ()
    return bool(traces.intersection([told] if isinstance(told, str) else told))


def _write(path: Path, raw: bytes, *, durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(raw)
        while view:
            view = view[os.write(fd, view) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _read_object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
