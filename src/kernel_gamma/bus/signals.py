"""Small JSON files that are no queue: signals, read as they stand."""

from __future__ import annotations

import os
from pathlib import Path

from kernel_gamma.bus.files import Unreadable, read_regular
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.errors import Poison

__all__ = ["read_folder", "read_signal", "triggers_made"]

_MOST_BYTES = 1_000_000


def read_signal(root: Path, path: str) -> Json:
    """The document at `path` below the data directory; None when there is none that can be read."""
    try:
        return read_document(read_regular(os.fsencode(root / path), _MOST_BYTES)[0], max_depth=16)
    except (OSError, Unreadable, Poison):
        return None


def read_folder(root: Path, path: str) -> dict[str, Json]:
    """The documents of a folder of such files by name, without .json; what cannot be read is None."""
    try:
        names = sorted(entry.name for entry in os.scandir(root / path) if entry.name.endswith(".json"))
    except OSError:
        return {}
    return {name.removesuffix(".json"): read_signal(root, f"{path}/{name}") for name in names}


def triggers_made(root: Path) -> list[str]:
    """Names of all triggers that stand or have been done: what tells, without a state, what has struck."""
    return [path.name for path in (root / "rhythm/triggers").rglob("*.json")]
