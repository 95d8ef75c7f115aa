"""SIGTERM while the model is thinking: what runs may end within the grace; a second signal ends at once."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

from tests.crash.accounting import Account
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer


class _SlowMind:
    """Thinks until it is let go; says when it was first asked."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()

    def __call__(self, request: ParsedRequest) -> Answer:
        self.asked.set()
        assert self.go.wait(30)
        return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _home(folder: Path) -> tuple[Path, Dropper]:
    home = make_home(folder)
    dropper = Dropper(home)
    dropper.drop("anna.json", {"text": "are you there?", "from": "anna"})
    return home, dropper


def _rest(nursery: Nursery, home: Path, dropper: Dropper, environ: dict[str, str]) -> Account:
    assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    account = Account(dropper.data, dropper.files)
    account.check()
    assert sum(account.replies.values()) == 1
    return account


def test_a_running_call_is_committed_within_the_grace(nursery: Nursery, tmp_path: Path) -> None:
    home, dropper = _home(tmp_path)
    mind = _SlowMind()
    with ScriptedServer(mind) as server:
        environ = {"OPENAI_BASE_URL": server.base_url}
        with nursery.start(home, environ, once=False) as daemon:
            assert mind.asked.wait(30)
            daemon.signal(signal.SIGTERM)
            mind.go.set()
            assert daemon.wait() == 0
        assert len(Account(dropper.data, dropper.files).told) == 1, "the answer was thrown away"
        assert server.count("internalizer") == 1
        _rest(nursery, home, dropper, environ)
        assert server.count("internalizer") == 1, "the same event was asked about again"


def test_after_the_grace_the_event_goes_back_without_an_attempt(nursery: Nursery, tmp_path: Path) -> None:
    home, dropper = _home(tmp_path)
    mind = _SlowMind()
    with ScriptedServer(mind) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_SHUTDOWN_GRACE_SEC": "0.05"}
        with nursery.start(home, environ, once=False) as daemon:
            assert mind.asked.wait(30)
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
        assert not Account(dropper.data, dropper.files).told
        mind.go.set()
        _rest(nursery, home, dropper, environ)


def test_a_second_signal_ends_at_once_and_nothing_is_lost(nursery: Nursery, tmp_path: Path) -> None:
    home, dropper = _home(tmp_path)
    mind = _SlowMind()
    with ScriptedServer(mind) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_SHUTDOWN_GRACE_SEC": "60"}
        with nursery.start(home, environ, once=False) as daemon:
            assert mind.asked.wait(30)
            while not daemon.ended():  # two that come at the same moment are one to the kernel
                daemon.signal(signal.SIGTERM)
                time.sleep(0.02)
            assert daemon.wait() == 1
        assert not Account(dropper.data, dropper.files).told
        mind.go.set()
        _rest(nursery, home, dropper, environ)
