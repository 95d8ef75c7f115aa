"""The address of static.approval_webhook, over real HTTP."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.hook_server import HookServer
from tests.truths.static.conftest import Bench

from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.settings import StaticSettings
from kernel_gamma.truths.static.changes import Proposal
from kernel_gamma.truths.static.signing import check_signature, feishu_bot_sign
from kernel_gamma.truths.static.webhook import MOST_TRIES, Webhook, approval_problem, telling_of
from kernel_gamma.truths.store import open_truths

IDENTITY = "config/identity.json"
SECRET = "a-secret-that-is-shared"
ENVIRON = {"KGAMMA_APPROVAL_SECRET": SECRET}


def hooked(bench: Bench, url: str | None, approval: str = "webhook", **more: Any) -> Webhook:
    settings = StaticSettings(approval=approval, approval_webhook=url)  # type: ignore[arg-type]
    given = {"diff": bench.changes().diff} | more
    return Webhook(settings, ENVIRON, given.pop("store", bench.store), bench.clock, **given)


def proposed(bench: Bench, webhook: Webhook | None = None) -> Proposal:
    bench.edit(IDENTITY, "DID-LOCAL-000001", "DID-LOCAL-000002")
    more = {"told": webhook.tell} if webhook else {}
    return bench.changes(**more).propose(IDENTITY, why="it is ours now", by="alice")


def test_a_new_proposal_is_told_signed_with_all_that_is_to_be_judged(bench: Bench) -> None:
    with HookServer() as hook:
        proposal = proposed(bench, hooked(bench, hook.url))
        ((headers, body),) = hook.heard
    now = bench.clock.now().timestamp()
    assert check_signature(SECRET, _titled(headers), body, now=now, feishu=False)
    (told,) = hook.told
    assert told["id"] == proposal.id and told["by"] == "alice" and told["why"] == "it is ours now"
    assert (told["before_sha256"], told["after_sha256"]) == (proposal.before_sha256, proposal.after_sha256)
    assert '+  "did": "DID-LOCAL-000002",' in told["diff"]
    assert told["time"] == proposal.proposed_at and told["answer"] == "/api/static/approvals"
    telling = telling_of(bench.store, proposal.id)
    assert telling is not None and (telling.state, telling.tries) == ("told", 1)
    assert bench.changes().proposals() == [proposal]


def _titled(headers: dict[str, str]) -> dict[str, str]:
    return {name.title(): value for name, value in headers.items()}


def test_feishu_gets_a_card_with_its_own_signature(bench: Bench) -> None:
    with HookServer() as hook:
        proposal = proposed(bench, hooked(bench, hook.url, "feishu"))
    (told,) = hook.told
    moment = int(bench.clock.now().timestamp())
    assert (told["timestamp"], told["sign"]) == (str(moment), feishu_bot_sign(SECRET, moment))
    assert told["msg_type"] == "interactive"
    buttons = told["card"]["elements"][-1]["actions"]
    assert [one["value"] for one in buttons] == [
        {"id": proposal.id, "decision": "approve"},
        {"id": proposal.id, "decision": "reject"},
    ]
    assert SECRET.encode() not in hook.heard[0][1]


def test_feishu_that_answers_200_with_a_code_has_not_taken_it(bench: Bench) -> None:
    with HookServer(answer={"code": 19021, "msg": "sign match fail"}) as hook:
        proposal = proposed(bench, hooked(bench, hook.url, "feishu"))
    telling = telling_of(bench.store, proposal.id)
    assert telling is not None and (telling.state, "19021" in telling.error) == ("failed", True)


def test_what_fails_is_tried_again_later_and_not_for_ever(bench: Bench) -> None:
    with HookServer(status=500) as hook:
        webhook = hooked(bench, hook.url)
        proposal = proposed(bench, webhook)
        webhook.sweep()
        assert len(hook.heard) == 1, "not before its time"
        for _ in range(MOST_TRIES + 3):
            bench.clock.advance(3 * 3600)
            webhook.sweep()
        assert len(hook.heard) == MOST_TRIES
    telling = telling_of(bench.store, proposal.id)
    assert telling is not None
    assert (telling.state, telling.error) == ("given up", "the address answered 500")
    assert bench.changes().proposals() == [proposal], "it stands all the same"


def test_an_address_that_is_away_is_told_of_without_its_token(bench: Bench) -> None:
    with HookServer() as hook:
        gone = hook.url
    proposal = proposed(bench, hooked(bench, gone))
    telling = telling_of(bench.store, proposal.id)
    assert telling is not None and telling.state == "failed"
    assert "did not answer" in telling.error and "token" not in telling.error
    with HookServer() as hook:
        bench.clock.advance(60)
        hooked(bench, hook.url).sweep()
        assert [told["id"] for told in hook.told] == [proposal.id]


def test_two_processes_tell_it_once(bench: Bench) -> None:
    proposal = proposed(bench)
    other = open_truths(bench.database, SystemClock())
    try:
        with HookServer() as hook:
            both = [hooked(bench, hook.url), hooked(bench, hook.url, store=other)]
            threads = [threading.Thread(target=one.tell, args=(proposal,)) for one in both]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(hook.heard) == 1
    finally:
        other.close()


def test_a_thread_tells_what_it_is_woken_for(bench: Bench) -> None:
    with HookServer() as hook:
        webhook = hooked(bench, hook.url)
        webhook.start()
        proposal = proposed(bench)
        webhook.wake()
        for _ in range(600):
            if hook.heard:
                break
            threading.Event().wait(0.05)
        webhook.stop()
        assert [told["id"] for told in hook.told] == [proposal.id]


def test_what_was_decided_is_told_no_more(bench: Bench) -> None:
    proposal = proposed(bench)
    bench.changes().reject(proposal.id, name="bob", reason="", now=bench.clock.now())
    with HookServer() as hook:
        hooked(bench, hook.url).sweep()
        assert hook.heard == []


@pytest.mark.parametrize(
    ("approval", "url", "environ", "said"),
    [
        ("cli", None, {}, None),
        ("webhook", None, ENVIRON, "approval_webhook is not set"),
        ("feishu", "ftp://x", ENVIRON, "is no http address"),
        ("webhook", "http://x/", {}, "KGAMMA_APPROVAL_SECRET is not set"),
        ("webhook", "http://x/", ENVIRON, None),
    ],
)
def test_what_is_missing_is_named(approval: Any, url: Any, environ: dict[str, str], said: str | None) -> None:
    problem = approval_problem(StaticSettings(approval=approval, approval_webhook=url), environ)
    assert (said is None and problem is None) or (said is not None and problem and said in problem[0])
