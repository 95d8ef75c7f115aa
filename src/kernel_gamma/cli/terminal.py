"""What every command shares: its options, how things are printed, how a mistake is told."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernel_gamma.errors import KernelError

__all__ = [
    "EXIT_FAILED",
    "EXIT_NO_ANSWER",
    "EXIT_USAGE",
    "Failed",
    "HomeOption",
    "JsonOption",
    "NoAnswer",
    "Usage",
    "ago",
    "as_called",
    "call_it",
    "complain",
    "console",
    "counted",
    "cut",
    "note",
    "print_json",
    "print_table",
    "print_wide",
    "say",
    "shown",
    "width",
]

EXIT_FAILED, EXIT_USAGE, EXIT_NO_ANSWER = 1, 2, 4


def _home_before_the_command(ctx: typer.Context, given: str | None) -> str | None:
    """`--home` may stand before the command too; the one behind it wins."""
    before = ctx.find_root().obj
    return given if given is not None or not isinstance(before, str) else before


HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The project directory.",
        show_default=False,
        callback=_home_before_the_command,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_PIPE_COLUMNS = 4096
_HINT = re.compile(r"(?<![\w./-])kgamma(?= [a-z])")
_called = "kgamma"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Failed(KernelError):
    """A command could not do what it was asked; `str()` says why and what to do."""

    exit_code = EXIT_FAILED


class Usage(KernelError):
    """A command was called wrongly."""

    exit_code = EXIT_USAGE


class NoAnswer(KernelError):
    """No daemon runs, or it did not answer in time."""

    exit_code = EXIT_NO_ANSWER


def call_it(command: str) -> None:
    """Hints name the command as it was called, e.g. `python3 run.py`."""
    global _called
    _called = command


def as_called(text: str) -> str:
    """A hint of ours, its `kgamma status` written as the person would have to type it."""
    return _HINT.sub(lambda found: _called, text)


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def shown(text: str) -> str:
    """`text` as a terminal may get it: control characters and what is no UTF-8 are made visible.

    Words of strangers are printed here, and an escape sequence among them must not run.
    """
    text = _CONTROL.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))
    return text.encode("utf-8", "backslashreplace").decode()


def say(text: str = "", style: str = "") -> None:
    """Print text on stdout as it is: no markup, no wrapping; colour only on a terminal."""
    console().print(Text(shown(text), style), soft_wrap=True)


def note(text: str) -> None:
    """A remark beside the result, on stderr."""
    console(stderr=True).print(Text(shown(as_called(text)), "dim"), soft_wrap=True)


def complain(text: str) -> None:
    """What went wrong, in red on stderr."""
    console(stderr=True).print(Text(shown(as_called(text)), "red"), soft_wrap=True)


def print_json(document: Any) -> None:
    """JSON on stdout; a lone surrogate (a name that is no UTF-8) is written as an escape."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(document, indent=2)
    typer.echo(text)


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """A plain table; on a pipe every row stays on one line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    print_wide(table)


def print_wide(what: Any) -> None:
    """A table or tree: as wide as the terminal, on a pipe as wide as it likes."""
    printer = console()
    printer.width = width()
    printer.print(what)


def width() -> int:
    """Columns of the terminal; on a pipe more than any line should need."""
    printer = console()
    return printer.width if printer.is_terminal else _PIPE_COLUMNS


def cut(line: str, columns: int) -> str:
    """One line of text, at most so many columns wide (a Chinese character has two); … stands for the rest."""
    head = line[: 4 * columns].replace("\t", " ")  # marks that take no column may stand between
    if len(line) <= len(head) and cell_len(head) <= columns:
        return head
    return set_cell_size(head, columns - 1).rstrip() + "…"


def ago(seconds: float) -> str:
    """A duration for people: `0.3 s`, `42 s`, `5 min`, `3.2 h`, `4 d`."""
    for limit, size, unit in ((10, 1, "s"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.{1 if limit in (10, 172_800) else 0}f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def console(*, stderr: bool = False) -> Console:
    """No markup, no guesses; NO_COLOR and TERM are respected by rich itself."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
