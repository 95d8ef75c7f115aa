"""Long texts as a column of SQLite holds them: compressed, which the column's type tells. Pure."""

from __future__ import annotations

import zlib

__all__ = ["packed", "unpacked"]

_FROM = 1000
"""Characters from which it is worth it."""


def packed(text: str) -> str | bytes:
    """A short text as it is, a long one compressed."""
    return text if len(text) < _FROM else zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def unpacked(column: str | bytes) -> str:
    """The text that `packed` was given. Raises ValueError for bytes that it never made."""
    if isinstance(column, str):
        return column
    try:
        return zlib.decompress(column).decode("utf-8", "surrogatepass")
    except zlib.error as error:
        raise ValueError(f"a packed text cannot be read: {error}") from error
