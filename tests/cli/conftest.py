"""A home in a temporary folder, commands run in this process or as real processes, a real daemon."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernel_gamma.bus.lock import holder
from kernel_gamma.cli import app
from kernel_gamma.configuration import lay_out

QUICK: Mapping[str, str] = {
    "KGAMMA_BUS__SETTLE_SEC": "0.05",
    "KGAMMA_BUS__SETTLE_TIMEOUT_SEC": "0.3",
    "KGAMMA_BUS__DURABILITY": "process",
    "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0",
    "KGAMMA_GATEWAY__PORT": "0",
    "KGAMMA_MODEL__MODE": "offline",
    "KGAMMA_CLOCK__ZONE": "UTC",
}
PATIENCE_SEC = 30.0


class Terminal:
    """The keyboard and the screen of a process."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self._raw = b""
        self.process = process

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, words: str) -> str:
        """Everything that came so far, colours removed, once `words` are among it."""
        deadline = time.monotonic() + PATIENCE_SEC
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self._descriptor], [], [], 0.1)[0] and not self._take():
                assert words in self.seen, self.seen
        return self.seen

    def to_the_end(self) -> str:
        """Everything it showed until it ended."""
        deadline = time.monotonic() + PATIENCE_SEC
        while self._more_comes() or self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
        return self.seen

    @property
    def seen(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self._raw.decode("utf-8", "replace"))

    def _more_comes(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0.1)[0]) and self._take()

    def _take(self) -> bool:
        try:
            more = os.read(self._descriptor, 65_536)
        except OSError:  # the other end is closed
            return False
        self._raw += more
        return bool(more)


class Shell:
    """Runs `kgamma` on one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "data/kernel"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
        self.environ = {**kept, **QUICK}

    def __call__(self, *args: str, stdin: str | bytes | None = None, **env: str) -> Any:
        """In this process; the result has exit_code, stdout, stderr."""
        removed = dict.fromkeys((k for k in os.environ if k not in self.environ), None)
        return CliRunner().invoke(
            app, [*args, "--home", str(self.home)], input=stdin, env={**removed, **QUICK, **env}
        )

    def live(self) -> None:
        """Handle all that is pending: a whole life in this process, which is loaded already."""
        ended = self("run", "--once", "--no-gateway")
        assert ended.exit_code == 0, ended.stderr

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "kernel_gamma", *args, "--home", str(self.home)]

    def process(
        self, *args: str, stdin: str = "", cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """As a real process; with `cwd` it runs there, and --home is not given."""
        return subprocess.run(
            self.command(*args)[: -2 if cwd else None],
            cwd=cwd,
            input=stdin,
            env={**self.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def terminal(self, *args: str, columns: int = 80, **env: str) -> Iterator[Terminal]:
        """As a real process on a terminal of its own; it is ended with the block."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            self.command(*args),
            env={**self.environ, "TERM": "xterm", "INPUTRC": os.devnull, **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            yield Terminal(ours, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_SEC)
            finally:
                os.close(ours)

    @contextmanager
    def daemon(self, **env: str) -> Iterator[subprocess.Popen[str]]:
        """`kgamma run` until the block ends."""
        process = subprocess.Popen(
            self.command("run", "--no-gateway"),
            env={**self.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            self.wait_for(lambda: (self.data / "metrics/status.json").exists() or process.poll() is not None)
            assert process.poll() is None, process.communicate()[0]
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_SEC)

    def wait_for(self, look: Callable[[], Any]) -> Any:
        """The first truthy answer."""
        deadline = time.monotonic() + PATIENCE_SEC
        while not (found := look()):
            assert time.monotonic() < deadline, "it did not come"
            time.sleep(0.02)
        return found

    def running(self) -> bool:
        return self.data.is_dir() and holder(self.data) is not None

    def drop(self, name: str, raw: bytes) -> Path:
        pending = self.data / "inbox/pending"
        pending.mkdir(parents=True, exist_ok=True)
        (pending / f".{name}.tmp").write_bytes(raw)
        return (pending / f".{name}.tmp").rename(pending / name)


def make_shell(home: Path) -> Shell:
    lay_out(home)
    return Shell(home)


@pytest.fixture
def kgamma(tmp_path: Path) -> Shell:
    return make_shell(tmp_path / "家 home")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A mind that has lived a little and is not running now: read it, change nothing."""
    shell = make_shell(tmp_path_factory.mktemp("lived"))
    shell.drop("hello.json", b'{"text": "hello there", "from": "alice", "id": "evt_hello"}')
    shell.drop("tea.json", '{"text": "记住：我每天早上喝绿茶", "from": "小明"}'.encode())
    shell.drop("diary.json", b'{"text": "write in your diary that it rained", "from": "bob"}')
    shell.drop("broken.json", b"{nope")
    shell.live()
    return shell


@pytest.fixture(scope="module")
def awake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A running mind, shared by the tests of a module."""
    shell = make_shell(tmp_path_factory.mktemp("awake"))
    with shell.daemon():
        yield shell
