"""`kgamma`: prints, exit codes, nothing else. One file per family of commands.

A command's module is imported only when that command is called: the daemon and what lies below it take a
second to load, and `kgamma --help` or `kgamma state` should not pay for it. Hence a table of names here
instead of imports, and importlib instead of imports inside functions.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import kernel_gamma
from kernel_gamma.cli.terminal import EXIT_FAILED, call_it, complain
from kernel_gamma.errors import KernelError

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("init", "Lay out config/, prompts/ and data/ in a directory; never overwrites."),
    "run": ("run", "Run the mind in the foreground, with a live view."),
    "demo": ("demo", "A short tour in a temporary home; needs no key."),
    "say": ("say", "Say something to the mind; --wait prints the reply."),
    "chat": ("chat", "Talk with the mind and see its thoughts."),
    "emit": ("say", "Check an event file and drop it into the inbox."),
    "stream": ("pages", "The last passages of the stream; --follow waits for more."),
    "state": ("pages", "How the mind is: its state page."),
    "diary": ("pages", "A page of the diary."),
    "memories": ("pages", "The memory pages, or one of them."),
    "stop": ("stop", "Stop the daemon of this home, and wait until it has ended."),
    "status": ("status", "Running? Queues, nodes, model, tokens, last error."),
    "trace": ("trace", "The whole journey of one event, file, passage or action."),
    "context": ("context", "What would be sent to a model for a task, and the account of every piece."),
    "why": ("why", "A call that was made, part by part: what stood in its prompt, and what did not."),
    "tokens": ("why", "Tokens and cost by agent, task type and section; what was saved."),
    "budget": ("budget", "What models cost today, and what is left of the limits."),
    "topology": ("topology", "The circuit as declared and as wired."),
    "truths": ("truths", "What is stored: search, get, put, verify, prune and more."),
    "static": ("static", "What every prompt carries: status, diff, propose, approve, reject."),
    "rhythm": ("rhythm", "What strikes, and when: list, next, skip, pause, resume."),
    "gateway": ("gateway", "Serve the memory over HTTP, alone, without a mind."),
    "dead-letter": ("dead_letter", "Files that were set aside: list, show, retry."),
    "backup": ("backup", "The whole mind in one file, also while it lives; checked."),
    "restore": ("backup", "Put the mind of a backup into a home."),
    "rebuild": ("rebuild", "Ledger and memory index anew, from the files."),
    "service": ("service", "A systemd user unit: install, status, logs, uninstall."),
    "doctor": ("doctor", "Check everything, and say how to mend what is wrong."),
}
"""Command → (module of this package, its line in the help)."""

COMMAND_VARIABLE = "KGAMMA_COMMAND"
"""How a person calls this program, when a launcher stands before it (run.py); no setting."""


class Commands(TyperGroup):
    """The commands of the table; a module is imported when one of its commands is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=sentence) for name, (_, sentence) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The real command in the place of the line in the help."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, None if stub is None or name is None else _load(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what a person can mend becomes one line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except KernelError as error:
            complain(str(error))
            raise typer.Exit(getattr(error, "exit_code", EXIT_FAILED)) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            where = f"{error.filename!s}: " if error.filename else ""
            complain(f"{where}{error.strerror or error}")
            raise typer.Exit(EXIT_FAILED) from None


def _load(name: str) -> Any:
    module = importlib.import_module(f"kernel_gamma.cli.{COMMANDS[name][0]}")
    return typer.main.get_group(module.app).commands[name]


app = typer.Typer(
    name="kgamma",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the time to start, and no markup in sentences
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def kgamma(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    home: Annotated[
        str | None,
        typer.Option("--home", metavar="DIR", help="The project directory.", show_default=False),
    ] = None,
) -> None:
    """A mind that lives in a folder.

    Every command takes --home DIR, the project directory (else KGAMMA_HOME, else the current one).
    Exit codes: 0 ok, 1 failed, 2 usage, 3 another daemon holds the mind, 4 not running or no answer.
    """
    ctx.obj = home
    if version:
        typer.echo(kernel_gamma.__version__)
    elif ctx.invoked_subcommand is None and (text := ctx.get_help()):
        typer.echo(text)


def main() -> None:
    """The entry point. Whatever is made by a command is readable by its owner alone."""
    os.umask(0o077)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names need not be UTF-8, terminals neither
    command = os.environ.pop(COMMAND_VARIABLE, "") or "kgamma"
    call_it(command)
    app(prog_name=command)
