"""`kgamma say` and `kgamma emit`: something for the mind to perceive."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kernel_gamma.cli.dropping import Inbox, Replies, answers, is_running
from kernel_gamma.cli.home import Place, hint, open_place
from kernel_gamma.cli.status import why_it_waits
from kernel_gamma.cli.terminal import (
    Failed,
    HomeOption,
    JsonOption,
    NoAnswer,
    Usage,
    note,
    print_json,
)
from kernel_gamma.cli.terminal import say as put
from kernel_gamma.contracts.envelope import encode_document, rfc3339
from kernel_gamma.contracts.events import read_events, trust_lookup
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.errors import Poison
from kernel_gamma.rhythm.ids import UlidIds

__all__ = ["Drop", "app", "drop_event", "drop_words"]

app = typer.Typer(rich_markup_mode=None)

_LOOK_EVERY_SEC = 0.1
_ACK_WAIT_SEC = 5.0
"""How long a running daemon is given to take a file before we go without its answer."""
_LOOK_AT_THE_MIND_SEC = 1.0
_PARKED_SEC = 3.0
"""A mind that says so long that it waits, and for longer than we do, will not answer us."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A file in the inbox and what is known of its events."""

    name: str
    ids: list[str]
    """Ids the events have, or will have if they named none themselves: then empty until the ack."""


@app.command()
def say(
    text: Annotated[str, typer.Argument(metavar="TEXT", show_default=False)],
    sender: Annotated[str, typer.Option("--from", metavar="NAME", help="Who says it.")] = "owner",
    session: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The conversation; else private:NAME.", show_default=False),
    ] = None,
    channel: Annotated[str, typer.Option(metavar="C", help="Where replies go: outbox/C/.")] = "console",
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Wait for the reply and print it.", show_default=False),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something to the mind; --wait prints the reply."""
    place = open_place(home)
    replies = Replies(place.data) if wait is not None else None
    dropped = drop_words(place, text, sender=sender, session=session, channel=channel)
    _report(place, dropped, wait, replies, as_json=as_json)


@app.command()
def emit(
    file: Annotated[str, typer.Argument(metavar="FILE|-", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check an event file and drop it into the inbox; - reads it from stdin.

    Any of the four forms: plain, the standard envelope, CloudEvents 1.0, an AMP event; or an array of them.
    """
    place = open_place(home)
    raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    dropped = drop_event(place, raw, source="stdin" if file == "-" else file)
    _report(place, dropped, None, None, as_json=as_json)


def drop_event(place: Place, raw: bytes, *, source: str) -> Drop:
    """Check an event of any form and drop it. Raises Failed, naming `source`, what is wrong and where."""
    known = _checked(place, raw, source)
    name = f"{UlidIds(place.clock).new('emit')}.json"
    Inbox(place).drop(name, raw)
    return Drop(name, known)


def _message(place: Place, text: str, *, sender: str, session: str | None, channel: str) -> dict[str, Any]:
    """A message as it is dropped, its id already given."""
    event: dict[str, Any] = {
        "id": UlidIds(place.clock).new("evt"),
        "type": "message",
        "text": text,
        "from": sender,
        "session": session or f"private:{sender}",
        "channel": channel,
    }
    if not place.settings.clock.trial:  # a trial's time is the daemon's alone
        event["time"] = rfc3339(place.clock.now())
    return event


def drop_words(place: Place, text: str, *, sender: str, session: str | None, channel: str) -> Drop:
    """Drop a message. Raises Usage when it could not be accepted (empty name, too long, …)."""
    if not text.strip():
        raise Usage("say: the text is empty")
    event = _message(place, text, sender=sender, session=session, channel=channel)
    raw = encode_document(event)
    _checked(place, raw, "say")
    name = f"{event['id'].replace('evt_', 'say_')}.json"
    Inbox(place).drop(name, raw)
    return Drop(name, [event["id"]])


def _checked(place: Place, raw: bytes, source: str) -> list[str]:
    """The ids the file gives its events; [] if it leaves any to the mind. Raises Failed."""
    inbox, trust = place.settings.inbox, place.settings.trust
    if len(raw) > inbox.max_bytes:
        raise Failed(f"{source}: it has {len(raw)} bytes, inbox.max_bytes is {inbox.max_bytes}")
    given: list[str] = []
    try:
        events = read_events(
            read_document(raw, max_depth=inbox.max_depth),
            accepted_at=place.clock.now(),
            new_id=_numbered(given),
            trust_of=trust_lookup(trust.owner, trust.known, trust.web),
            mind=place.settings.mind,
        )
    except Poison as poison:
        raise Failed(f"{source}: {poison} ({poison.kind})") from None
    ids = [one.event.id for one in events]
    return [] if set(ids) & set(given) else ids


def _numbered(given: list[str]) -> Callable[[str], str]:
    """Ids that are thrown away: only the mind gives real ones."""

    def new_id(prefix: str) -> str:
        given.append(f"{prefix}_{len(given)}")
        return given[-1]

    return new_id


# After the drop


def _report(
    place: Place, dropped: Drop, wait: float | None, replies: Replies | None, *, as_json: bool
) -> None:
    started = time.monotonic()
    running = is_running(place)
    if wait is None and not running:
        _told(dropped, None, None, as_json=as_json)
        if not as_json:
            note(f"no daemon is running: the file waits in the inbox for `{hint(place.home, 'run')}`")
        return
    if not running:
        raise NoAnswer(_unheard(place, dropped))
    deadline = started + (_ACK_WAIT_SEC if wait is None else wait)
    ack = _wait_for_ack(place, dropped, deadline)
    if ack is not None and not ack.get("ok"):
        raise Failed(f"the mind set {dropped.name} aside: {ack.get('error')}")
    if wait is None or replies is None:
        _told(dropped, ack, None, as_json=as_json)
        return
    reply = _wait_for_reply(place, replies, ack, deadline) if ack is not None else None
    if reply is None:
        raise NoAnswer(_no_reply(place, dropped, wait, time.monotonic() - started))
    _told(dropped, ack, reply, as_json=as_json)


def _unheard(place: Place, dropped: Drop) -> str:
    return f"no daemon is running; {_first_id(dropped)} stays in the inbox for `{hint(place.home, 'run')}`"


def _no_reply(place: Place, dropped: Drop, wait: float, waited: float) -> str:
    """Why no reply came, as far as the mind itself tells."""
    seen = _first_id(dropped)
    if not is_running(place):
        if Inbox(place).ack(dropped.name) is None:
            return _unheard(place, dropped)
        return f"the daemon has ended; {seen} is not lost, `{hint(place.home, 'run')}` goes on with it"
    reason = why_it_waits(place)
    why = f"; {reason[0]}" if reason is not None else ""
    trace = hint(place.home, f"trace {seen}")
    return f"no reply within {min(wait, waited):.3g} s{why}; {seen} is not lost: {trace}"


def _wait_for_ack(place: Place, dropped: Drop, deadline: float) -> dict[str, Any] | None:
    inbox, patience = Inbox(place), _Patience(place, deadline)
    while (ack := inbox.ack(dropped.name)) is None:
        if patience.is_over():
            return None
        time.sleep(_LOOK_EVERY_SEC)
    return ack


def _wait_for_reply(
    place: Place, replies: Replies, ack: dict[str, Any], deadline: float
) -> dict[str, Any] | None:
    traces, patience = {str(ack.get("trace_id"))}, _Patience(place, deadline)
    while True:
        for payload in replies.fresh():
            if answers(payload, traces):
                return payload
        if patience.is_over():
            return None
        time.sleep(_LOOK_EVERY_SEC)


class _Patience:
    """How long an answer is waited for: to the deadline, and no longer than it can come."""

    def __init__(self, place: Place, deadline: float) -> None:
        self._place = place
        self._deadline = deadline
        self._look_again = self._parked_until_after = time.monotonic() + _PARKED_SEC

    def is_over(self) -> bool:
        """Past the deadline; or the daemon is gone; or the mind has long said that it waits for longer."""
        now = time.monotonic()
        if now > self._deadline:
            return True
        if now < self._look_again:
            return False
        self._look_again = now + _LOOK_AT_THE_MIND_SEC
        if not is_running(self._place):
            return True
        reason = why_it_waits(self._place)
        until = reason[1] if reason is not None else None
        if until is None or (until - self._place.clock.now()).total_seconds() < self._deadline - now:
            self._parked_until_after = now + _PARKED_SEC
        return now > self._parked_until_after


def _told(dropped: Drop, ack: dict[str, Any] | None, reply: dict[str, Any] | None, *, as_json: bool) -> None:
    """Print the reply if there is one, else what is known of the event."""
    if as_json:
        known = {key: value for key, value in (ack or {}).items() if key != "ok"}
        if not known and dropped.ids:
            known = {"id": dropped.ids[0]} if len(dropped.ids) == 1 else {"ids": dropped.ids}
        document = {"file": dropped.name, "taken": ack is not None, **known}
        print_json({**document, "reply": reply} if reply is not None else document)
    elif reply is not None:
        put(str(reply.get("text", "")))
    elif ack is not None:
        traces = ack.get("trace_ids") or [ack.get("trace_id")]
        for event_id, trace_id in zip(ack.get("ids") or [ack.get("id")], traces, strict=False):
            put(f"{event_id}  {trace_id}" + ("  (came before)" if ack.get("duplicate") else ""))
    else:
        put("\n".join(dropped.ids) or dropped.name)
        note(f"inbox/acks/{dropped.name} will say when it was taken")


def _first_id(dropped: Drop) -> str:
    return dropped.ids[0] if dropped.ids else dropped.name
