"""`kgamma stream`, `state`, `diary`, `memories`: reading the self."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import date as calendar_date
from typing import Annotated

import typer

from kernel_gamma.cli import page_history
from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.terminal import Failed, HomeOption, JsonOption, Usage, print_json, say
from kernel_gamma.contracts.ports import Passage
from kernel_gamma.self_stream.listing import ARCHIVE
from kernel_gamma.self_stream.passages import slug, split
from kernel_gamma.self_stream.rotation import is_bridge
from kernel_gamma.self_stream.stream import NOW, SelfStream

__all__ = ["Follower", "app", "last_passages", "show_passage"]

app = typer.Typer(rich_markup_mode=None)

_LOOK_EVERY_SEC = 0.5
_FIRST_READ_BYTES = 65_536
_FOLLOWED_BYTES = 262_144
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@app.command()
def stream(
    count: Annotated[int, typer.Option("-n", metavar="N", min=0, help="How many passages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print passages as they come.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The last passages of the stream; --follow waits for more until Ctrl+C."""
    self_log = SelfStream(open_place(home).self_dir)
    follower = Follower(self_log)
    passages = last_passages(self_log, count)
    if as_json and not follow:
        print_json([_as_dict(passage) for passage in passages])
        return
    for passage in passages:
        _put(passage, as_json=as_json)
    if not follow:
        return
    try:
        while True:
            time.sleep(_LOOK_EVERY_SEC)
            for passage in follower.fresh():
                _put(passage, as_json=as_json)
    except KeyboardInterrupt:
        return


@app.command()
def state(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """How the mind is: its state page."""
    page = SelfStream(open_place(home).self_dir).state()
    if as_json:
        print_json({"text": page.text, "sha256": page.sha256})
    elif page.text.strip():
        say(page.text.strip())
    else:
        raise Failed("there is no state page yet; the mind writes one when it has something to say of itself")


@app.command()
def diary(
    date: Annotated[str | None, typer.Argument(metavar="[DATE]", show_default=False)] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """A page of the diary, today's unless a date (YYYY-MM-DD) is given."""
    place = open_place(home)
    if date is not None and not _is_date(date):
        raise Usage(f"diary: {date} is no date like 2026-11-30")
    day = date or f"{place.clock.now():%Y-%m-%d}"
    self_log = SelfStream(place.self_dir)
    text, dates = self_log.page(f"diary/{day}.md").text, self_log.diary_dates()
    if as_json:
        print_json({"date": day, "text": text or None, "dates": dates})
    elif text.strip():
        say(text.strip())
    else:
        known = f"; the days with a page: {', '.join(dates)}" if dates else "; there is no page at all yet"
        raise Failed(f"the diary has no page for {day}{known}")


@app.command()
def memories(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
    rest: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    history: Annotated[bool, typer.Option("--history", help="Earlier versions of the page.")] = False,
    restore: Annotated[
        int | None, typer.Option("--restore", metavar="N", min=1, help="Put earlier version N back.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The names of the memory pages, newest change first; or one page, by its name or topic.

    `memories history NAME` and `memories restore NAME N` are other words for --history and --restore.
    """
    name, history, restore = _page_asked_for(name, rest or [], history, restore)
    place = open_place(home)
    self_log = SelfStream(place.self_dir)
    names = self_log.memories()
    if name is None:
        if as_json:
            print_json(names)
        elif names:
            say("\n".join(names))
        else:
            say("there are no memory pages yet")
        return
    found = next((known for known in (name.removesuffix(".md"), slug(name)) if known in names), None)
    if history or restore is not None:
        kept = found or slug(name.removesuffix(".md"))
        if restore is not None:
            page_history.restore(place, kept, restore)
        else:
            page_history.show_history(place, kept, as_json=as_json)
        return
    if found is None:
        known = f"; the pages are: {', '.join(names)}" if names else ""
        raise Failed(f"there is no memory page {name}{known}")
    text = self_log.page(f"memories/{found}.md").text
    if as_json:
        print_json({"name": found, "text": text})
    else:
        say(text.strip())


def _page_asked_for(
    name: str | None, rest: list[str], history: bool, restore: int | None
) -> tuple[str | None, bool, int | None]:
    """Both ways of asking for earlier versions as one: (name, history, restore)."""
    match name, rest:
        case "history", [page]:
            return page, True, None
        case "restore", [page, number] if number.isdigit():
            return page, False, int(number)
    if rest or ((history or restore is not None) and name is None):
        raise Usage("memories: give one name, and --history or --restore N with it")
    return name, history, restore


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return _DATE.fullmatch(text) is not None and bool(calendar_date.fromisoformat(text))
    return False


def last_passages(self_log: SelfStream, count: int) -> list[Passage]:
    """The last `count` passages, oldest first; reaches back into the archive when now.md has fewer."""
    if count == 0:
        return []
    size, found = _FIRST_READ_BYTES, self_log.tail(_FIRST_READ_BYTES)
    mark = self_log.fingerprint(NOW)
    while len(found) < count and mark is not None and size < mark[1]:
        size *= 4
        found = self_log.tail(size)
    found = [passage for passage in found if passage.heading or not is_bridge(passage.text)]
    for day in reversed(self_log.archive_dates()):
        if len(found) >= count:
            break
        found = [*split(self_log.page(f"{ARCHIVE}/{day}.md").text), *found]
    return found[-count:]


class Follower:
    """Tells which passages of the stream are new. A rotation, which only moves, tells nothing."""

    def __init__(self, self_log: SelfStream) -> None:
        self._self_log = self_log
        self._mark = self_log.fingerprint(NOW)
        standing = self._passages()
        self._seen = set(standing)
        self._last = standing[-1] if standing else None
        self._half: tuple[int, int, int] | None = None

    def fresh(self) -> Iterator[Passage]:
        """Passages that came since the last call; the last one only once the page stands still, since
        it may be half written."""
        mark = self._self_log.fingerprint(NOW)
        if mark == self._mark:
            return
        passages = self._passages()
        if mark is None or self._mark is None or mark[0] != self._mark[0]:
            passages = [*self._moved(), *passages]
        if mark == self._half:
            self._mark = mark
        else:
            self._half = mark
            passages = passages[:-1]
        for passage in passages:
            if passage not in self._seen:
                self._last = passage
                yield passage
        self._seen.update(passages)

    def _moved(self) -> list[Passage]:
        """What came after the last passage that was told and has moved to the archive already."""
        if self._last is None:
            return []
        found = self._self_log.archived_since(self._last.heading[:10])
        if self._last not in found:
            return []  # it stands in now.md, and so does what came after it
        return found[len(found) - found[::-1].index(self._last) :]

    @property
    def waiting(self) -> bool:
        """Whether something came that `fresh` has not told yet."""
        return self._self_log.fingerprint(NOW) != self._mark

    def _passages(self) -> list[Passage]:
        return self._self_log.lived(_FOLLOWED_BYTES)


def show_passage(passage: Passage) -> None:
    """The heading, the text, an empty line."""
    if passage.heading:
        say(f"## {passage.heading}", "bold")
        say()
    say(passage.text)
    say()


def _put(passage: Passage, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_as_dict(passage), ensure_ascii=False))
    else:
        show_passage(passage)


def _as_dict(passage: Passage) -> dict[str, str]:
    return {"heading": passage.heading, "text": passage.text}
