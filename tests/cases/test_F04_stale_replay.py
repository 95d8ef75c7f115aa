"""F04 stale replay: at a restart actions done, fresh ones, and ones past their time to live."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from tests.crash.accounting import Account, read_json, read_ledger, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import furnish, narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

_HELD = '''
import asyncio

from kernel_gamma.contracts.effects import Batch, Outcome
from kernel_gamma.nodes.routers.command_dispatcher import CommandDispatcher


class Held(CommandDispatcher):
    """Takes every order and is slow to carry it out."""

    async def handle(self, batch: Batch) -> Outcome:
        await asyncio.sleep(3600)
        return Outcome()
'''

_MORNING = {"KGAMMA_CLOCK__TRIAL": "true", "KGAMMA_CLOCK__ZONE": "Asia/Shanghai"}
FIRST, LATER = ({"KGAMMA_CLOCK__START": f"2026-11-30T{at}:00:00+08:00"} for at in ("08", "11"))


def _mind(request: ParsedRequest) -> Answer:
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _message(number: int, text: str, ttl_sec: int | None) -> dict[str, object]:
    worn = {
        "id": f"msg_f04_{number}", "trace_id": f"trace_f04_{number}", "timestamp": "2026-11-30T08:00:00Z",
        "source_node": "test", "session_key": f"group:{number % 3}", "ttl_sec": ttl_sec,
    }  # fmt: skip
    return {"envelope": worn, "payload": {"type": "message", "text": text, "from": f"anna-{number}"}}


class Mind:
    """A home whose dispatcher can be held, and what it has sent."""

    def __init__(self, folder: Path, nursery: Nursery, base_url: str) -> None:
        self.home, self._nursery = make_home(folder), nursery
        furnish(self.home)
        (self.home / "held_node.py").write_text(_HELD)
        self.dropper = Dropper(self.home)
        self.presses = self.home / "presses.txt"
        self.environ = {"OPENAI_BASE_URL": base_url, "CRASH_TOOL_FILE": str(self.presses), **_MORNING}

    def run(self, when: dict[str, str], **environ: str) -> int:
        return self._nursery.once(self.home, {**self.environ, **when, **environ})

    def decide(self, when: dict[str, str], orders: int) -> None:
        """Run until so many orders wait to be carried out, then stop."""
        topology = self.home / "config/topology.yaml"
        whole = topology.read_text()
        topology.write_text(whole.replace("class: CommandDispatcher", "class: held_node:Held"))
        environ = {**self.environ, **when, "KGAMMA_SHUTDOWN_GRACE_SEC": "0"}
        with self._nursery.start(self.home, environ, once=False) as daemon:
            while len(self.orders()) < orders:
                assert not daemon.ended(), (self.home / "output.txt").read_text()
                time.sleep(0.05)
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
        topology.write_text(whole)

    def orders(self) -> list[Path]:
        return list((self.dropper.data / "pipeline/action_queue").glob("act_*.json"))

    def drop(self, number: int, text: str = "hello 你好", ttl_sec: int | None = None) -> str:
        """One event; its id."""
        self.dropper.drop(f"event-{number}.json", _message(number, text, ttl_sec))
        return f"msg_f04_{number}"

    def consume(self) -> set[Path]:
        """A consumer takes all that was sent."""
        taken = set()
        for message in (self.dropper.data / "outbox").glob("*/out_*.json"):
            done = message.parent / "done"
            done.mkdir(exist_ok=True)
            taken.add(message.rename(done / message.name))
        return taken

    def sent(self) -> list[str]:
        """Texts of the messages nobody has taken, in the order of their commits."""
        texts = {
            p.name: read_json(p)["payload"]["text"] for p in (self.dropper.data / "outbox").glob("*/*.json")
        }
        rows = read_ledger(self.dropper.data, "SELECT outputs FROM commits ORDER BY n")
        names = [path.rpartition("/")[2] for (outputs,) in rows for path in json.loads(outputs)]
        return [texts[name] for name in names if name in texts]


@pytest.mark.parametrize("kill_at", [None, "deliver.marked:2", "commit.recorded:1", "apply.emit.after:2"])
def test_F04_done_stays_done_fresh_runs_in_order_old_expires_with_a_note(
    tmp_path: Path, kill_at: str | None
) -> None:
    with ScriptedServer(_mind) as server, Nursery() as nursery:
        mind = Mind(tmp_path, nursery, server.base_url)
        mind.drop(0)
        mind.drop(1, "press the button once")
        assert mind.run(FIRST) == 0
        done = {path: path.read_bytes() for path in mind.consume()}
        assert len(done) == 2 and len(mind.presses.read_text().splitlines()) == 1

        fresh = [[mind.drop(n) for n in (2, 5, 8)], [mind.drop(n, ttl_sec=86_400) for n in (3, 6, 9)]]
        old = [mind.drop(n, "press the button once 按一次", ttl_sec=600) for n in (4, 7)]
        mind.decide(FIRST, orders=3)
        assert mind.sent() == []

        if kill_at is not None:
            deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": kill_at}
            assert mind.run(LATER, **deadly) == -signal.SIGKILL
        assert mind.run(LATER) == 0, (mind.home / "output.txt").read_text()

    assert {path: path.read_bytes() for path in done} == done
    sent = mind.sent()
    for session in fresh:
        assert [text for text in sent if text.split()[1] in session] == [f"echo {e}" for e in session]
    assert len(sent) == 6
    assert len(mind.presses.read_text().splitlines()) == 1  # none of the old ones
    account = Account(mind.dropper.data, mind.dropper.files)
    assert where_files_are(mind.dropper.data, mind.dropper.files)["done"] == 10
    outcomes = [(d["payload"]["type"], d["payload"]["data"]["tool"]) for d in account.own_events().values()]
    expired = [tool for kind, tool in outcomes if kind == "action.expired"]
    assert sorted(expired) == ["press_once"] * len(old) + ["send_message"] * len(old)
    for event, document in account.own_events().items():
        assert account.told[event] == 1, document  # each is a note in the stream, once
    assert not account.dead
