from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kernel_gamma.bus.ledger import Ledger

TODAY = datetime.now(UTC).date()


def budget(shell: Any, **env: str) -> dict[str, Any]:
    done = shell("budget", "--json", **env)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def spend(shell: Any, rows: Sequence[tuple[int, str, str, str, int, int, float]]) -> None:
    """(days ago, node, role, rule, prompt, completion, cost)"""
    shell.data.mkdir(parents=True, exist_ok=True)
    ledger = Ledger.open(shell.data / "ledger.db")
    with ledger.transaction(full=False):
        for ago, node, role, rule, prompt, completion, cost in rows:
            day = (TODAY - timedelta(days=ago)).isoformat()
            ledger.run("add_usage", day, prompt, completion, cost)
            ledger.run("add_spending", day, node, role, rule, prompt, completion, 0, cost)
    ledger.close()


def test_without_a_daemon_and_without_a_ledger_nothing_is_spent(kgamma: Any) -> None:
    found = budget(kgamma, KGAMMA_BUDGET__QUIET_HOURS="00:00-23:59")
    assert found["day"] == TODAY.isoformat()
    assert found["tokens"] == {"spent": 0, "limit": 1_000_000, "left": 1_000_000, "left_for_others": 800_000}
    assert found["money"] == {"spent": 0.0, "limit": None, "left": None, "left_for_others": None}
    assert (found["spent"], found["days"]) == ([], [])
    assert found["resets_at"].startswith((TODAY + timedelta(days=1)).isoformat())
    assert found["quiet_hours"] == "00:00-23:59"
    assert not kgamma.data.exists()


def test_what_was_spent_is_told_by_node_role_and_rule_and_against_the_limits(kgamma: Any) -> None:
    spend(
        kgamma,
        [
            (0, "internalizer", "quality", "", 1000, 200, 0.5),
            (0, "internalizer", "quality", "", 100, 0, 0.1),
            (0, "internalizer", "quality", "hourly", 300, 50, 0.2),
            (0, "externalizer", "fast", "", 10, 5, 0.0),
            (1, "internalizer", "quality", "", 7, 0, 0.0),
            (6, "internalizer", "quality", "", 6, 0, 0.0),
            (7, "internalizer", "quality", "", 5, 0, 0.0),
        ],
    )
    file = kgamma.home / "config/kernel.yaml"
    text = file.read_text().replace("\nbudget:\n", "\nbudget:\n  per_rule: {hourly: 400, evening: 90}\n")
    file.write_text(text)
    limits = {
        "KGAMMA_BUDGET__TOKENS_PER_DAY": "2000",
        "KGAMMA_BUDGET__MONEY_PER_DAY": "1",
    }
    found = budget(kgamma, **limits)
    assert found["tokens"] == {"spent": 1665, "limit": 2000, "left": 335, "left_for_others": 0}
    assert found["money"]["left"] == pytest.approx(0.2)
    assert found["rules"]["hourly"] == {"spent": 350, "limit": 400, "left": 50, "left_for_others": 50}
    assert found["rules"]["evening"]["left"] == 90
    told = [(one["node"], one["role"], one["rule"], one["calls"], one["tokens"]) for one in found["spent"]]
    assert told == [
        ("internalizer", "quality", None, 2, 1300),
        ("internalizer", "quality", "hourly", 1, 350),
        ("externalizer", "fast", None, 1, 15),
    ]
    assert [(day["day"], day["tokens"]) for day in found["days"]] == [
        (TODAY.isoformat(), 1665),
        ((TODAY - timedelta(days=1)).isoformat(), 7),
        ((TODAY - timedelta(days=6)).isoformat(), 6),
    ]
    shown = kgamma("budget", **limits).stdout
    assert "1665 of 2000 spent, 335 left, 0 of it for what nobody waits for" in shown
    assert "rule     hourly: 350 of 400 spent, 50 left" in shown
    assert "20% of each limit is kept" in shown


def test_a_ledger_of_an_older_version_tells_its_days(kgamma: Any) -> None:
    spend(kgamma, [(0, "internalizer", "quality", "", 10, 5, 0.0)])
    with closing(sqlite3.connect(kgamma.data / "ledger.db")) as db:
        db.execute("DROP TABLE spending")
        db.execute("PRAGMA user_version = 2")
        db.commit()
    found = budget(kgamma)
    assert (found["tokens"]["spent"], found["spent"]) == (15, [])


def test_a_ledger_that_cannot_be_read_is_told(kgamma: Any) -> None:
    kgamma.data.mkdir(parents=True)
    (kgamma.data / "ledger.db").write_bytes(b"no database" * 1000)
    done = kgamma("budget")
    assert done.exit_code == 1
    assert "ledger.db" in done.stderr
