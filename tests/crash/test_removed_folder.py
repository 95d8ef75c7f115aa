"""Somebody removes the data directory, or a part of it, under a running daemon: it ends, no two live on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.accounting import where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import QUICK, make_home


def _run(home: Path, *options: str) -> subprocess.Popen[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
    environ |= {**QUICK, "KGAMMA_MODEL__MODE": "offline", "KGAMMA_BUS__RECONCILE_MAX_SEC": "1"}
    command = [sys.executable, "-m", "kernel_gamma", "run", *options, "--home", str(home)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def _remove_all(data: Path) -> None:
    going = data.rename(data.with_name("going"))  # at once: what is removed piece by piece may be made again
    shutil.rmtree(going)


@pytest.mark.parametrize(
    ("lose", "named"),
    [
        (_remove_all, "ledger.db: it was removed"),
        (lambda data: (data / "ledger.db").unlink(), "ledger.db: it was removed"),
        (lambda data: (data / "daemon.lock").unlink(), "daemon.lock: it was removed"),
    ],
    ids=["all", "ledger", "lock"],
)
def test_a_daemon_whose_folder_is_removed_ends_with_one_line(
    tmp_path: Path, lose: Callable[[Path], None], named: str
) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    with _run(home) as daemon:
        try:
            dropper.drop("hello.json", {"text": "hello", "from": "alice"})
            _until(lambda: list(dropper.data.glob("outbox/*/out_*.json")))
            lose(dropper.data)  # nothing more happens: a listing finds it out
            _, errors = daemon.communicate(timeout=60)
        finally:
            daemon.kill()
    assert daemon.returncode in (1, 3)
    (line,) = errors.splitlines()
    assert named in line and "start again" in line
    if lose is _remove_all:
        assert not (dropper.data / "inbox").exists(), "the daemon made anew what somebody had removed"
    again = Dropper(home)
    (dropper.data / "inbox/pending").mkdir(parents=True, exist_ok=True)
    again.drop("again.json", {"text": "again", "from": "alice"})
    with _run(home, "--once") as second:
        second.communicate(timeout=60)
    assert second.returncode == 0
    assert where_files_are(again.data, again.files)["done"] == 1
