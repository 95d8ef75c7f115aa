"""The few things done to files: read whole, write by rename, move, list, make durable."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "FileSign",
    "Unreadable",
    "free_name",
    "list_names",
    "move",
    "overwrite",
    "place_of",
    "read_regular",
    "sha_of",
    "sync_tree",
    "write_whole",
]

Path = bytes
"""Paths are bytes: a name need not be UTF-8."""


class Unreadable(Exception):
    """This path is no file we read; `kind` is a short word for the reason."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class FileSign:
    """What changes when a file's content changes."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileSign:
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def read_regular(path: Path, max_bytes: int) -> tuple[bytes, FileSign]:
    """The whole content of a regular file, never through a link, never blocking on a pipe.

    Raises FileNotFoundError, or Unreadable (`too_large`, `not_a_file`, `symlink`, `unreadable`).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Unreadable("symlink", "it is a symbolic link; links are not followed") from error
        if error.errno == errno.ENXIO:
            raise Unreadable("not_a_file", "it is not a regular file") from error
        raise Unreadable("unreadable", f"it cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not_a_file", "it is not a regular file")
        if status.st_size > max_bytes:
            raise Unreadable("too_large", f"it has {status.st_size} bytes, the limit is {max_bytes}")
        data = os.read(fd, max_bytes + 1)
        while len(data) <= max_bytes and (more := os.read(fd, max_bytes + 1 - len(data))):
            data += more
    except OSError as error:
        raise Unreadable("unreadable", f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    if len(data) > max_bytes:
        raise Unreadable("too_large", f"it is larger than the limit of {max_bytes} bytes")
    return data, FileSign.of(status)


def place_of(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """(device, inode) of the file at a path: another pair is another file. None when there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def sha_of(path: Path) -> str | None:
    """The SHA-256 of a regular file's bytes, hexadecimal; None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def write_whole(directory: Path, name: Path, data: bytes) -> None:
    """Write `.name.tmp` and rename: a reader sees the whole file or none. Makes the directory if needed."""
    temporary = os.path.join(directory, fitting_temporary(name))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
        fd = os.open(temporary, flags, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)
    os.rename(temporary, os.path.join(directory, name))


def fitting_temporary(name: Path) -> Path:
    """`.name.tmp`, cut where the name is too long for it."""
    return b"." + name[:250] + b".tmp"


def move(source: Path, target: Path) -> bool:
    """Rename, making the target's directory; False if there is nothing at `source`. Repeatable."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        if not os.path.lexists(source):
            return False
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
    return True


def free_name(
    directory: Path, name: Path, seq: int, taken: set[Path], beside: Callable[[Path], Path] | None = None
) -> Path:
    """`name`, or `name` with `.seq` before its ending if a file of that name stands in `directory`.

    With `beside`, the name it makes of the chosen one is free too.
    """
    stem, dot, ending = name.rpartition(b".")
    if not dot:
        stem, ending = name, b""
    marks = (b".%d.%d" % (seq, n) if n > 1 else b".%d" % seq for n in itertools.count(1))
    marked = (stem[: 255 - len(mark) - len(dot + ending)] + mark + dot + ending for mark in marks)
    for candidate in itertools.chain([name], marked):
        names = [candidate] if beside is None else [candidate, beside(candidate)]
        if not any(n in taken or os.path.lexists(os.path.join(directory, n)) for n in names):
            return candidate
    raise AssertionError("count() never ends")


def overwrite(path: Path, data: bytes) -> None:
    """Put `data` into an existing file where it stands: what still works on a full disk.

    A reader may see half of it. Raises FileNotFoundError when there is no such file.
    """
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        written = os.pwrite(fd, data, 0)
        os.ftruncate(fd, written)
    finally:
        os.close(fd)


def list_names(directory: Path) -> Iterator[bytes]:
    """Names in a directory in no order; nothing when it does not exist."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield entry.name
    except (FileNotFoundError, NotADirectoryError):
        return


def _find_syncfs() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None  # not Linux


_syncfs = _find_syncfs()


def sync_tree(root: Path) -> None:
    """Everything written below `root` so far survives a power cut (one syncfs; sync where there is none)."""
    if _syncfs is None:
        os.sync()
        return
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fsdecode(root))
    finally:
        os.close(fd)


def sync_paths(paths: list[Path]) -> None:
    """fsync a few files and directories; what is gone meanwhile needs no sync."""
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
