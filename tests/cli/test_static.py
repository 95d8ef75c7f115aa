from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_gamma.model.tokens import Tokens
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.channel import StaticChannel
from kernel_gamma.truths.store import open_truths

IDENTITY = "config/identity.json"
OLD, NEW = "DID-LOCAL-000001", "DID-LOCAL-000002"


def edit(kgamma: Any, old: str = OLD, new: str = NEW) -> None:
    path: Path = kgamma.home / IDENTITY
    path.write_text(path.read_text().replace(old, new))


def asked(kgamma: Any, *args: str, **env: str) -> Any:
    done = kgamma("static", *args, "--json", **env)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_change_goes_from_an_edit_to_an_approval(kgamma: Any) -> None:
    assert asked(kgamma, "status")["drift"] == []
    edit(kgamma)
    assert asked(kgamma, "status")["drift"] == [IDENTITY]
    assert f'+  "did": "{NEW}",' in kgamma("static", "diff").stdout
    done = kgamma("static", "propose", IDENTITY, "--why", "ours", "--by", "alice")
    assert done.exit_code == 0, done.stderr
    first, _, following = done.stdout.splitlines()
    found = first.partition(":")[0]
    assert following.startswith(f"next: kgamma static approve {found}")
    (proposal,) = asked(kgamma, "status")["proposals"]
    assert (proposal["id"], proposal["by"], proposal["why"]) == (found, "alice", "ours")
    assert found in kgamma("static", "status").stdout
    done = kgamma("static", "approve", found, "--name", "bob")
    assert done.stdout == f"{found}: {IDENTITY} changed: approved by bob\n"
    status = asked(kgamma, "status")
    assert (status["drift"], status["proposals"]) == ([], [])
    entry = next(state for state in status["files"] if state["file"] == IDENTITY)
    assert (entry["state"], entry["approved_by"]) == ("approved", "bob")
    done = kgamma("truths", "search", "", "--category", "operation.static_change", "--json")
    assert json.loads(done.stdout)["total"] == 1


def test_the_status_has_a_line_for_every_file(kgamma: Any) -> None:
    lines = kgamma("static", "status").stdout.splitlines()
    assert lines[0].split()[:3] == ["file", "state", "tokens"]
    (line,) = [line for line in lines if line.startswith(IDENTITY)]
    assert "approved" in line and "/100" in line and "kernel-gamma" in line


def test_a_rejection_says_why(kgamma: Any) -> None:
    edit(kgamma)
    found = asked(kgamma, "propose", IDENTITY, "--name", "alice")["id"]
    done = asked(kgamma, "reject", found, "--reason", "not ours", "--name", "bob")
    assert (done["state"], done["reason"], done["decided_by"]) == ("rejected", "not ours", "bob")
    again = kgamma("static", "approve", found, "--name", "bob")
    assert again.exit_code == 1
    assert "was rejected already by bob" in again.stderr


def test_what_cannot_be_is_told_in_a_line(kgamma: Any) -> None:
    done = kgamma("static", "propose", IDENTITY, "--name", "alice")
    assert (done.exit_code, "nothing to propose" in done.stderr) == (1, True)
    done = kgamma("static", "propose", "config/kernel.yaml", "--name", "alice")
    assert (done.exit_code, "is no static truth" in done.stderr) == (1, True)
    done = kgamma("static", "approve", "01NOBODY", "--name", "alice")
    assert (done.exit_code, "there is no proposal 01NOBODY" in done.stderr) == (1, True)
    (kgamma.home / IDENTITY).write_text("{nope")
    done = kgamma("static", "propose", IDENTITY, "--name", "alice")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{IDENTITY}: line 1: is no JSON")
    assert kgamma("static", "approve").exit_code == 2
    assert kgamma("static").exit_code == 2


def test_a_name_is_taken_from_the_login_and_an_empty_one_is_a_mistake(kgamma: Any) -> None:
    edit(kgamma)
    done = asked(kgamma, "propose", IDENTITY, LOGNAME="carol")
    assert done["by"] == "carol"
    done = kgamma("static", "approve", done["id"], "--name", " ")
    assert done.exit_code == 2
    assert "--name NAME" in done.stderr


def test_a_file_is_named_as_it_is_found_from_here(kgamma: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(kgamma)
    for what in (str(kgamma.home / IDENTITY), IDENTITY, f"config/../{IDENTITY}"):
        done = kgamma("static", "diff", what)
        assert NEW in done.stdout, (what, done.stderr)
    monkeypatch.chdir(kgamma.home / "config")
    done = kgamma("static", "diff", "identity.json")
    assert NEW in done.stdout, done.stderr
    found = asked(kgamma, "propose", IDENTITY, "--name", "alice")["id"]
    done = kgamma("static", "diff", found)
    assert NEW in done.stdout, done.stderr


def test_without_changes_a_diff_says_so(kgamma: Any) -> None:
    assert kgamma("static", "diff").stdout == "everything is as it was approved\n"
    assert kgamma("static", "diff", IDENTITY).stdout == f"{IDENTITY}: no difference\n"
    assert asked(kgamma, "diff") == []


def test_init_approves_what_it_lays_out(kgamma: Any) -> None:
    lock = kgamma.home / "config/static.lock.json"
    lock.unlink()
    written = json.loads(kgamma("init", "--json").stdout)["written"]
    assert written == ["config/static.lock.json"]
    assert asked(kgamma, "status")["drift"] == []
    edit(kgamma)
    assert json.loads(kgamma("init", "--json").stdout)["written"] == []
    assert asked(kgamma, "status")["drift"] == [IDENTITY]


def test_another_process_serves_an_approval_at_its_next_call(kgamma: Any) -> None:
    kgamma.data.mkdir(parents=True)
    clock = SystemClock("UTC")
    store = open_truths(kgamma.data / "memory.db", clock)
    told: list[str] = []
    channel = StaticChannel(
        kgamma.home,
        StaticPaths(),
        store,
        clock,
        count=Tokens().count,
        tell=lambda _, said, __: told.append(said),
    )
    assert OLD in channel.sections("lean")[1].text
    edit(kgamma)
    assert OLD in channel.sections("lean")[1].text
    assert len(told) == 1
    found = asked(kgamma, "propose", IDENTITY, "--name", "alice")["id"]
    assert kgamma.process("static", "approve", found, "--name", "bob").returncode == 0
    assert NEW in channel.sections("lean")[1].text
    assert channel.drift() == ()
    store.close()
