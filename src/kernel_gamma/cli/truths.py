"""`kgamma truths`: the memory gateway from the shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from kernel_gamma.cli import keeping, searching
from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.memory import open_memory
from kernel_gamma.cli.records import KeyArgument, key_from, line_of, local_time, no_truth, truth_dict
from kernel_gamma.cli.terminal import Failed, HomeOption, JsonOption, print_json, print_table, say
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.truths import NewTruth

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)
truths = typer.Typer(
    help="What is stored: search, get, put, verify, prune and more.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(truths, name="truths")

for _name, _command in searching.COMMANDS.items():
    truths.command(_name)(_command)


@truths.command()
def get(
    key: KeyArgument,
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="An older version.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One truth: its newest version, or the one asked for."""
    place = open_place(home)
    with open_memory(place) as store:
        found = store.get(key_from(key), version)
        if found is None and version is not None and (newest := store.get(key)) is not None:
            raise Failed(f"{key} has no version {version}; the newest is {newest.version}")
    if found is None:
        raise no_truth(key)
    if as_json:
        print_json(truth_dict(found))
        return
    say(f"{key}  version {found.version}, {local_time(found.timestamp)}{', locked' * found.locked}", "bold")
    if found.description:
        say(found.description)
    say()
    say(
        found.value if isinstance(found.value, str) else json.dumps(found.value, ensure_ascii=False, indent=2)
    )


@truths.command()
def put(
    key: KeyArgument,
    file: Annotated[str, typer.Argument(metavar="FILE|-", show_default=False)],
    description: Annotated[
        str | None,
        typer.Option(metavar="D", help="A sentence; else the standing one stays.", show_default=False),
    ] = None,
    lock: Annotated[bool, typer.Option("--lock", help="Nobody writes over it until it is unlocked.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a file under a key; - reads stdin.

    JSON is kept as what it says, anything else as text. A key that stands gets its next version, and the
    old one is kept.
    """
    place = open_place(home)
    value = _read_value(file)
    with open_memory(place) as store:
        if description is None:
            standing = store.get(key_from(key))
            description = standing.description if standing is not None else ""
        truth = store.upsert(
            NewTruth(
                key=key_from(key), value=value, description=description, locked=lock or None, trust="owner"
            )
        )
    if as_json:
        print_json(truth_dict(truth))
    else:
        say(f"{truth.key} stands at version {truth.version}{', locked' * truth.locked}")


@truths.command()
def versions(key: KeyArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Every kept version of a truth, the oldest first."""
    place = open_place(home)
    with open_memory(place) as store:
        found = store.versions(key_from(key))
    if not found:
        raise no_truth(key)
    if as_json:
        print_json([truth_dict(truth) for truth in found])
        return
    rows = [
        [str(truth.version), local_time(truth.timestamp), local_time(truth.written_at),
         "locked" * truth.locked, (truth.sha256 or "")[:12], line_of(truth)]
        for truth in found
    ]  # fmt: skip
    print_table(["version", "time", "written", "", "sha256", "what"], rows)


@truths.command()
def unlock(key: KeyArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Take the lock off a truth; only this command can."""
    with open_memory(open_place(home)) as store:
        if not store.unlock(key_from(key)):
            raise no_truth(key)
    if as_json:
        print_json({"key": key, "locked": False})
    else:
        say(f"{key} may be written again")


for _name, _command in keeping.COMMANDS.items():
    truths.command(_name)(_command)


def _read_value(file: str) -> Json:
    """JSON, else text without its last line break. Raises Failed."""
    raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failed(f"{file}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
        return value
    except (ValueError, RecursionError) as error:
        if file.endswith(".json"):
            raise Failed(f"{file}: is no JSON: {error}") from None
    return text.removesuffix("\n").removesuffix("\r")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
