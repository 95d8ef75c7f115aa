"""What the assembler saves does not get worse unnoticed: the short run against the locked baseline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.history import logs_folder
from benchmarks.token_efficiency import BASELINE, Row, self_excitation, worse_than

ROOT = Path(__file__).resolve().parents[2]
LOGS = logs_folder(None) or logs_folder(ROOT.parent / "shared/data/loghub")
needs_logs = pytest.mark.skipif(LOGS is None, reason="the public logs are not there: KGAMMA_LOGS names them")
LOCKED = {"records": 3_000, "tokens": 2_000.0, "redundancy": 0.02, "evidence": 1.0}


def row(tokens: float = 2_000.0, redundancy: float = 0.02, evidence: float = 1.0) -> Row:
    return Row("dual", 3_000, tokens, tokens, tokens, redundancy, evidence, (), 10.0, 20.0)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/token_efficiency.py", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "KGAMMA_LOGS"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_row_within_five_percent_of_the_baseline_is_not_worse() -> None:
    assert worse_than(LOCKED, row(tokens=2_099.0, redundancy=0.0249, evidence=0.96)) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (row(tokens=2_101.0), "tokens per task 2101.0, locked 2000.0"),
        (row(redundancy=0.03), "redundancy 0.03, locked 0.02"),
        (row(evidence=0.95), "evidence 0.95, locked 1.0"),
    ],
)
def test_what_is_worse_is_told_with_both_numbers(found: Row, said: str) -> None:
    assert worse_than(LOCKED, found) == [said]


def test_the_locked_baseline_says_who_locked_it_and_why_and_reaches_the_goals() -> None:
    document = json.loads(BASELINE.read_text(encoding="utf-8"))
    assert document["locked_by"].strip()
    assert document["reason"].strip()
    assert 1_500 <= document["dual"]["tokens"] <= 3_000
    assert document["dual"]["redundancy"] <= 0.10
    assert document["dual"]["evidence"] >= 0.95


def test_a_lock_without_a_reason_and_a_run_without_logs_are_refused(tmp_path: Path) -> None:
    without = run("--check", "--logs", str(tmp_path))
    assert without.returncode == 2
    assert "KGAMMA_LOGS" in without.stdout
    if LOGS is not None:
        bare = run("--lock", "somebody", "--logs", str(LOGS), "--baseline", str(tmp_path / "new.json"))
        assert bare.returncode == 2
        assert "--reason" in bare.stdout
        assert not (tmp_path / "new.json").exists()


@needs_logs
def test_no_worse_than_the_locked_baseline() -> None:
    done = run("--check", "--logs", str(LOGS))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_logs
def test_worse_than_a_better_baseline_exits_with_1_and_the_numbers(tmp_path: Path) -> None:
    document = json.loads(BASELINE.read_text(encoding="utf-8"))
    document["dual"] |= {"records": 300, "tokens": 1_000.0}
    better = tmp_path / "better.json"
    better.write_text(json.dumps(document), encoding="utf-8")
    done = run("--check", "--logs", str(LOGS), "--baseline", str(better))
    assert done.returncode == 1, done.stderr
    assert "worse by more than 5 %: tokens per task" in done.stdout
    assert "locked 1000.0" in done.stdout


@needs_logs
def test_a_mind_that_quotes_its_context_in_every_report_does_not_grow() -> None:
    assert LOGS is not None
    by_day = self_excitation(LOGS, days=5, hours=6)
    assert max(by_day[1:]) <= 1.1 * by_day[0]
    assert by_day[-1] <= 3_000
