"""propose_truth checks, records with the receipt, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import START, MemorySelfLog, batch, delivery
from tests.truths.static.conftest import Bench

from kernel_gamma.actions.builtin import BUILTINS, Request, run_builtin
from kernel_gamma.bus.plan import build_plan
from kernel_gamma.contracts.effects import Outcome, Record
from kernel_gamma.contracts.payloads import ActionPayload
from kernel_gamma.contracts.ports import ToolResult
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.truths.recording import TruthRecorder

IDENTITY = "config/identity.json"
OLD, NEW = "DID-LOCAL-000001", "DID-LOCAL-000002"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    found.channel().drift()  # as a start does: what lies there is approved
    yield found
    found.store.close()


def propose(
    bench: Bench, text: str, *, file: str = IDENTITY, why: str = "ours", key: str = "k1"
) -> ToolResult:
    changes = bench.changes()
    order = ActionPayload.model_validate({"passage_id": "p", "actions": (), "trust": "known"})
    given = {"file": file, "text": text, "why": why}
    request = Request(
        given,
        order,
        START,
        "en",
        MemorySelfLog(),
        key=key,
        draft=lambda file, text, why, name: changes.draft(
            file, text, why=why, by="the mind main", proposal_id=name
        ),
    )
    return run_builtin("propose_truth", request)


def new_text(bench: Bench) -> str:
    return bench.path(IDENTITY).read_text().replace(OLD, NEW)


def commit(bench: Bench, result: ToolResult) -> None:
    """As the bus does: the plan is stored, and may be carried out more than once."""
    (effect,) = result.effects
    assert isinstance(effect, Record) and effect.key is not None
    truth = NewTruth(key=effect.key, value=dict(effect.value), trust=effect.trust or "unknown")
    recorder = TruthRecorder(bench.store)
    recorder.record(truth)
    recorder.flush()


def test_a_proposal_is_one_truth_however_often_it_is_carried_out(bench: Bench) -> None:
    first, again = propose(bench, new_text(bench)), propose(bench, new_text(bench))
    commit(bench, first)
    commit(bench, again)
    (proposal,) = bench.changes().proposals()
    assert first.result == again.result == {"proposal": proposal.id, "file": IDENTITY, "state": "open"}
    assert proposal.by == "the mind main" and NEW in bench.changes().diff(proposal.id)
    assert NEW not in bench.path(IDENTITY).read_text()
    bench.changes().approve(proposal.id, name="bob", now=bench.clock.now())
    assert NEW in bench.path(IDENTITY).read_text()


def test_the_same_change_while_it_is_open_records_no_second(bench: Bench) -> None:
    commit(bench, propose(bench, new_text(bench)))
    again = propose(bench, new_text(bench), key="k2")
    assert again.ok and again.effects == ()


@pytest.mark.parametrize(
    ("file", "text", "why", "said"),
    [
        ("config/kernel.yaml", "x", "w", "is no static truth"),
        ("../x", "x", "w", "is no static truth"),
        (IDENTITY, "{nope", "w", "is no JSON"),
        (IDENTITY, "", "w", "config/identity.json"),
        (IDENTITY, "", " ", "say why"),
        ("config/core/truth/a.md", "# A\n\npassword = hunter2secret", "w", "held a secret"),
        ("config/core/truth/a.md", "# A\n\n" + "word and " * 600, "w", "tokens"),
    ],
)
def test_what_cannot_be_fails_with_the_sentence(
    bench: Bench, file: str, text: str, why: str, said: str
) -> None:
    result = propose(bench, text, file=file, why=why)
    assert not result.ok and result.effects == () and said in result.error
    assert bench.changes().proposals() == []


def test_only_a_known_source_may_and_it_is_described_in_both_languages() -> None:
    (spec,) = [spec for spec in BUILTINS if spec.name == "propose_truth"]
    assert (spec.min_trust, spec.permission) == ("known", "free")
    assert "person" in spec.described("en") and "人" in spec.described("zh")


def test_a_record_with_a_key_is_planned_as_it_is() -> None:
    record = Record(category="proposal", key="proposal.01X", value={"a": 1}, trust="owner")
    made = build_plan(batch(delivery({})), Outcome.of(record), emit_patterns=(), mind="main", now=START)
    (operation,) = made.records
    assert operation[:5] == ("record", "proposal.01X", "", {"a": 1}, "owner")
