from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

KEYS = {
    "running", "pid", "mind", "queues", "oldest_pending_sec", "nodes", "model", "tokens_today", "budget_left",
    "dead_letters", "approvals", "static_drift", "open_loops", "next_slots", "stalled", "watcher",
    "durability", "last_error",
}  # fmt: skip


def status(shell: Any, **env: str) -> dict[str, Any]:
    done = shell("status", "--json", **env)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_status_answers_without_daemon_ledger_or_data(kgamma: Any) -> None:
    found = status(kgamma)
    assert set(found) >= KEYS
    assert (found["running"], found["pid"], found["tokens_today"], found["dead_letters"]) == (
        False,
        None,
        0,
        0,
    )
    assert found["queues"]["inbox/pending"] == 0
    assert found["nodes"]["internalizer"] == {"status": "stopped", "last_error": None}
    assert found["model"]["mode"] == "offline"
    assert not kgamma.data.exists()
    assert "not running" in kgamma("status").stdout


def test_parts_that_are_not_built_are_null(kgamma: Any) -> None:
    found = status(kgamma)
    assert found["approvals"] is None
    assert found["open_loops"] == []
    assert found["next_slots"][0]["rule"] == "hourly"


def test_a_running_mind_is_seen_with_its_nodes_and_watcher(awake: Any) -> None:
    found = status(awake)
    assert found["running"] is True
    os.kill(found["pid"], 0)
    assert found["nodes"]["internalizer"]["status"] == "idle"
    assert found["model"]["breaker"] == "closed"
    assert found["watcher"]["mode"] in ("inotify", "observer", "polling")
    assert "running since" in awake("status").stdout


def test_pending_files_are_counted_and_the_oldest_is_timed(kgamma: Any) -> None:
    first = kgamma.drop("a.json", b"{}")
    kgamma.drop("b.json", b"{}")
    kgamma.drop("no event.txt", b"")
    (kgamma.data / "inbox/pending/.half.json.tmp").write_bytes(b"")
    (kgamma.data / "inbox/pending/done").mkdir()
    os.utime(first, (time.time() - 500, time.time() - 500))
    found = status(kgamma)
    assert found["queues"]["inbox/pending"] == 2
    assert 499 < found["oldest_pending_sec"] < 600


def test_after_an_offline_life_the_budget_is_whole_and_dead_letters_are_known(lived: Any) -> None:
    found = status(lived)
    assert found["tokens_today"] == 0, "rules are not charged"
    assert found["budget_left"] == 1_000_000 - found["tokens_today"]
    assert found["dead_letters"] == 1
    assert status(lived, KGAMMA_BUDGET__TOKENS_PER_DAY="0")["budget_left"] is None
    assert status(lived, KGAMMA_BUDGET__TOKENS_PER_DAY="1")["budget_left"] == 1
    assert "aside    1 file (kgamma dead-letter list" in lived("status").stdout


def test_what_a_dead_daemon_wrote_is_not_taken_for_life(kgamma: Any) -> None:
    metrics = kgamma.data / "metrics"
    metrics.mkdir(parents=True)
    told = {"pid": 1, "running": True, "nodes": {"internalizer": {"status": "running", "last_error": "boom"}}}
    (metrics / "status.json").write_text(json.dumps(told))
    found = status(kgamma)
    assert found["running"] is False
    assert found["nodes"]["internalizer"] == {"status": "stopped", "last_error": "boom"}
    assert found["last_error"] == "internalizer: boom"


def test_a_status_file_that_is_garbage_is_as_good_as_none(kgamma: Any) -> None:
    (kgamma.data / "metrics").mkdir(parents=True)
    (kgamma.data / "metrics/status.json").write_bytes(b"\xff{")
    assert status(kgamma)["last_error"] is None


def test_a_model_that_cannot_be_reached_as_configured_is_told(kgamma: Any) -> None:
    found = status(kgamma, KGAMMA_MODEL__MODE="online")
    assert found["model"]["mode"] == "misconfigured"
    assert "OPENAI_API_KEY" in found["model"]["last_error"]


def test_a_broken_topology_does_not_hide_the_rest(kgamma: Any) -> None:
    (kgamma.home / "config/topology.yaml").write_text("nodes: 3\n")
    assert status(kgamma)["queues"] == {"inbox/pending": 0, "inbox/taken": 0}


@pytest.mark.parametrize("damage", ["no database", "a newer one"])
def test_a_ledger_that_cannot_be_read_is_named_and_does_not_hide_the_rest(kgamma: Any, damage: str) -> None:
    kgamma.drop("a.json", b"{}")
    ledger = kgamma.data / "ledger.db"
    if damage == "no database":
        ledger.write_bytes(b"not a database" * 100)
    else:
        with closing(sqlite3.connect(ledger)) as db:
            db.execute("PRAGMA user_version = 9999")
    found = status(kgamma)
    assert (found["tokens_today"], found["budget_left"]) == (None, None)
    assert "ledger.db" in found["last_error"]
    assert found["queues"]["inbox/pending"] == 1
    told = kgamma("status").stdout
    assert "tokens   unknown" in told
    assert f"error    {found['last_error']}" in told
