"""New passages of the stream as they come, for listeners that may have been away."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kernel_gamma.contracts.ports import Passage
from kernel_gamma.self_stream.search import instant
from kernel_gamma.self_stream.stream import NOW, SelfStream

__all__ = ["Told", "follow_pages", "passage_id"]

_LOOK_EVERY_SEC = 0.5
_FOLLOWED_BYTES = 262_144
_MOST_MISSED = 500
_ID = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)([+-]\d\d)(\d\d)\.[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Told:
    """A passage and the id by which a listener says that it has heard it."""

    id: str
    passage: Passage


def passage_id(passage: Passage) -> str:
    """Its time and a hash of what it says: the same wherever rotation puts it, another when it is edited."""
    digest = hashlib.sha256(f"{passage.heading}\n{passage.text}".encode("utf-8", "replace")).hexdigest()[:16]
    date, _, clock = passage.heading.partition(" ")
    return f"{date.replace('-', '')}T{re.sub('[: ]', '', clock)}.{digest}"


async def follow_pages(pages: SelfStream, after: str | None) -> AsyncIterator[Told | None]:
    """Passages that come from now on; with `after`, first those that came since that one, the archive
    included. Yields None when it has begun to listen, and when nothing came for half a second."""
    mark = pages.fingerprint(NOW)
    standing = [passage_id(passage) for passage in await asyncio.to_thread(pages.lived, _FOLLOWED_BYTES)]
    seen, last = set(standing), standing[-1] if standing else None
    if after is not None:
        for told in await asyncio.to_thread(_missed, pages, after):
            seen.add(told.id)
            last = told.id
            yield told
    yield None
    half: tuple[int, int, int] | None = None
    while True:
        now = pages.fingerprint(NOW)
        if now != mark:
            passages = await asyncio.to_thread(pages.lived, _FOLLOWED_BYTES)
            if last is not None and (mark is None or now is None or now[0] != mark[0]):
                passages = [*await asyncio.to_thread(_moved, pages, last), *passages]
            if now == half:  # it stands still: the last passage is whole
                mark = now
            else:
                half, passages = now, passages[:-1]
            for passage in passages:
                told = Told(passage_id(passage), passage)
                if told.id not in seen:
                    seen.add(told.id)
                    last = told.id
                    yield told
        await asyncio.sleep(_LOOK_EVERY_SEC)
        yield None


def _moved(pages: SelfStream, last: str) -> list[Passage]:
    """What came after the passage `last` and has moved to the archive already."""
    day = f"{last[:4]}-{last[4:6]}-{last[6:8]}"
    found = pages.archived_since(day)
    ids = [passage_id(passage) for passage in found]
    return found[len(ids) - ids[::-1].index(last) :] if last in ids else []


def _missed(pages: SelfStream, after: str) -> list[Told]:
    """What came after the passage `after`, oldest first, at most some hundreds; [] for what is no id."""
    found = _ID.fullmatch(after)
    if found is None:
        return []
    year, month, day, hour, minute, second, off, minutes = found.groups()
    written = f"{year}-{month}-{day} {hour}:{minute}:{second} {off}:{minutes}"
    since = instant(written)
    told = [
        Told(passage_id(p), p) for p in (*pages.archived_since(written[:10]), *pages.lived(_FOLLOWED_BYTES))
    ]
    ids = [one.id for one in told]
    if after in ids:
        later = told[len(ids) - ids[::-1].index(after) :]
    else:  # edited or forgotten since: by its time, rather twice than never
        later = [one for one in told if instant(one.passage.heading) >= since]
    return list({one.id: one for one in later}.values())[-_MOST_MISSED:]
