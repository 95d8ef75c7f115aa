"""Proposals and approvals as they stand in the memory store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import TruthStore
from kernel_gamma.contracts.truths import NewTruth, Truth
from kernel_gamma.contracts.ulid import encode_ulid
from kernel_gamma.truths.keys import generated_key
from kernel_gamma.truths.static.approvals import written_by_us

__all__ = [
    "Proposal",
    "State",
    "new_truth_of",
    "new_ulid",
    "proposal_of",
    "proposals_in",
    "record_of",
    "truth_of",
    "ulid_from",
]

State = Literal["open", "approved", "rejected"]

_PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of one file that waits for a person, or was decided by one."""

    id: str
    """A ULID; the truth is `proposal.<id>`."""
    file: str
    """Relative to the home."""
    text: str | None
    """The whole file as it is to be; None = the file is to go."""
    why: str
    by: str
    before_sha256: str | None
    """Of what was approved when it was proposed; None = nothing was."""
    after_sha256: str | None
    """Of `text`; None = the file is to go."""
    state: State = "open"
    proposed_at: str = ""
    """RFC 3339."""
    decided_by: str | None = None
    decided_at: str | None = None
    reason: str = ""
    """Of a rejection."""

    @property
    def key(self) -> str:
        """Of its truth."""
        return f"proposal.{self.id}"


def proposals_in(store: TruthStore) -> Iterator[Proposal]:
    """Every proposal, the newest first."""
    offset = 0
    while True:
        _, truths = store.page(limit=_PAGE, offset=offset, category="proposal")
        for truth in truths:
            if (proposal := proposal_of(truth)) is not None:
                yield proposal
        offset += _PAGE
        if len(truths) < _PAGE:
            return


def proposal_of(truth: Truth) -> Proposal | None:
    """The proposal that a truth holds; None for a record that this program did not write, or not so."""
    if not written_by_us(truth) or not isinstance(truth.value, dict):
        return None
    try:
        return Proposal(**truth.value)
    except TypeError:
        return None


def truth_of(proposal: Proposal, description: str, now: datetime) -> NewTruth:
    """Of its present state; a decided one is locked."""
    value: dict[str, Json] = asdict(proposal)
    return NewTruth(
        key=proposal.key,
        value=value,
        description=description,
        timestamp=now,
        locked=proposal.state != "open" or None,
        trust="owner",
    )


def new_truth_of(proposal: Proposal, now: datetime) -> NewTruth:
    """Of one that nobody decided yet."""
    return truth_of(proposal, f"{proposal.by} proposes a change of {proposal.file}", now)


def ulid_from(cause: str) -> str:
    """Always the same for the same cause: what is carried out again makes no second proposal."""
    digest = hashlib.sha256(cause.encode("utf-8", "replace")).digest()
    return encode_ulid(int.from_bytes(digest[:5], "big"), digest[5:15])


def record_of(proposal: Proposal, now: datetime) -> NewTruth:
    """Of its approval: what changed, by whom and why."""
    value: dict[str, Json] = {
        "file": proposal.file,
        "before_sha256": proposal.before_sha256,
        "after_sha256": proposal.after_sha256,
        "proposed_by": proposal.by,
        "approved_by": proposal.decided_by,
        "why": proposal.why,
        "proposal": proposal.id,
    }
    return NewTruth(
        key=generated_key("operation.static_change", now.astimezone(UTC), new_ulid(now)),
        value=value,
        description=f"{proposal.decided_by} approved a change of {proposal.file}",
        timestamp=now,
        locked=True,
        trust="owner",
    )


def new_ulid(now: datetime) -> str:
    """Of this moment (aware)."""
    return encode_ulid(max(int(now.timestamp() * 1000), 0), os.urandom(10))
