"""SQL stands in .sql files: every statement has a name and a sentence."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["load_queries"]


@cache
def load_queries(package: str, file: str) -> dict[str, str]:
    """Name -> statement of one file: blocks that begin with `-- name: NAME`, comments taken out."""
    text = (files(package) / file).read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in re.split(r"(?m)^-- name: ", text)[1:]:
        name, _, rest = block.partition("\n")
        found[name.strip()] = "\n".join(x for x in rest.splitlines() if not x.startswith("--")).strip()
    return found
