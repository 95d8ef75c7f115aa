"""A mind that proposes a change of its static truths, and a person who answers from elsewhere: real daemon,
real webhook, real gateway."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from tests.hook_server import HookServer
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer, good_mind

from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.static.signing import signed_headers

IDENTITY = "config/identity.json"
OLD, NEW = "DID-LOCAL-000001", "DID-LOCAL-000002"
SECRET = "the-secret-of-both-sides"
CLOCK = SystemClock("UTC")


def proposing(text: str) -> Any:
    """A mind that answers `rename yourself` with a proposal."""

    def script(request: ParsedRequest) -> Answer:
        if "externalizer" in request.agent and "evt_rename" in (request.passage or ""):
            given = {"file": IDENTITY, "text": text, "why": "alice asked me"}
            action = {"tool": "propose_truth", "arguments": given}
            return Answer(json.dumps({"thought": "", "actions": [action]}))
        return good_mind(request)

    return script


@contextmanager
def awake(kgamma: Any, **env: str) -> Iterator[str]:
    """`kgamma run` with its gateway; gives the gateway's address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {**kgamma.environ, **env, "KGAMMA_GATEWAY__PORT": str(port), "KGAMMA_MODEL__MODE": "online"}
    process = subprocess.Popen(
        kgamma.command("run"), env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, process.communicate()[0]
        try:
            return httpx2.get(f"{url}/healthz", trust_env=False).is_success
        except httpx2.HTTPError:
            return False

    try:
        kgamma.wait_for(answers)
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=30)


def answer(url: str, document: Any) -> httpx2.Response:
    body = json.dumps(document).encode()
    headers = signed_headers(SECRET, int(CLOCK.now().timestamp()), body)
    return httpx2.post(
        f"{url}/api/static/approvals",
        content=body,
        headers={"content-type": "application/json", **headers},
        trust_env=False,
    )


def systems(server: ScriptedServer) -> list[str]:
    return [request.body["messages"][0]["content"] for request in server.requests]


def say(kgamma: Any, server: ScriptedServer, name: str) -> None:
    calls = server.count("externalizer")
    kgamma.drop(f"{name}.json", json.dumps({"id": name, "text": "rename yourself", "from": "alice"}).encode())
    kgamma.wait_for(lambda: server.count("externalizer") > calls)


def test_the_mind_proposes_a_person_answers_and_the_next_prompt_has_it(kgamma: Any) -> None:
    text = (kgamma.home / IDENTITY).read_text().replace(OLD, NEW)
    with HookServer() as hook, ScriptedServer(proposing(text)) as server:
        env = {
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "none",
            "KGAMMA_TRUST__KNOWN": '["alice"]',
            "KGAMMA_STATIC__APPROVAL": "webhook",
            "KGAMMA_STATIC__APPROVAL_WEBHOOK": hook.url,
            "KGAMMA_APPROVAL_SECRET": SECRET,
        }
        with awake(kgamma, **env) as url:
            say(kgamma, server, "evt_rename")
            kgamma.wait_for(lambda: hook.heard)
            (told,) = hook.told
            assert (told["file"], told["why"]) == (IDENTITY, "alice asked me")
            assert NEW in told["diff"] and told["by"].startswith("the mind")
            say(kgamma, server, "evt_between")
            assert not any(NEW in system for system in systems(server))
            done = answer(url, {"id": told["id"], "decision": "approve", "name": "bob"})
            assert done.status_code == 200, done.text
            calls = server.count()
            say(kgamma, server, "evt_after")
            assert all(NEW in system for system in systems(server)[calls:])
            again = answer(url, {"id": told["id"], "decision": "reject", "name": "eve"})
            assert again.status_code == 409
    assert json.loads((kgamma.home / IDENTITY).read_text())["did"] == NEW
    stream = (kgamma.data / "self/stream/now.md").read_text()
    assert "a person has to approve it" in stream
    found = json.loads(
        kgamma("truths", "search", "", "--category", "operation.static_change", "--json").stdout
    )
    assert any(one["value"].get("approved_by") == "bob" for one in found["results"])
    for path in kgamma.home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_a_webhook_that_fails_holds_no_proposal_up_and_is_told(kgamma: Any) -> None:
    path: Path = kgamma.home / IDENTITY
    path.write_text(path.read_text().replace(OLD, NEW))
    with HookServer(status=503) as hook:
        env = {
            "KGAMMA_STATIC__APPROVAL": "webhook",
            "KGAMMA_STATIC__APPROVAL_WEBHOOK": hook.url,
            "KGAMMA_APPROVAL_SECRET": SECRET,
        }
        done = kgamma("static", "propose", IDENTITY, "--name", "alice", "--json", **env)
        assert done.exit_code == 0, done.stderr
        proposal = json.loads(done.stdout)["id"]
        assert len(hook.heard) == 1
        told = kgamma("static", "status", **env).stdout
        assert f"{proposal} was not told: the address answered 503; try 1 of 8" in " ".join(told.split())
        status = json.loads(kgamma("static", "status", "--json", **env).stdout)
    assert status["telling"][proposal]["state"] == "failed"
    assert kgamma("static", "approve", proposal, "--name", "bob", **env).exit_code == 0


def test_what_is_missing_for_an_answer_from_elsewhere_is_said(kgamma: Any) -> None:
    env = {"KGAMMA_STATIC__APPROVAL": "feishu", "KGAMMA_STATIC__APPROVAL_SECRET_ENV": "KGAMMA_MY_SECRET"}
    assert "approval_webhook is not set" in kgamma("static", "status", **env).stdout.replace("\n", " ")
    env |= {"KGAMMA_STATIC__APPROVAL_WEBHOOK": "http://127.0.0.1:9/hook/t0ken"}
    for more, level in (({}, "warn"), ({"KGAMMA_MY_SECRET": SECRET}, "ok")):
        found = json.loads(kgamma("doctor", "--json", **env, **more).stdout)
        findings = found["checks"]
        (finding,) = [one for one in findings if one["check"] == "approval"]
        assert finding["level"] == level
        assert SECRET not in str(finding) and "t0ken" not in str(finding)
