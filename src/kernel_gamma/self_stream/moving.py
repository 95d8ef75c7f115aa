"""Moving the beginning of a page to the archive: first there, synced, then away from here, by one rename."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from kernel_gamma.contracts.effects import MovePrefix
from kernel_gamma.self_stream.page_io import digest, locate, naming, opened, read
from kernel_gamma.self_stream.page_writing import (
    NO_LINKS,
    SAVES_OUTRUN,
    all_of,
    half_block,
    is_named,
    lead,
    opened_to_append,
    sync_folder,
    write_all,
    write_beside,
    written_size,
)
from kernel_gamma.self_stream.rotation import HEADING_BYTES, archive_of, bare, blocks

__all__ = ["Mover"]


class Mover:
    """Carries MovePrefix out on the pages below `root`."""

    def __init__(self, root: str, step: Callable[[str], None], *, split_writes: bool) -> None:
        self._root = root
        self._step = step
        self._half = (lambda: step("apply.rotate.half")) if split_writes else None

    def move(self, move: MovePrefix) -> bool:
        """See PageFiles.move_prefix."""
        path = locate(self._root, move.page)
        self._step("apply.rotate.before")
        with naming(path):
            stands = read(path)
            if stands is None or not _begins(stands, move):
                return False
            for archived in move.archives:
                self._archive(archived.page, [stands[start:end] for start, end in archived.ranges])
            self._step("apply.rotate.archived")
            moved = self._shorten(path, move)
        if moved:
            self._step("apply.rotate.renamed")
        return moved

    def standing(self, data: bytes) -> list[int]:
        """Where a passage that was appended stands in the archive of its day: the offsets."""
        heading = HEADING_BYTES.match(data)
        if heading is None:
            return []
        archived = read(locate(self._root, archive_of(heading[1].decode()))) or b""
        wanted = bare(data)
        return [b.start for b in blocks(archived) if bare(archived[b.start : b.end]) == wanted]

    def _archive(self, page: str, pieces: Sequence[bytes]) -> None:
        """Add the pieces that do not stand in `page`, after what stands there, and sync it."""
        path = locate(self._root, page)
        with naming(path):
            for _ in range(SAVES_OUTRUN):
                with opened_to_append(path) as fd:
                    size = written_size(fd)
                    size -= max(half_block(fd, size, piece, b"") for piece in pieces)
                    if size < os.fstat(fd).st_size:
                        os.ftruncate(fd, size)
                    if missing := _missing(all_of(fd), pieces):
                        write_all(fd, lead(fd, size, b"") + b"".join(missing), at_half=self._half)
                    os.fsync(fd)
                    if is_named(fd, path):
                        break
            else:
                raise OSError(errno.EBUSY, "is replaced again and again while it is written", path)
            sync_folder(path)

    def _shorten(self, path: str, move: MovePrefix) -> bool:
        """Put `opening` in the place of the prefix; False when the page begins otherwise by now."""
        with opened(path, os.O_RDONLY) as old:
            stands = all_of(old)
            if not _begins(stands, move):
                return False
            fresh = move.opening.encode("utf-8", "replace") + stands[move.length :]
            temporary = write_beside(path, fresh, sync=True)
            self._step("apply.rotate.written")
            if not is_named(old, path) or all_of(old) != stands:
                os.unlink(temporary)
                return False  # somebody saved it meanwhile
            held = _second_name(path)
            os.replace(temporary, path)
            sync_folder(path)
            if held and all_of(old) != stands:
                # Somebody wrote into the file that has just lost its name: it gets it back, as it is.
                os.replace(held, path)
                return False
            if held:
                os.unlink(held)
        return True


def _second_name(path: str) -> str:
    """Another name of the file, so that it can be had back; empty where there are no hard links."""
    folder, name = os.path.split(path)
    held = os.path.join(folder, f".{name}.moved.tmp")
    with suppress(FileNotFoundError):
        os.unlink(held)
    try:
        os.link(path, held, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return ""
    return held


def _begins(data: bytes, move: MovePrefix) -> bool:
    """Whether a page begins with the very bytes that are to move."""
    return len(data) >= move.length and digest(data[: move.length]) == move.sha256


def _missing(stands: bytes, pieces: Sequence[bytes]) -> list[bytes]:
    """The pieces that do not stand yet; of equal ones as many as are needed."""
    standing = Counter(bare(stands[block.start : block.end]) for block in blocks(stands))
    met: Counter[bytes] = Counter()
    missing: list[bytes] = []
    for piece in pieces:
        met[bare(piece)] += 1
        if met[bare(piece)] > standing[bare(piece)]:
            missing.append(piece)
    return missing
