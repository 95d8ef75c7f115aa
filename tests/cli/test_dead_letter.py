from __future__ import annotations

import json
import os
from typing import Any

NOT_UTF8 = os.fsdecode(b"b\xffd.json")


def letters(shell: Any) -> list[dict[str, Any]]:
    done = shell("dead-letter", "list", "--json")
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def set_aside(shell: Any, day: str, name: str, raw: bytes, path: str) -> None:
    folder = shell.data / "dead_letter" / day
    folder.mkdir(parents=True, exist_ok=True)
    (shell.data / os.path.dirname(path)).mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(raw)
    reason = {"path": path, "error": "failed", "detail": "it broke", "node": "x", "attempts": 5}
    (folder / f"{name}.reason.json").write_text(json.dumps(reason))


def test_nothing_set_aside(kgamma: Any) -> None:
    assert letters(kgamma) == []
    assert kgamma("dead-letter", "list").stdout == "nothing was set aside\n"


def test_what_was_set_aside_is_listed_and_shown(lived: Any) -> None:
    (letter,) = letters(lived)
    assert (letter["name"], letter["path"], letter["error"]) == (
        "broken.json", "inbox/pending/broken.json", "not_json",
    )  # fmt: skip
    shown = lived("dead-letter", "show", "broken.json").stdout
    assert "{nope" in shown
    assert "not_json" in shown
    assert json.loads(lived("dead-letter", "show", "broken.json", "--json").stdout)["text"] == "{nope"


def test_a_letter_nobody_knows(lived: Any) -> None:
    done = lived("dead-letter", "retry", "no.json")
    assert done.exit_code == 1
    assert "no.json: no such dead letter" in done.stderr


def test_a_dropped_file_goes_back_under_its_own_name_and_is_lived(kgamma: Any) -> None:
    set_aside(kgamma, "2026-11-30", "a.17.json", b'{"text": "hello again"}', "inbox/pending/a.json")
    done = kgamma("dead-letter", "retry", "a.17.json")
    assert done.exit_code == 0
    assert "a.17.json is back in inbox/pending/a.json" in done.stdout
    assert letters(kgamma) == []
    assert list((kgamma.data / "dead_letter/2026-11-30").iterdir()) == []
    kgamma.live()
    assert "hello again" in kgamma("stream").stdout
    log = (kgamma.data / "logs/kgamma.log").read_text()
    assert '"tried again by hand"' in log
    assert "it broke" in log


def test_a_name_that_is_taken_meanwhile_is_not_overwritten(kgamma: Any) -> None:
    set_aside(kgamma, "2026-11-30", "a.json", b'{"text": "old"}', "inbox/pending/a.json")
    kgamma.drop("a.json", b'{"text": "new"}')
    path = json.loads(kgamma("dead-letter", "retry", "a.json", "--json").stdout)["path"]
    assert path != "inbox/pending/a.json"
    assert (kgamma.data / path).read_bytes() == b'{"text": "old"}'
    assert (kgamma.data / "inbox/pending/a.json").read_bytes() == b'{"text": "new"}'


BROKEN_NODE = """
from kernel_gamma.contracts.effects import Outcome
from kernel_gamma.errors import Poison
from kernel_gamma.nodes.agents.externalizer import Externalizer

class Broken(Externalizer):
    async def handle(self, batch):
        raise Poison("it cannot be translated today")
"""


def test_a_queue_file_of_the_mind_is_its_own_again_when_it_is_put_back(kgamma: Any) -> None:
    topology = kgamma.home / "config/topology.yaml"
    whole = topology.read_text()
    (kgamma.home / "my_nodes.py").write_text(BROKEN_NODE)
    topology.write_text(whole.replace("class: Externalizer", "class: my_nodes:Broken"))
    kgamma.drop("a.json", b'{"text": "hello", "from": "alice"}')
    assert kgamma.process("run", "--once").returncode == 0
    (letter,) = letters(kgamma)
    assert letter["path"].startswith("pipeline/internalized/int_")
    topology.write_text(whole)
    assert f"is back in {letter['path']}" in kgamma("dead-letter", "retry", letter["name"]).stdout
    kgamma.live()
    assert letters(kgamma) == []
    (reply,) = (kgamma.data / "outbox/console").glob("out_*.json")
    assert json.loads(reply.read_text())["payload"]["to"] == "alice"


def test_a_running_mind_takes_it_again(awake: Any) -> None:
    awake.drop("again.json", b"[]")
    awake.wait_for(lambda: any(letter["name"] == "again.json" for letter in letters(awake)))
    assert awake("dead-letter", "retry", "again.json").exit_code == 0
    awake.wait_for(lambda: any(letter["name"].startswith("again") for letter in letters(awake)))


def test_names_that_are_no_utf8_can_be_listed_shown_and_retried(kgamma: Any) -> None:
    kgamma.drop(NOT_UTF8, b"{nope")
    kgamma.live()
    done = kgamma.process("dead-letter", "list")
    assert done.returncode == 0
    assert r"b\udcffd.json" in done.stdout
    assert "{nope" in kgamma.process("dead-letter", "show", r"b\udcffd.json").stdout
    assert kgamma.process("dead-letter", "retry", NOT_UTF8).returncode == 0
    assert (kgamma.data / "inbox/pending" / NOT_UTF8).exists()


def test_the_same_name_on_two_days_needs_its_day(kgamma: Any) -> None:
    for day in ("2026-11-29", "2026-11-30"):
        set_aside(kgamma, day, "a.json", day.encode(), "inbox/pending/a.json")
    done = kgamma("dead-letter", "show", "a.json")
    assert done.exit_code == 1
    assert "2026-11-29/a.json, 2026-11-30/a.json" in done.stderr
    assert "2026-11-30" in kgamma("dead-letter", "show", "2026-11-30/a.json").stdout


def test_a_letter_called_like_a_reason_is_a_letter(kgamma: Any) -> None:
    set_aside(kgamma, "2026-11-30", "x.reason.json", b"[]", "inbox/pending/x.reason.json")
    assert [letter["name"] for letter in letters(kgamma)] == ["x.reason.json"]


def test_a_letter_without_a_reason_is_listed_but_does_not_go_anywhere(kgamma: Any) -> None:
    set_aside(kgamma, "2026-11-30", "a.json", b"[]", "inbox/pending/a.json")
    (kgamma.data / "dead_letter/2026-11-30/a.json.reason.json").unlink()
    assert [letter["error"] for letter in letters(kgamma)] == [None]
    done = kgamma("dead-letter", "retry", "a.json")
    assert done.exit_code == 1
    assert "does not say where it came from" in done.stderr


def test_a_reason_that_points_outside_is_not_followed(kgamma: Any) -> None:
    set_aside(kgamma, "2026-11-30", "a.json", b"[]", "inbox/pending/a.json")
    reason = kgamma.data / "dead_letter/2026-11-30/a.json.reason.json"
    reason.write_text('{"path": "../../config/a.json"}')
    done = kgamma("dead-letter", "retry", "a.json")
    assert done.exit_code == 1
    assert "no queue of this mind" in done.stderr
