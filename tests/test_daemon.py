"""The process: one per mind, signals, --once, and its log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.harness import drop

from kernel_gamma.bus.lock import Held, hold, holder
from kernel_gamma.configuration import lay_out
from kernel_gamma.contracts.ports import Reply, Turn
from kernel_gamma.daemon import EXIT_FAILED, EXIT_OK, run_daemon
from kernel_gamma.errors import ModelDown, SettingsError
from kernel_gamma.mind import Mind
from kernel_gamma.rhythm.clock import SystemClock

QUICK = {
    "KGAMMA_BUS__DURABILITY": "process",
    "KGAMMA_BUS__SETTLE_SEC": "0.02",
    "KGAMMA_BUS__SETTLE_TIMEOUT_SEC": "0.1",
    "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0",
    "KGAMMA_MODEL__MODE": "offline",
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    lay_out(tmp_path)
    mask = os.umask(0)
    os.umask(mask)
    yield tmp_path
    os.umask(mask)
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, logging.FileHandler)]:
        root.removeHandler(handler)
        handler.close()


def data(home: Path) -> Path:
    return home / "data/kernel"


class AwayModel:
    """A model nobody can reach for an hour."""

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, role: Any, turns: Sequence[Turn], **rest: Any) -> Reply:
        self.calls += 1
        raise ModelDown("the model is away", until=SystemClock().now() + timedelta(hours=1))

    def has_role(self, role: Any) -> bool:
        return False

    def count_tokens(self, role: Any, text: str) -> int:
        return len(text)

    def window(self, role: Any) -> int:
        return 128_000


async def test_once_handles_all_that_is_pending_and_ends_well_even_with_dead_letters(home: Path) -> None:
    drop(data(home), "good.json", {"text": "hello", "from": "alice"})
    drop(data(home), "bad.json", b"{nope")
    async with asyncio.timeout(30):
        assert await run_daemon(home, QUICK, once=True) == EXIT_OK
    assert not list((data(home) / "inbox/pending").glob("*.json"))
    assert "hello" in (data(home) / "self/stream/now.md").read_text()
    assert list((data(home) / "dead_letter").glob("*/bad.json"))
    for queue in ("message_queue", "internalized", "action_queue"):
        assert not list((data(home) / "pipeline" / queue).glob("*.json"))


async def test_once_with_nothing_to_do_ends_at_once(home: Path) -> None:
    async with asyncio.timeout(30):
        assert await run_daemon(home, QUICK, once=True) == EXIT_OK


async def test_once_with_the_rest_parked_fails_with_the_reason_and_loses_nothing(home: Path) -> None:
    drop(data(home), "e.json", {"text": "hello", "from": "alice"})
    ended: list[str] = []
    model = AwayModel()

    def observe(what: str, details: Any) -> None:
        if what == "ended":
            ended.append(details["reason"])

    async with asyncio.timeout(30):
        code = await run_daemon(home, QUICK, once=True, observe=observe, model=model)
    assert (code, ended) == (EXIT_FAILED, ["the model is away"])
    assert model.calls == 1
    async with asyncio.timeout(30):
        assert await run_daemon(home, QUICK, once=True) == EXIT_OK
    assert (data(home) / "self/stream/now.md").read_text().count("hello") >= 1


async def test_a_second_daemon_is_told_who_holds_the_mind(home: Path) -> None:
    lock = hold(data(home))
    with pytest.raises(Held, match=f"process {os.getpid()}"):
        await run_daemon(home, QUICK, once=True)
    assert holder(data(home)) == {"pid": os.getpid()}
    lock.release()


async def test_wrong_settings_end_it_before_anything_is_touched(home: Path) -> None:
    with pytest.raises(SettingsError, match="settle_sec"):
        await run_daemon(home, {**QUICK, "KGAMMA_BUS__SETTLE_SEC": "soon"}, once=True)
    assert not (data(home) / "ledger.db").exists()


async def test_a_start_that_fails_gives_the_mind_free(home: Path) -> None:
    (data(home) / "ledger.db").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(Exception, match=r"ledger\.db"):
            await run_daemon(home, QUICK, once=True)
        assert holder(data(home)) is None


async def test_every_line_of_the_log_is_json_whatever_the_name(home: Path) -> None:
    for name in (b"\xff\xfe.json", "new\nline.json", "表情😀.json"):
        drop(data(home), name, b"{nope")
    async with asyncio.timeout(30):
        await run_daemon(home, QUICK, once=True)
    lines = (data(home) / "logs/kgamma.log").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len([r for r in records if r["event"] == "set aside"]) == 3


async def test_files_it_makes_are_its_owner_s_alone(home: Path) -> None:
    drop(data(home), "e.json", {"text": "hello", "from": "alice"})
    async with asyncio.timeout(30):
        await run_daemon(home, QUICK, once=True)
    for made in ("self/stream/now.md", "ledger.db", "metrics/status.json"):
        assert (data(home) / made).stat().st_mode & 0o077 == 0, made


async def test_a_usurped_daemon_ends_with_a_failure_and_writes_no_status(home: Path) -> None:
    minds: list[Mind] = []
    task = asyncio.create_task(run_daemon(home, QUICK, on_ready=minds.append))
    async with asyncio.timeout(30):
        while not minds:
            await asyncio.sleep(0.01)
        (mind,) = minds
        mind._ledger.run("set_meta", "boot", str(mind._ledger.boot + 1))
        drop(data(home), "e.json", {"text": "not mine", "from": "alice"})
        assert await task == EXIT_FAILED
    assert json.loads((data(home) / "metrics/status.json").read_bytes())["running"] is True


SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from kernel_gamma.daemon import run_daemon
home = Path(sys.argv[1])
ready = lambda mind: (home / "ready").touch()
sys.exit(asyncio.run(run_daemon(home, dict(os.environ), on_ready=ready)))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(home: Path, number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(home)], env={**os.environ, **QUICK})
    try:
        deadline = time.monotonic() + 60
        while not (home / "ready").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        drop(data(home), "e.json", {"text": "hello", "from": "alice"})
        page = data(home) / "self/stream/now.md"
        while "hello" not in (page.read_text() if page.exists() else ""):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(30) == EXIT_OK
    finally:
        process.kill()
        process.wait()
    assert holder(data(home)) is None
    assert json.loads((data(home) / "metrics/status.json").read_bytes())["running"] is False
