"""Which passages leave now.md, and for which page of the archive. Pure: bytes in, a MovePrefix out.

What leaves is always the beginning of the page, cut before a heading, and goes unaltered to the archive of
each passage's own local date. In its place stands one first-person line, the bridge, which the next rotation
replaces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from kernel_gamma.contracts.effects import Archived, MovePrefix
from kernel_gamma.contracts.language import Language, language_of
from kernel_gamma.self_stream.listing import ARCHIVE
from kernel_gamma.self_stream.passages import HEADING

__all__ = ["HEADING_BYTES", "Block", "Rotation", "archive_of", "bare", "blocks", "is_bridge"]

HEADING_BYTES = re.compile(HEADING.pattern.replace(r"[ \t]", r"[ \t\r]").encode(), re.MULTILINE)
"""HEADING over bytes; a `\\r` may end the line."""

_BRIDGES: Mapping[Language, tuple[str, str]] = {
    "en": (
        "_Earlier today, {day}, until {clock}, I lived what now stands in my archive; here I go on._",
        "_Earlier, until {day} {clock}, I lived what now stands in my archive; here I go on._",
    ),
    "zh": (
        "_今天早些时候，{day}，到 {clock} 为止的经历已收进我的归档；我从这里接着过下去。_",
        "_早些时候，到 {day} {clock} 为止的经历已收进我的归档；我从这里接着过下去。_",
    ),
}
_BRIDGE = re.compile(
    r"_(?:Earlier(?: today)?, [^\n]{1,40}, I lived what now stands in my archive; here I go on\."
    r"|(?:今天)?早些时候，[^\n]{1,40}为止的经历已收进我的归档；我从这里接着过下去。)_"
)
_BRIDGE_BYTES = re.compile(rb"[ \t]*" + _BRIDGE.pattern.encode() + rb"[ \t\r]*(?:\n[ \t\r\n]*|\Z)")
_LONGEST_BRIDGE = 200
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Block:
    """The bytes of one passage as they stand in a page, `start` to `end`."""

    heading: str
    """The time as written; empty for what stands above the first heading."""
    start: int
    end: int


def blocks(data: bytes) -> list[Block]:
    """Every byte of a stream page belongs to one of its blocks, save those of a bridge."""
    starts = list(HEADING_BYTES.finditer(data))
    first = starts[0].start() if starts else len(data)
    bridge = _BRIDGE_BYTES.match(data, 0, first)
    above = bridge.end() if bridge else 0
    found = [Block("", above, first)] if data[above:first].strip() else []
    ends = [*(start.start() for start in starts[1:]), len(data)]
    found += [Block(m[1].decode(), m.start(), end) for m, end in zip(starts, ends, strict=False)]
    return found


def bare(block: bytes) -> bytes:
    """A block without what an editor changes of itself: line ends, and how many there are at the end."""
    return block.replace(b"\r\n", b"\n").rstrip(b"\n")


def archive_of(heading: str) -> str:
    """The page of the archive to which a passage goes: that of its own local date."""
    return f"{ARCHIVE}/{heading[:10]}.md"


def is_bridge(text: str) -> bool:
    """Whether a text above the first heading is a bridge and nothing else."""
    return _BRIDGE.fullmatch(text.strip()) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When now.md is shortened, and by how much."""

    page: str
    max_bytes: int
    """now.md never grows past it, save for one passage that is larger by itself."""
    keep_bytes: int
    """Of its end, what stays when it is shortened for its size."""
    keep_passages: int
    """So many last passages stay at the end of a day, within `keep_bytes`."""
    day_ends_at: timedelta
    """After midnight."""
    now: Callable[[], datetime]
    language: Language | None = None
    """Of the bridge; None: as the last passage that leaves."""

    def room_for(self, data: bytes, incoming: int) -> MovePrefix | None:
        """What must leave so that `incoming` bytes more keep the page within its limit; None: nothing."""
        if len(data) + incoming <= self.max_bytes:
            return None
        most = min(self.keep_bytes, self.max_bytes - incoming - _LONGEST_BRIDGE)
        ends = [*(block.start for block in blocks(data)[1:]), len(data)]
        return self._moving(data, next(end for end in ends if len(data) - end <= most or end == len(data)))

    def of_earlier_days(self, data: bytes, today: str) -> MovePrefix | None:
        """What lies before the day `today` (see `day`) and is not among the last passages; None: nothing."""
        standing = blocks(data)
        stay = 0
        while stay < min(self.keep_passages, len(standing)):
            if len(data) - standing[-stay - 1].start > self.keep_bytes:
                break
            stay += 1
        end = 0
        for block in standing[: len(standing) - stay]:
            if block.heading:
                if not self._is_before(block.heading, today):
                    break
                end = block.end
        return self._moving(data, end)

    def before(self, data: bytes, heading: str) -> MovePrefix | None:
        """What stands before the first passage under `heading`; None: nothing does, or none is there."""
        end = next((block.start for block in blocks(data) if heading and block.heading == heading), 0)
        return self._moving(data, end)

    def _moving(self, data: bytes, end: int) -> MovePrefix | None:
        leaving = [block for block in blocks(data) if block.end <= end]
        if not leaving:
            return None
        ranges: dict[str, list[tuple[int, int]]] = {}
        for block, heading in zip(leaving, self._dated(leaving), strict=True):
            ranges.setdefault(archive_of(heading), []).append((block.start, block.end))
        last = leaving[-1]
        return MovePrefix(
            page=self.page,
            length=end,
            sha256=hashlib.sha256(data[:end]).hexdigest(),
            archives=tuple(Archived(page, tuple(found)) for page, found in ranges.items()),
            opening=self._bridge(last.heading, data[last.start : last.end]),
        )

    def _dated(self, leaving: Sequence[Block]) -> Iterator[str]:
        """A date for each; what stands above the first heading goes with it, what has none is of today."""
        after = [block.heading for block in leaving[1:]]
        for block, following in zip(leaving, [*after, ""], strict=True):
            day = (block.heading or following)[:10]
            try:
                yield date.fromisoformat(day).isoformat()
            except ValueError:
                yield f"{self.now():%Y-%m-%d}"

    def _bridge(self, heading: str, block: bytes) -> str:
        now = self.now()
        day, clock = (heading[:10], heading[11:16]) if heading else (f"{now:%Y-%m-%d}", f"{now:%H:%M}")
        language = self.language or language_of(block.decode("utf-8", "replace"))
        today, earlier = _BRIDGES[language]
        same_day = bool(heading) and not self._is_before(heading, self.day(now))
        return (today if same_day else earlier).format(day=day, clock=clock) + "\n\n"

    def day(self, moment: datetime) -> str:
        """The mind's day, as an ISO date: it may end later than the calendar's."""
        return (moment.replace(tzinfo=None) - self.day_ends_at).date().isoformat()

    def _is_before(self, heading: str, today: str) -> bool:
        try:
            written = datetime.fromisoformat("".join(heading.rsplit(" ", 1)))
            return self.day(written.astimezone(self.now().tzinfo)) < today
        except (ValueError, OverflowError):  # no moment: its date as it is written
            return heading[:10] < today
