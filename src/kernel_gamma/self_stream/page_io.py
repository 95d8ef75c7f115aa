"""Pages as files: which names are pages, opening them safely, finding bytes in them.

A page is a regular file below self/. A link that leads out of self/ is never followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["digest", "find_all", "locate", "naming", "opened", "page_name", "read", "within"]

CHUNK = 1 << 20
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


def page_name(name: str) -> str:
    """`name` when it may name a page (`memories/tea.md`); else ValueError."""
    parts = name.split("/")
    if "\0" in name or not name.endswith(".md") or any(p[:1] in ("", ".") for p in parts):
        raise ValueError(
            f"{name!r} is no page: give a path below self/ such as `diary/2026-11-30.md`, "
            "without `..` or names that begin with a dot"
        )
    return name


def locate(root: str, name: str) -> str:
    """The file of a page, links below `root` resolved; OSError(ELOOP) if one leads out of `root`."""
    return within(root, page_name(name))


def within(root: str, relative: str) -> str:
    """Like `locate`, for any file below `root`."""
    path = os.path.join(root, relative)
    if not _has_link(root, relative):
        return path
    base, target = os.path.realpath(root), os.path.realpath(path)
    if not target.startswith(base.rstrip(os.sep) + os.sep):
        raise OSError(errno.ELOOP, "leads out of self/ and is not followed", path)
    return target


def _has_link(root: str, relative: str) -> bool:
    """Whether a link stands on the way from `root` to the file; rare, so looked for first."""
    path = root
    try:
        for part in relative.split("/"):
            path = f"{path}{os.sep}{part}"
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return True
    except OSError as error:
        if error.errno not in _MISSING:
            raise
    return False


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """The file descriptor of a regular file; nothing else is opened, and nothing blocks."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", path)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Every OSError from inside names `path` if it names no file itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def read(path: str) -> bytes | None:
    """The whole file; None when there is none."""
    try:
        with opened(path, os.O_RDONLY) as fd:
            return b"".join(_chunks(fd))
    except OSError as error:
        if error.errno in _MISSING:
            return None
        raise


def digest(data: bytes | None) -> str | None:
    """sha256 (hex) of what `read` returned."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def find_all(fd: int, needle: bytes, *, chunk: int = CHUNK) -> Iterator[int]:
    """Offsets of `needle` that do not overlap, in order; holds a few chunks (of `chunk` bytes) at most.

    Reads, never maps: a mapping dies with the process when an editor truncates the file.
    """
    if not needle:
        return
    window, base, skip = b"", 0, 0
    for read_now in _chunks(fd, chunk):
        window += read_now
        at = window.find(needle, skip)
        while at >= 0:
            yield base + at
            skip = at + len(needle)
            at = window.find(needle, skip)
        keep = min(len(window), len(needle) - 1)
        gone = max(len(window) - keep, 0)
        window, base, skip = window[gone:], base + gone, max(skip - gone, 0)


def _chunks(fd: int, length: int = CHUNK) -> Iterator[bytes]:
    offset = 0
    while data := os.pread(fd, length, offset):
        offset += len(data)
        yield data
