"""A damaged database, and what SQLite keeps beside it, under a new name: nothing of it is lost."""

from __future__ import annotations

from pathlib import Path

__all__ = ["set_database_aside"]

_PARTS = ("", "-wal", "-shm")


def set_database_aside(path: Path) -> str:
    """Rename the file at `path`, its log and its index to one free `<name>.damaged-<n>`; returns it."""
    number = 1
    while any(path.with_name(f"{path.name}.damaged-{number}{part}").exists() for part in _PARTS):
        number += 1
    aside = f"{path.name}.damaged-{number}"
    for part in _PARTS:
        file = path.with_name(path.name + part)
        if file.exists():
            file.rename(path.with_name(aside + part))
    return aside
