"""Dead letters on disk: which files were set aside, why, and how one goes back. Names may hold any bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_gamma.bus.files import free_name
from kernel_gamma.bus.folders import DEAD_LETTER
from kernel_gamma.bus.records import reason_path
from kernel_gamma.cli.terminal import Failed, shown

__all__ = ["Letter", "find_letter", "letters_in", "send_back"]

_REASON = ".reason.json"


@dataclass(frozen=True, slots=True)
class Letter:
    """One file that was set aside."""

    day: str
    name: str
    """As of os.fsdecode."""
    path: Path
    reason_file: Path
    reason: dict[str, Any]
    """Empty when its .reason.json is gone or unreadable."""

    @property
    def origin(self) -> tuple[str, str]:
        """The queue and the name it had there."""
        directory, _, name = str(self.reason.get("path", "")).rpartition("/")
        return directory, name


def letters_in(dead: Path) -> Iterator[Letter]:
    """All letters, oldest day first, by name."""
    for day in sorted(_names(dead)):
        names = set(_names(dead / day))
        reasons = {_reason_name(name) for name in names} & names
        for name in sorted(names):
            path = dead / day / name
            orphan = name.endswith(_REASON) and _reason_name(name) not in names
            if name in reasons or orphan or name.startswith("."):
                continue
            reason_file = dead / day / _reason_name(name)
            yield Letter(day, name, path, reason_file, _read(reason_file))


def find_letter(data: Path, asked: str) -> Letter:
    """The letter of a name, as it is or as it was shown, with or without its day.

    Raises Failed when there is none, or more than one.
    """
    asked = asked.removeprefix(f"{DEAD_LETTER}/")
    found = [
        letter
        for letter in letters_in(data / DEAD_LETTER)
        if asked in {n for name in (letter.name, shown(letter.name)) for n in (name, f"{letter.day}/{name}")}
    ]
    if not found:
        raise Failed(f"{asked}: no such dead letter (kgamma dead-letter list names them)")
    if len(found) > 1:
        several = ", ".join(f"{letter.day}/{letter.name}" for letter in found)
        raise Failed(f"{asked}: there is more than one, name its day too: {several}")
    return found[0]


def send_back(data: Path, letter: Letter) -> str:
    """Move a letter back to where it came from; returns its new path relative to the data directory.

    It gets its own name again, or a free one: by its name the bus knows a file that it wrote itself. The
    reason goes once the file stands. Raises Failed.
    """
    directory, name = letter.origin
    if not directory or not name:
        raise Failed(f"{letter.name}: its reason file does not say where it came from; drop it by hand")
    target_dir = data / directory
    if ".." in directory.split("/") or directory.startswith("/") or not target_dir.is_dir():
        raise Failed(f"{letter.name}: it came from {directory}, which is no queue of this mind")
    target = _place(letter.path, target_dir, name)
    letter.reason_file.unlink(missing_ok=True)
    return f"{directory}/{target.name}"


def _place(source: Path, directory: Path, name: str) -> Path:
    """Rename to `name`, or to the first free name like it: nothing that stands there is overwritten."""
    raw, number = os.fsencode(name), 0
    while True:
        chosen = raw if not number else free_name(os.fsencode(directory), raw, number, {raw})
        target = directory / os.fsdecode(chosen)
        number += 1
        if os.path.lexists(target):
            continue
        source.rename(target)
        return target


def _reason_name(name: str) -> str:
    return reason_path(f"/{name}")[1:]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
