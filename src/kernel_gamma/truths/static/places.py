"""Which file belongs to which section of Channel A, and how much each may take. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal, get_args

from kernel_gamma.errors import SettingsError
from kernel_gamma.settings import StaticPaths

__all__ = [
    "BUDGETS",
    "ELASTIC",
    "LEAN_BUDGET",
    "LOCK_FILE",
    "MOST_BYTES",
    "TOTAL_BUDGET",
    "Places",
    "SectionName",
    "slug_of",
]

SectionName = Literal[
    "meta_axioms", "identity", "metalaws", "steady_core", "kernel_skeleton", "operators", "truths"
]

ELASTIC = 400
"""Tokens that operators and architecture truths may take together in one prompt."""
BUDGETS: Mapping[SectionName, int] = {
    "meta_axioms": 300,
    "identity": 100,
    "metalaws": 500,
    "steady_core": 200,
    "kernel_skeleton": 500,
    "operators": ELASTIC,
    "truths": ELASTIC,
}
"""Tokens; of metalaws, titles and texts together; of the last two, each operator and each page alone."""
LEAN_BUDGET, TOTAL_BUDGET = 900, 2000

LOCK_FILE = "config/static.lock.json"
"""Who approved which bytes, and when; relative to the home."""
MOST_BYTES = 262_144
"""A larger file is none of ours."""

_ENDINGS: Mapping[SectionName, tuple[str, ...]] = {"metalaws": (".json", ".yaml"), "truths": (".md",)}
_PASSING = (".tmp", ".part", ".swp", "~")
_NO_SLUG = re.compile(r"[^A-Za-z0-9_-]+")


class Places:
    """The files and folders of a home that hold static truths. Paths are relative to it, with `/`."""

    def __init__(self, paths: StaticPaths) -> None:
        """Raises SettingsError for a path that leads out of the home, or that two sections share."""
        self.paths: dict[SectionName, str] = {}
        for name in get_args(SectionName):
            written = getattr(paths, name)
            path = PurePosixPath(written)
            key = f"static.paths.{name}"
            if path.is_absolute() or ".." in path.parts or not path.name:
                mend = f"write it relative to the home, like {getattr(StaticPaths(), name)}"
                raise SettingsError("config/kernel.yaml", key, f"{written!r} is no path in the home", mend)
            if str(path) in self.paths.values():
                raise SettingsError(
                    "config/kernel.yaml", key, f"{path} stands for two sections", "rename one"
                )
            self.paths[name] = str(path)

    def section_of(self, file: str) -> SectionName | None:
        """The section a file belongs to; None when it is no static truth."""
        folder, _, name = file.rpartition("/")
        for section, path in self.paths.items():
            if endings := _ENDINGS.get(section):
                hidden = name.startswith(".") or name.endswith(_PASSING)
                if folder == path and name.endswith(endings) and not hidden:
                    return section
            elif file == path:
                return section
        return None

    def single_files(self) -> list[str]:
        """Files with a fixed name."""
        return [path for name, path in self.paths.items() if name not in _ENDINGS]

    def folders(self) -> list[str]:
        """Folders in which every file of the right ending is a static truth."""
        return [self.paths[name] for name in _ENDINGS]


def slug_of(file: str) -> str:
    """A file's path as one part of a key."""
    return _NO_SLUG.sub("-", file)[-120:].strip("-") or "file"
