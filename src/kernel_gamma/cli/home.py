"""The home a command works on: found, its settings checked, nothing written."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_gamma.bus.folders import SELF
from kernel_gamma.bus.ledger import Ledger, LedgerDamaged
from kernel_gamma.cli.terminal import Failed, as_called
from kernel_gamma.configuration import Home, home_of, load_environment, load_settings
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.rhythm.clock import clock_for
from kernel_gamma.settings import Settings

__all__ = ["Place", "find_home", "hint", "no_home", "open_place", "read_ledger"]


@dataclass(frozen=True, slots=True)
class Place:
    """A home with its checked settings."""

    home: Path
    environ: Mapping[str, str]
    """The process's, completed with the home's .env."""
    settings: Settings
    data: Path
    """The mind's folder; maybe not there yet."""
    clock: Clock

    @property
    def self_dir(self) -> Path:
        """Pool A."""
        return self.data / SELF

    @property
    def topology_file(self) -> Path:
        return Home(self.home).topology_file(self.settings)


def find_home(option: str | None) -> Path:
    """`--home`, else KGAMMA_HOME, else the current directory."""
    return home_of(option, os.environ)


def open_place(option: str | None) -> Place:
    """Raises SettingsError, and Failed when there is no home."""
    home = find_home(option)
    if not Home(home).settings_file.exists():
        raise no_home(home)
    environ = load_environment(home, os.environ)
    settings = load_settings(home, environ)
    return Place(home, environ, settings, Home(home).data_dir(settings), clock_for(settings.clock))


def no_home(home: Path) -> Failed:
    """What to say where no mind lives."""
    return Failed(
        f"{home}: no mind lives here, there is no config/kernel.yaml; make one with "
        f"`kgamma init {shlex.quote(str(home))}`, or name the home with --home DIR or KGAMMA_HOME"
    )


def hint(home: Path, arguments: str) -> str:
    """A command to type, on this home; it is named only where it would not be found by itself."""
    named = "" if home == find_home(None) else f" --home {shlex.quote(str(home))}"
    return as_called(f"kgamma {arguments}{named}")


@contextmanager
def read_ledger(data: Path) -> Iterator[Ledger | None]:
    """The ledger, read-only; None when the mind has none yet. Raises Failed when it cannot be read."""
    path = data / "ledger.db"
    if not path.exists() or not path.stat().st_size:
        yield None
        return
    try:
        ledger = Ledger.open(path, read_only=True)
    except LedgerDamaged as error:
        raise _unreadable(path, error) from error
    try:
        yield ledger
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    finally:
        ledger.close()


def _unreadable(path: Path, error: Exception) -> Failed:
    return Failed(f"{path}: the ledger cannot be read: {error} (kgamma doctor tells more)")
