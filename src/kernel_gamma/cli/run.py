"""`kgamma run`: the daemon in the foreground."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Annotated

import typer

from kernel_gamma.bus.folders import INBOX
from kernel_gamma.bus.lock import Held
from kernel_gamma.cli.home import Place, find_home, open_place
from kernel_gamma.cli.live import LiveView
from kernel_gamma.cli.terminal import EXIT_FAILED, EXIT_HELD, Failed, HomeOption, complain, say
from kernel_gamma.configuration import Home, lay_out
from kernel_gamma.daemon import run_daemon
from kernel_gamma.mind import Mind

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def run(
    no_gateway: Annotated[
        bool, typer.Option("--no-gateway", help="Serve no HTTP. There is no gateway yet: changes nothing.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Handle all that is pending, then end.")] = False,
    home: HomeOption = None,
) -> None:
    """Run the mind in the foreground, with a live view. Ctrl+C stops it; nothing is lost.

    --once ends with 0 when all that was pending is handled or set aside, with 1 and the reason when the
    rest has to wait (model away, budget spent, disk full).
    """
    target = find_home(home)
    if not Home(target).settings_file.exists():
        lay_out(target)
        say(f"{target} was no home yet: config/, prompts/ and data/ are laid out now")
    place = open_place(home)
    view = LiveView(place.clock)

    def on_ready(mind: Mind) -> None:
        view.begin(_banner(place, mind, once=once))

    try:
        code = asyncio.run(run_daemon(target, os.environ, once=once, observe=view, on_ready=on_ready))
    except Held as held:
        complain(str(held))
        raise typer.Exit(EXIT_HELD) from None
    except sqlite3.Error as error:
        raise Failed(f"{place.data / 'ledger.db'}: {error} (kgamma doctor tells more)") from error
    if code == EXIT_FAILED and not view.reason:
        complain("the daemon ended with an error; data/kernel/logs/kgamma.log tells more")
    raise typer.Exit(code)


def _banner(place: Place, mind: Mind, *, once: bool) -> list[str]:
    mode, reason = mind.bus.watcher_state
    lines = [
        f"mind     {place.settings.mind}, {place.data}",
        f"model    {_model_line(mind, place.home)}",
        f"files    noticed by {mode}" + (f" ({reason})" if reason else ""),
        f"inbox    drop *.json into {place.data / INBOX}",
    ]
    if not once:
        lines += [
            f'talk     kgamma chat --home {place.home}, or: kgamma say "hello" --wait 60 --home {place.home}',
            "stop     Ctrl+C",
        ]
    return [*lines, ""]


def _model_line(mind: Mind, home: Path) -> str:
    status = mind.status()["model"]
    if status["mode"] == "offline":
        return (
            f"none: rules and templates answer. For a real one put OPENAI_API_KEY=… into {home / '.env'}"
            " (or OPENAI_BASE_URL=… for any OpenAI-compatible server), then start again"
        )
    quality = status.get("roles", {}).get("quality", {})
    return f"{quality.get('model', status['mode'])} at {quality.get('base_url', '?')}"
