"""The ledger is gone, cut short or garbage while the daemon is stopped: no event goes with it."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import pytest
from tests.crash.accounting import Account, read_json, read_ledger, read_log, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import furnish, narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer


def _mind(request: ParsedRequest) -> Answer:
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _die(nursery: Nursery, folder: Path, kill_at: str, *, damage: str) -> Dropper:
    """Three messages, a kill, the ledger damaged, and a second run that must end well."""
    home = make_home(folder)
    furnish(home)
    dropper = Dropper(home)
    for name in ("anna", "ben", "小明"):
        dropper.drop(f"{name}.json", {"text": f"I am {name}", "from": name})
    with ScriptedServer(_mind) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "CRASH_TOOL_FILE": str(home / "presses.txt")}
        deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": kill_at}
        assert nursery.once(home, environ | deadly) == -signal.SIGKILL
        _damage(dropper.data, damage)
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    return dropper


def _damage(data: Path, how: str) -> None:
    db = sqlite3.connect(data / "ledger.db")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else the write-ahead log would heal the file
    db.close()
    ledger = data / "ledger.db"
    if how == "deleted":
        ledger.unlink()
    elif how == "cut":
        with ledger.open("r+b") as file:
            file.truncate(ledger.stat().st_size // 3)
    else:
        ledger.write_bytes(b"this is no database\n" * 500)


@pytest.mark.parametrize("damage", ["deleted", "cut", "garbage"])
@pytest.mark.parametrize(
    "kill_at", ["accept.recorded", "accept.renamed", "deliver.marked:2", "apply.emit.after:2"]
)
def test_no_event_is_lost_with_the_ledger(
    nursery: Nursery, tmp_path: Path, damage: str, kill_at: str
) -> None:
    dropper = _die(nursery, tmp_path, kill_at, damage=damage)
    counts = where_files_are(dropper.data, dropper.files)
    assert counts["pending"] == counts["taken"] == 0
    account = Account(dropper.data, dropper.files)
    ids = {event for name in dropper.files for event in account.ids_of(name)}
    assert ids <= set(account.told), "an event that was accepted is told nowhere"


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_ledger_is_kept_aside_and_one_line_says_so(
    nursery: Nursery, tmp_path: Path, damage: str
) -> None:
    dropper = _die(nursery, tmp_path, "deliver.marked:3", damage=damage)
    lines = read_log(dropper.data, "the ledger was damaged and set aside")
    assert len(lines) == 1
    assert lines[0]["kept"] == "ledger.db.damaged-1"
    assert (dropper.data / "ledger.db.damaged-1").exists()


def test_actions_found_without_a_ledger_wait_for_a_person(nursery: Nursery, tmp_path: Path) -> None:
    """The first act_ file stands in its queue when the process dies."""
    home = make_home(tmp_path)
    furnish(home)
    dropper = Dropper(home)
    dropper.drop("anna.json", {"text": "I am Anna", "from": "anna"})
    with ScriptedServer(_mind) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "CRASH_TOOL_FILE": str(home / "presses.txt")}
        deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": "apply.emit.after:3"}
        assert nursery.once(home, environ | deadly) == -signal.SIGKILL
        assert len(list((dropper.data / "pipeline/action_queue").glob("act_*.json"))) == 1
        _damage(dropper.data, "deleted")
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    waiting = list((dropper.data / "approvals/pending").glob("act_*.json"))
    assert [read_json(path)["payload"]["actions"][0]["tool"] for path in waiting] == ["send_message"]
    account = Account(dropper.data, dropper.files)
    assert [d["payload"]["type"] for d in account.own_events().values()] == ["action.waiting"]


@pytest.mark.parametrize("how", ["whole", "other words", "elsewhere", "archived"])
def test_a_passage_found_without_a_ledger_is_translated_if_it_stands_as_the_file_says(
    nursery: Nursery, tmp_path: Path, how: str
) -> None:
    """The first int_ file stands in its queue when the process dies; its passage stands somewhere, or not."""
    home = make_home(tmp_path)
    furnish(home)
    dropper = Dropper(home)
    dropper.drop("anna.json", {"text": "I am Anna 安娜", "from": "anna"})
    with ScriptedServer(_mind) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "CRASH_TOOL_FILE": str(home / "presses.txt")}
        deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": "apply.emit.after:2"}
        assert nursery.once(home, environ | deadly) == -signal.SIGKILL
        (standing,) = (dropper.data / "pipeline/internalized").glob("int_*.json")
        passage = read_json(standing)["payload"]["passage_id"]
        now = dropper.data / "self/stream/now.md"
        if how == "other words":
            now.write_text(now.read_text().swapcase())
        elif how == "elsewhere":
            now.write_text("A person's own line.\n\n" + now.read_text())
        elif how == "archived":
            day = read_json(standing)["envelope"]["timestamp"][:10]
            (now.parent / "archive").mkdir(exist_ok=True)
            now.rename(now.parent / f"archive/{day}.md")
        _damage(dropper.data, "deleted")
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    reasons = [read_json(p)["error"] for p in (dropper.data / "dead_letter").rglob("*.reason.json")]
    orders = [read_json(path) for path in (dropper.data / "pipeline/action_queue/done").rglob("act_*.json")]
    answered = [order["payload"]["trust"] for order in orders if order["payload"]["passage_id"] == passage]
    if how == "other words":
        assert reasons == ["foreign"]
        assert answered == []
    else:
        assert reasons == []
        assert answered == ["unknown"]
        assert read_ledger(dropper.data, f"SELECT trust FROM files WHERE file_id = '{standing.stem}'") == [
            ("unknown",)
        ]
