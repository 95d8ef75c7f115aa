"""`kgamma service`: the mind as a systemd user service."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernel_gamma.bus.lock import holder
from kernel_gamma.cli.home import Place, hint, open_place
from kernel_gamma.cli.terminal import Failed, HomeOption, JsonOption, note, print_json, say
from kernel_gamma.service import home_in, unit_name, unit_path, unit_text

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)
service = typer.Typer(
    help="A systemd user unit: install, status, logs, uninstall.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(service, name="service")

NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Of the unit; else the mind's name.", show_default=False),
]
_WAIT_SEC = 30


@service.command()
def install(
    name: NameOption = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Only write the unit.")] = False,
    home: HomeOption = None,
) -> None:
    """Write a unit that keeps this mind running, and start it."""
    place = open_place(home)
    chosen = name or place.settings.mind
    path = unit_path(chosen, os.environ)
    # the interpreter of this venv, not what its link leads to
    text = unit_text(place.home, Path(sys.executable), grace_sec=place.settings.shutdown_grace_sec)
    if path.exists() and home_in(path.read_text(encoding="utf-8")) != str(place.home):
        raise Failed(f"{path}: is the unit of another mind; choose another with --name")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    say(f"{path} is written")
    unit = unit_name(chosen)
    if no_start or not _systemd():
        note(f"start it with: systemctl --user daemon-reload && systemctl --user enable --now {unit}")
        return
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", unit)
    say(f"{unit} is started, and will be at each login")
    note(f"also while nobody is logged in: loginctl enable-linger; {hint(place.home, 'status')} tells more")


@service.command()
def status(name: NameOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Whether there is a unit, whether it is active, and who holds the mind."""
    place, unit, path = _which(name, home)
    active = _asked("is-active", unit) if path.exists() and _systemd() else None
    held = holder(place.data) if place.data.is_dir() else None
    pid = held.get("pid") if held is not None else None
    if as_json:
        print_json({"unit": unit, "installed": path.exists(), "active": active, "pid": pid})
        return
    say(f"{unit}: {'installed' if path.exists() else 'not installed'}" + (f", {active}" if active else ""))
    say(f"the mind is held by process {pid}" if held is not None else "no daemon holds the mind")


@service.command()
def logs(
    lines: Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many lines.")] = 50,
    name: NameOption = None,
    home: HomeOption = None,
) -> None:
    """The last lines of the log: the journal of the unit, and data/kernel/logs/kgamma.log."""
    place, unit, path = _which(name, home)
    if path.exists() and shutil.which("journalctl"):
        command = ["journalctl", "--user", "--no-pager", "-n", str(lines), "-u", unit]
        found = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_SEC)
        if found.returncode == 0:
            say(found.stdout.rstrip())
    log = place.data / "logs/kgamma.log"
    if not log.exists():
        note(f"{log}: nothing was logged yet")
        return
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096 * lines))
        for line in file.read().splitlines()[-lines:]:
            say(line.decode("utf-8", "replace"))


@service.command()
def uninstall(name: NameOption = None, home: HomeOption = None) -> None:
    """Stop the unit and remove it; the mind stays as it is."""
    place, unit, path = _which(name, home)
    if not path.exists():
        raise Failed(f"{path}: there is no such unit")
    if home_in(path.read_text(encoding="utf-8")) != str(place.home):
        raise Failed(f"{path}: is the unit of another mind; name the one you mean with --name")
    if _systemd():
        _systemctl("disable", "--now", unit)
    path.unlink()
    if _systemd():
        _systemctl("daemon-reload")
    say(f"{unit} is removed; the mind in {place.home} stays")


def _which(name: str | None, home: str | None) -> tuple[Place, str, Path]:
    place = open_place(home)
    chosen = name or place.settings.mind
    return place, unit_name(chosen), unit_path(chosen, os.environ)


def _systemd() -> bool:
    """Whether a user's systemd can be asked here; in a container or a bare shell there is none."""
    if shutil.which("systemctl") is None:
        return False
    command = ["systemctl", "--user", "show-environment"]
    return subprocess.run(command, capture_output=True, timeout=_WAIT_SEC).returncode == 0


def _asked(*arguments: str) -> str:
    command = ["systemctl", "--user", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_SEC).stdout.strip()


def _systemctl(*arguments: str) -> None:
    command = ["systemctl", "--user", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_SEC)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
