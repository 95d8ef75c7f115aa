"""F03 kill anywhere: SIGKILL from outside at moments nobody chose; every event once, nothing lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.accounting import Account, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

SEED = 51620
PEOPLE = ("alice", "bob", "小明", "小红", "carol", "dave", "erin")


def _mind(request: ParsedRequest) -> Answer:
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


@contextmanager
def _load() -> Iterator[None]:
    """As many busy processes as there are processors, so that everything happens late."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _live_through(folder: Path, *, events: int, kills: int, seed: int, environ: dict[str, str]) -> None:
    """Drop all along, kill at random moments, then let the rest be done and count."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    home = make_home(folder)
    dropper = Dropper(home)
    texts = [("hello", "你好"), ("what now?", "现在呢？"), ("still there?", "还在吗？")]
    left = list(range(events))

    def drop(count: int) -> None:
        for number in [left.pop(0) for _ in range(min(count, len(left)))]:
            text = f"{chance.choice(chance.choice(texts))} {number}"
            dropper.drop(f"event-{number:04}.json", {"text": text, "from": chance.choice(PEOPLE)})

    with ScriptedServer(_mind) as server, Nursery() as nursery:
        environ = {
            "OPENAI_BASE_URL": server.base_url,
            "KGAMMA_BUS__MAX_ATTEMPTS": "20",
            "KGAMMA_ACTIONS__MAX_PER_PASSAGE": "200",  # what waits of one person is answered in one passage
            **environ,
        }
        for _ in range(kills):
            with nursery.start(home, environ, once=False) as daemon:
                drop(events // kills + 1)
                time.sleep(chance.uniform(0.02, 0.6))
                drop(2)
                daemon.signal(signal.SIGKILL)
            where_files_are(dropper.data, dropper.files)
        drop(events)
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    account = Account(dropper.data, dropper.files)
    account.check()
    answered = {f"echo {account.ids_of(name)[0]}" for name in dropper.files}
    assert len(dropper.files) == events
    assert set(account.replies) == answered


@pytest.mark.parametrize("durability", ["process", "full"])
def test_F03_a_dozen_kills_among_150_events(tmp_path: Path, durability: str) -> None:
    environ = {"KGAMMA_BUS__DURABILITY": durability}
    _live_through(tmp_path, events=150, kills=12, seed=SEED, environ=environ)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 30))
def test_F03_thirty_times_under_load(tmp_path: Path, seed: int) -> None:
    with _load():
        _live_through(tmp_path, events=150, kills=12, seed=seed, environ={})


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "full"])
def test_F03_a_hundred_kills_among_200_events(tmp_path: Path, durability: str) -> None:
    environ = {"KGAMMA_BUS__DURABILITY": durability}
    _live_through(tmp_path, events=200, kills=100, seed=SEED, environ=environ)
