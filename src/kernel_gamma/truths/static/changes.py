"""Change control of Channel A: a change is proposed, looked at, and approved or rejected by name.

A proposal is a truth `proposal.<ULID>`; an approval is a truth `operation.static_change.<UTC time>.<ULID>`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Literal

from kernel_gamma.contracts.envelope import rfc3339
from kernel_gamma.contracts.ports import Clock, TruthStore
from kernel_gamma.errors import KernelError
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.approvals import Approvals, Found, drift_between, sha256_of
from kernel_gamma.truths.static.lock import Approval, Lock, alone, put_file, write_lock
from kernel_gamma.truths.static.places import BUDGETS, Places
from kernel_gamma.truths.static.proposals import (
    Proposal,
    State,
    new_truth_of,
    new_ulid,
    proposal_of,
    proposals_in,
    record_of,
    truth_of,
)
from kernel_gamma.truths.static.rendering import Count, build
from kernel_gamma.truths.static.scan import find_secrets

__all__ = ["ChangeRefused", "Changes", "FileState", "NoSuchProposal", "Proposal", "State"]

_MOST_NAME = 100
_MOST_WHY = 2000


class ChangeRefused(KernelError):
    """A proposal, approval or rejection that cannot be; `str()` says why and what to do."""


class NoSuchProposal(ChangeRefused):
    """There is no proposal of that id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """One file as `kgamma static status` tells of it."""

    file: str
    section: str
    state: Literal["approved", "changed", "missing", "new", "unreadable"]
    approved_sha256: str | None
    approved_by: str | None
    approved_at: str | None
    tokens: int | None
    """Of what is served: of a metalaw those of all metalaws; None when nothing of it is."""
    budget: int


class Changes:
    """Proposals and approvals of one home. Every call may raise TruthError of the store."""

    def __init__(
        self,
        home: Path,
        paths: StaticPaths,
        store: TruthStore,
        clock: Clock,
        *,
        count: Count,
        told: Callable[[Proposal], None] = lambda proposal: None,
    ) -> None:
        """`count` gives the tokens of a text; `told` hears of every new proposal once it is recorded, and
        must not raise."""
        self._home = home
        self._places = Places(paths)
        self._store = store
        self._clock = clock
        self._count = count
        self._told = told
        self._approvals = Approvals(home, self._places, store, clock)

    # Proposing

    def propose(self, file: str, text: str | None = None, *, why: str, by: str) -> Proposal:
        """Record that `file` (relative to the home) should read `text`.

        Without a text: as it stands now in the home, or that it is to go where it is gone.

        The same change proposed again while it is open is the same proposal.

        Raises ChangeRefused for a file that is no static truth, for what is approved already and for a text
        that holds a secret; SettingsError for what does not fit its form or its budget.
        """
        _name_from(by), _why_from(why)
        self._file_from(file)
        self._settle()
        proposal, standing = self._drafted(file, text, why=why, by=by, proposal_id=None)
        if standing is None:
            return proposal
        self._approvals.keep(*standing)  # what it is compared with must outlive an edit in place
        self._store.upsert(new_truth_of(proposal, self._clock.now()))
        self._told(proposal)
        return proposal

    def draft(self, file: str, text: str, *, why: str, by: str, proposal_id: str) -> tuple[Proposal, bool]:
        """The proposal as it would be recorded, and whether it is new: the same change may be open already.

        Writes nothing. Raises as propose.
        """
        proposal, standing = self._drafted(file, text, why=why, by=by, proposal_id=proposal_id)
        return proposal, standing is not None

    def _drafted(
        self, file: str, text: str | None, *, why: str, by: str, proposal_id: str | None
    ) -> tuple[Proposal, tuple[Lock, dict[str, bytes]] | None]:
        """The proposal, and what stands approved; None instead for one that is open already."""
        name, reason = _name_from(by), _why_from(why)
        file = self._file_from(file)
        found = self._approvals.on_disk()
        raw = self._raw_of(file, found) if text is None else text.encode("utf-8", "surrogatepass")
        lock, files = self._standing(found)
        approval = lock.files.get(file)
        before_sha256 = None if approval is None else approval.sha256
        after_sha256 = None if raw is None else sha256_of(raw)
        if before_sha256 == after_sha256:
            raise ChangeRefused(f"{file}: is as it was approved; there is nothing to propose")
        self._check(lock, files, found, file, raw)
        for other in self.proposals():
            if (other.file, other.before_sha256, other.after_sha256) == (file, before_sha256, after_sha256):
                return other, None
        now = self._clock.now()
        proposal = Proposal(
            id=proposal_id or new_ulid(now),
            file=file,
            text=None if raw is None else raw.decode("utf-8"),
            why=reason,
            by=name,
            before_sha256=before_sha256,
            after_sha256=after_sha256,
            proposed_at=rfc3339(now),
        )
        return proposal, (lock, files)

    # Looking

    def proposals(self, *, open_only: bool = True) -> list[Proposal]:
        """The newest first."""
        return [one for one in proposals_in(self._store) if not open_only or one.state == "open"]

    def get(self, proposal_id: str) -> Proposal:
        """One proposal by its id or key. Raises NoSuchProposal."""
        wanted = proposal_id.strip().removeprefix("proposal.").upper()
        truth = self._store.get(f"proposal.{wanted}")
        proposal = None if truth is None else proposal_of(truth)
        if proposal is None:
            raise NoSuchProposal(f"there is no proposal {proposal_id}; `kgamma static status` lists them")
        return proposal

    def diff(self, what: str) -> str:
        """What a proposal (by id) or the file as it stands changes against what is approved; "" for nothing.

        Raises NoSuchProposal, ChangeRefused.
        """
        found = self._approvals.on_disk()
        if "/" not in what and "." not in what.removeprefix("proposal."):
            proposal = self.get(what)
            after = None if proposal.text is None else proposal.text.encode("utf-8", "surrogatepass")
            before = None
            if proposal.before_sha256 is not None:
                before = self._approvals.bytes_of(proposal.file, proposal.before_sha256)
            return _unified(proposal.file, before, after, "proposed")
        file = self._file_from(what)
        settled = self._approvals.settled()
        approval = None if settled is None else settled.lock.files.get(file)
        before, after = None, found.get(file)
        if approval is not None:
            same = after is not None and sha256_of(after) == approval.sha256
            before = after if same else self._approvals.bytes_of(file, approval.sha256)
            if before is None:
                raise ChangeRefused(
                    f"{file}: the approved bytes are nowhere to be had; nothing to compare with"
                )
        return _unified(file, before, after, "as it stands")

    def status(self) -> list[FileState]:
        """Every static truth, by section and name."""
        found = self._approvals.on_disk()
        settled = self._approvals.settled()
        lock = Lock({}) if settled is None else settled.lock
        drift = {one.file: one.kind for one in drift_between(lock, found, self._places)}
        tokens = self._tokens(lock, found)
        states: list[FileState] = []
        for file in {*found, *lock.files}:
            section = self._places.section_of(file)
            if section is None:
                continue
            approval = lock.files.get(file)
            counted = file if section != "metalaws" else self._places.paths["metalaws"]
            states.append(
                FileState(
                    file=file,
                    section=section,
                    state=drift.get(file, "approved"),
                    approved_sha256=None if approval is None else approval.sha256,
                    approved_by=None if approval is None else approval.approved_by,
                    approved_at=None if approval is None else approval.approved_at,
                    tokens=None if approval is None else tokens.get(counted),
                    budget=BUDGETS[section],
                )
            )
        order = list(self._places.paths)
        return sorted(states, key=lambda state: (order.index(state.section), state.file))  # type: ignore[arg-type]

    def drifted(self) -> list[str]:
        """Files that are not as they were approved."""
        return [state.file for state in self.status() if state.state != "approved"]

    def _tokens(self, lock: Lock, found: Found) -> Mapping[str, int]:
        try:
            return build(self._approvals.approved(lock, found), self._places, self._count).tokens
        except KernelError:  # the states tell what is wrong; `kgamma doctor` says it in words
            return {}

    # Deciding

    def approve(self, proposal_id: str, *, name: str, now: datetime) -> Proposal:
        """Make a proposal true, in the name of a person: file, lock, approved bytes and the record of it.

        Repeatable after a crash in between. Raises NoSuchProposal; ChangeRefused when it was decided already,
        or file or approval changed since it was made; SettingsError when it fits no more.
        """
        name = _name_from(name)
        self._settle()
        with alone(self._home):
            proposal = self._open(proposal_id)
            file = proposal.file
            found = self._approvals.on_disk()
            lock, files = self._standing(found)
            self._check_base(proposal, lock.files.get(file), found)
            raw = None if proposal.text is None else proposal.text.encode("utf-8", "surrogatepass")
            self._check(lock, files, found, file, raw)
            approval = None if raw is None else Approval.of(sha256_of(raw), name, now)
            new_lock = lock.with_file(file, approval)
            new_files = _with(files, file, raw)
            # the bytes first: a lock must never name what is nowhere to be had
            self._approvals.keep_bytes(new_lock, new_files)
            self._put(file, raw, found)
            write_lock(self._home, new_lock)
            self._approvals.keep(new_lock, new_files)
            decided = replace(proposal, state="approved", decided_by=name, decided_at=rfc3339(now))
            self._store.upsert_many(
                [record_of(decided, now), truth_of(decided, f"{name} approved a change of {file}", now)]
            )
        return decided

    def reject(self, proposal_id: str, *, name: str, reason: str, now: datetime) -> Proposal:
        """Close a proposal without a change; the file is left as it stands. Raises as approve."""
        name, reason = _name_from(name), _why_from(reason)
        with alone(self._home):
            proposal = self._open(proposal_id)
            decided = replace(
                proposal, state="rejected", decided_by=name, decided_at=rfc3339(now), reason=reason
            )
            said = f"{name} rejected a change of {proposal.file}"
            self._store.upsert(truth_of(decided, said, now))
        return decided

    def _open(self, proposal_id: str) -> Proposal:
        proposal = self.get(proposal_id)
        if proposal.state != "open":
            raise ChangeRefused(
                f"proposal {proposal.id} was {proposal.state} already by {proposal.decided_by}, "
                f"{proposal.decided_at}"
            )
        return proposal

    def _check_base(self, proposal: Proposal, approval: Approval | None, found: Found) -> None:
        """Both what is approved and what stands on the disk are as they were, or as they are to be."""
        file, wanted = proposal.file, (proposal.before_sha256, proposal.after_sha256)
        again = f"look with `kgamma static diff {file}`, then propose it again"
        if (None if approval is None else approval.sha256) not in wanted:
            raise ChangeRefused(f"{file}: another change was approved since this one was proposed; {again}")
        raw = found.get(file)
        if file in found and raw is None:
            raise ChangeRefused(f"{file}: cannot be read; mend that first")
        if (None if raw is None else sha256_of(raw)) not in wanted and file in found:
            raise ChangeRefused(f"{file}: was edited since this change was proposed; {again}")

    def _put(self, file: str, raw: bytes | None, found: Found) -> None:
        if raw is None:
            (self._home / file).unlink(missing_ok=True)
        elif found.get(file) != raw:
            put_file(self._home / file, raw)

    # Checking

    def _settle(self) -> None:
        """From here on there is a lock. Not to be called where `alone` is held: it takes it too."""
        self._approvals.settle(lambda files: build(files, self._places, self._count))

    def _standing(self, found: Found) -> tuple[Lock, dict[str, bytes]]:
        """The lock and the approved bytes. What nobody has bytes of is left out: a proposal may mend it."""
        settled = self._approvals.settled()
        lock = Lock({}) if settled is None else settled.lock
        files: dict[str, bytes] = {}
        for file, approval in lock.files.items():
            if self._places.section_of(file) is not None:
                raw = found.get(file)
                if raw is None or sha256_of(raw) != approval.sha256:
                    raw = self._approvals.bytes_of(file, approval.sha256)
                if raw is not None:
                    files[file] = raw
        return lock, files

    def _check(
        self, lock: Lock, files: Mapping[str, bytes], found: Found, file: str, raw: bytes | None
    ) -> None:
        """Whether all would be sound with this change; where approved bytes are lost, what stands there
        counts for them: that is to be proposed next."""
        if raw is not None:
            _refuse_secrets(file, raw.decode("utf-8", "replace"))
        lost = {name: here for name in lock.files if (here := found.get(name)) is not None}
        build(_with({**lost, **files}, file, raw), self._places, self._count)

    def _file_from(self, file: str) -> str:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or self._places.section_of(str(path)) is None:
            known = ", ".join(self._places.paths.values())
            raise ChangeRefused(f"{file}: is no static truth; those are {known}")
        return str(path)

    def _raw_of(self, file: str, found: Found) -> bytes | None:
        raw = found.get(file)
        if raw is None and file in found:
            raise ChangeRefused(f"{file}: cannot be read; make it a plain file that this user may read")
        return raw


def _with(files: Mapping[str, bytes], file: str, raw: bytes | None) -> dict[str, bytes]:
    changed = {**files}
    changed.pop(file, None)
    if raw is not None:
        changed[file] = raw
    return changed


def _refuse_secrets(file: str, text: str) -> None:
    found = find_secrets(text)
    if found:
        told = ", ".join(f"line {secret.line} holds {secret.kind}" for secret in found[:3])
        raise ChangeRefused(
            f"{file}: looks as if it held a secret: {told}; static truths stand in every prompt: "
            "keep it in .env, and name the variable here"
        )


def _name_from(name: str) -> str:
    found = " ".join(name.split())
    if not found or len(found) > _MOST_NAME or not found.isprintable():
        raise ChangeRefused(f"a change is made in somebody's name: 1 to {_MOST_NAME} printable signs")
    return found


def _why_from(why: str) -> str:
    _refuse_secrets("why", why)
    return why.strip().encode("utf-8", "replace").decode()[:_MOST_WHY]


def _unified(file: str, before: bytes | None, after: bytes | None, said: str) -> str:
    old, new = (_lines(raw) for raw in (before, after))
    lines = difflib.unified_diff(old, new, f"{file} (approved)", f"{file} ({said})")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(raw: bytes | None) -> list[str]:
    """Split at line feeds alone, each with its own."""
    text = "" if raw is None else raw.decode("utf-8", "replace")
    return [line for line in text.replace("\n", "\n\0").split("\0") if line]
