"""What a webhook is told of a proposal, and how an answer is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.truths.static.proposals import Proposal
from kernel_gamma.truths.static.signing import feishu_bot_sign

__all__ = ["ANSWER_PATH", "feishu_answer", "feishu_message", "webhook_message"]

ANSWER_PATH = "/api/static/approvals"
"""Where an answer is taken, on the gateway."""
_MOST_DIFF = 6_000
"""Characters of the change in a card."""


def webhook_message(proposal: Proposal, diff: str) -> dict[str, Json]:
    """The body for `static.approval: webhook`."""
    return {
        "type": "static.proposal",
        "id": proposal.id,
        "file": proposal.file,
        "by": proposal.by,
        "why": proposal.why,
        "before_sha256": proposal.before_sha256,
        "after_sha256": proposal.after_sha256,
        "diff": diff,
        "time": proposal.proposed_at,
        "answer": ANSWER_PATH,
    }


def feishu_message(proposal: Proposal, diff: str, *, secret: str, timestamp: int) -> dict[str, Json]:
    """The body for `static.approval: feishu`: a signed card whose buttons carry the id and the decision."""
    shown = diff if len(diff) <= _MOST_DIFF else diff[:_MOST_DIFF] + "\n…"
    said = (
        f"文件 / file: {proposal.file}\n提议者 / by: {proposal.by}\n原因 / why: {proposal.why or '-'}\n"
        f"时间 / time: {proposal.proposed_at}\nSHA-256: {_short(proposal.before_sha256)} → "
        f"{_short(proposal.after_sha256)}\n\nkgamma static approve {proposal.id}"
    )
    buttons: list[Json] = [
        {
            "tag": "button",
            "type": kind,
            "text": {"tag": "plain_text", "content": words},
            "value": {"id": proposal.id, "decision": decision},
        }
        for decision, words, kind in (
            ("approve", "批准 / approve", "primary"),
            ("reject", "拒绝 / reject", "danger"),
        )
    ]
    return {
        "timestamp": str(timestamp),
        "sign": feishu_bot_sign(secret, timestamp),
        "msg_type": "interactive",
        "card": {
            "header": {
                "title": {"tag": "plain_text", "content": f"静态真值的改动 / change proposed: {proposal.id}"}
            },
            "elements": [
                # plain text: what a proposal says must not become links or mentions
                {"tag": "div", "text": {"tag": "plain_text", "content": said}},
                {"tag": "div", "text": {"tag": "plain_text", "content": shown}},
                {"tag": "action", "actions": buttons},
            ],
        },
    }


def feishu_answer(document: Json) -> Json:
    """A click on a card as an answer of ours; any other document as it is."""
    event = document.get("event", document) if isinstance(document, dict) else None
    action = event.get("action") if isinstance(event, dict) else None
    value = action.get("value") if isinstance(action, dict) else None
    if not isinstance(event, dict) or not isinstance(value, dict):
        return document
    operator = event.get("operator")
    who: Mapping[str, Json] = operator if isinstance(operator, dict) else event
    name = next((who[key] for key in ("name", "user_id", "open_id") if who.get(key)), None)
    return {"id": value.get("id"), "decision": value.get("decision"), "name": name}


def _short(sha256: str | None) -> str:
    return "-" if sha256 is None else sha256[:12]
