#!/usr/bin/env python3
"""Start kernel-gamma from this folder, with nothing prepared but Python 3.11 or newer.

  python3 run.py                 the daemon in the foreground (kgamma run)
  python3 run.py COMMAND ...     any kgamma command, e.g.  python3 run.py say "Good morning"
  python3 run.py test            all the tests, on every processor
  python3 run.py test ...        arguments go to pytest as they are, paths are relative to this folder
  python3 run.py --help          this, then the help of kgamma

The first start makes .venv beside this file and installs the project there; it needs the network
once, and again only when pyproject.toml changes. The home of the mind is the current directory,
unless KGAMMA_HOME or --home says otherwise.
"""

from __future__ import annotations  # the version check below must be reached: 3.7 syntax only

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file is also opened with whatever is installed
    sys.exit(
        "kernel-gamma needs Python 3.11 or newer; this is %d.%d (%s). "  # noqa: UP031
        "Start it with a newer one, e.g.: python3.11 run.py"
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NO_VENV = (
    "This Python cannot make virtual environments (no venv or ensurepip). "
    "On Debian and Ubuntu: apt-get install python3-venv"
)
NO_NETWORK = (
    "The packages could not be fetched. The first start needs the network (or PIP_INDEX_URL, "
    "or PIP_FIND_LINKS with the wheels); start again when there is one"
)
NETWORK_SIGNS = (
    "name resolution",
    "NewConnectionError",
    "Failed to establish a new connection",
    "Network is unreachable",
    "Could not fetch URL",
    "ProxyError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "Connection refused",
    "(from versions: none)",
)
SHOWN_PIP_LINES = ("Collecting ", "Building ", "Installing collected packages")
FOREIGN_SETTINGS = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PYTHONHOME")
"""They would send the packages elsewhere than into our .venv."""

SIDE_BY_SIDE = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
"""How pytest runs the whole suite; one file is quicker, and can be debugged, in one process."""

COMMAND_VARIABLE = "KGAMMA_COMMAND"
"""Tells kgamma how it was called, so that its hints can be typed as they stand."""


class InstallError(Exception):
    """The installation did not come about; the text is for a person."""


@dataclass(frozen=True)
class Start:
    """What the arguments ask for."""

    argv: tuple[str, ...]
    """A program of .venv/bin and its arguments."""
    extras: frozenset[str] = frozenset()
    """Optional dependencies it needs."""
    in_checkout: bool = False
    """Started in the checkout instead of the current directory."""
    introduced: bool = False
    """This file's own help comes first."""


def understand(arguments: Sequence[str]) -> Start:
    """What to start for these command line arguments."""
    if not arguments:
        return Start(("kgamma", "run"))
    if arguments[0] == "test":
        pytest = ("python", "-m", "pytest", *(arguments[1:] or SIDE_BY_SIDE))
        return Start(pytest, frozenset({"test"}), in_checkout=True)
    if list(arguments) in (["--help"], ["-h"]):
        return Start(("kgamma", "--help"), introduced=True)
    return Start(("kgamma", *arguments))


@dataclass(frozen=True)
class Checkout:
    """This folder and the .venv in it."""

    root: Path

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def log(self) -> Path:
        return self.venv / "install.log"

    @property
    def _stamp(self) -> Path:
        return self.venv / ".installed.json"

    def program(self, name: str) -> Path:
        return self.venv / "bin" / name

    def wanted(self, extras: Iterable[str]) -> dict[str, object]:
        """What the stamp of a finished installation says."""
        return {
            "root": str(self.root),  # scripts in .venv/bin name it: a moved folder is made anew
            "python": "{}.{}".format(*sys.version_info[:2]),
            "project": hashlib.sha256((self.root / "pyproject.toml").read_bytes()).hexdigest(),
            "extras": sorted(extras),
        }

    def installed(self) -> dict[str, object]:
        """The stamp as it was left; empty when there is none or it is unreadable."""
        try:
            stamp = json.loads(self._stamp.read_text())
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def installed_extras(self) -> frozenset[str]:
        found = self.installed().get("extras")
        return frozenset(map(str, found)) if isinstance(found, list) else frozenset()

    def is_ready(self, extras: frozenset[str]) -> bool:
        """Whether everything is installed as pyproject.toml has it now."""
        there = self.installed_extras()
        return (
            extras <= there
            and self.installed() == self.wanted(there)
            and self.program("python").exists()
            and self.program("kgamma").exists()
        )

    def is_usable(self) -> bool:
        """Whether .venv may be installed into: the right Python, with pip, made at this place."""
        stamp = self.installed()
        wanted = self.wanted(())
        if stamp and any(stamp.get(key) != wanted[key] for key in ("root", "python")):
            return False
        question = "import sys, pip; print('{}.{}'.format(*sys.version_info[:2]))"
        try:
            answer = subprocess.run(
                [self.program("python"), "-c", question], capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return answer.returncode == 0 and answer.stdout.strip() == wanted["python"]

    def mark(self, extras: frozenset[str]) -> None:
        """Say that the installation is complete."""
        draft = self._stamp.with_suffix(".tmp")
        draft.write_text(json.dumps(self.wanted(extras)))
        draft.replace(self._stamp)

    def unmark(self) -> None:
        """From here until `mark` an interruption leaves an installation that counts as none."""
        self._stamp.unlink(missing_ok=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Hold the lock on .venv; yields its descriptor, which the installer keeps open as well."""
        self.venv.mkdir(exist_ok=True)
        descriptor = os.open(self.venv / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another start is installing; waiting for it ...")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def clear(self) -> None:
        """Empty .venv, but for the lock that is held."""
        for entry in self.venv.iterdir():
            if entry.name == ".lock":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def say(text: str) -> None:
    """Progress goes to stderr: stdout belongs to the command."""
    print(f"kernel-gamma: {text}", file=sys.stderr, flush=True)


def install(checkout: Checkout, extras: frozenset[str]) -> None:
    """Bring .venv up to date, one process at a time. Raises InstallError."""
    with checkout.alone() as lock:
        if checkout.is_ready(extras):  # the other start has done it
            return
        extras |= checkout.installed_extras()
        usable = checkout.is_usable()
        checkout.unmark()
        checkout.log.unlink(missing_ok=True)
        if not usable:
            make_venv(checkout, lock)
        install_packages(checkout, extras, lock)
        checkout.mark(extras)
        say("installed")


def make_venv(checkout: Checkout, lock: int) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        raise InstallError(NO_VENV)
    say(f"making {checkout.venv} ...")
    checkout.clear()
    run_logged(checkout, [base_python(), "-m", "venv", str(checkout.venv)], lock)


def base_python() -> str:
    """The interpreter below a virtual environment: ours may be the very one that was cleared."""
    base = Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info[:2]))
    return str(base) if sys.prefix != sys.base_prefix and base.exists() else sys.executable


def install_packages(checkout: Checkout, extras: frozenset[str], lock: int) -> None:
    say(f"installing the packages (a minute or two; log: {checkout.log}) ...")
    target = "." + (f"[{','.join(sorted(extras))}]" if extras else "")
    pip = [str(checkout.program("python")), "-m", "pip"]
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    run_logged(checkout, [*pip, "install", *quiet, "--editable", target], lock)


def run_logged(checkout: Checkout, command: Sequence[str], lock: int) -> None:
    """Run one step of the installation; its output goes to the log. Raises InstallError."""
    environment = {k: v for k, v in os.environ.items() if k not in FOREIGN_SETTINGS}
    lines: list[str] = []
    with checkout.log.open("a", errors="replace") as log:
        log.write(f"$ {' '.join(command)}\n")
        with subprocess.Popen(
            command,
            cwd=checkout.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lock,),  # should we be killed, the lock holds until this child has ended too
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                log.write(line)
                log.flush()
                lines.append(line)
                if line.startswith(SHOWN_PIP_LINES):
                    say("  " + line.strip()[:100])
    if child.returncode != 0:
        raise InstallError(explain("".join(lines), checkout.log))


def explain(output: str, log: Path) -> str:
    """What went wrong in a failed step, for a person."""
    if "ensurepip is not available" in output or "No module named ensurepip" in output:
        return NO_VENV
    last = "".join(f"  | {line}\n" for line in output.splitlines()[-15:])
    cause = NO_NETWORK if any(sign in output for sign in NETWORK_SIGNS) else "The installation failed"
    return f"{cause}. The whole log: {log}\n{last}".rstrip()


def become(checkout: Checkout, start: Start) -> None:
    """Replace this process by the program: its signals and its exit code are the caller's."""
    program = str(checkout.program(start.argv[0]))
    if start.in_checkout:
        os.chdir(checkout.root)
    sys.stdout.flush()
    if start.argv[0] == "kgamma":  # the tests are no command with hints, and hand their environment on
        os.environ[COMMAND_VARIABLE] = as_called(sys.orig_argv[0], sys.argv[0])
    os.execv(program, [program, *start.argv[1:]])


def as_called(python: str, script: str) -> str:
    """What was typed before the arguments: `python3 run.py`.

    A launcher between shell and Python (pyenv) makes the name a whole path; the name alone is enough
    where the shell finds it.
    """
    name = Path(python).name
    return shlex.join([name if shutil.which(name) else python, script])


def main(arguments: Sequence[str]) -> int:
    """Install what is missing, then become the command. Returns only when that failed."""
    checkout = Checkout(Path(__file__).resolve().parent)
    start = understand(arguments)
    if start.introduced:
        print(__doc__)
    try:
        if not checkout.is_ready(start.extras):
            install(checkout, start.extras)
        become(checkout, start)
    except InstallError as error:
        say(str(error))
    except OSError as error:
        say(f"{error.filename or checkout.root}: {error.strerror}")
    except KeyboardInterrupt:
        say("interrupted; the next start goes on from here")
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
