"""How bytes get into a page: the end of what was written, half writes, whole files beside, syncs."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from kernel_gamma.self_stream.page_io import naming, opened

__all__ = [
    "NO_LINKS",
    "SAVES_OUTRUN",
    "all_of",
    "gap",
    "half_block",
    "is_named",
    "lead",
    "opened_to_append",
    "sync_folder",
    "write_all",
    "write_beside",
    "written_size",
]

SAVES_OUTRUN = 16
"""Saves by rename during one write, after which it is given up."""
NO_LINKS = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES})
"""What a file system says that makes no hard links."""
_BLOCK_START = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)")


@contextmanager
def opened_to_append(path: str) -> Iterator[int]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(opened(path, flags))
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = stack.enter_context(opened(path, flags))
        yield fd


def written_size(fd: int) -> int:
    """The size without the NULs that a power cut leaves at the end."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - 65_536)
        kept = len(os.pread(fd, end - start, start).rstrip(b"\0"))
        if kept:
            return start + kept
        end = start
    return 0


def lead(fd: int, size: int, opening: bytes) -> bytes:
    """What must be written before a text so that it follows an empty line."""
    if size == 0:
        return opening + gap(opening)
    start = max(0, size - 4)
    return gap(os.pread(fd, size - start, start))


def gap(before: bytes) -> bytes:
    """The newlines missing at the end of `before` (its last four bytes suffice)."""
    lines = before[-4:].replace(b"\r", b"")
    if not lines or lines.endswith(b"\n\n"):
        return b""
    return b"\n" if lines.endswith(b"\n") else b"\n\n"


def half_block(fd: int, size: int, data: bytes, opening: bytes) -> int:
    """Length of what a half write of `data` has left at the end of the file."""
    fresh = opening + gap(opening) + data
    if size < len(fresh) and fresh.startswith(os.pread(fd, size, 0)):
        return size
    start = max(0, size - len(data) - 3)
    tail = os.pread(fd, size - start, start)
    begins = [0] if start == 0 else []
    for begin in [*begins, *(match.end() for match in _BLOCK_START.finditer(tail))]:
        # The first bytes decide nearly always; only then is the whole piece compared.
        if begin < len(tail) and data.startswith(tail[begin : begin + 64]):
            piece = tail[begin:]
            if len(piece) < len(data) and data.startswith(piece):
                return len(piece)
    return 0


def is_named(fd: int, path: str) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def all_of(fd: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def sync_folder(path: str) -> None:
    """Make the names beside `path` last through a power cut."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_beside(path: str, data: bytes, *, sync: bool = False) -> str:
    """Write `data` to the temporary name of `path` in the same directory; returns that name."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.tmp")
    with naming(temporary), opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    return temporary


def write_all(fd: int, block: bytes, *, at_half: Callable[[], None] | None = None) -> None:
    """All of `block`, or an OSError and (unless others wrote meanwhile) nothing of it.

    `at_half`: it goes out in two halves, and this is called between them.
    """
    size, written = os.fstat(fd).st_size, 0
    pause = len(block) // 2 if at_half is not None else 0
    try:
        while written < len(block):
            end = pause if written < pause else len(block)
            written += os.write(fd, block[written:end])
            if written == pause and at_half is not None:
                at_half()
    except OSError:
        with suppress(OSError):
            if os.fstat(fd).st_size == size + written:
                os.ftruncate(fd, size)
        raise
