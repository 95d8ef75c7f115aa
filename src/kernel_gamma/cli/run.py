"""`kgamma run`: the daemon in the foreground."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kernel_gamma.bus.folders import INBOX
from kernel_gamma.cli.home import Place, find_home, hint, no_home, open_place
from kernel_gamma.cli.live import LiveView
from kernel_gamma.cli.status import queues_of
from kernel_gamma.cli.terminal import EXIT_FAILED, Failed, HomeOption, complain, counted, say
from kernel_gamma.configuration import Home, lay_out
from kernel_gamma.daemon import run_daemon
from kernel_gamma.mind import Mind
from kernel_gamma.topology import wiring_warnings

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_PARTS_OF_A_HOME = {"config", "prompts", "data"}


@app.command()
def run(
    no_gateway: Annotated[bool, typer.Option("--no-gateway", help="Serve no HTTP.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Handle all that is pending, then end.")] = False,
    home: HomeOption = None,
) -> None:
    """Run the mind in the foreground, with a live view. Ctrl+C stops it; nothing is lost.

    --once ends with 0 when all that was pending is handled or set aside, with 1 and the reason when the
    rest has to wait (model away, budget spent, disk full). In an empty current directory a home is laid out
    first; anywhere else `kgamma init` makes one.
    """
    target = find_home(home)
    if not Home(target).settings_file.exists():
        if not _may_become_a_home(target):
            raise no_home(target)
        lay_out(target)
        say(f"{target} was no home yet: config/, prompts/ and data/ are laid out now")
    place = open_place(home)
    view = LiveView(place.clock)

    def on_ready(mind: Mind) -> None:
        view.begin(_banner(place, mind, once=once))

    serve = None if no_gateway or once or not place.settings.gateway.enabled else partial(_serve, place)
    try:
        code = asyncio.run(
            run_daemon(target, os.environ, once=once, observe=view, on_ready=on_ready, serve=serve)
        )
    except sqlite3.Error as error:
        raise Failed(f"{place.data / 'ledger.db'}: {error} (kgamma doctor tells more)") from error
    view.end(_last_words(place, code, once=once))
    if code == EXIT_FAILED and not view.reason:
        complain("the daemon ended with an error; data/kernel/logs/kgamma.log tells more")
    raise typer.Exit(code)


def _serve(place: Place, mind: Mind) -> Any:
    """In a thread: what HTTP needs takes most of a second to load, and nobody should wait for it."""
    return importlib.import_module("kernel_gamma.cli.gateway").serve_mind(place, mind)


def _may_become_a_home(target: Path) -> bool:
    """Only the current directory, and only when nothing lies there that is no part of a home: a mistyped
    --home must not leave a mind behind."""
    if target.resolve() != Path.cwd():
        return False
    visible = {path.name for path in target.iterdir() if not path.name.startswith(".")}
    return visible <= _PARTS_OF_A_HOME


def _last_words(place: Place, code: int, *, once: bool) -> str:
    waiting = sum(queues_of(place)[0].values())
    if waiting:
        wait = "waits" if waiting == 1 else "wait"
        return f"{counted(waiting, 'file')} {wait} for the next start; nothing is lost"
    if code == EXIT_FAILED:
        return "with an error; nothing is lost"
    return "all that was pending is dealt with" if once else "as asked; nothing is lost"


def _banner(place: Place, mind: Mind, *, once: bool) -> list[str]:
    mode, reason = mind.bus.watcher_state
    lines = [
        f"mind     {place.settings.mind}, {place.data}",
        f"model    {_model_line(place, mind)}",
        f"files    noticed by {mode}" + (f" ({reason})" if reason else ""),
        f"inbox    drop *.json into {place.data / INBOX}",
    ]
    lines += [f"warning  {warning}" for warning in wiring_warnings(mind.declared)]
    if not once:
        say_hello = hint(place.home, 'say "hello" --wait 60')
        lines += [f"talk     {hint(place.home, 'chat')}, or: {say_hello}", "stop     Ctrl+C"]
    return [*lines, ""]


def _model_line(place: Place, mind: Mind) -> str:
    status = mind.status()["model"]
    if place.settings.model.mode == "offline":
        return "none, as model.mode: offline asks: rules and templates answer"
    if status["mode"] == "offline":
        return (
            "none: rules and templates answer. For a real one put OPENAI_API_KEY=… into "
            f"{place.home / '.env'} (or OPENAI_BASE_URL=… for any OpenAI-compatible server), then start again"
        )
    quality = status.get("roles", {}).get("quality", {})
    return f"{quality.get('model', status['mode'])} at {quality.get('base_url', '?')}"
