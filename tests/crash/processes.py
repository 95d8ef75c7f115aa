"""Daemons that a test starts, kills and waits for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from kernel_gamma.configuration import lay_out

__all__ = ["QUICK", "Daemon", "Nursery", "make_home", "until"]

RUNNER = Path(__file__).with_name("runner.py")

QUICK: Mapping[str, str] = {
    "KGAMMA_BUS__DURABILITY": "process",
    "KGAMMA_BUS__SETTLE_SEC": "0.02",
    "KGAMMA_BUS__SETTLE_TIMEOUT_SEC": "0.1",
    "KGAMMA_BUS__BACKOFF_SEC": "0.02",
    "KGAMMA_BUS__BACKOFF_MAX_SEC": "0.1",
    "KGAMMA_BUS__CHECKPOINT_SEC": "0.02",
    "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0",
    "KGAMMA_BUS__MAX_ATTEMPTS": "3",
    "KGAMMA_INTERNALIZER__MEMORY_TOKENS": "0",
    "KGAMMA_MODEL__STREAM": "off",
    "KGAMMA_BUDGET__TOKENS_PER_DAY": "0",
    "OPENAI_API_KEY": "none",
}
"""Everything that waits waits shortly; nothing is computed that these tests do not look at."""


def make_home(folder: Path) -> Path:
    """A home as `init` lays it out, with the folder that is dropped into."""
    lay_out(folder)
    (folder / "data/kernel/inbox/pending").mkdir(parents=True)
    (folder / "data/kernel/rhythm").mkdir()
    # an hour that strikes meanwhile would be told beside what the test drops
    (folder / "data/kernel/rhythm/paused.json").write_text('{"rules": ["*"]}')
    return folder


class Daemon:
    """One running process; a context manager that leaves none behind."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self._status: int | None = None

    def signal(self, number: signal.Signals) -> None:
        if self._status is None:
            with suppress(ProcessLookupError):  # it ended by itself just now
                os.kill(self.pid, number)

    def ended(self) -> bool:
        """Whether it has ended, asked of the system."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return self._status is not None

    def wait(self) -> int:
        """The exit code; negative: the signal that ended it. Killed after two minutes."""
        if self._status is None:
            watchdog = threading.Timer(120, self.signal, [signal.SIGKILL])
            watchdog.start()
            self._status = self._nursery.read()["status"]
            watchdog.cancel()
        return self._status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.signal(signal.SIGKILL)
        self.wait()


class Nursery:
    """Forks one daemon after the other from a process that has everything imported."""

    def __init__(self) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
        self._environ = environ
        self._process = subprocess.Popen(
            [sys.executable, str(RUNNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def start(self, home: Path, environ: Mapping[str, str], *, once: bool) -> Daemon:
        """A daemon on `home`; the one before must be over."""
        assert self._process.stdin is not None
        order = {"home": str(home), "once": once, "environ": {**self._environ, **QUICK, **environ}}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Daemon(self, self.read()["pid"])

    def once(self, home: Path, environ: Mapping[str, str]) -> int:
        """Run until idle (or dead); the exit code."""
        with self.start(home, environ, once=True) as daemon:
            return daemon.wait()

    def read(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that forks the daemons has ended")
        found: dict[str, int] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; its daemons must be over."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def until(true: Callable[[], object]) -> None:
    """Look until it is so, for a minute at most."""
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came true")
