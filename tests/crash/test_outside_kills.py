"""A process that others end, again and again, while it waits for the model: no event is to blame."""

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

KILLS = 8
"""More than `bus.max_attempts`, which is 3 here."""


def test_an_event_that_waits_for_the_model_is_not_charged_with_outside_kills(
    nursery: Nursery, tmp_path: Path
) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    dropper.drop("hello.json", {"text": "hello", "from": "alice"})
    asked = threading.Semaphore(0)
    patient = threading.Event()

    def answer(request: ParsedRequest) -> Answer:
        asked.release()
        patient.wait(60)
        return Answer(translate(request) if request.agent == "externalizer" else narrate(request))

    with ScriptedServer(answer) as server:
        environ = {"OPENAI_BASE_URL": server.base_url}
        for _ in range(KILLS):
            with nursery.start(home, environ, once=True) as daemon:
                assert asked.acquire(timeout=60), "the model was never asked"
                daemon.signal(signal.SIGKILL)
                assert daemon.wait() == -signal.SIGKILL
        patient.set()
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    account = Account(dropper.data, dropper.files)
    account.check()
    assert account.dead == {}
    assert len(account.replies) == 1


def test_kills_right_after_the_start_are_not_charged(nursery: Nursery, tmp_path: Path) -> None:
    """At any moment of the first half second, long before or just after the model is asked."""
    home = make_home(tmp_path)
    dropper = Dropper(home)
    dropper.drop("hello.json", {"text": "hello", "from": "alice"})
    slow = threading.Event()

    def answer(request: ParsedRequest) -> Answer:
        slow.wait(1.0)
        return Answer(translate(request) if request.agent == "externalizer" else narrate(request))

    with ScriptedServer(answer) as server:
        environ = {"OPENAI_BASE_URL": server.base_url}
        for number in range(KILLS):
            with nursery.start(home, environ, once=True) as daemon:
                time.sleep(0.1 + 0.06 * number)
                daemon.signal(signal.SIGKILL)
                daemon.wait()
        slow.set()
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    account = Account(dropper.data, dropper.files)
    account.check()
    assert account.dead == {}
