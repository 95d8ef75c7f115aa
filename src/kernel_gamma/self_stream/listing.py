"""Which pages there are: the folders of self/ as they stand, nothing read."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from kernel_gamma.self_stream.page_io import locate, within

__all__ = ["ARCHIVE", "DATE", "DIARY", "MEMORIES", "Mark", "mark_of", "pages_in"]

MEMORIES, DIARY, ARCHIVE = "memories", "diary", "stream/archive"
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
"""A day as diary and archive pages are named by it."""

_NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class Mark(NamedTuple):
    """What differs after any save of a page."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Mark:
        """The mark of a file as `os.stat` tells it."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


def mark_of(root: str, page: str) -> Mark | None:
    """The mark of one page, links below `root` followed; None when it is no regular file.

    Raises OSError when it cannot be looked at, ValueError for what is no page's name.
    """
    try:
        found = os.stat(locate(root, page))
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return None
        raise
    return Mark.of(found) if stat.S_ISREG(found.st_mode) else None


def pages_in(root: str, folder: str) -> Iterator[tuple[str, Mark]]:
    """(name without .md, mark) of the pages of a folder below `root`, in no order.

    What is no regular file, or cannot be looked at, is left out; a folder that is missing has no pages.
    """
    try:
        entries = os.scandir(within(root, folder))
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return
        raise
    with entries:
        for entry in entries:
            if not entry.name.endswith(".md") or entry.name.startswith("."):
                continue
            with suppress(OSError):
                if entry.is_symlink():
                    found = os.stat(locate(root, f"{folder}/{entry.name}"))
                else:
                    found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield entry.name[:-3], Mark.of(found)
