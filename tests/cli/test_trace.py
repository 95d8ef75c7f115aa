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


def test_a_file_set_aside_before_this_ledger_is_told_from_its_reason(kgamma: Any) -> None:
    folder = kgamma.data / "dead_letter/2026-11-30"
    folder.mkdir(parents=True)
    (folder / "坏.json").write_text("{nope")
    reason = {
        "path": "inbox/pending/坏.json",
        "error": "not_json",
        "detail": "no",
        "time": "2026-11-30T10:30:05Z",
    }
    (folder / "坏.json.reason.json").write_text(json.dumps(reason))
    for name in ("坏.json", "2026-11-30/坏.json", "dead_letter/2026-11-30/坏.json"):
        done = kgamma("trace", name)
        assert done.exit_code == 0
        assert "10:30:05  dead_letter/2026-11-30/坏.json  dead" in done.stdout
        assert "set aside: not_json: no" in done.stdout
    (file,) = json.loads(kgamma("trace", "坏.json", "--json").stdout)["files"]
    assert (file["queue"], file["outcome"], file["reason"]) == ("inbox/pending", "dead", reason)


def test_a_reason_that_somebody_removed_is_said_to_be_gone(kgamma: Any) -> None:
    kgamma.drop("broken.json", b"{nope")
    kgamma.live()
    (reason,) = (kgamma.data / "dead_letter").glob("*/*.reason.json")
    reason.unlink()
    assert "set aside; its .reason.json is gone" in kgamma("trace", "broken.json").stdout


def test_an_id_nobody_knows(lived: Any) -> None:
    done = lived("trace", "evt_nothing")
    assert done.exit_code == 1
    assert "evt_nothing: nothing is known of it" in done.stderr


def test_a_mind_without_a_ledger(kgamma: Any) -> None:
    done = kgamma("trace", "evt_1")
    assert done.exit_code == 1
    assert "no ledger yet" in done.stderr
