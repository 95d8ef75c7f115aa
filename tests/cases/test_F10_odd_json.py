"""F10 odd JSON: answers that are nearly what was asked for, and answers that are nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.accounting import Account
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

ATTEMPTS = 3

_WHOLE = '{"thought": "", "actions": [{"tool": "send_message", "arguments": {"text": "%s"}}]}'

UNDERSTOOD = {
    "fenced": (f"Here you are:\n\n```json\n{_WHOLE % '好的, yes'}\n```\n", "好的, yes"),
    "braces before": (f"I {{think}} this {{is, all}} of it: {_WHOLE % 'yes'} (done)", "yes"),
    "a lone surrogate": (_WHOLE % r"yes \ud83d indeed", "yes � indeed"),
}
NOT_UNDERSTOOD = {
    "cut": (_WHOLE % "a long story")[:60],
    "empty object": "{}",
    "no object": "sorry",
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


def _ask(nursery: Nursery, folder: Path, reply: str) -> tuple[Account, ScriptedServer]:
    """One message, whose passage the externalizer answers with `reply`, always."""
    home = make_home(folder)
    dropper = Dropper(home)
    dropper.drop("anna.json", {"text": "will you come? 你来吗？", "from": "anna"})

    def script(request: ParsedRequest) -> Answer:
        return Answer(reply if request.agent == "externalizer" else narrate(request))

    with ScriptedServer(script) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_BUS__MAX_ATTEMPTS": str(ATTEMPTS)}
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    return Account(dropper.data, dropper.files), server


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_F10_what_is_clearly_meant_is_understood(nursery: Nursery, tmp_path: Path, case: str) -> None:
    reply, text = UNDERSTOOD[case]
    account, server = _ask(nursery, tmp_path, reply)
    account.check()
    assert dict(account.replies) == {text: 1}
    assert not account.dead
    assert server.count("externalizer") == 1


@pytest.mark.parametrize("case", NOT_UNDERSTOOD)
def test_F10_what_is_no_answer_is_asked_again_then_kept(nursery: Nursery, tmp_path: Path, case: str) -> None:
    reply = NOT_UNDERSTOOD[case]
    account, server = _ask(nursery, tmp_path, reply)
    account.check()
    asked = [request.prompt for request in server.requests if request.agent == "externalizer"]
    assert len(asked) == 2 * ATTEMPTS
    for first, again in zip(asked[::2], asked[1::2], strict=True):
        assert "JSON object" in again.removeprefix(first), "the error is not shown"
    assert not account.replies
    (name, reason), *more = account.dead.items()
    assert not more
    assert name.startswith("int_"), "it is the translation that failed, the event was told"
    assert (reason["error"], reason["raw"], reason["attempts"]) == ("unusable", reply, ATTEMPTS)
    done = account.data / "pipeline/internalized/done"
    assert not list(done.glob("*/int_*.json")), "done with nothing"


def test_F10_nonsense_for_three_events_in_a_row_is_an_outage(nursery: Nursery, tmp_path: Path) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    for name in ("anna", "ben", "小明", "dora"):
        dropper.drop(f"{name}.json", {"text": f"I am {name}", "from": name})
    sane = False

    def script(request: ParsedRequest) -> Answer:
        if not sane:
            return Answer('{"this": "is no passage"}')
        return Answer(translate(request) if request.agent == "externalizer" else narrate(request))

    with ScriptedServer(script) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_BUS__BACKOFF_SEC": "1"}
        assert nursery.once(home, environ) == 1
        account = Account(dropper.data, dropper.files)
        assert not account.dead
        assert not account.told
        assert server.count("internalizer") == 6, "three events, asked twice each, then quiet"
        sane = True
        assert nursery.once(home, environ) == 0
    account = Account(dropper.data, dropper.files)
    account.check()
    assert len(account.told) == len(account.replies) == len(dropper.files)


@pytest.mark.parametrize("agent", ["internalizer", "externalizer"])
def test_F10_an_answer_cut_off_by_its_length_is_never_applied(
    nursery: Nursery, tmp_path: Path, agent: str
) -> None:
    """It reads like a whole one, which is what makes it dangerous."""
    home = make_home(tmp_path)
    dropper = Dropper(home)
    dropper.drop("anna.json", {"text": "tell me a long story", "from": "anna"})
    asked = 0

    def script(request: ParsedRequest) -> Answer:
        nonlocal asked
        whole = translate(request) if request.agent == "externalizer" else narrate(request)
        if request.agent != agent:
            return Answer(whole)
        asked += 1
        if asked == 1:
            return Answer(whole.replace("reply", "think").replace("echo", "half"), finish_reason="length")
        return Answer(whole)

    with ScriptedServer(script) as server:
        assert nursery.once(home, {"OPENAI_BASE_URL": server.base_url}) == 0
        second = [request.prompt for request in server.requests if request.agent == agent][1]
    account = Account(dropper.data, dropper.files)
    account.check()
    assert "cut off because it was too long" in second
    assert list(account.replies) == [f"echo {account.ids_of('anna.json')[0]}"]
    assert "think" not in account.page("stream/now.md")
