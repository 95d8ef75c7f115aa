"""F05 poison: an event whose handling ends the process; a supervisor starts it again and again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.crash.accounting import Account, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

ATTEMPTS = 3

_NODE = '''
import os
import signal

from kernel_gamma.contracts.effects import Batch, Outcome
from kernel_gamma.nodes.base import Node


class Fragile(Node):
    """Looks at every message file beside the internalizer and does not survive one of them."""

    watch = ("pipeline/message_queue/msg_*.json",)
    concurrency = 4

    async def handle(self, batch: Batch) -> Outcome:
        if any("deadly" in str(delivery.document) for delivery in batch):
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome()
'''

_ENTRY = """
  - id: fragile
    class: fragile_node:Fragile
    enabled: true
"""


def _mind(request: ParsedRequest) -> Answer:
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _home(folder: Path) -> tuple[Path, Dropper]:
    home = make_home(folder)
    (home / "fragile_node.py").write_text(_NODE)
    topology = home / "config/topology.yaml"
    topology.write_text(topology.read_text() + _ENTRY)
    dropper = Dropper(home)
    for number in range(6):
        dropper.drop(f"before-{number}.json", {"text": f"hello {number}", "from": f"person-{number}"})
    dropper.drop("deadly.json", {"text": "a deadly 致命 word", "from": "mallory"})
    for number in range(6):
        dropper.drop(f"after-{number}.json", {"text": f"你好 {number}", "from": f"某人-{number}"})
    return home, dropper


def _supervise(nursery: Nursery, home: Path, environ: dict[str, str]) -> int:
    """Start it until it ends by itself; how often it was killed."""
    for deaths in range(30):
        code = nursery.once(home, environ)
        if code != -signal.SIGKILL:
            assert code == 0, (home / "output.txt").read_text()
            return deaths
    raise AssertionError("it is killed for ever")


def _retry(home: Path, name: str) -> None:
    command = [sys.executable, "-m", "kernel_gamma", "dead-letter", "retry", name, "--home", str(home)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_F05_what_kills_the_process_is_set_aside_and_the_others_flow(tmp_path: Path) -> None:
    home, dropper = _home(tmp_path)
    with ScriptedServer(_mind) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_BUS__MAX_ATTEMPTS": str(ATTEMPTS)}
        deaths = _supervise(nursery, home, environ)
        # One death among others names nobody; from then on it is alone, and each one counts.
        assert ATTEMPTS <= deaths <= ATTEMPTS + 1
        account = Account(dropper.data, dropper.files)
        counts = where_files_are(dropper.data, dropper.files)
        assert counts["done"] == len(dropper.files)
        assert len(account.replies) == len(dropper.files)  # the internalizer never minded it
        (reason,) = account.dead.values()
        assert reason["error"] == "killed_the_process"
        assert reason["node"] == "fragile"
        assert reason["attempts"] == ATTEMPTS

        # Its cause is mended, and a person has it tried again: by the node that gave it up, and by no other.
        (home / "fragile_node.py").write_text(_NODE.replace('"deadly"', '"nothing at all"'))
        (name,) = account.dead
        _retry(home, name)
        assert _supervise(nursery, home, environ) == 0
    account = Account(dropper.data, dropper.files)
    account.check()
    assert not account.dead
    assert list((dropper.data / "pipeline/message_queue/done").glob(f"*/{name}"))


def test_F05_an_event_that_kills_before_anything_is_told_is_accounted_for(tmp_path: Path) -> None:
    """The node looks at the inbox itself: it is the dropped file that is set aside."""
    home, dropper = _home(tmp_path)
    node = _NODE.replace('("pipeline/message_queue/msg_*.json",)', '("inbox/pending/*.json",)')
    (home / "fragile_node.py").write_text(node)
    with ScriptedServer(_mind) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_BUS__MAX_ATTEMPTS": str(ATTEMPTS)}
        _supervise(nursery, home, environ)
        counts = where_files_are(dropper.data, dropper.files)
        assert counts["done"] == len(dropper.files) - 1
        assert counts["dead_letter"] == 1
        assert Account(dropper.data, dropper.files).dead["deadly.json"]["error"] == "killed_the_process"

        (home / "fragile_node.py").write_text(node.replace('"deadly"', '"nothing at all"'))
        _retry(home, "deadly.json")
        assert _supervise(nursery, home, environ) == 0
    assert where_files_are(dropper.data, dropper.files)["done"] == len(dropper.files)
    assert not Account(dropper.data, dropper.files).dead
