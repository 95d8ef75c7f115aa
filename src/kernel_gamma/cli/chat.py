"""`kgamma chat`: talk with the mind and see its thoughts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Annotated

import typer

from kernel_gamma.bus.folders import DEAD_LETTER
from kernel_gamma.cli.background import daemon_beside
from kernel_gamma.cli.dropping import Inbox, Replies, is_running
from kernel_gamma.cli.home import Place, open_place
from kernel_gamma.cli.letters import letters_in
from kernel_gamma.cli.pages import Follower, last_passages, show_passage
from kernel_gamma.cli.prompt import Prompt
from kernel_gamma.cli.rhythm import fire
from kernel_gamma.cli.say import drop_event, drop_words
from kernel_gamma.cli.status import queues_of
from kernel_gamma.cli.terminal import HomeOption, complain, note, print_table, say, shown
from kernel_gamma.cli.trace import journey_of, show_journey
from kernel_gamma.errors import KernelError
from kernel_gamma.self_stream.stream import SelfStream

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_LOOK_EVERY_SEC = 0.5
_LAST_WORDS_SEC = 60.0
"""When the input ends (a pipe), so long is waited for the replies that are still out."""

_HELP = (
    "/stream [N]  /state  /memories [NAME]  /trace [ID]  /queues  /emit JSON  /fire RULE  /dead  /quit\n"
    "Anything else is said to the mind."
)


@app.command()
def chat(
    sender: Annotated[str, typer.Option("--from", metavar="NAME", help="Who talks.")] = "owner",
    session: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The conversation; else private:NAME.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show replies only, no thoughts.")] = False,
    home: HomeOption = None,
) -> None:
    """Talk with the mind and see its thoughts; /quit or Ctrl+D ends.

    If no daemon runs, one is started for as long as the chat lasts.
    """
    place = open_place(home)
    with ExitStack() as stack:
        talk = Talk(place, sender, session, thoughts=not quiet)
        if not is_running(place):
            note("no daemon is running: one is started for this chat")
            stack.enter_context(daemon_beside(place.home, place.settings, os.environ))
        note(_HELP)
        stack.enter_context(talk)
        talk.until_the_end()


class Talk:
    """One conversation: this thread reads what is typed, another prints what comes."""

    def __init__(self, place: Place, sender: str, session: str | None, *, thoughts: bool) -> None:
        self._place = place
        self._sender = sender
        self._prompt = Prompt(f"{shown(sender)}> ")
        self._session = session or f"private:{sender}"
        self._self_log = SelfStream(place.self_dir)
        self._follower = Follower(self._self_log) if thoughts else None
        self._replies = Replies(place.data)
        self._last = ""
        self._open: list[str] = []
        """Names of files whose reply has not come."""
        self._ended = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="replies", daemon=True)
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/stream": self._stream,
            "/state": self._state,
            "/memories": self._memories,
            "/trace": self._trace,
            "/queues": self._queues,
            "/emit": self._emit,
            "/fire": self._fire,
            "/dead": self._dead,
            "/help": lambda rest: say(_HELP),
        }

    def __enter__(self) -> Talk:
        self._listener.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._listener.join()

    def until_the_end(self) -> None:
        """Read lines until /quit, the end of the input, or Ctrl+C."""
        try:
            while True:
                line = self._prompt.read().strip()
                if line in ("/quit", "/exit"):
                    return
                if line:
                    with self._prompt.above():
                        self._take(line)
        except EOFError:
            if not self._prompt.interactive:
                self._wait_for_last_words()
        except KeyboardInterrupt:
            return

    def _take(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        try:
            if not line.startswith("/"):
                self._say(line)
            elif command in self._commands:
                self._commands[command](rest.strip())
            else:
                complain(f"{command}: no such command\n{_HELP}")
        except (KernelError, OSError, ValueError) as error:
            complain(str(error))

    def _say(self, text: str) -> None:
        dropped = drop_words(self._place, text, sender=self._sender, session=self._session, channel="console")
        self._last = dropped.ids[0]
        self._open.append(dropped.name)

    def _wait_for_last_words(self) -> None:
        deadline = time.monotonic() + _LAST_WORDS_SEC
        while self._open and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_SEC)

    # What comes, on the other thread

    def _listen(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_SEC):
            self._look()
        self._look()

    def _look(self) -> None:
        thoughts = list(self._follower.fresh()) if self._follower is not None else []
        replies = [reply for reply in self._replies.fresh() if reply.get("session") == self._session]
        if not thoughts and not replies:
            return
        with self._prompt.above():
            for passage in thoughts:
                say(f"  · {passage.text}".replace("\n", "\n    "), "dim")
            for reply in replies:
                say(f"← {reply.get('text', '')}", "bold green")
        for reply in replies:
            self._answered(reply.get("in_reply_to") or [])

    def _answered(self, traces: list[str]) -> None:
        inbox = Inbox(self._place)
        self._open = [
            name for name in self._open if (inbox.ack(name) or {}).get("trace_id", "") not in traces
        ]

    # Commands

    def _stream(self, rest: str) -> None:
        for passage in last_passages(self._self_log, int(rest) if rest else 5):
            show_passage(passage)

    def _state(self, rest: str) -> None:
        say(self._self_log.state().text.strip() or "there is no state page yet")

    def _memories(self, rest: str) -> None:
        if rest:
            say(self._self_log.page(f"memories/{rest.removesuffix('.md')}.md").text.strip() or "no such page")
        else:
            say("\n".join(self._self_log.memories()) or "there are no memory pages yet")

    def _trace(self, rest: str) -> None:
        if asked := rest or self._last:
            show_journey(journey_of(self._place, asked))
        else:
            say("say something first, or name an id")

    def _queues(self, rest: str) -> None:
        counts, _ = queues_of(self._place)
        print_table(["queue", "files"], [[name, str(count)] for name, count in counts.items()])

    def _emit(self, rest: str) -> None:
        dropped = drop_event(self._place, rest.encode(errors="surrogateescape"), source="/emit")
        say(f"dropped {dropped.name}")
        self._last = dropped.ids[0] if dropped.ids else dropped.name

    def _fire(self, rest: str) -> None:
        say(f"dropped {fire(self._place, rest, sender=self._sender)}")

    def _dead(self, rest: str) -> None:
        rows = [
            [f"{letter.day}/{letter.name}", str(letter.reason.get("error", "?"))]
            for letter in letters_in(self._place.data / DEAD_LETTER)
        ]
        print_table(["file", "error"], rows)
