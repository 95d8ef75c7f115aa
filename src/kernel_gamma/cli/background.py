"""A daemon of our own for as long as a command runs: the real one, in a process beside this one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kernel_gamma.bus.lock import holder
from kernel_gamma.cli.terminal import Failed
from kernel_gamma.configuration import Home
from kernel_gamma.settings import Settings

__all__ = ["daemon_beside"]

_START_WAIT_SEC = 30.0
_STOP_WAIT_SEC = 20.0
_LOOK_EVERY_SEC = 0.1


@contextmanager
def daemon_beside(home: Path, settings: Settings, environ: Mapping[str, str]) -> Iterator[None]:
    """A daemon for `home` until the block ends, then stopped in good order. Raises Failed."""
    data = Home(home).data_dir(settings)
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel_gamma", "run", "--no-gateway", "--home", str(home)],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl+C is for us; we stop it ourselves
    )
    try:
        _wait_until_it_runs(process, data)
        yield
    finally:
        _end(process)


def _wait_until_it_runs(process: subprocess.Popen[bytes], data: Path) -> None:
    deadline = time.monotonic() + _START_WAIT_SEC
    while process.poll() is None and time.monotonic() < deadline:
        if (data / "metrics/status.json").exists() and (held := holder(data)) and held["pid"] == process.pid:
            return
        time.sleep(_LOOK_EVERY_SEC)
    process.kill()
    said = process.communicate()[1].decode("utf-8", "backslashreplace").strip()
    raise Failed(f"the daemon did not start: {said or f'no sign of life within {_START_WAIT_SEC:g} s'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_STOP_WAIT_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
