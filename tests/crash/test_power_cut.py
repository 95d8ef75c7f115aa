"""A power cut with `durability: full`: what was written since the last sync is gone, the ledger is not.

Simulated: the process is killed, files it had written are taken away, cut or filled with NULs, moves are
undone, and the ledger is told of another boot of the machine.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from tests.crash.accounting import Account, read_ledger
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import Script, expect, furnish, read_presses
from tests.scripted_server import ScriptedServer

FULL = {"KGAMMA_BUS__DURABILITY": "full", "KGAMMA_BUS__CHECKPOINT_SEC": "3600"}


def _another_boot(data: Path) -> None:
    db = sqlite3.connect(data / "ledger.db", isolation_level=None)
    db.execute("UPDATE meta SET value = 'the boot before' WHERE key = 'boot_id'")
    db.close()


def _lose_writes(data: Path, how: str) -> int:
    """Undo what no sync has made safe (accepted files were synced); how many files were touched."""
    touched = 0
    page = data / "self/stream/now.md"
    if page.exists():
        size = page.stat().st_size
        _spoil(page, size // 3, how)
        touched += 1
    for pattern in ("pipeline/*/*.json", "outbox/*/out_*.json", "inbox/acks/*.json"):
        for path in sorted(data.glob(pattern)):
            _spoil(path, 0, how)
            touched += 1
    rows = read_ledger(data, "SELECT plan FROM commits WHERE synced = 0 AND plan IS NOT NULL ORDER BY n DESC")
    for source, target in _moves(rows):
        if (data / target).exists():
            (data / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(data / target, data / source)
            touched += 1
    return touched


def _moves(rows: list[tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(op[1], op[2]) for (plan,) in rows for op in json.loads(plan) if op[0] == "move"]


def _spoil(path: Path, keep: int, how: str) -> None:
    whole = path.read_bytes()
    if how == "gone" and keep == 0:
        path.unlink()
    elif how == "nuls":
        path.write_bytes(whole[:keep] + bytes(len(whole) - keep))
    else:
        path.write_bytes(whole[:keep])


@pytest.mark.parametrize("how", ["gone", "cut", "nuls"])
@pytest.mark.parametrize("kill_at", ["commit.recorded:12", "commit.applied:30", "apply.move.after:25"])
def test_unsynced_commits_are_carried_out_again_after_a_reboot(
    nursery: Nursery, tmp_path: Path, how: str, kill_at: str
) -> None:
    home = make_home(tmp_path)
    furnish(home)
    dropper = Dropper(home)
    script = Script(dropper)
    script.drop_all()
    with ScriptedServer(script) as server:
        environ = {
            "OPENAI_BASE_URL": server.base_url,
            "CRASH_TOOL_FILE": str(home / "presses.txt"),
            **FULL,
        }
        deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": kill_at}
        assert nursery.once(home, environ | deadly) == -signal.SIGKILL
        assert _lose_writes(dropper.data, how) > 5
        _another_boot(dropper.data)
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    expect(Account(dropper.data, dropper.files), read_presses(home / "presses.txt"))
