"""The writing side of Pool A: append once, replace only what was read. Used by commits alone.

Both operations may die at any instruction and be done again. What a person writes meanwhile stays.
Nothing is synced here: the bus syncs the file system at its checkpoints.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kernel_gamma.self_stream.page_io import digest, find_all, locate, naming, opened, read, within

__all__ = ["PageFiles"]

_HISTORY = ".history"
_BLOCK_START = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)")
_SAVES_OUTRUN = 16
_NO_LINKS = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES})


def _no_step(name: str) -> None:
    """A daemon outside crash tests marks no steps."""


class PageFiles:
    """Pages below `root` (the directory self/), as contracts.ports.PageStore."""

    def __init__(
        self,
        root: Path,
        step: Callable[[str], None] = _no_step,
        *,
        split_writes: bool = False,
    ) -> None:
        """`step` is told each named step as it is reached.

        `split_writes`: appends go out in two halves with a step between, for crash tests.
        """
        self._root = os.fspath(root)
        self._step = step
        self._split_writes = split_writes

    def next_offset(self, page: str, *, opening: bytes = b"") -> int:
        """Where the next append to `page` will put its text if nobody writes before it.

        Reads only the end of the file. Give the `opening` the append will be given.
        """
        path = locate(self._root, page)
        try:
            with opened(path, os.O_RDONLY) as fd, naming(path):
                size = _written_size(fd)
                return size + len(_lead(fd, size, opening))
        except (FileNotFoundError, NotADirectoryError):
            return len(opening) + len(_gap(opening))

    def append(
        self,
        page: str,
        data: bytes,
        *,
        opening: bytes = b"",
        redo: bool = False,
        occurrence: int = 1,
    ) -> int:
        """Put exactly `data` at the end of `page`, after an empty line; returns its offset.

        A new (or empty) page begins with `opening`. With `redo` it is done if `data` stands at
        least `occurrence` times in the file; else what a half write has left is cut first.
        Raises OSError naming the path (disk full, read-only, a link out of self/): then the file
        is as before, as far as the disk allows.
        """
        path = locate(self._root, page)
        self._step("apply.append.before")
        with naming(path):
            offset = self._append(path, data, opening, occurrence if redo else 0)
        self._step("apply.append.after")
        return offset

    def replace(self, page: str, data: bytes, *, expect: str | None, history: str) -> bool:
        """Put `data` in place of the page whose sha256 is `expect` (None: of no page, or of an
        empty one, which only a crash leaves). The old page is kept as `.history/<history>`.

        False: a person's page stands there; ours was kept as `.history/<history>.ours`.
        Raises OSError naming the path.
        """
        path = locate(self._root, page)
        kept = self._history_path(history)
        with naming(path):
            stands = read(path)
            if stands == data:
                return True
            if not _is_expected(stands, expect):
                return self._yield_page(data, kept)
            if stands is not None:
                kept = _keep(path, stands, kept)
            self._step("apply.replace.kept")
            temporary = _write_beside(path, data)
            self._step("apply.replace.written")
            if not _put(temporary, path, stands):
                _forget_same_file(kept, path)
                return self._yield_page(data, self._history_path(history))
        self._step("apply.replace.renamed")
        return True

    def _append(self, path: str, data: bytes, opening: bytes, occurrence: int) -> int:
        for _ in range(_SAVES_OUTRUN):
            with _opened_to_append(path) as fd:
                offset = self._append_to(fd, data, opening, occurrence)
                if _is_named(fd, path):
                    return offset
                # An editor saved by rename meanwhile: ours went to a file that has no name any
                # more. The new one may have been read before or after our write.
                occurrence = sum(1 for _ in find_all(fd, data))
        raise OSError(errno.EBUSY, "is replaced again and again while it is written", path)

    def _append_to(self, fd: int, data: bytes, opening: bytes, occurrence: int) -> int:
        if occurrence:
            found = next(itertools.islice(find_all(fd, data), occurrence - 1, None), None)
            if found is not None:
                return found
        size = _written_size(fd)
        if occurrence:
            size -= _half_block(fd, size, data, opening)
        if size < os.fstat(fd).st_size:
            os.ftruncate(fd, size)
        self._write(fd, _lead(fd, size, opening) + data)
        return os.lseek(fd, 0, os.SEEK_CUR) - len(data)

    def _write(self, fd: int, block: bytes) -> None:
        """All of `block`, or an OSError and (unless others wrote meanwhile) nothing of it."""
        size, written = os.fstat(fd).st_size, 0
        pause = len(block) // 2 if self._split_writes else 0
        try:
            while written < len(block):
                end = pause if written < pause else len(block)
                written += os.write(fd, block[written:end])
                if written == pause:
                    self._step("apply.append.half")
        except OSError:
            with suppress(OSError):
                if os.fstat(fd).st_size == size + written:
                    os.ftruncate(fd, size)
            raise

    def _history_path(self, history: str) -> str:
        if any(part in ("", ".", "..") for part in history.split("/")) or "\0" in history:
            raise ValueError(f"{history!r} cannot name a kept page")
        return within(self._root, f"{_HISTORY}/{history}")

    def _yield_page(self, data: bytes, kept: str) -> bool:
        """Keep our page aside, unless it had been in place and was replaced since."""
        if self._was_in_place(data):
            return True
        os.replace(_write_beside(f"{kept}.ours", data), f"{kept}.ours")
        return False

    def _was_in_place(self, data: bytes) -> bool:
        """Whether a kept page is ours: then a later commit of our own has replaced it."""
        for folder, _, names in os.walk(os.path.join(self._root, _HISTORY)):
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith((".ours", ".tmp")) or os.lstat(path).st_size != len(data):
                    continue
                if not os.path.islink(path) and read(path) == data:
                    return True
        return False


@contextmanager
def _opened_to_append(path: str) -> Iterator[int]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(opened(path, flags))
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = stack.enter_context(opened(path, flags))
        yield fd


def _written_size(fd: int) -> int:
    """The size without the NULs that a power cut leaves at the end."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - 65_536)
        kept = len(os.pread(fd, end - start, start).rstrip(b"\0"))
        if kept:
            return start + kept
        end = start
    return 0


def _lead(fd: int, size: int, opening: bytes) -> bytes:
    """What must be written before a text so that it follows an empty line."""
    if size == 0:
        return opening + _gap(opening)
    start = max(0, size - 4)
    return _gap(os.pread(fd, size - start, start))


def _gap(before: bytes) -> bytes:
    """The newlines missing at the end of `before` (its last four bytes suffice)."""
    lines = before[-4:].replace(b"\r", b"")
    if not lines or lines.endswith(b"\n\n"):
        return b""
    return b"\n" if lines.endswith(b"\n") else b"\n\n"


def _half_block(fd: int, size: int, data: bytes, opening: bytes) -> int:
    """Length of what a half write of `data` has left at the end of the file."""
    fresh = opening + _gap(opening) + data
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


def _is_named(fd: int, path: str) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _is_expected(stands: bytes | None, expect: str | None) -> bool:
    return not stands if expect is None else digest(stands) == expect


def _write_beside(path: str, data: bytes) -> str:
    """Write `data` to the temporary name of `path` in the same directory; returns that name."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.tmp")
    with naming(temporary), opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    return temporary


def _put(temporary: str, path: str, stands: bytes | None) -> bool:
    """Rename into place if the page is still `stands`; else drop `temporary`."""
    if read(path) == stands:
        if stands is not None:
            os.replace(temporary, path)
            return True
        with suppress(FileExistsError):
            _link_or_rename(temporary, path)
            return True
    os.unlink(temporary)
    return False


def _link_or_rename(temporary: str, path: str) -> None:
    """Give a new page its name; FileExistsError if a person was quicker."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def _keep(path: str, stands: bytes, kept: str) -> str:
    """Keep the page `stands` under the first free name; returns it. Never overwrites a kept page.

    A hard link, so that an editor still holding the old file open writes into the kept one.
    """
    names = itertools.chain([kept], (f"{kept}.{number}" for number in itertools.count(1)))
    name = next(name for name in names if read(name) in (None, stands))
    if read(name) is None:
        _link_or_copy(path, stands, name)
    return name


def _link_or_copy(path: str, stands: bytes, kept: str) -> None:
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.replace(_write_beside(kept, stands), kept)


def _forget_same_file(kept: str, path: str) -> None:
    """Take back a kept link to the page that turned out to be a person's."""
    with suppress(FileNotFoundError):
        if os.path.samefile(kept, path):
            os.unlink(kept)
