"""The writing side of Pool A: append once, replace only what was read. Used by commits alone.

Every operation may die at any instruction and be done again. What a person writes meanwhile stays.
Nothing is synced here but what moves: the bus syncs the file system at its checkpoints.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kernel_gamma.contracts.effects import MovePrefix
from kernel_gamma.self_stream.moving import Mover
from kernel_gamma.self_stream.page_io import digest, find_all, locate, naming, opened, read, within
from kernel_gamma.self_stream.page_writing import (
    NO_LINKS,
    SAVES_OUTRUN,
    gap,
    half_block,
    is_named,
    lead,
    opened_to_append,
    write_all,
    write_beside,
    written_size,
)
from kernel_gamma.self_stream.rotation import Rotation

__all__ = ["PageFiles"]

_HISTORY = ".history"


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
        rotation: Rotation | None = None,
    ) -> None:
        """`step` is told each named step as it is reached.

        `split_writes`: appends go out in two halves with a step between, for crash tests. `rotation`: when
        its page is shortened; None = never.
        """
        self._root = os.fspath(root)
        self._step = step
        self._half = (lambda: step("apply.append.half")) if split_writes else None
        self._rotation = rotation
        self._rotated = "" if rotation is None else rotation.page
        self._mover = Mover(self._root, step, split_writes=split_writes)

    def next_offset(self, page: str, *, opening: bytes = b"") -> int:
        """Where the next append to `page` will put its text if nobody writes before it.

        Reads only the end of the file. Give the `opening` the append will be given.
        """
        path = locate(self._root, page)
        try:
            with opened(path, os.O_RDONLY) as fd, naming(path):
                size = written_size(fd)
                return size + len(lead(fd, size, opening))
        except (FileNotFoundError, NotADirectoryError):
            return len(opening) + len(gap(opening))

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
        least `occurrence` times in the file, or moved to the archive; else what a half write has left
        is cut first.
        Raises OSError naming the path (disk full, read-only, a link out of self/): then the file
        is as before, as far as the disk allows.
        """
        path = locate(self._root, page)
        self._step("apply.append.before")
        archived = self._mover.standing(data) if redo and page == self._rotated else []
        if redo and len(archived) >= occurrence:
            return archived[occurrence - 1]
        with naming(path):
            offset = self._append(path, data, opening, occurrence - len(archived) if redo else 0)
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
            temporary = write_beside(path, data)
            self._step("apply.replace.written")
            if not _put(temporary, path, stands):
                _forget_same_file(kept, path)
                return self._yield_page(data, self._history_path(history))
        self._step("apply.replace.renamed")
        return True

    def room_for(self, page: str, incoming: int) -> MovePrefix | None:
        """What must leave `page` before `incoming` bytes are appended; None while they fit."""
        if self._rotation is None or page != self._rotation.page:
            return None
        path = locate(self._root, page)
        try:
            size = os.stat(path, follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        incoming += len(b"\n\n")
        if size + incoming <= self._rotation.max_bytes:
            return None
        return self._rotation.room_for(read(path) or b"", incoming)

    def move_prefix(self, move: MovePrefix) -> bool:
        """Move the beginning of a page to others: each piece is added where it does not stand already.

        The pieces are synced before the page is shortened, and the page by a rename: a reader finds each
        passage in one of the two at any moment. False: the page begins otherwise, or a person was quicker.
        Raises OSError naming the path; then both are as they were, or may be done again.
        """
        return self._mover.move(move)

    def _append(self, path: str, data: bytes, opening: bytes, occurrence: int) -> int:
        for _ in range(SAVES_OUTRUN):
            with opened_to_append(path) as fd:
                offset = self._append_to(fd, data, opening, occurrence)
                if is_named(fd, path):
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
        size = written_size(fd)
        if occurrence:
            size -= half_block(fd, size, data, opening)
        if size < os.fstat(fd).st_size:
            os.ftruncate(fd, size)
        write_all(fd, lead(fd, size, opening) + data, at_half=self._half)
        return os.lseek(fd, 0, os.SEEK_CUR) - len(data)

    def _history_path(self, history: str) -> str:
        if any(part in ("", ".", "..") for part in history.split("/")) or "\0" in history:
            raise ValueError(f"{history!r} cannot name a kept page")
        return within(self._root, f"{_HISTORY}/{history}")

    def _yield_page(self, data: bytes, kept: str) -> bool:
        """Keep our page aside, unless it had been in place and was replaced since."""
        if self._was_in_place(data):
            return True
        os.replace(write_beside(f"{kept}.ours", data), f"{kept}.ours")
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


def _is_expected(stands: bytes | None, expect: str | None) -> bool:
    return not stands if expect is None else digest(stands) == expect


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
        if error.errno not in NO_LINKS:
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
        if error.errno not in NO_LINKS:
            raise
        os.replace(write_beside(kept, stands), kept)


def _forget_same_file(kept: str, path: str) -> None:
    """Take back a kept link to the page that turned out to be a person's."""
    with suppress(FileNotFoundError):
        if os.path.samefile(kept, path):
            os.unlink(kept)
