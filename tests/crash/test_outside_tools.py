"""A kill around a tool that leaves the folder: what was run, and what the mind is told of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.crash.accounting import Account
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import furnish, narrate, read_presses, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

_THIRD = 3
"""One event: the internalizer's answer is the first journalled step, the externalizer's the second."""


def _mind(request: ParsedRequest) -> Answer:
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _press(nursery: Nursery, folder: Path, text: str, step: str) -> tuple[Account, list[str]]:
    """Die at the tool's own journal step, recover; the account and the keys of the tool's runs."""
    home = make_home(folder)
    furnish(home)
    dropper = Dropper(home)
    dropper.drop("press.json", {"type": "bell.needed", "text": text, "from": "alice"})
    with ScriptedServer(_mind) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "CRASH_TOOL_FILE": str(home / "presses.txt")}
        deadly = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": f"{step}:{_THIRD}"}
        assert nursery.once(home, environ | deadly) == -signal.SIGKILL
        assert nursery.once(home, environ) == 0
    account = Account(dropper.data, dropper.files)
    account.check()
    return account, read_presses(home / "presses.txt").get(account.ids_of("press.json")[0], [])


def _outcomes(account: Account) -> list[str]:
    return [document["payload"]["type"] for document in account.own_events().values()]


@pytest.mark.parametrize(("step", "runs"), [("journal.intent", 0), ("journal.ran", 1)])
def test_a_tool_that_must_not_run_twice_is_reported_as_unknown(
    nursery: Nursery, tmp_path: Path, step: str, runs: int
) -> None:
    account, presses = _press(nursery, tmp_path, "press the button", step)
    assert len(presses) == runs
    assert _outcomes(account) == ["action.outcome_unknown"]


@pytest.mark.parametrize(("step", "runs"), [("journal.intent", 1), ("journal.ran", 2)])
def test_an_idempotent_tool_runs_again_with_the_same_key(
    nursery: Nursery, tmp_path: Path, step: str, runs: int
) -> None:
    account, presses = _press(nursery, tmp_path, "ring the bell", step)
    assert len(presses) == runs
    assert len(set(presses)) == 1
    assert _outcomes(account) == []
    assert account.page("stream/now.md").count("I used press_again, and it worked.") == 1


def test_a_stored_receipt_is_not_earned_again(nursery: Nursery, tmp_path: Path) -> None:
    account, presses = _press(nursery, tmp_path, "press the button", "journal.result")
    assert len(presses) == 1
    assert _outcomes(account) == ["action.done"]
