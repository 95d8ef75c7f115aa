"""A lost ledger made anew: nothing is told twice, orders wait for a person, what is missing is said."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.cli.conftest import Shell, make_shell
from tests.crash.accounting import Account, read_json
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import furnish, narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.bus.lock import hold, let_go


def _mind(request: ParsedRequest) -> Answer:
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _lose(data: Path) -> None:
    for part in ("ledger.db", "ledger.db-wal", "ledger.db-shm", "flights.log"):
        (data / part).unlink(missing_ok=True)


@pytest.mark.parametrize("kill_at", ["apply.emit.after:2", "apply.emit.after:3", "apply.emit.after:4"])
def test_what_was_told_is_not_told_again(tmp_path: Path, kill_at: str) -> None:
    """Killed with a passage in now.md and its message still in the queue, or with an order that waits."""
    home = make_home(tmp_path / "home")
    furnish(home)
    dropper = Dropper(home)
    for name in ("anna", "小明"):
        dropper.drop(f"{name}.json", {"text": f"I am {name}", "from": name})
    with ScriptedServer(_mind) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, "CRASH_TOOL_FILE": str(home / "presses.txt")}
        deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": kill_at}
        assert nursery.once(home, environ | deadly) == -signal.SIGKILL
        _lose(dropper.data)
        done = Shell(home)("rebuild", "--json")
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["ledger"]["state"] == "rebuilt"
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    account = Account(dropper.data, dropper.files)
    ids = {event for name in dropper.files for event in account.ids_of(name)}
    assert {event: account.told[event] for event in ids} == dict.fromkeys(ids, 1)
    assert all(count == 1 for count in account.replies.values())


def test_handled_files_are_found_and_cloud_events_known_again(tmp_path: Path) -> None:
    shell = make_shell(tmp_path / "家")
    cloud = {
        "specversion": "1.0",
        "id": "c-1",
        "source": "/garden",
        "type": "message",
        "data": {"text": "hi"},
    }
    shell.drop("cloud.json", json.dumps(cloud).encode())
    shell.drop("hello.json", b'{"text": "hello", "from": "alice", "id": "evt_hello"}')
    shell.live()
    stream = (shell.data / "self/stream/now.md").read_bytes()
    _lose(shell.data)
    done = shell("rebuild", "--json")
    ledger = json.loads(done.stdout)["ledger"]
    assert (ledger["known"], ledger["told"], ledger["adopted"], ledger["orders"]) == (1, 0, 0, 0)
    assert ledger["files"] >= 4 and ledger["passages"] >= 1 and ledger["missing"]
    shell.drop("cloud-again.json", json.dumps(cloud).encode())
    shell.live()
    ack = read_json(shell.data / "inbox/acks/cloud-again.json")
    assert ack["duplicate"] and ack["id"] == read_json(shell.data / "inbox/acks/cloud.json")["id"]
    assert (shell.data / "self/stream/now.md").read_bytes() == stream
    traced = shell("trace", "evt_hello", "--json")
    assert traced.exit_code == 0 and "inbox/pending/done" in traced.stdout


def test_a_sound_ledger_is_left_alone_and_a_damaged_one_kept(tmp_path: Path) -> None:
    shell = make_shell(tmp_path / "home")
    shell.drop("hello.json", b'{"text": "hello", "from": "alice"}')
    shell.live()
    before = (shell.data / "ledger.db").read_bytes()
    assert "is sound" in shell("rebuild").stdout
    assert (shell.data / "ledger.db").read_bytes() == before
    (shell.data / "ledger.db").write_bytes(b"no database\n" * 900)
    (shell.data / "memory.db").write_bytes("坏了\n".encode() * 900)
    done = shell("rebuild")
    assert done.exit_code == 0, done.stderr
    assert "made anew" in done.stdout and "missing" in done.stderr
    assert (shell.data / "ledger.db.damaged-1").read_bytes().startswith(b"no database")
    assert (shell.data / "memory.db.damaged-1").exists()
    assert "is sound" in shell("rebuild").stdout
    shell.live()


def test_not_while_a_daemon_lives(tmp_path: Path) -> None:
    shell = make_shell(tmp_path / "home")
    lock = hold(shell.data)
    try:
        assert shell("rebuild").exit_code == 3
    finally:
        let_go(shell.data, lock)
