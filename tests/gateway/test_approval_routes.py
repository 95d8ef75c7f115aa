"""POST /api/static/approvals: an answer that comes back from a webhook or from Feishu."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.conftest import Place, ports_of

from kernel_gamma.configuration import lay_out
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.settings import GatewaySettings, Settings, StaticPaths, StaticSettings
from kernel_gamma.truths.static.changes import Changes, Proposal
from kernel_gamma.truths.static.channel import StaticChannel
from kernel_gamma.truths.static.rendering import joined
from kernel_gamma.truths.static.signing import signed_headers
from kernel_gamma.truths.store import SqliteTruths, open_truths

PATH = "/api/static/approvals"
SECRET = "the-secret-of-both-sides"
IDENTITY = "config/identity.json"
OLD, NEW = "DID-LOCAL-000001", "DID-LOCAL-000002"
CLOCK = SystemClock("UTC")


class Office:
    """A home whose changes are decided over HTTP."""

    def __init__(self, serve: Callable[..., Place], folder: Path, approval: str, secret: str | None) -> None:
        self.home = folder / "home"
        lay_out(self.home)
        self.tokens = Tokens()
        self.tokens.load()
        (folder / "data").mkdir()
        self.store = open_truths(folder / "data/memory.db", CLOCK)
        self.changes = Changes(self.home, StaticPaths(), self.store, CLOCK, count=self.tokens.count)
        settings = Settings(
            gateway=GatewaySettings(port=0),
            static=StaticSettings(approval=approval, approval_webhook="http://127.0.0.1:9/x"),  # type: ignore[arg-type]
        )
        self.place = serve("data", settings=settings, changes=self.changes, approval_secret=secret)

    def propose(self, new: str = NEW) -> Proposal:
        text = (self.home / IDENTITY).read_text().replace(OLD, new)
        return self.changes.propose(IDENTITY, text, why="ours", by="the mind")

    def answer(self, document: Any, *, late: float = 0, secret: str = SECRET) -> httpx2.Response:
        body = json.dumps(document).encode()
        moment = int(CLOCK.now().timestamp() - late)
        return self.place.raw(PATH, body, **signed_headers(secret, moment, body))

    def served(self) -> str:
        channel = StaticChannel(
            self.home, StaticPaths(), self.store, CLOCK, count=self.tokens.count, tell=lambda *_: None
        )
        return joined(channel.sections("full"))


@pytest.fixture
def office(serve: Callable[..., Place], tmp_path: Path) -> Any:
    made: list[SqliteTruths] = []

    def make(approval: str = "webhook", secret: str | None = SECRET) -> Office:
        found = Office(serve, tmp_path, approval, secret)
        made.append(found.store)
        return found

    yield make
    for store in made:
        store.close()


def said(proposal: Proposal, decision: str, **more: Any) -> dict[str, Any]:
    return {"id": proposal.id, "decision": decision, "name": "bob", **more}


def test_an_approval_writes_the_file_and_is_served(office: Any) -> None:
    desk = office()
    proposal = desk.propose()
    assert NEW not in desk.served()
    answer = desk.answer(said(proposal, "approve"))
    assert answer.status_code == 200, answer.text
    assert (answer.json()["state"], answer.json()["decided_by"]) == ("approved", "bob")
    assert NEW in desk.served() and NEW in (desk.home / IDENTITY).read_text()
    lock = json.loads((desk.home / "config/static.lock.json").read_text())
    assert lock["files"][IDENTITY]["approved_by"] == "bob"


def test_a_rejection_says_why_and_changes_nothing(office: Any) -> None:
    desk = office()
    proposal = desk.propose()
    answer = desk.answer(said(proposal, "reject", reason="not ours"))
    assert (answer.status_code, answer.json()["state"]) == (200, "rejected")
    assert desk.changes.get(proposal.id).reason == "not ours"
    assert NEW not in desk.served()


def test_a_second_decision_is_a_conflict(office: Any) -> None:
    desk = office()
    proposal = desk.propose()
    assert desk.answer(said(proposal, "reject")).status_code == 200
    again = desk.answer(said(proposal, "approve"))
    assert again.status_code == 409 and "was rejected already by bob" in again.json()["detail"]


def test_forged_stale_and_unsigned_answers_are_refused(office: Any) -> None:
    desk = office()
    document = said(desk.propose(), "approve")
    body = json.dumps(document).encode()
    now = int(CLOCK.now().timestamp())
    refused = [
        desk.answer(document, secret="a guess"),
        desk.answer(document, late=301),
        desk.answer(document, late=-310),
        desk.place.raw(PATH, body),
        desk.place.raw(PATH, body + b" ", **signed_headers(SECRET, now, body)),
    ]
    assert [answer.status_code for answer in refused] == [403] * 5
    assert all(SECRET not in answer.text for answer in refused)
    assert desk.changes.get(document["id"]).state == "open"


def test_the_same_request_counts_once(office: Any) -> None:
    desk = office()
    proposal = desk.propose()
    body = json.dumps(said(proposal, "reject")).encode()
    headers = signed_headers(SECRET, int(CLOCK.now().timestamp()), body)
    assert desk.place.raw(PATH, body, **headers).status_code == 200
    again = desk.place.raw(PATH, body, **headers)
    assert again.status_code == 409 and "heard already" in again.json()["detail"]


def test_an_unknown_id_is_not_found(office: Any) -> None:
    answer = office().answer({"id": "01NOBODY", "decision": "approve", "name": "bob"})
    assert answer.status_code == 404 and "no proposal 01NOBODY" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"id": "1", "decision": "perhaps", "name": "bob"}, "decision"),
        ({"id": "1", "decision": "approve"}, "name"),
        ({"id": "1", "decision": "approve", "name": " "}, "name"),
        ({"id": "1", "decision": "approve", "name": "b", "file": "x"}, "file"),
        ([], "body"),
    ],
)
def test_a_field_that_is_wrong_is_named(office: Any, document: Any, field: str) -> None:
    answer = office().answer(document)
    assert answer.status_code == 422, answer.text
    assert [one["field"] for one in answer.json()["errors"]] == [field]


def test_a_body_that_is_no_json_is_refused(office: Any) -> None:
    desk = office()
    headers = signed_headers(SECRET, int(CLOCK.now().timestamp()), b"{nope")
    assert desk.place.raw(PATH, b"{nope", **headers).status_code == 400


def test_an_edit_after_the_proposal_is_a_conflict(office: Any) -> None:
    desk = office()
    proposal = desk.propose()
    (desk.home / IDENTITY).write_text("{}")
    answer = desk.answer(said(proposal, "approve"))
    assert answer.status_code == 409 and "was edited since" in answer.json()["detail"]


def test_where_the_command_line_approves_nobody_else_does(office: Any) -> None:
    desk = office("cli")
    answer = desk.answer(said(desk.propose(), "approve"))
    assert answer.status_code == 403 and "kgamma static approve" in answer.json()["detail"]


def test_without_a_secret_nobody_is_let_in(office: Any) -> None:
    desk = office(secret=None)
    proposal = desk.propose()
    answer = desk.answer(said(proposal, "approve"), secret="")
    assert answer.status_code == 403 and "KGAMMA_APPROVAL_SECRET" in answer.json()["detail"]
    assert desk.changes.get(proposal.id).state == "open"


def test_the_signature_stands_in_for_the_token_of_the_gateway(serve: Any) -> None:
    guarded = serve("guarded", token="t")
    with httpx2.Client(base_url=guarded.url, trust_env=False) as stranger:
        assert stranger.post(PATH, json={}).status_code == 403
        assert stranger.get("/api/truths").status_code == 401


def clicked(proposal: Proposal, decision: str) -> bytes:
    return json.dumps(
        {
            "schema": "2.0",
            "header": {"event_type": "card.action.trigger"},
            "event": {
                "operator": {"user_id": "u_bob", "open_id": "ou_1"},
                "action": {"tag": "button", "value": {"id": proposal.id, "decision": decision}},
            },
        }
    ).encode()


def lark(body: bytes, secret: str = SECRET, nonce: str = "n1") -> dict[str, str]:
    moment = str(int(CLOCK.now().timestamp()))
    signature = hashlib.sha256(f"{moment}{nonce}{secret}".encode() + body).hexdigest()
    return {
        "X-Lark-Request-Timestamp": moment,
        "X-Lark-Request-Nonce": nonce,
        "X-Lark-Signature": signature,
    }


def test_a_click_on_a_feishu_card_decides(office: Any) -> None:
    desk = office("feishu")
    proposal = desk.propose()
    body = clicked(proposal, "approve")
    assert desk.place.raw(PATH, body, **lark(body, "a guess")).status_code == 403
    answer = desk.place.raw(PATH, body, **lark(body))
    assert answer.status_code == 200, answer.text
    assert answer.json()["decided_by"] == "u_bob"
    assert desk.place.raw(PATH, body, **lark(body)).status_code == 409


def test_a_feishu_signature_is_nothing_to_a_webhook(office: Any) -> None:
    desk = office("webhook")
    body = clicked(desk.propose(), "approve")
    assert desk.place.raw(PATH, body, **lark(body)).status_code == 403


def test_the_secret_is_not_shown_with_the_ports(office: Any) -> None:
    desk = office()
    ports = ports_of(desk.place.data, desk.store, {})
    assert SECRET not in repr(replace(ports, approval_secret=SECRET, token=SECRET))


def test_the_command_of_the_page_approves(office: Any) -> None:
    desk = office()
    proposal = desk.propose()
    page = (Path(__file__).parents[2] / "docs/static-truths.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.replace("http://127.0.0.1:9120", desk.place.url)],
        env={**os.environ, "ID": proposal.id, "KGAMMA_APPROVAL_SECRET": SECRET, "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["state"] == "approved", done.stdout + done.stderr
