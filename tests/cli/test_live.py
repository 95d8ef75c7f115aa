from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.text import Text
from tests.fakes import FakeClock

from kernel_gamma.bus.plan import Operation, Verdict
from kernel_gamma.bus.records import Committed
from kernel_gamma.cli.live import Line, LiveView, lines_of
from kernel_gamma.contracts.effects import Batch, Delivery

NOW = datetime(2026, 11, 30, 10, 30, 5, tzinfo=UTC)
NOTE = "## 2026-11-30 10:30:05 +00:00\n\n{}\n\n"


def committed(queue: str, *operations: Operation, dead: Verdict | None = None) -> dict[str, Any]:
    delivery = Delivery(7, queue, "x_1.json", "bus", {}, NOW)
    commit = Committed(1, list(operations), verdicts={7: dead or Verdict("finished")})
    return {"node": "any", "batch": Batch("batch_1", "any", (delivery,)), "commit": commit}


def out(text: str) -> Operation:
    document = {"payload": {"to": "小明", "text": text, "session": "private:小明"}}
    return ("write", "outbox/qq", "out_1.json", json.dumps(document), "emit")


def test_what_was_perceived() -> None:
    events = [
        {"type": "message", "from": "alice", "text": "hello"},
        {"type": "door.opened", "from": "/door", "text": ""},
    ]
    write = (
        "write",
        "pipeline/message_queue",
        "msg_1.json",
        json.dumps({"payload": {"events": events}}),
        "emit",
    )
    assert lines_of("committed", committed("inbox/pending", write)) == [
        Line("perceived", "alice: hello"),
        Line("perceived", "/door (door.opened): "),
    ]


def test_a_thought_is_the_passage_without_its_heading() -> None:
    append = ("append", "stream/now.md", NOTE.format("我听到了。"), "", 1)
    assert lines_of("committed", committed("pipeline/message_queue", append)) == [
        Line("thought", "我听到了。")
    ]


def test_a_reply_is_told_once_and_not_again_as_a_note() -> None:
    append = ("append", "stream/now.md", NOTE.format("I replied to 小明: “hi”"), "", 1)
    found = lines_of("committed", committed("pipeline/action_queue", append, out("hi")))
    assert found == [Line("said", "to 小明 (qq): hi")]


def test_notes_of_what_nothing_else_shows_are_told() -> None:
    append = ("append", "stream/now.md", NOTE.format("I replied.\n\nI used water, and it worked."), "", 1)
    found = lines_of("committed", committed("pipeline/action_queue", append, out("hi")))
    assert Line("did", "I used water, and it worked.") in found


def test_pages_that_were_written_are_named() -> None:
    diary = ("append", "diary/2026-11-30.md", "x", "", 1)
    assert lines_of("committed", committed("pipeline/action_queue", diary)) == [
        Line("did", "wrote diary/2026-11-30.md")
    ]
    state = ("replace", "state.md", "x", None, "y")
    assert lines_of("committed", committed("pipeline/message_queue", state)) == [
        Line("did", "rewrote state.md")
    ]


@pytest.mark.parametrize(
    ("what", "details", "line"),
    [
        ("refused", {"name": "a", "error": "not_json", "detail": "no"}, Line("set aside", "a: not_json: no")),
        ("paused", {"node": "n", "until": NOW, "reason": "away"}, 
         Line("waits", "n until 2026-11-30 10:30:05: away")),
        ("failed", {"node": "n", "error": "boom"}, Line("failed", "n will try again: boom")),
        ("stalled", {"reason": "disk full"}, Line("waits", "disk full")),
        ("stalled", {"reason": ""}, Line("goes on", "the disk can be written again")),
    ],
)  # fmt: skip
def test_troubles_are_told_with_their_reason(what: str, details: dict[str, Any], line: Line) -> None:
    assert lines_of(what, details) == [line]


def test_a_queue_file_that_was_given_up() -> None:
    dead = Verdict("dead", "it broke", "failed")
    found = lines_of("committed", committed("pipeline/message_queue", dead=dead))
    assert found == [Line("set aside", "x_1.json: failed: it broke")]


def test_acceptance_is_no_news() -> None:
    assert lines_of("accepted", {"name": "a.json", "queue": "inbox/pending", "seq": 1}) == []


def test_what_happens_before_the_banner_comes_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(FakeClock())
    view("failed", {"node": "n", "error": "boom\nand more"})
    assert capsys.readouterr().out == ""
    view.begin(["banner"])
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "banner"
    assert second == "10:30:05 failed     n will try again: boom"
    assert third == " " * 20 + "and more"


def test_the_last_line_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(FakeClock())
    view.end("before there was a banner")
    assert capsys.readouterr().out == ""
    view.begin([])
    view.end("as asked")
    assert capsys.readouterr().out == "10:30:05 stopped    as asked\n"


def test_a_large_event_takes_few_rows_and_none_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    view = LiveView(FakeClock())
    view.begin([])
    for text in ("x" * 900_000, "字" * 300_000, "line\n" * 900, "e\u0301\u0301\u0301\u0301\u0301" * 900):
        view("failed", {"node": "n", "error": text})
    rows = [Text.from_ansi(row) for row in capsys.readouterr().out.splitlines()]
    assert len(rows) == 1 + 1 + 13 + 1
    assert {row.cell_len for row in rows[:2]} <= {59, 60}
    assert max(row.cell_len for row in rows) <= 60
    assert rows[0].plain.endswith("x…")
    assert rows[1].plain.endswith("字…")
    assert rows[14].plain.strip() == "… 888 more lines"


def test_the_reason_of_an_end_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(FakeClock())
    view.begin([])
    view("ended", {"reason": "budget spent"})
    assert capsys.readouterr().err == "budget spent\n"
    assert view.reason == "budget spent"


def test_a_view_that_breaks_does_not_break_the_mind(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(FakeClock())
    view.begin([])
    view("refused", {"nothing": "of this"})
    view("failed", {"node": "n", "error": "told all the same"})
    assert "told all the same" in capsys.readouterr().out
