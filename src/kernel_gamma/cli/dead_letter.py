"""`kgamma dead-letter`: files that were set aside."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from kernel_gamma.bus.folders import DEAD_LETTER
from kernel_gamma.cli.dropping import is_running
from kernel_gamma.cli.home import Place, hint, open_place
from kernel_gamma.cli.letters import Letter, find_letter, letters_in, send_back
from kernel_gamma.cli.terminal import HomeOption, JsonOption, note, print_json, print_table, say
from kernel_gamma.contracts.envelope import encode_document, rfc3339

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)
letters = typer.Typer(
    help="Files that were set aside: list, show, retry.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(letters, name="dead-letter")

_SHOWN_BYTES = 4096

NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@letters.command("list")
def list_letters(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """All files that were set aside, and why."""
    found = list(letters_in(open_place(home).data / DEAD_LETTER))
    if as_json:
        print_json([_as_dict(letter) for letter in found])
    elif not found:
        say("nothing was set aside")
    else:
        rows = [
            [f"{letter.day}/{letter.name}", letter.origin[0], str(letter.reason.get("error", "?")),
             str(letter.reason.get("detail", ""))]
            for letter in found
        ]  # fmt: skip
        print_table(["file", "from", "error", "detail"], rows)


@letters.command()
def show(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """One file with its reason. NAME is as listed, with or without the day."""
    letter = find_letter(open_place(home).data, name)
    raw = b""
    if letter.path.is_file() and not letter.path.is_symlink():
        with letter.path.open("rb") as file:
            raw = file.read(_SHOWN_BYTES + 1)
    text = raw[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    if as_json:
        print_json({**_as_dict(letter), "text": text, "cut": len(raw) > _SHOWN_BYTES})
        return
    say(str(letter.path), "bold")
    say(json.dumps(letter.reason, ensure_ascii=False, indent=2))
    say()
    say(text + ("…" if len(raw) > _SHOWN_BYTES else ""))


@letters.command()
def retry(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Put a file back to where it came from, so that it is tried again."""
    place = open_place(home)
    letter = find_letter(place.data, name)
    put_to = send_back(place.data, letter)
    _log(place, letter, put_to)
    if as_json:
        print_json({"name": letter.name, "path": put_to, "running": is_running(place)})
        return
    say(f"{letter.name} is back in {put_to}")
    if not is_running(place):
        note(f"no daemon is running: it waits there for `{hint(place.home, 'run')}`")


def _log(place: Place, letter: Letter, put_to: str) -> None:
    """The reason file is gone by now: what it said stays in the log, beside the daemon's own lines."""
    record = {
        "event": "tried again by hand",
        "level": "info",
        "timestamp": rfc3339(place.clock.now()),
        "file": f"{letter.day}/{letter.name}",
        "put_to": put_to,
        "reason": letter.reason,
    }
    folder = place.data / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "kgamma.log").open("ab") as log:
        log.write(encode_document(record))


def _as_dict(letter: Letter) -> dict[str, Any]:
    return {"name": letter.name, "day": letter.day, "file": str(letter.path), **_told(letter.reason)}


def _told(reason: dict[str, Any]) -> dict[str, Any]:
    return {
        key: reason.get(key) for key in ("path", "error", "detail", "node", "attempts", "trace_id", "time")
    }
