from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.truths.static.conftest import Bench, counting

from kernel_gamma.contracts.truths import NewTruth, Truth
from kernel_gamma.errors import SettingsError, StoreFull
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.approvals import sha256_of
from kernel_gamma.truths.static.changes import ChangeRefused, Changes, NoSuchProposal, Proposal
from kernel_gamma.truths.static.lock import read_lock
from kernel_gamma.truths.static.places import LOCK_FILE
from kernel_gamma.truths.static.rendering import joined
from kernel_gamma.truths.store import SqliteTruths
from kernel_gamma.truths.writing import Limits

IDENTITY = "config/identity.json"
OLD, NEW = "DID-LOCAL-000001", "DID-LOCAL-000002"


def proposed(bench: Bench, **more: Any) -> Proposal:
    bench.edit(IDENTITY, OLD, NEW)
    return bench.changes(**more).propose(IDENTITY, why="it is ours now", by="alice")


def approved(bench: Bench, proposal: Proposal) -> Proposal:
    return bench.changes().approve(proposal.id, name="bob", now=bench.clock.now())


def records(bench: Bench) -> list[dict[str, Any]]:
    return [truth.value for truth in bench.store.page(limit=50, category="operation.static_change")[1]]


def test_a_proposal_is_recorded_and_nothing_of_it_is_served_yet(bench: Bench) -> None:
    channel = bench.channel()
    before = joined(channel.sections("full"))
    told: list[Proposal] = []
    proposal = proposed(bench, told=told.append)
    assert told == [proposal] == bench.changes().proposals()
    truth = bench.store.get(proposal.key)
    assert truth is not None
    assert truth.value["after_sha256"] == sha256_of(bench.path(IDENTITY).read_bytes())
    assert joined(channel.sections("full")) == before
    assert records(bench) == []


def test_an_approval_writes_lock_bytes_and_a_record_with_both_hashes(bench: Bench) -> None:
    proposal = proposed(bench)
    bench.clock.advance(60)
    done = approved(bench, proposal)
    assert (done.state, done.decided_by) == ("approved", "bob")
    lock = read_lock(bench.home)
    assert lock is not None
    assert lock.files[IDENTITY].approved_by == "bob"
    assert lock.files[IDENTITY].sha256 == proposal.after_sha256
    (record,) = records(bench)
    assert record == {
        "file": IDENTITY,
        "before_sha256": proposal.before_sha256,
        "after_sha256": proposal.after_sha256,
        "proposed_by": "alice",
        "approved_by": "bob",
        "why": "it is ours now",
        "proposal": proposal.id,
    }
    assert bench.changes().proposals() == []
    assert NEW in joined(bench.channel().sections("lean"))
    assert bench.changes().drifted() == []
    assert bench.store.verify().ok


def test_a_text_that_was_handed_in_is_written_at_the_approval(bench: Bench) -> None:
    text = bench.path(IDENTITY).read_text().replace(OLD, NEW)
    proposal = bench.changes().propose(IDENTITY, text, why="", by="the mind")
    assert OLD in bench.path(IDENTITY).read_text()
    bench.path(IDENTITY).chmod(0o640)
    approved(bench, proposal)
    assert bench.path(IDENTITY).read_text() == text
    assert bench.path(IDENTITY).stat().st_mode & 0o777 == 0o640
    assert list(bench.path("config").glob(".*")) == []


def test_a_file_that_is_gone_is_proposed_to_go_and_a_new_one_to_come(bench: Bench) -> None:
    file = "config/metalaws/40-more.yaml"
    new = bench.changes().propose(file, "id: more\ntitle: 更多\ntext: More.\n", why="", by="alice")
    assert new.before_sha256 is None
    approved(bench, new)
    assert "4. 更多" in joined(bench.channel().sections("lean"))
    bench.path(file).unlink()
    gone = bench.changes().propose(file, why="", by="alice")
    assert (gone.text, gone.after_sha256) == (None, None)
    approved(bench, gone)
    assert "更多" not in joined(bench.channel().sections("full"))
    assert bench.changes().drifted() == []


def test_what_must_be_there_cannot_be_proposed_to_go(bench: Bench) -> None:
    bench.path(IDENTITY).unlink()
    with pytest.raises(SettingsError):
        bench.changes().propose(IDENTITY, why="", by="alice")
    bench.path("config/metalaws/20-configuration-drift.yaml").unlink()
    with pytest.raises(SettingsError, match="there are 2"):
        bench.changes().propose("config/metalaws/20-configuration-drift.yaml", why="", by="alice")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"did": "x"}', "is missing"),
        ('{"did": "x", "system_id": "s", "provenance": "' + "word " * 300 + '"}', "100 are allowed"),
        ('{"did": "x", "system_id": "s", "provenance": "password=hunter22"}', "line 1 holds a value for"),
    ],
)
def test_what_does_not_fit_is_not_recorded(bench: Bench, text: str, said: str) -> None:
    with pytest.raises((SettingsError, ChangeRefused), match=said):
        bench.changes().propose(IDENTITY, text, why="", by="alice")
    assert bench.changes().proposals() == []


def test_a_secret_is_never_repeated_nor_kept(bench: Bench) -> None:
    text = bench.path(IDENTITY).read_text().replace(OLD, "password=hunter22")
    with pytest.raises(ChangeRefused) as caught:
        bench.changes().propose(IDENTITY, text, why="", by="alice")
    assert "hunter22" not in str(caught.value)
    with pytest.raises(ChangeRefused):
        bench.changes().propose(IDENTITY, None, why="password=hunter22", by="alice")
    assert all("hunter22" not in str(truth.value) for truth in bench.store.each())


@pytest.mark.parametrize(
    "file",
    ["config/kernel.yaml", "../x", "/etc/passwd", "config/metalaws/../identity.json", "", LOCK_FILE, "."],
)
def test_only_static_truths_can_be_proposed(bench: Bench, file: str) -> None:
    with pytest.raises(ChangeRefused, match="is no static truth"):
        bench.changes().propose(file, "{}", why="", by="alice")


def test_nothing_changed_is_nothing_to_propose_and_the_same_change_is_one_proposal(bench: Bench) -> None:
    with pytest.raises(ChangeRefused, match="nothing to propose"):
        bench.changes().propose(IDENTITY, why="", by="alice")
    first = proposed(bench)
    assert bench.changes().propose(IDENTITY, why="again", by="bob") == first
    assert len(bench.changes().proposals()) == 1


def test_an_edit_after_the_proposal_must_be_proposed_again(bench: Bench) -> None:
    proposal = proposed(bench)
    bench.edit(IDENTITY, NEW, "DID-LOCAL-000003")
    with pytest.raises(ChangeRefused, match="was edited since"):
        approved(bench, proposal)
    bench.edit(IDENTITY, "DID-LOCAL-000003", OLD)
    approved(bench, proposal)  # put back as it was: nothing of anybody's is lost
    assert NEW in bench.path(IDENTITY).read_text()


def test_of_two_proposals_for_one_file_the_second_must_be_made_anew(bench: Bench) -> None:
    text = bench.path(IDENTITY).read_text()
    first = bench.changes().propose(IDENTITY, text.replace(OLD, NEW), why="", by="alice")
    second = bench.changes().propose(IDENTITY, text.replace(OLD, "other"), why="", by="alice")
    approved(bench, first)
    with pytest.raises(ChangeRefused, match="another change was approved"):
        approved(bench, second)


def test_a_decision_stands_and_a_record_of_it_cannot_be_written_over(bench: Bench) -> None:
    proposal = proposed(bench)
    approved(bench, proposal)
    for decide in (approved, lambda bench, found: bench.changes().reject(
        found.id, name="eve", reason="", now=bench.clock.now()
    )):  # fmt: skip
        with pytest.raises(ChangeRefused, match="approved already by bob"):
            decide(bench, proposal)
    truth = bench.store.get(proposal.key)
    assert truth is not None and truth.locked
    assert len(records(bench)) == 1


def test_a_rejection_leaves_the_file_and_says_why(bench: Bench) -> None:
    proposal = proposed(bench)
    before = bench.path(LOCK_FILE).read_bytes()
    done = bench.changes().reject(proposal.id.lower(), name="bob", reason="not ours", now=bench.clock.now())
    assert (done.state, done.reason, done.decided_by) == ("rejected", "not ours", "bob")
    assert bench.path(LOCK_FILE).read_bytes() == before
    assert bench.changes().drifted() == [IDENTITY]
    assert bench.changes().proposals() == []
    assert bench.changes().proposals(open_only=False) == [done]


def test_an_approval_that_was_cut_short_can_be_given_again(bench: Bench) -> None:
    proposal = proposed(bench)
    standing = bench.store.get(proposal.key)
    assert standing is not None
    approved(bench, proposal)
    bench.store.unlock(proposal.key)
    # as if the process had died between the lock and the record
    bench.store.upsert(NewTruth(key=proposal.key, value=standing.value, trust="owner"))
    assert approved(bench, proposal).state == "approved"
    assert {record["before_sha256"] for record in records(bench)} == {proposal.before_sha256}
    assert bench.changes().drifted() == []


def test_a_proposal_that_somebody_else_wrote_is_none(bench: Bench) -> None:
    proposal = proposed(bench)
    standing = bench.store.get(proposal.key)
    assert standing is not None
    forged = {**standing.value, "text": "{}"}
    bench.store.upsert(NewTruth(key=proposal.key, value=forged, trust="unknown"))
    bench.store.upsert(NewTruth(key="proposal.X", value={"id": "X"}, trust="owner"))
    assert bench.changes().proposals() == []
    for wanted in (proposal.id, "X", "nobody", "a b", ""):
        with pytest.raises(NoSuchProposal):
            bench.changes().get(wanted)


@pytest.mark.parametrize("name", ["", "  ", "a\x1b[31m", "x" * 101])
def test_a_change_needs_a_name(bench: Bench, name: str) -> None:
    proposal = proposed(bench)
    with pytest.raises(ChangeRefused, match="name"):
        bench.changes().approve(proposal.id, name=name, now=bench.clock.now())
    with pytest.raises(ChangeRefused, match="name"):
        bench.changes().propose(IDENTITY, why="", by=name)


def test_a_diff_shows_what_an_edit_or_a_proposal_changes(bench: Bench) -> None:
    proposal = proposed(bench)
    for what in (IDENTITY, proposal.id, proposal.key):
        diff = bench.changes().diff(what)
        assert f'-  "did": "{OLD}",' in diff
        assert f'+  "did": "{NEW}",' in diff
    assert bench.changes().diff("config/meta_axioms.json") == ""
    bench.path("config/core/truth/new.md").write_text("no line break")
    assert (
        bench.changes()
        .diff("config/core/truth/new.md")
        .endswith("+no line break\n\\ No newline at end of file\n")
    )
    approved(bench, proposal)
    assert f'-  "did": "{OLD}",' in bench.changes().diff(proposal.id)


def test_the_status_tells_every_file_with_its_tokens(bench: Bench) -> None:
    proposed(bench)
    bench.path("config/core/truth/new.md").write_text("# new\n")
    states = {state.file: state for state in bench.changes().status()}
    assert states[IDENTITY].state == "changed"
    assert states["config/core/truth/new.md"].state == "new"
    assert states["config/core/truth/new.md"].tokens is None
    assert states["config/meta_axioms.json"].approved_by == "kernel-gamma"
    assert 0 < (states["config/meta_axioms.json"].tokens or 0) <= states["config/meta_axioms.json"].budget
    assert next(iter(states)) == "config/meta_axioms.json"


def test_lost_bytes_are_mended_by_proposing_what_stands_there(bench: Bench) -> None:
    bench.approve(IDENTITY, OLD, "DID-LOCAL-000009")
    bench.approve("config/uni_steady_core.json", '"1.0"', '"1.0.9"')
    bench.lose_store()
    bench.edit(IDENTITY, "DID-LOCAL-000009", NEW)
    bench.edit("config/uni_steady_core.json", '"1.0.9"', '"1.1"')
    with pytest.raises(SettingsError):
        bench.channel().sections("full")
    for file in (IDENTITY, "config/uni_steady_core.json"):
        approved(bench, bench.changes().propose(file, why="the store was lost", by="alice"))
    text = joined(bench.channel().sections("full"))
    assert NEW in text and "CORE 1.1" in text


def test_a_change_without_a_lock_begins_with_one(bench: Bench) -> None:
    bench.path(LOCK_FILE).unlink()
    text = bench.path(IDENTITY).read_text().replace(OLD, NEW)
    proposal = bench.changes().propose(IDENTITY, text, why="", by="alice")
    bench.path(LOCK_FILE).unlink()
    approved(bench, proposal)
    lock = read_lock(bench.home)
    assert lock is not None
    assert {approval.approved_by for approval in lock.files.values()} == {"first start", "bob"}


def test_a_file_behind_a_link_is_changed_where_it_lies(bench: Bench) -> None:
    real = bench.home / "identity-of-mine.json"
    os.rename(bench.path(IDENTITY), real)
    bench.path(IDENTITY).symlink_to(real)
    text = real.read_text().replace(OLD, NEW)
    approved(bench, bench.changes().propose(IDENTITY, text, why="", by="alice"))
    assert bench.path(IDENTITY).is_symlink()
    assert real.read_text() == text


def test_proposals_are_listed_beyond_one_page(bench: Bench) -> None:
    changes = bench.changes()
    base = bench.path(IDENTITY).read_text()
    changes.propose(IDENTITY, base.replace(OLD, "one"), why="", by="alice")
    others = [
        NewTruth(key=f"proposal.N{n}", value={}, timestamp=bench.clock.now() + timedelta(seconds=n))
        for n in range(450)
    ]
    bench.store.upsert_many(others)
    assert len(changes.proposals()) == 1


class FillingStore(SqliteTruths):
    """Takes as many writes as are left; then the disk is full."""

    left = 0

    def upsert(self, truth: NewTruth) -> Truth:
        self._take()
        return super().upsert(truth)

    def upsert_many(self, truths: Sequence[NewTruth]) -> list[str]:
        self._take()
        return super().upsert_many(truths)

    def _take(self) -> None:
        if self.left == 0:
            raise StoreFull("the disk is full")
        self.left -= 1


@pytest.mark.parametrize("writes", range(4))
def test_an_approval_on_a_full_disk_is_whole_or_not_there_and_can_be_given_again(
    bench: Bench, tmp_path: Path, writes: int
) -> None:
    before = joined(bench.channel().sections("full"))
    after = before.replace(OLD, NEW)
    text = bench.path(IDENTITY).read_text().replace(OLD, NEW)
    proposal = bench.changes().propose(IDENTITY, text, why="", by="alice")
    filling = FillingStore(bench.store.database, bench.clock, bench.store.retention, Limits())
    filling.left = writes
    changes = Changes(bench.home, StaticPaths(), filling, bench.clock, count=counting())
    if writes < 3:
        with pytest.raises(StoreFull):
            changes.approve(proposal.id, name="bob", now=bench.clock.now())
        assert joined(bench.channel().sections("full")) in (before, after)
        assert len(records(bench)) == 0
        assert approved(bench, proposal).state == "approved"
    else:
        changes.approve(proposal.id, name="bob", now=bench.clock.now())
    assert joined(bench.channel().sections("full")) == after
    assert len(records(bench)) == 1
    assert bench.changes().drifted() == []


def test_of_many_who_approve_at_once_one_does(bench: Bench) -> None:
    proposal = proposed(bench)

    def approve(number: int) -> str:
        try:
            done = bench.changes().approve(proposal.id, name=f"n{number}", now=bench.clock.now())
            return done.state
        except ChangeRefused:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(approve, range(8)))
    assert sorted(outcomes) == ["approved", *["refused"] * 7]
    assert len(records(bench)) == 1
