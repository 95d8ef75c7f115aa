"""The reading side of Pool A. Reads files as they are: a person may have edited any of them.

Bad UTF-8 is replaced and NULs are dropped on reading; a sha256 is always over the bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from kernel_gamma.contracts.effects import MovePrefix
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.ports import Clock, Page, Passage, PassagePlace, Snippet
from kernel_gamma.self_stream.index import Index
from kernel_gamma.self_stream.listing import ARCHIVE, DATE, DIARY, MEMORIES, Mark, pages_in
from kernel_gamma.self_stream.page_io import digest, find_all, locate, opened, read
from kernel_gamma.self_stream.passages import split
from kernel_gamma.self_stream.rotation import HEADING_BYTES, Rotation, archive_of, is_bridge
from kernel_gamma.self_stream.search import Piece, Search, instant, paragraphs, sections
from kernel_gamma.settings import StreamSettings

__all__ = ["NOW", "STATE", "SelfStream", "rotation_for"]

NOW = "stream/now.md"
STATE = "state.md"

_AHEAD = 64
"""More passages than can be on their way at once."""
_END_OF_DAY = " 23:59:59 +00:00"
_RECOLLECTED_BYTES = 2_000_000
"""Years of memories and diary. Taking that much in takes about a second, in memory 20 to 40 MB."""


def rotation_for(settings: StreamSettings, clock: Clock, language: Language | None) -> Rotation:
    """How a mind with these settings shortens its now.md; `language` is that of the bridge, if fixed."""
    hours, minutes = map(int, settings.day_ends_at.split(":"))
    return Rotation(
        page=NOW,
        max_bytes=settings.max_bytes,
        keep_bytes=int(settings.max_bytes * settings.keep_share),
        keep_passages=settings.keep_passages,
        day_ends_at=timedelta(hours=hours, minutes=minutes),
        now=clock.now,
        language=language,
    )


class SelfStream:
    """The pages below `root` (the directory self/), as contracts.ports.SelfLog."""

    def __init__(
        self, root: Path, *, recollected_bytes: int = _RECOLLECTED_BYTES, rotation: Rotation | None = None
    ) -> None:
        """`recollected_bytes`: of memories and diary together, the newest pages up to that size
        come back through `recollect`; older ones are left to `search`. `rotation`: how now.md is
        shortened; without it nothing is ever `moving`."""
        self._root = os.fspath(root)
        self._rotation = rotation
        self._recollected_bytes = recollected_bytes
        self._index = Index()
        self._seen: dict[str, Mark] | None = None
        """Memory and diary pages as the last refresh found them; None before the first."""
        self._wanted: dict[str, Mark] = {}
        """Those of them that the bound leaves room for."""
        self._held: dict[str, Mark] = {}
        """And those that could be read, as they were when they were read: what the index holds."""
        self._foreseen: list[tuple[str, list[Passage]]] = []
        self._foreseen_pages: dict[str, list[str]] = {}
        self._tail: tuple[tuple[Mark, int], list[Passage]] | None = None

    def foresee(self, block: str) -> None:
        """A rendered passage is on its way to now.md: until `forget`, the tail ends with it."""
        self._foreseen.append((block, split(block)))

    def forget(self, block: str) -> None:
        """It stands, or never will."""
        for index, (text, _) in enumerate(self._foreseen):
            if text == block:
                del self._foreseen[index]
                return

    def foresee_page(self, name: str, text: str) -> None:
        """A page is about to be replaced: until `forget_page`, it is read as it will be."""
        self._foreseen_pages.setdefault(name, []).append(text)

    def forget_page(self, name: str, text: str) -> None:
        """It stands, or never will."""
        coming = self._foreseen_pages.get(name, [])
        if text in coming:
            coming.remove(text)
        if not coming:
            self._foreseen_pages.pop(name, None)

    def tail(self, max_bytes: int) -> list[Passage]:
        """The last whole passages of now.md within `max_bytes`, oldest first; reads only the end."""
        standing = self._standing_tail(max_bytes)
        if self._foreseen:
            # It may stand already: it is forgotten a moment after it is written.
            known = {p.text for p in standing[-_AHEAD:]}
            standing += [p for _, passages in self._foreseen for p in passages if p.text not in known]
        return standing

    def _standing_tail(self, max_bytes: int) -> list[Passage]:
        try:
            with opened(locate(self._root, NOW), os.O_RDONLY) as fd:
                key = Mark.of(os.fstat(fd)), max_bytes
                if self._tail is None or self._tail[0] != key:
                    self._tail = key, _tail_of(fd, key[0].size, max_bytes)
                return list(self._tail[1])
        except (FileNotFoundError, NotADirectoryError):
            return []

    def passage(self, place: PassagePlace) -> Passage | None:
        """The passage, wherever editing or rotation has put it; None when it is gone.

        By place and sha256, else by sha256 under its heading in the page and in the archive of
        its day; else, when a person has reworded it, by its heading alone.
        """
        pages = [place.page]
        if DATE.fullmatch(place.heading[:10]):
            pages.append(archive_of(place.heading))
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
        if coming := self._foreseen_pages.get(name):
            data: bytes | None = coming[-1].encode("utf-8", "replace")
        else:
            data = read(locate(self._root, name))
        return Page(name, _text(data or b""), digest(data))

    def memories(self) -> list[str]:
        """Names of memory pages (without .md), newest change first."""
        return [name for name, _ in self._listed(MEMORIES)]

    def diary_dates(self) -> list[str]:
        """Days (`YYYY-MM-DD`) that have a diary page, oldest first."""
        return self._dates(DIARY)

    def archive_dates(self) -> list[str]:
        """Days that have an archive page, oldest first."""
        return self._dates(ARCHIVE)

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

    def recollect(self, query: str, limit: int) -> list[Snippet]:
        """What memories and diary hold on `query`, as the last `refresh` found them; reads no page.

        Ranked as `search` does, by the rarest terms of the query. The first call refreshes.
        """
        if self._seen is None:
            self.refresh()
        return self._index.best(query, limit)

    def refresh(self, pages: Collection[str] | None = None) -> None:
        """Take in what was saved: look at all memory and diary pages, or only at `pages`.

        Reads what has changed since it was read last. Pages that cannot be read are passed over
        and tried again next time; other pages than memories and diary are none of its business.
        """
        seen = dict(self._seen or {})
        if pages is None or self._seen is None:
            with suppress(OSError):
                seen = self._all_marks()
        else:
            for page in pages:
                self._look_at(page, seen)
        if seen != self._seen:
            self._seen, self._wanted = seen, self._newest(seen)
        if self._held != self._wanted:
            self._hold(self._wanted)

    def fingerprint(self, page: str) -> tuple[int, int, int] | None:
        """(inode, size, mtime in ns): differs after any save; None when there is no such page."""
        try:
            found = os.stat(locate(self._root, page), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def lived(self, max_bytes: int) -> list[Passage]:
        """`tail` without the line that stands for what has moved to the archive."""
        return [one for one in self.tail(max_bytes) if one.heading or not is_bridge(one.text)]

    def archived_since(self, day: str) -> list[Passage]:
        """The passages of the archive from a day (`YYYY-MM-DD`) on, oldest first."""
        days = [one for one in self.archive_dates() if one >= day]
        return [passage for one in days for passage in split(self.page(f"{ARCHIVE}/{one}.md").text)]

    def moving(self, keep_from: str) -> MovePrefix | None:
        """What moves all before the passage headed `keep_from` to the archive; None: nothing would."""
        if self._rotation is None:
            return None
        return self._rotation.before(self._now_bytes(), keep_from)

    def overdue(self, today: str) -> MovePrefix | None:
        """What must leave now.md without anybody's decision: over its limit, or of days before `today`."""
        if self._rotation is None:
            return None
        data = self._now_bytes()
        return self._rotation.room_for(data, 0) or self._rotation.of_earlier_days(data, today)

    def _now_bytes(self) -> bytes:
        return read(locate(self._root, NOW)) or b""

    def missing(self, blocks: Sequence[bytes]) -> list[int]:
        """Indexes of `blocks` (as they were appended, in order) that stand neither in now.md any more nor
        in the archive to which they may have moved.

        An editor that converts line ends or trims the end of the file makes nothing missing. Of
        equal blocks, as many as are gone are named, the latest.
        """
        pages = [NOW, *sorted({archive_of(h[1].decode()) for b in blocks if (h := HEADING_BYTES.match(b))})]
        text = b"\n\n".join(_same_line_ends(read(locate(self._root, page)) or b"") for page in pages)
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
        found = [(name, mark.mtime_ns) for name, mark in pages_in(self._root, folder)]
        found.sort(key=lambda page: (-page[1], page[0]))
        return [(name, changed / 1e9) for name, changed in found]

    def _dates(self, folder: str) -> list[str]:
        return sorted(name for name, _ in pages_in(self._root, folder) if DATE.fullmatch(name))

    # --- what is recollected

    def _all_marks(self) -> dict[str, Mark]:
        marks = {f"{MEMORIES}/{name}.md": mark for name, mark in pages_in(self._root, MEMORIES)}
        diary = ((day, mark) for day, mark in pages_in(self._root, DIARY) if DATE.fullmatch(day))
        marks.update((f"{DIARY}/{day}.md", mark) for day, mark in diary)
        return marks

    def _look_at(self, page: str, seen: dict[str, Mark]) -> None:
        """Note how `page` stands now, if it is one that may be recollected."""
        folder, _, name = page.partition("/")
        if not name.endswith(".md") or name.startswith(".") or "/" in name:
            return
        if folder != MEMORIES and not (folder == DIARY and DATE.fullmatch(name[:-3])):
            return
        seen.pop(page, None)
        with suppress(OSError):
            found = os.stat(locate(self._root, page))
            if stat.S_ISREG(found.st_mode):
                seen[page] = Mark.of(found)

    def _newest(self, seen: dict[str, Mark]) -> dict[str, Mark]:
        """The newest of `seen` that keep to the bound."""
        if sum(mark.size for mark in seen.values()) <= self._recollected_bytes:
            return seen
        left = self._recollected_bytes
        kept: dict[str, Mark] = {}
        for page in sorted(seen, key=lambda page: (_when(page, seen[page]), page), reverse=True):
            if seen[page].size <= left:
                left -= seen[page].size
                kept[page] = seen[page]
        return kept

    def _hold(self, wanted: dict[str, Mark]) -> None:
        """Make the index hold exactly the `wanted` pages, as they stand; the oldest are put first."""
        for page in [page for page, mark in self._held.items() if wanted.get(page) != mark]:
            del self._held[page]
            self._index.drop(page)
        fresh = [page for page in wanted if page not in self._held]
        for page in sorted(fresh, key=lambda page: (_when(page, wanted[page]), page)):
            # The mark was taken before: a page that is saved meanwhile differs at the next look.
            with suppress(OSError):
                data = read(locate(self._root, page))
                if data is not None:
                    self._index.put(page, _pieces(page, _when(page, wanted[page]), _text(data)))
                    self._held[page] = wanted[page]

    # --- what is searched

    def _pieces(self) -> Iterator[Piece]:
        for name, changed in reversed(self._listed(MEMORIES)):
            page = f"{MEMORIES}/{name}.md"
            yield from _pieces(page, changed, self._readable(page))
        for day in self.diary_dates():
            page = f"{DIARY}/{day}.md"
            yield from _pieces(page, instant(day + _END_OF_DAY), self._readable(page))
        # What moves meanwhile must be met in one of the two, and once: now.md is read before the archive.
        now = list(self._told(NOW, "now"))
        known = {(piece.snippet.heading, piece.snippet.text) for piece in now}
        for day in self.archive_dates():
            for piece in self._told(f"{ARCHIVE}/{day}.md", day):
                if (piece.snippet.heading, piece.snippet.text) not in known:
                    yield piece
        yield from now

    def _told(self, page: str, day: str) -> Iterator[Piece]:
        for passage in split(self._readable(page)):
            if passage.text and not (passage.heading == "" and is_bridge(passage.text)):
                key = f"stream.{passage.heading[:10] or day}"
                when = instant(passage.heading or day + _END_OF_DAY)
                yield Piece(Snippet(key, passage.heading, passage.text), when)

    def _readable(self, page: str) -> str:
        with suppress(OSError):
            return self.page(page).text
        return ""


def _tail_of(fd: int, size: int, max_bytes: int) -> list[Passage]:
    start = max(0, size - max(max_bytes, 0))
    before = min(start, 1)  # one byte more shows whether a line begins at `start`
    data = os.pread(fd, size - start + before, start - before)
    if start == 0:
        return split(_text(data))
    first = HEADING_BYTES.search(data, before)
    return split(_text(data[first.start() :])) if first else []


def _when(page: str, mark: Mark) -> float:
    """Seconds since the epoch: a memory is as new as its last change, a diary page as its day."""
    folder, _, name = page.partition("/")
    return instant(name[:-3] + _END_OF_DAY) if folder == DIARY else mark.mtime_ns / 1e9


def _pieces(page: str, when: float, text: str) -> Iterator[Piece]:
    """A memory paragraph by paragraph, a diary page section by section."""
    folder, _, name = page.partition("/")
    # A name that is no UTF-8 must not reach a prompt as it is: no request could carry it.
    name = os.fsencode(name[:-3]).decode("utf-8", "replace")
    if folder == DIARY:
        for heading, part in sections(text):
            yield Piece(Snippet(f"diary.{name}", heading, part), when)
        return
    topic = name.replace("_", " ")
    for heading, part in paragraphs(sections(text)):
        yield Piece(Snippet(f"memory.{name}", heading, part), when, context=topic)


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
    return HEADING_BYTES.match(os.pread(fd, 64, offset - before), before) is not None


def _passage_at(fd: int, offset: int) -> Passage | None:
    """The passage whose heading begins at `offset`, up to the next heading."""
    data = b""
    while chunk := os.pread(fd, 65_536, offset + len(data)):
        data += chunk
        if len(passages := split(_text(data))) > 1:
            return passages[0]
    return next(iter(split(_text(data))), None)
