"""The reading side of Pool A. Reads files as they are: a person may have edited any of them.

Bad UTF-8 is replaced and NULs are dropped on reading; a sha256 is always over the bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kernel_gamma.contracts.ports import Page, Passage, PassagePlace, Snippet
from kernel_gamma.self_stream.page_io import digest, find_all, locate, opened, read
from kernel_gamma.self_stream.passages import HEADING, split
from kernel_gamma.self_stream.search import Piece, Search, instant, paragraphs, sections

__all__ = ["NOW", "STATE", "SelfStream"]

NOW = "stream/now.md"
STATE = "state.md"

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HEADING_BYTES = re.compile(HEADING.pattern.replace(r"[ \t]", r"[ \t\r]").encode(), re.MULTILINE)
_END_OF_DAY = " 23:59:59 +00:00"


class SelfStream:
    """The pages below `root` (the directory self/), as contracts.ports.SelfLog."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)

    def tail(self, max_bytes: int) -> list[Passage]:
        """The last whole passages of now.md within `max_bytes`, oldest first; reads only the end."""
        try:
            with opened(locate(self._root, NOW), os.O_RDONLY) as fd:
                size = os.fstat(fd).st_size
                start = max(0, size - max(max_bytes, 0))
                before = min(start, 1)  # one byte more shows whether a line begins at `start`
                data = os.pread(fd, size - start + before, start - before)
        except (FileNotFoundError, NotADirectoryError):
            return []
        if start == 0:
            return split(_text(data))
        first = _HEADING_BYTES.search(data, before)
        return split(_text(data[first.start() :])) if first else []

    def passage(self, place: PassagePlace) -> Passage | None:
        """The passage, wherever editing or rotation has put it; None when it is gone.

        By place and sha256, else by sha256 under its heading in the page and in the archive of
        its day; else, when a person has reworded it, by its heading alone.
        """
        pages = [place.page]
        if _DATE.fullmatch(place.heading[:10]):
            pages.append(f"stream/archive/{place.heading[:10]}.md")
        reworded: Passage | None = None
        for page in pages:
            found, by_heading = self._passage_in(page, place)
            if found is not None:
                return found
            reworded = reworded or by_heading
        return reworded

    def state(self) -> Page:
        """state.md; sha256 None when there is none."""
        return self.page(STATE)

    def page(self, name: str) -> Page:
        """Any page, `name` relative to self/.

        ValueError for what cannot be a page's name; OSError for what cannot be read.
        """
        data = read(locate(self._root, name))
        return Page(name, _text(data or b""), digest(data))

    def memories(self) -> list[str]:
        """Names of memory pages (without .md), newest change first."""
        return [name for name, _ in self._listed("memories")]

    def diary_dates(self) -> list[str]:
        """Days (`YYYY-MM-DD`) that have a diary page, oldest first."""
        return self._dates("diary")

    def archive_dates(self) -> list[str]:
        """Days that have an archive page, oldest first."""
        return self._dates("stream/archive")

    def search(self, query: str, limit: int) -> list[Snippet]:
        """Best matches over memories, diary, archive and now.md; reads page by page.

        Ranked by idf mass matched / idf mass asked, ties by newest. Pages that cannot be read
        are passed over.
        """
        search = Search(query, limit)
        if search.can_match:
            for piece in self._pieces():
                search.add(piece)
        return search.best() if search.can_match else []

    def fingerprint(self, page: str) -> tuple[int, int, int] | None:
        """(inode, size, mtime in ns): differs after any save; None when there is no such page."""
        try:
            found = os.stat(locate(self._root, page), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def missing(self, page: str, blocks: Sequence[bytes]) -> list[int]:
        """Indexes of `blocks` (as they were appended, in order) that stand in `page` no more.

        An editor that converts line ends or trims the end of the file makes nothing missing. Of
        equal blocks, as many as are gone are named, the latest.
        """
        text = _same_line_ends(read(locate(self._root, page)) or b"")
        met: dict[bytes, int] = {}
        gone: list[int] = []
        for index, block in enumerate(blocks):
            bare = _same_line_ends(block)
            met[bare] = met.get(bare, 0) + 1
            if text.count(bare) < met[bare]:
                gone.append(index)
        return gone

    def _passage_in(self, page: str, place: PassagePlace) -> tuple[Passage | None, Passage | None]:
        """(the very passage, one that only has its heading), as far as `page` holds them."""
        by_heading: list[int] = []
        try:
            with opened(locate(self._root, page), os.O_RDONLY) as fd:
                if page == place.page and (found := _exact(fd, place.offset, place)):
                    return found, None
                if not place.heading:
                    return None, None
                for offset in find_all(fd, f"## {place.heading}".encode()):
                    if not _begins_heading(fd, offset):
                        continue
                    if found := _exact(fd, offset, place):
                        return found, None
                    by_heading.append(offset)
                if not by_heading:
                    return None, None
                nearest = min(by_heading, key=lambda offset: abs(offset - place.offset))
                return None, _passage_at(fd, nearest)
        except (FileNotFoundError, NotADirectoryError):
            return None, None

    def _listed(self, folder: str) -> list[tuple[str, float]]:
        """(name without .md, time of change in seconds) of the pages of a folder, newest first."""
        found: list[tuple[str, int]] = []
        names: list[str] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            names = os.listdir(os.path.join(self._root, folder))
        for name in names:
            if not name.endswith(".md") or name.startswith("."):
                continue
            with suppress(OSError):
                path = locate(self._root, f"{folder}/{name}")
                if os.path.isfile(path):
                    found.append((name[:-3], os.stat(path).st_mtime_ns))
        found.sort(key=lambda page: (-page[1], page[0]))
        return [(name, changed / 1e9) for name, changed in found]

    def _dates(self, folder: str) -> list[str]:
        return sorted(name for name, _ in self._listed(folder) if _DATE.fullmatch(name))

    def _pieces(self) -> Iterator[Piece]:
        for name, changed in reversed(self._listed("memories")):
            text = self._readable(f"memories/{name}.md")
            for heading, part in paragraphs(sections(text)):
                snippet = Snippet(f"memory.{name}", heading, part)
                yield Piece(snippet, changed, context=name.replace("_", " "))
        for day in self.diary_dates():
            for heading, part in sections(self._readable(f"diary/{day}.md")):
                yield Piece(Snippet(f"diary.{day}", heading, part), instant(day + _END_OF_DAY))
        for day in self.archive_dates():
            yield from self._told(f"stream/archive/{day}.md", day)
        yield from self._told(NOW, "now")

    def _told(self, page: str, day: str) -> Iterator[Piece]:
        for passage in split(self._readable(page)):
            if passage.text:
                key = f"stream.{passage.heading[:10] or day}"
                when = instant(passage.heading or day + _END_OF_DAY)
                yield Piece(Snippet(key, passage.heading, passage.text), when)

    def _readable(self, page: str) -> str:
        with suppress(OSError):
            return self.page(page).text
        return ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "").removeprefix("\ufeff")


def _same_line_ends(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").rstrip(b"\n")


def _exact(fd: int, offset: int, place: PassagePlace) -> Passage | None:
    """The passage whose very bytes stand at `offset`."""
    data = os.pread(fd, place.length, offset)
    if hashlib.sha256(data).hexdigest() != place.sha256:
        return None
    return next(iter(split(_text(data))), None)


def _begins_heading(fd: int, offset: int) -> bool:
    """Whether a line begins at `offset` that is a time heading and nothing else."""
    before = min(offset, 1)
    return _HEADING_BYTES.match(os.pread(fd, 64, offset - before), before) is not None


def _passage_at(fd: int, offset: int) -> Passage | None:
    """The passage whose heading begins at `offset`, up to the next heading."""
    data = b""
    while chunk := os.pread(fd, 65_536, offset + len(data)):
        data += chunk
        if len(passages := split(_text(data))) > 1:
            return passages[0]
    return next(iter(split(_text(data))), None)
