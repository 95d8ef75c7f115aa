"""Outcomes become plans: names are derived, envelopes inherited, the impossible is refused at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import START, batch, delivery, envelope

from kernel_gamma.bus.plan import BadOutcome, Plan, build_plan, decode, encode
from kernel_gamma.contracts.effects import (
    Append,
    Batch,
    DeadLetter,
    Effect,
    Emit,
    Finish,
    Outcome,
    Overwrite,
    PassageRef,
    Replace,
    RetryLater,
)

PATTERNS = ("pipeline/message_queue/msg_*.json", "outbox/*/out_*.json", "inbox/pending/*.json")


def plan(*effects: Effect, of: Batch | None = None, now: Any = START) -> Plan:
    given_ = of or batch(delivery({"text": "x"}))
    return build_plan(given_, Outcome.of(*effects), emit_patterns=PATTERNS, mind="main", now=now)


def test_what_no_effect_names_is_finished() -> None:
    first, second, third = delivery({}, seq=1), delivery({}, seq=2), delivery({}, seq=3)
    made = plan(
        DeadLetter("invalid", "no", (second,)),
        RetryLater("later", 5.0, (third,)),
        of=batch(first, second, third),
    )
    assert {seq: v.status for seq, v in made.verdicts.items()} == {1: "finished", 2: "dead", 3: "retry"}


def test_a_verdict_without_deliveries_means_the_whole_batch() -> None:
    made = plan(RetryLater("later"), of=batch(delivery({}, seq=1), delivery({}, seq=2)))
    assert {v.status for v in made.verdicts.values()} == {"retry"}


def test_a_later_finish_takes_a_verdict_back() -> None:
    one = delivery({}, seq=1)
    assert plan(DeadLetter("invalid", "no"), Finish(one), of=batch(one)).verdicts[1].status == "finished"


def test_the_same_cause_makes_the_same_names_and_another_cause_others() -> None:
    emit = Emit(directory="pipeline/message_queue", payload={})
    one = delivery({})
    names = [e.name for e in plan(emit, emit, of=batch(one)).emits]
    assert names == [e.name for e in plan(emit, emit, of=batch(one)).emits]
    assert len({*names, *(e.name for e in plan(emit, of=batch(one, id="batch_2")).emits)}) == 3
    assert all(n.startswith("msg_") and n.endswith(".json") for n in names)


def test_an_emit_inherits_from_the_newest_envelope() -> None:
    worn = [envelope(id=f"msg_{n}", trace_id=f"trace_{n}", session_key=f"s{n}", hops=n) for n in (1, 2)]
    given_ = batch(
        *(
            delivery({}, seq=n, worn=w, trust=t)
            for n, w, t in zip((1, 2), worn, ("owner", "web"), strict=True)
        )
    )
    (made,) = plan(Emit(directory="outbox/console", payload={}), of=given_).emits
    worn_now = made.envelope
    assert (worn_now.trace_id, worn_now.parent_id, worn_now.session_key, worn_now.hops) == (
        "trace_2",
        "msg_2",
        "s2",
        2,
    )
    assert made.trust == "web", "the least trusted cause counts"
    assert worn_now.ttl_sec is None


@pytest.mark.parametrize(
    "effect",
    [
        Emit(directory="dead_letter", payload={}),
        Emit(directory="outbox/..", payload={}),
        Emit(directory="outbox/a/b", payload={}),
        Emit(directory=f"outbox/{'x' * 256}", payload={}),
        Append(page="../now.md", text="x"),
        Append(page="/etc/now.md", text="x"),
        Append(page="memories//a.md", text="x"),
        Append(page="memories/a\0.md", text="x"),
        Append(page="memories/.hidden.md", text="x"),
        Append(page="memories/a.txt", text="x"),
        Append(page=f"memories/{'字' * 85}.md", text="x"),
        Replace(page="a//b.md", text="x", expect=None),
        Overwrite(path="../outside.json", document={}),
        Overwrite(path="/etc/x.json", document={}),
        Overwrite(path="a//x.json", document={}),
        Overwrite(path=f"inbox/acks/{'x' * 256}", document={}),
    ],
)
def test_what_no_disk_could_carry_out_is_refused_before_it_is_stored(effect: Effect) -> None:
    with pytest.raises(BadOutcome):
        plan(effect)


def test_the_old_page_of_a_long_name_can_still_be_kept() -> None:
    page = f"memories/{'字' * 80}.md"
    (operation,) = plan(
        Replace(page=page, text="x", expect=None), of=batch(delivery({}), id="batch_" + "0" * 26)
    ).replaces
    assert len(operation[4].encode()) + len(b"..ours.tmp") <= 255


def test_an_emit_that_locates_a_passage_learns_its_place() -> None:
    made = plan(
        Append(page="stream/now.md", text="I am here.", passage=PassageRef("psg_1", "experience")),
        Emit(directory="pipeline/message_queue", payload={"channel": "console"}, locates="psg_1"),
    )
    made.appends[0].offset = 77
    made.locate()
    payload = made.emits[0].payload
    assert (payload["passage_id"], payload["stream_offset"], payload["length"]) == ("psg_1", 77, 12)
    assert payload["channel"] == "console"


def test_pages_are_written_first_then_files_and_inputs_leave_last() -> None:
    made = plan(
        Overwrite(path="inbox/acks/e.json", document={}),
        Emit(directory="outbox/console", payload={}),
        Replace(page="state.md", text="x", expect=None),
        Append(page="stream/now.md", text="x"),
    )
    made.moves.append(("move", "a", "b"))
    kinds = [op[0] + (op[4] if op[0] == "write" else "") for op in made.operations()]
    assert kinds == ["append", "replace", "writeemit", "writeplain", "move"]


def test_names_are_sorted_by_time() -> None:
    emit = Emit(directory="outbox/console", payload={})
    early, late = (plan(emit, now=START + timedelta(seconds=s)).emits[0].name for s in (0, 1))
    assert early < late


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_a_stored_plan_reads_back_as_it_was(pairs: list[tuple[str, str]]) -> None:
    operations = [
        ("move", a, b) for a, b in [*pairs, (b"\xff\xfe.json".decode(errors="surrogateescape"), "x")]
    ]
    assert decode(encode(operations)) == operations
