"""`kgamma doctor`: is everything as it should be here?"""

from __future__ import annotations

import os

import typer
from rich.text import Text

from kernel_gamma.bus.lock import holder
from kernel_gamma.cli.home import find_home, no_home
from kernel_gamma.cli.terminal import (
    EXIT_FAILED,
    HomeOption,
    JsonOption,
    as_called,
    console,
    print_json,
    shown,
)
from kernel_gamma.configuration import Home
from kernel_gamma.doctor import Finding, Level, examine

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_STYLES: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "red"}


@app.command()
def doctor(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Check configuration, disk, watching, ledger, clock and model; say how to mend what is wrong.

    Ends with 1 if anything fails.
    """
    found: list[Finding] = []
    target = find_home(home)
    if not Home(target).settings_file.exists():
        raise no_home(target)
    for finding in examine(target, os.environ, holder=holder):
        found.append(finding)
        if not as_json:
            _put(finding)
    failed = any(finding.level == "fail" for finding in found)
    if as_json:
        print_json({"ok": not failed, "checks": [finding.as_json() for finding in found]})
    raise typer.Exit(EXIT_FAILED if failed else 0)


def _put(finding: Finding) -> None:
    text, mend = shown(as_called(finding.text)), shown(as_called(finding.mend))
    line = Text.assemble((f"{finding.level:<5}", _STYLES[finding.level]), f"{finding.check:<10}", text)
    if mend and finding.level != "ok" and mend not in text:
        line.append(f"\n               → {mend}", "dim")
    console().print(line, soft_wrap=True)
