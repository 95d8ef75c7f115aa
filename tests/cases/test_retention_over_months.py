"""Four months of a mind, each few days a life of its own: what is kept stays bounded, nothing is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.cli.conftest import Shell, make_shell
from tests.crash.accounting import read_ledger

START = datetime(2026, 1, 1, 9, tzinfo=UTC)


def _live(shell: Shell, day: int) -> None:
    start = (START + timedelta(days=day)).isoformat()
    done = shell("run", "--once", "--no-gateway", KGAMMA_CLOCK__TRIAL="true", KGAMMA_CLOCK__START=start)
    assert done.exit_code == 0, done.stderr


def test_months_later_old_files_and_rows_are_gone_and_counted(tmp_path: Path) -> None:
    shell = make_shell(tmp_path / "home")
    days = range(0, 125, 5)
    for day in days:
        shell.drop(f"day-{day}.json", json.dumps({"text": f"第 {day} 天 day {day}", "from": "anna"}).encode())
        _live(shell, day)
    done = sorted(path.name for path in (shell.data / "inbox/pending/done").iterdir())
    oldest = (START + timedelta(days=days[-1] - 91)).date().isoformat()
    assert done[0] >= oldest and len(done) == len([d for d in days if d >= days[-1] - 91])
    assert len(list((shell.data / "inbox/acks").iterdir())) == 1
    ((first,),) = read_ledger(shell.data, "SELECT min(accepted_at) FROM files")
    assert first >= (START + timedelta(days=days[-1] - 90)).timestamp()
    # what she has lived through stays, and so does every message nobody has taken
    now = (shell.data / "self/stream/now.md").read_text()
    archive = "".join(page.read_text() for page in (shell.data / "self/stream/archive").iterdir())
    assert all(f"day {day}" in now + archive for day in days)
    assert len(list((shell.data / "outbox").glob("*/out_*.json"))) == len(days)
    headings = {line[3:] for line in now.splitlines() if line.startswith("## ")}
    known = {heading for (heading,) in read_ledger(shell.data, "SELECT heading FROM passages")}
    assert headings and headings <= known
    found = shell("truths", "search", "past their time", "--category", "operation", "--limit", "50", "--json")
    assert "operation.retention" in found.stdout, found.stdout + found.stderr
    verified = shell("truths", "verify")
    assert verified.exit_code == 0, verified.stderr
