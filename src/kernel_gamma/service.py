"""The systemd user unit of one mind: its text and where it stands. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kernel_gamma.errors import SettingsError

__all__ = ["home_in", "unit_name", "unit_path", "unit_text"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_UNIT = """\
# Written by `kgamma service install`; install again after moving the home or the program.
[Unit]
Description=kernel-gamma: the mind in {shown}
Documentation=man:systemd.service(5)
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=exec
ExecStart={python} -m kernel_gamma run --home {home}
WorkingDirectory={directory}
Environment=PYTHONUNBUFFERED=1 NO_COLOR=1
EnvironmentFile=-{environment}
Restart=on-failure
RestartSec=5
# 2: settings that a person must mend; 3: another daemon holds this mind
RestartPreventExitStatus=2 3
# what runs may finish (shutdown_grace_sec), then it is parked; nothing is lost either way
TimeoutStopSec={stop_sec}
KillMode=mixed
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def unit_name(name: str) -> str:
    """`kernel-gamma-<name>.service`. Raises SettingsError for a name no unit can have."""
    if not _NAME.fullmatch(name):
        problem = f"{name!r} cannot be a unit's name"
        raise SettingsError("--name", name, problem, "use letters, digits, - and _ (64 at most)")
    return f"kernel-gamma-{name}.service"


def unit_path(name: str, environ: Mapping[str, str]) -> Path:
    """Where systemd looks for a user's own units."""
    config = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or Path.home()}/.config"
    return Path(config) / "systemd/user" / unit_name(name)


def unit_text(home: Path, python: Path, *, grace_sec: float) -> str:
    """The unit of the mind in `home`, run by this interpreter. Raises SettingsError for a path with a line
    break, which no unit can hold."""
    for path in (home, python):
        if re.search(r"[\x00-\x1f]", str(path)):
            raise SettingsError("--home", str(path), "a path with a control character", "move the home")
    return _UNIT.format(
        shown=_specifiers(str(home)),
        python=_quoted(python),
        home=_quoted(home),
        directory=_specifiers(str(home)),
        environment=_specifiers(str(home / ".env")),
        stop_sec=int(grace_sec) + 20,
    )


def home_in(text: str) -> str:
    """The home a unit's text names in a line of its own; empty when it is none of ours."""
    found = re.search(r"(?m)^WorkingDirectory=(.+)$", text)
    return found[1].replace("%%", "%") if found else ""


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(path: Path) -> str:
    """As one word of a command line: `$` begins a variable there, `%` a specifier."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_specifiers(text).replace("$", "$$")}"'
