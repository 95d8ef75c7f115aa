from __future__ import annotations

import json
from typing import Any


def test_a_journey_is_told_as_a_tree(lived: Any) -> None:
    done = lived("trace", "evt_hello")
    assert done.exit_code == 0
    for words in (
        "inbox/pending/done/", "message_preprocessor: finished", "asked offline as quality",
        "self/stream/now.md at byte", "wrote outbox/console/out_",
    ):  # fmt: skip
        assert words in done.stdout


def test_the_same_as_json(lived: Any) -> None:
    found = json.loads(lived("trace", "hello.json", "--json").stdout)
    assert found["asked"] == "hello.json"
    assert [file["queue"] for file in found["files"]] == [
        "inbox/pending", "pipeline/message_queue", "pipeline/internalized", "pipeline/action_queue",
    ]  # fmt: skip


def test_a_file_that_was_set_aside_is_told_with_its_reason(lived: Any) -> None:
    done = lived("trace", "broken.json")
    assert done.exit_code == 0
    assert "dead_letter/" in done.stdout
    assert "set aside: not_json" in done.stdout


def test_an_id_nobody_knows(lived: Any) -> None:
    done = lived("trace", "evt_nothing")
    assert done.exit_code == 1
    assert "evt_nothing: nothing is known of it" in done.stderr


def test_a_mind_without_a_ledger(kgamma: Any) -> None:
    done = kgamma("trace", "evt_1")
    assert done.exit_code == 1
    assert "no ledger yet" in done.stderr
