"""What a running mind does, told as it happens: perceived, thought, did, said, waits, set aside."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from kernel_gamma.bus.folders import OUTBOX
from kernel_gamma.bus.plan import Operation
from kernel_gamma.bus.records import Committed
from kernel_gamma.cli.terminal import complain, console, counted, cut, say, shown, width
from kernel_gamma.contracts.effects import Batch
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.self_stream.passages import split
from kernel_gamma.self_stream.stream import NOW

__all__ = ["Line", "LiveView", "lines_of"]

log = logging.getLogger(__name__)

_LABEL_WIDTH = 10
_LEAST_COLUMNS = 20
_MOST_ROWS = 12
"""Of one thing that happened; `kgamma stream` shows it whole."""
_STYLES: Mapping[str, str] = {
    "perceived": "cyan",
    "thought": "default",
    "did": "green",
    "said": "bold green",
    "asks": "bold yellow",
    "waits": "yellow",
    "goes on": "green",
    "failed": "yellow",
    "set aside": "red",
    "stopped": "bold",
}
_ACTIONS = "pipeline/action_queue"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened."""

    label: str
    text: str


class LiveView:
    """An observer of a Mind that prints. What happens before `begin` is held back for the banner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: list[tuple[str, Mapping[str, Any]]] | None = []
        self._unread = False
        self.reason = ""
        """Why the daemon ended by itself."""

    def __call__(self, what: str, details: Mapping[str, Any]) -> None:
        """Never raises: a view must not end what it looks at."""
        if self._held is not None:
            self._held.append((what, details))
            return
        if what == "ended":
            self.reason = str(details["reason"])
        try:
            self._tell(what, details)
        except (OSError, SystemExit):  # rich leaves the program when nobody reads the pipe any more
            self._unread = True
        except Exception:
            log.exception("the live view could not tell of %s", what)

    def _tell(self, what: str, details: Mapping[str, Any]) -> None:
        if self._unread:
            return
        if what == "ended":
            complain(self.reason)
        for line in lines_of(what, details):
            self._print(line)

    def begin(self, banner: list[str]) -> None:
        """Print the banner; from now on things are told at once."""
        try:
            for line in banner:
                say(line)
        except (OSError, SystemExit):
            self._unread = True
        held, self._held = self._held or [], None
        for what, details in held:
            self(what, details)

    def end(self, how: str) -> None:
        """The last line; nothing when the banner never came."""
        if self._unread or self._held is not None:
            return
        printer = console()
        try:
            if printer.is_terminal:
                printer.file.write("\r")  # over the ^C that the terminal has shown
            self._print(Line("stopped", how))
        except (OSError, SystemExit):
            self._unread = True

    def _print(self, line: Line) -> None:
        at = f"{self._clock.now():%H:%M:%S}"
        margin = " " * (len(at) + _LABEL_WIDTH + 2)
        rows = _rows(line.text, max(_LEAST_COLUMNS, width() - len(margin)))
        style = _STYLES.get(line.label, "default")
        text = f"\n{margin}".join(rows)
        pieces = Text.assemble((f"{at} ", "dim"), (f"{line.label:<{_LABEL_WIDTH}} ", style), text)
        console().print(pieces, soft_wrap=True)


def _rows(text: str, columns: int) -> list[str]:
    """What is shown of a text: each line cut to the columns, and not too many of them."""
    lines = text.strip().splitlines() or [""]
    rows = [cut(shown(line[: 4 * columns + 1]), columns) for line in lines[:_MOST_ROWS]]
    if len(lines) > _MOST_ROWS:
        rows.append(f"… {counted(len(lines) - _MOST_ROWS, 'more line')}")
    return rows


def lines_of(what: str, details: Mapping[str, Any]) -> list[Line]:
    """What one observation says to a person; [] for what would only be noise."""
    match what:
        case "committed":
            return list(_committed(details["batch"], details["commit"]))
        case "refused":
            return [Line("set aside", f"{details['name']}: {details['error']}: {details['detail']}")]
        case "paused":
            until = details["until"]
            return [Line("waits", f"{details['node']} until {until:%Y-%m-%d %H:%M:%S}: {details['reason']}")]
        case "failed":
            return [Line("failed", f"{details['node']} will try again: {details['error']}")]
        case "gateway":
            problem = details.get("problem")
            return [Line("no http", problem) if problem else Line("serves", f"{details['url']}/docs")]
        case "stalled":
            reason = details["reason"]
            return [Line("waits", reason) if reason else Line("goes on", "the disk can be written again")]
    return []


def _committed(batch: Batch, commit: Committed) -> Iterator[Line]:
    writes = [(op[1], op[3]) for op in commit.operations if op[0] == "write"]
    for directory, text in writes:
        if directory == "pipeline/message_queue":
            yield from _perceived(json.loads(text))
    if any(delivery.queue == _ACTIONS for delivery in batch):
        yield from _acted(commit.operations)
    else:
        for op in commit.operations:
            if op[0] == "append" and op[1] == NOW:
                yield from (Line("thought", passage.text) for passage in split(op[2]))
            elif op[0] == "replace":
                yield Line("did", f"rewrote {op[1]}")
    names = {delivery.seq: delivery.name for delivery in batch}
    for seq, verdict in commit.verdicts.items():
        if verdict.status == "dead":
            yield Line("set aside", f"{names.get(seq, seq)}: {verdict.kind}: {verdict.reason}")


def _perceived(document: dict[str, Any]) -> Iterator[Line]:
    for event in document["payload"]["events"]:
        kind = "" if event["type"] == "message" else f" ({event['type']})"
        yield Line("perceived", f"{event['from']}{kind}: {event['text']}")


def _acted(operations: list[Operation]) -> Iterator[Line]:
    """What was done; the notes are told only where nothing else shows it."""
    notes: list[str] = []
    told: list[Line] = []
    for op in operations:
        if op[0] == "append" and op[1] == NOW:
            notes += [part for passage in split(op[2]) for part in passage.text.split("\n\n")]
        elif op[0] == "append":
            told.append(Line("did", f"wrote {op[1]}"))
        elif op[0] == "write" and op[1].startswith(f"{OUTBOX}/"):
            told.append(_said(op[1], json.loads(op[3])["payload"]))
        elif op[0] == "write" and op[1] == "approvals/pending":
            told.append(Line("asks", f"for consent: {op[1]}/{op[2]}"))
    yield from told
    if len(notes) > len(told):
        yield from (Line("did", text) for text in notes)


def _said(directory: str, payload: dict[str, Any]) -> Line:
    whom = payload.get("to") or payload.get("session")
    return Line("said", f"to {whom} ({directory.removeprefix(OUTBOX + '/')}): {payload.get('text', '')}")
