"""`kgamma stop`: asks the daemon to end, and waits until it has."""

from __future__ import annotations

from typing import Annotated

import typer

from kernel_gamma.bus.holding_process import holding_process
from kernel_gamma.bus.lock import holder
from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.terminal import Failed, HomeOption, NoAnswer, say

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_BEYOND_GRACE_SEC = 30.0
"""What closing the files of a large mind may take after the grace of its handlers."""


@app.command()
def stop(
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="S",
            min=0,
            help="Seconds to wait for its end; 0: only ask.",
            show_default="shutdown_grace_sec and 30 more",
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Stop the daemon of this home: running handlers finish, nothing is lost.

    Exit codes: 0 it has ended (with --wait 0: it was asked), 1 it has not ended in time, 4 none runs.
    """
    place = open_place(home)
    found = holding_process(place.data) if place.data.is_dir() else None
    if found is None:
        if place.data.is_dir() and holder(place.data) is not None:
            raise Failed(
                f"{place.data}: a process holds this mind that cannot be seen from here (another user's, or"
                " in another container); stop it there"
            )
        raise NoAnswer(f"{place.settings.mind}: not running")
    seconds = place.settings.shutdown_grace_sec + _BEYOND_GRACE_SEC if wait is None else wait
    try:
        found.ask_to_end()
        if seconds == 0:
            say(f"{place.settings.mind}: process {found.pid} was asked to stop")
        elif found.ended(seconds):
            say(f"{place.settings.mind}: stopped")
        else:
            raise Failed(
                f"{place.settings.mind}: process {found.pid} was asked to stop and still runs after"
                f" {seconds:g} s; it finishes what it does; {place.data}/logs/kgamma.log tells more"
            )
    except PermissionError as error:
        raise Failed(f"process {found.pid} belongs to another user: {error.strerror}") from error
    finally:
        found.close()
