from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.trace import Journey, journey
from kernel_gamma.configuration import lay_out
from kernel_gamma.daemon import run_daemon

QUICK: Mapping[str, str] = {
    "KGAMMA_BUS__SETTLE_SEC": "0.05",
    "KGAMMA_BUS__SETTLE_TIMEOUT_SEC": "0.2",
    "KGAMMA_BUS__DURABILITY": "process",
    "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0.3",
    "KGAMMA_MODEL__MODE": "offline",
}
ODD = os.fsdecode(b"odd \xff.json")
Ask = Callable[[str], Journey | None]


def live(home: Path, dropped: Mapping[str, bytes]) -> Path:
    lay_out(home)
    data = home / "data/kernel"
    (data / "inbox/pending").mkdir(parents=True, exist_ok=True)
    for name, raw in dropped.items():
        (data / "inbox/pending" / name).write_bytes(raw)
    assert asyncio.run(run_daemon(home, QUICK, once=True)) == 0
    return data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return live(
        tmp_path_factory.mktemp("home"),
        {
            "hello.json": b'{"text": "hello there", "from": "alice", "id": "evt_hello"}',
            "again.json": b'{"text": "what do you remember about tea?", "from": "bob", "id": "evt_recall"}',
            "several.json": b'[{"text": "one", "from": "eve", "id": "evt_1"},'
            b' {"text": "two", "from": "eve", "id": "evt_2"}]',
            ODD: b"[]",
        },
    )


@pytest.fixture
def ask(data: Path) -> Iterator[Ask]:
    ledger = Ledger.open(data / "ledger.db", read_only=True)
    yield lambda asked: journey(ledger, os.fsencode(data), asked, UTC)
    ledger.close()


def known(found: Journey | None) -> Journey:
    assert found is not None
    return found


def queues(found: Journey) -> list[str]:
    return [file.queue for file in found.files]


WHOLE = ["inbox/pending", "pipeline/message_queue", "pipeline/internalized", "pipeline/action_queue"]


def test_an_event_is_followed_from_its_drop_to_its_reply(ask: Ask, data: Path) -> None:
    found = known(ask("evt_hello"))
    assert queues(found) == WHOLE
    assert all(file.exists and (data / file.path).exists() for file in found.files)
    assert [file.parents for file in found.files] == [(), *[(file.seq,) for file in found.files[:-1]]]
    assert len(found.traces) == 1


def test_every_id_of_a_journey_leads_to_the_same_one(ask: Ask) -> None:
    found = known(ask("evt_hello"))
    ids = [found.traces[0], "hello.json", found.files[0].path]
    for file in found.files[1:]:
        ids += [file.file_id or "", file.name]
    for file in found.files:
        for handled in file.handled:
            ids += [passage.passage_id for passage in handled.passages]
            ids += [Path(o.path).stem for o in handled.outputs if "/out_" in o.path]
    assert len(ids) == 12
    for asked in ids:
        assert queues(known(ask(asked))) == WHOLE, asked


def test_waits_durations_calls_and_outputs_are_told(ask: Ask, data: Path) -> None:
    _, message, told, order = known(ask("evt_hello")).files
    (inner,), (outer,), (done,) = message.handled, told.handled, order.handled
    assert (inner.node, inner.status, inner.attempts) == ("internalizer", "finished", 1)
    assert inner.wait_sec is not None
    assert inner.handling_sec is not None
    (call,) = inner.steps
    assert (call.kind, call.role, call.model, call.failed) == ("model", "quality", "offline", None)
    assert (call.prompt_tokens, call.completion_tokens) == (0, 0), "rules cost nothing"
    assert outer.steps[0].role == "fast"
    (passage,) = inner.passages
    now = (data / "self" / passage.page).read_bytes()
    assert b"hello there" in now[passage.offset : passage.offset + passage.length]
    outbox = [output for output in done.outputs if output.path.startswith("outbox/")]
    assert len(outbox) == 1
    assert outbox[0].exists


def test_a_reply_that_was_taken_is_found_where_it_lies_now(ask: Ask, data: Path) -> None:
    *_, order = known(ask("evt_hello")).files
    (path,) = [output.path for output in order.handled[0].outputs if "/out_" in output.path]
    moved = data / "outbox/console/done" / Path(path).name
    moved.parent.mkdir(exist_ok=True)
    (data / path).rename(moved)
    *_, order = known(ask("evt_hello")).files
    assert f"outbox/console/done/{moved.name}" in [output.path for output in order.handled[0].outputs]
    moved.unlink()
    *_, order = known(ask("evt_hello")).files
    assert (path, False) in [(output.path, output.exists) for output in order.handled[0].outputs]


def test_several_events_of_one_file_share_a_journey(ask: Ask) -> None:
    first, second = known(ask("evt_1")), known(ask("evt_2"))
    assert [file.seq for file in first.files] == [file.seq for file in second.files]


def test_what_comes_back_as_an_event_belongs_to_the_journey(ask: Ask) -> None:
    found = known(ask("evt_recall"))
    assert queues(found).count("inbox/pending") == 2
    assert queues(found).count("pipeline/internalized") == 2


def test_a_refused_file_has_its_reason(ask: Ask) -> None:
    (file,) = known(ask(ODD)).files
    assert (file.outcome, file.handled) == ("dead", ())
    assert file.path.startswith("dead_letter/")
    assert file.reason["error"] == "not_an_object"


def test_nothing_is_known_of_a_stranger(ask: Ask) -> None:
    assert ask("evt_nobody") is None
    assert ask("") is None
    assert ask("%") is None


def test_it_can_be_written_as_json(ask: Ask) -> None:
    text = json.dumps(known(ask("evt_hello")).as_json())
    assert json.loads(text)["files"][1]["handled"][0]["steps"][0]["role"] == "quality"


def test_the_id_of_an_action_leads_to_its_whole_journey(ask: Ask, data: Path) -> None:
    (path, *_) = sorted((data / "pipeline/action_queue/done").rglob("act_*.json"))
    (action, *_) = json.loads(path.read_bytes())["payload"]["actions"]
    found = known(ask(action["id"]))
    assert queues(found)[: len(WHOLE)] == WHOLE
    assert path.name in {file.name for file in found.files}


def test_events_that_waited_together_are_named_as_company(tmp_path: Path) -> None:
    words = [{"text": f"word {i}", "from": "alice", "id": f"evt_w{i}"} for i in range(3)]
    data = live(tmp_path, {f"w{i}.json": json.dumps(word).encode() for i, word in enumerate(words)})
    ledger = Ledger.open(data / "ledger.db", read_only=True)
    found = known(journey(ledger, os.fsencode(data), "evt_w1", UTC))
    ledger.close()
    together: Any = [handled.company for file in found.files for handled in file.handled if handled.company]
    assert together


def test_a_waiting_file_has_no_end_yet(tmp_path: Path) -> None:
    data = live(tmp_path, {})
    ledger = Ledger.open(data / "ledger.db")
    name, path = b"w.json", b"inbox/taken/1_w.json"
    row = (1, "inbox/pending", name, path, "dropped", "live", "unknown", None, None, None, 5.0, None, None)
    ledger.run("add_file", *row)
    ledger.run("add_delivery", "message_preprocessor", 1)
    (file,) = known(journey(ledger, os.fsencode(data), "w.json", UTC)).files
    ledger.close()
    assert (file.state, file.outcome, file.exists) == ("live", None, False)
    (handled,) = file.handled
    assert (handled.status, handled.wait_sec, handled.steps) == ("waiting", None, ())
