"""`kgamma demo`: a short tour with a real daemon in a temporary home. No key, no network, nothing kept."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import typer

from kernel_gamma.bus.folders import DEAD_LETTER, INBOX
from kernel_gamma.cli.background import daemon_beside
from kernel_gamma.cli.dropping import Inbox, Replies
from kernel_gamma.cli.home import Place, find_home, hint
from kernel_gamma.cli.letters import Letter, letters_in
from kernel_gamma.cli.pages import Follower
from kernel_gamma.cli.say import Drop, drop_words
from kernel_gamma.cli.terminal import Failed, HomeOption, Usage, as_called, say
from kernel_gamma.cli.trace import journey_of, show_journey
from kernel_gamma.configuration import Home, lay_out, load_settings
from kernel_gamma.rhythm.clock import clock_for
from kernel_gamma.self_stream.stream import SelfStream

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

T = TypeVar("T")

_PATIENCE_SEC = 30.0
_LOOK_EVERY_SEC = 0.1
_QUICK: Mapping[str, str] = {
    "KGAMMA_MODEL__MODE": "offline",
    "KGAMMA_BUS__SETTLE_TIMEOUT_SEC": "1",
    "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0.2",
}
_NEXT = (
    "kgamma init my-mind                  a home of its own",
    "kgamma run --home my-mind            wake it; put OPENAI_API_KEY=… into my-mind/.env for a real model",
    "kgamma chat --home my-mind           talk with it",
)
_WORDS = (
    ("alice", "hello, who are you?"),
    ("小明", "记住：我每天早上喝绿茶"),
    ("alice", "write in your diary that today somebody came to visit"),
)


@app.command()
def demo(home: HomeOption = None) -> None:
    """A short tour: events in, the stream growing, replies, a memory, a diary page, a file set aside.

    The home is temporary and removed at the end; with --home DIR (no home yet) it lives there and is kept.
    """
    if home is None:
        with tempfile.TemporaryDirectory(prefix="kgamma-demo-") as folder:
            _tour(Path(folder))
        return
    kept = find_home(home)
    if Home(kept).settings_file.exists():
        raise Usage(f"demo: {kept} is a home already; name a new directory, the tour would live in it")
    _tour(kept)
    say(f"  ({kept} is kept: {hint(kept, 'stream')})")


def _tour(home: Path) -> None:
    lay_out(home)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KGAMMA_", "OPENAI_"))}
    environ = {**kept, **_QUICK}
    settings = load_settings(home, environ)
    place = Place(home, environ, settings, Home(home).data_dir(settings), clock_for(settings.clock))
    say("kernel-gamma: a mind that lives in a folder. 住在文件夹里的心智。", "bold")
    say(f"This one lives in {home}, without a language model: rules answer, and it says so.")
    with daemon_beside(home, settings, environ):
        _Tour(place).walk()
    say()
    say("That was all of it: files in, one stream, files out. To go on:", "bold")
    for line in _NEXT:
        say(f"  {as_called(line)}")


class _Tour:
    """The stations, one after the other."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._self_log = SelfStream(place.self_dir)
        self._follower = Follower(self._self_log)
        self._replies = Replies(place.data)

    def walk(self) -> None:
        drops = [self._talk(sender, text) for sender, text in _WORDS]
        self._pages()
        self._set_aside()
        self._station(as_called("Where did the first message go? (kgamma trace ID)"))
        show_journey(journey_of(self._place, drops[0].ids[0]))

    def _talk(self, sender: str, text: str) -> Drop:
        self._station(f'A file is dropped into {INBOX}/: {sender} says "{text}"')
        dropped = drop_words(self._place, text, sender=sender, session=None, channel="console")
        ack = self._wait(lambda: Inbox(self._place).ack(dropped.name), "the message was not taken")
        trace = ack.get("trace_id")

        def reply() -> dict[str, Any] | None:
            fresh = self._replies.fresh()
            return next((payload for payload in fresh if trace in payload.get("in_reply_to", ())), None)

        answer = self._wait(reply, "no reply came")
        self._grown()
        say(f"  the reply, in outbox/console/: {answer['text']}", "green")
        return dropped

    def _grown(self) -> None:
        """What the stream holds now that it did not before."""
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            for passage in self._follower.fresh():
                say(f"  self/stream/now.md  {passage.heading}", "dim")
                say("  | " + passage.text.replace("\n", "\n  | "))
            time.sleep(_LOOK_EVERY_SEC)
            if not self._follower.waiting:
                return

    def _pages(self) -> None:
        self._station("What it keeps: memories and a diary, ordinary Markdown")
        name = self._wait(lambda: next(iter(self._self_log.memories()), None), "no memory was written")
        self._show(f"memories/{name}.md")
        day = self._wait(lambda: next(iter(self._self_log.diary_dates()), None), "no diary was written")
        self._show(f"diary/{day}.md")

    def _show(self, page: str) -> None:
        say(f"  self/{page}", "dim")
        say("  | " + self._self_log.page(page).text.strip().replace("\n", "\n  | "))

    def _set_aside(self) -> None:
        self._station("A file that is no event is set aside, with the reason beside it; nothing is lost")
        Inbox(self._place).drop("broken.json", b'{"text": "half a fi')
        dead = self._place.data / DEAD_LETTER

        def aside() -> Letter | None:
            return next((letter for letter in letters_in(dead) if letter.reason), None)

        letter = self._wait(aside, "the broken file was not set aside")
        say(f"  {letter.path.relative_to(self._place.data)}: {letter.reason['detail']}", "red")

    def _station(self, text: str) -> None:
        say()
        say(f"▸ {text}", "bold cyan")

    def _wait(self, look: Callable[[], T | None], otherwise: str) -> T:
        deadline = time.monotonic() + _PATIENCE_SEC
        while time.monotonic() < deadline:
            if (found := look()) is not None:
                return found
            time.sleep(_LOOK_EVERY_SEC)
        raise Failed(f"demo: {otherwise} within {_PATIENCE_SEC:g} s{self._last_words()}")

    def _last_words(self) -> str:
        """The daemon's last log lines: the temporary home is gone when somebody wants to look."""
        with suppress(OSError):
            log = (self._place.data / "logs" / "kgamma.log").read_text(errors="replace")
            return "\n" + "\n".join(log.splitlines()[-5:])
        return ""
