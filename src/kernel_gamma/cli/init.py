"""`kgamma init`: a new home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kernel_gamma.cli.home import find_home, hint
from kernel_gamma.cli.terminal import HomeOption, JsonOption, Usage, counted, print_json, say
from kernel_gamma.configuration import Home, defaults_dir, lay_out, load_settings
from kernel_gamma.errors import SettingsError
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.settings import Settings
from kernel_gamma.truths.static.laying_out import settle_lock
from kernel_gamma.truths.static.places import Places

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def init(
    directory: Annotated[str | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lay out config/, prompts/ and data/ in a directory; never overwrites."""
    if directory and home and find_home(directory) != find_home(home):
        raise Usage(f"init: two directories are named, {directory} and {home}; name one")
    target = find_home(directory or home)
    written = _approve(target, lay_out(target))
    if as_json:
        print_json({"home": str(target), "written": [str(path.relative_to(target)) for path in written]})
        return
    for path in written:
        say(f"  {path.relative_to(target)}")
    if not written:
        say(f"{target}: everything was there already; nothing was changed")
        return
    say(f"laid out {counted(len(written), 'file')} in {target}")
    say(f"next: {hint(target, 'run')}", "bold")


def _approve(home: Path, written: list[Path]) -> list[Path]:
    """The static truths that are shipped are approved as shipped."""
    try:
        settings = load_settings(home, os.environ)
    except SettingsError:  # a kernel.yaml that was there before: `kgamma doctor` tells what is wrong
        settings = Settings()
    remembered = (Home(home).data_dir(settings) / "memory.db").exists()
    places, now = Places(settings.static.paths), SystemClock().now()
    return settle_lock(home, written, defaults_dir(), places, now, remembered=remembered)
