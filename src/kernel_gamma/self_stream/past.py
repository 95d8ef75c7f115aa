"""The past in pieces, each with a key that follows it.

Passages of the stream, sections of the diary, paragraphs of the memories. A key is made of what a piece
says and when, not of where it stands: a passage that moves unaltered from now.md to the archive keeps its
key, one that a person rewords gets another.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time, tzinfo
from pathlib import Path

from kernel_gamma.contracts.ports import PastEntry
from kernel_gamma.contracts.truths import Level
from kernel_gamma.self_stream.listing import ARCHIVE, DATE, DIARY, MEMORIES, Mark, mark_of, pages_in
from kernel_gamma.self_stream.page_io import locate, read
from kernel_gamma.self_stream.passages import split
from kernel_gamma.self_stream.rotation import is_bridge
from kernel_gamma.self_stream.search import paragraphs, sections
from kernel_gamma.self_stream.stream import NOW

__all__ = ["PastFiles"]

_NO_PAGE = frozenset({errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EISDIR})
"""What page_io says of a link that leads out of self/, and of what is no regular file."""
_LONGEST_PIECE = 100_000
"""Characters; a longer piece, which only a person can have put there, is cut."""
_NOON = time(12)
_SLUG = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MARKED = re.compile(r"(?:.*_)?[0-9a-f]{8}")
"""What a made-up slug looks like: a page that is named so gets one too, or two pages could share it."""
_NO_SLUG = re.compile(r"[^A-Za-z0-9]+")
_SLUG_LETTERS = 60
_CLOCK = r"([01]?[0-9]|2[0-3])[:：]([0-5][0-9])(?::([0-5][0-9]))?(?![0-9])"
_CLOCK_TIME = re.compile(rf"(?<![0-9:：]){_CLOCK}")
_DATE_PARTS = r"([0-9]{4})[-/.年]([0-9]{1,2})[-/.月]([0-9]{1,2})(?![0-9])日?"
_BEGINS_WITH_DATE = re.compile(rf"[\s*_>~`(（\[【-]*{_DATE_PARTS}(?:[T，, ]*{_CLOCK})?")


class PastFiles:
    """The pages below `root` (the directory self/), as contracts.ports.Past."""

    def __init__(self, root: Path, zone: tzinfo) -> None:
        """`zone`: in which a day of the diary begins, and a time stands that names no offset."""
        self._root = os.fspath(root)
        self._zone = zone

    def marks(self, pages: Collection[str] | None = None) -> dict[str, tuple[int, int, int]]:
        """Page -> (inode, size, mtime in ns). All pages of the past, or those among `pages`."""
        found: dict[str, tuple[int, int, int]] = {}
        for page, mark in self._all() if pages is None else self._those(pages):
            found[page] = mark
        return found

    def entries(self, page: str) -> list[PastEntry]:
        """What a page holds, in its order; nothing when there is no such page. Raises OSError.

        Bad UTF-8 is replaced, NULs are dropped.
        """
        pieces = self._pieces_of(page)
        if pieces is None:
            return []
        try:
            data = read(locate(self._root, page))
        except OSError as error:
            if error.errno in _NO_PAGE:
                return []
            raise
        text = (data or b"").decode("utf-8", "replace").replace("\0", "").removeprefix("\ufeff")
        return list(_each_key_once(pieces(page, text)))

    def _all(self) -> Iterator[tuple[str, Mark]]:
        """Every page of the past. A folder that cannot be read has none to show."""
        for folder in (ARCHIVE, DIARY, MEMORIES):
            with suppress(OSError):
                for name, mark in pages_in(self._root, folder):
                    page = f"{folder}/{name}.md"
                    if self._pieces_of(page) is not None:
                        yield page, mark
        yield from self._those([NOW])

    def _those(self, pages: Collection[str]) -> Iterator[tuple[str, Mark]]:
        for page in pages:
            if self._pieces_of(page) is not None:
                with suppress(OSError):
                    if (mark := mark_of(self._root, page)) is not None:
                        yield page, mark

    # --- what a page is cut into

    def _pieces_of(self, page: str) -> Callable[[str, str], Iterator[PastEntry]] | None:
        """How a page is cut; None for what is no page of the past."""
        if page == NOW:
            return self._passages
        folder, _, name = page.rpartition("/")
        if not name.endswith(".md") or name.startswith(".") or "\0" in name:
            return None
        if folder == MEMORIES:
            return self._memories
        if self._noon_of(_name(page)) is None:
            return None
        return {ARCHIVE: self._passages, DIARY: self._diary}.get(folder)

    def _passages(self, page: str, text: str) -> Iterator[PastEntry]:
        day = self._noon_of(_name(page))
        level: Level = "L1" if page == NOW else "L2"
        for passage in split(text):
            if not passage.heading and is_bridge(passage.text):
                continue
            written = self._moment(passage.heading)
            stamp = f"{written.astimezone(UTC):%Y%m%dT%H%M%SZ}" if written else ""
            for piece in _cut(passage.text):
                key = f"stream.{stamp or (f'{day:%Y%m%d}' if day else 'undated')}.{_digest(piece)}"
                yield PastEntry(
                    key=key,
                    page=page,
                    heading=passage.heading,
                    text=piece,
                    timestamp=written or day,
                    level=level,
                )

    def _diary(self, page: str, text: str) -> Iterator[PastEntry]:
        noon = self._noon_of(_name(page))
        assert noon is not None
        for heading, section in sections(text):
            clock = _CLOCK_TIME.search(heading)
            told = noon
            if clock is not None:
                told = noon.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0))
            for piece in _cut(section):
                yield PastEntry(
                    key=f"diary.{_name(page)}.{_digest(heading, piece)}",
                    page=page,
                    heading=heading,
                    text=piece,
                    timestamp=told,
                    level="L2",
                )

    def _memories(self, page: str, text: str) -> Iterator[PastEntry]:
        slug = _slug(_name(page))
        for heading, paragraph in paragraphs(sections(text)):
            for piece in _cut(paragraph):
                yield PastEntry(
                    key=f"memory.{slug}.{_digest(heading, piece)}",
                    page=page,
                    heading=heading,
                    text=piece,
                    timestamp=self._begins_with(piece),
                    level="L3",
                )

    # --- when it was

    def _noon_of(self, day: str) -> datetime | None:
        """Local noon of `YYYY-MM-DD`; None for what is no day."""
        if not DATE.fullmatch(day):
            return None
        try:
            return self._within_reach(datetime.combine(date.fromisoformat(day), _NOON, self._zone))
        except ValueError:
            return None

    def _moment(self, heading: str) -> datetime | None:
        """The time of a passage's heading, `2026-11-30 10:30:05 +08:00`; None for what is no time."""
        try:
            return self._within_reach(datetime.fromisoformat("".join(heading.rsplit(" ", 1))))
        except ValueError:
            return None

    def _begins_with(self, text: str) -> datetime | None:
        """The date, and the time if there is one, with which a memory begins (`**2026-11-30 10:30** …`)."""
        match = _BEGINS_WITH_DATE.match(text)
        if match is None:
            return None
        year, month, day, hour, minute, second = (int(part) if part else None for part in match.groups())
        try:
            clock = _NOON if hour is None else time(hour, minute or 0, second or 0)
            return self._within_reach(
                datetime.combine(date(year or 0, month or 0, day or 0), clock, self._zone)
            )
        except ValueError:
            return None

    @staticmethod
    def _within_reach(moment: datetime) -> datetime | None:
        """The moment, unless its year cannot be written with four digits in every zone."""
        return moment if moment.tzinfo is not None and 1000 <= moment.year <= 9998 else None


def _name(page: str) -> str:
    """The name of a page without its folder and `.md`."""
    return page.rpartition("/")[2][:-3]


def _each_key_once(entries: Iterable[PastEntry]) -> Iterator[PastEntry]:
    """Equal pieces of one page are told apart by their order: the second gets `-2`."""
    seen: dict[str, int] = {}
    for entry in entries:
        count = seen[entry.key] = seen.get(entry.key, 0) + 1
        yield entry if count == 1 else replace(entry, key=f"{entry.key}-{count}")


def _cut(text: str) -> Iterator[str]:
    """A piece, or the parts of one that is too long."""
    for start in range(0, len(text), _LONGEST_PIECE):
        yield text[start : start + _LONGEST_PIECE]


def _digest(*texts: str) -> str:
    """12 hex digits of the sha256 of some texts."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:12]


def _slug(name: str) -> str:
    """The name of a memory page as a part of a key, never the same for two pages."""
    if _SLUG.fullmatch(name) and not _MARKED.fullmatch(name):
        return name
    letters = _NO_SLUG.sub("_", name).strip("_")[:_SLUG_LETTERS]
    mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return f"{letters}_{mark}" if letters else mark
