from __future__ import annotations

from typing import Any

import pytest

from kernel_gamma.cli.prompt import without_escapes


def test_words_are_said_and_replies_and_thoughts_are_shown(awake: Any) -> None:
    done = awake.process("chat", "--from", "alice", stdin="hello there\n")
    assert done.returncode == 0, done.stderr
    assert "← Hello, alice!" in done.stdout
    assert "· I hear from alice" in done.stdout


def test_quiet_shows_the_replies_alone(awake: Any) -> None:
    done = awake.process("chat", "--from", "小明", "--quiet", stdin="你好\n")
    assert "← 你好，小明！" in done.stdout
    assert "·" not in done.stdout


def test_replies_to_others_are_not_shown(awake: Any) -> None:
    awake("say", "good morning", "--from", "eve")
    done = awake.process("chat", "--from", "carol", "--quiet", stdin="hello\n")
    assert done.stdout.count("←") == 1
    assert "eve" not in done.stdout


def test_commands_look_around(lived: Any, awake: Any) -> None:
    awake("say", "remember that tea is green", "--from", "bob", "--wait", "30")
    awake.wait_for(lambda: "bob" in awake("memories").stdout)
    looks = ["/stream 1", "/state", "/memories", "/memories bob", "/queues", "/dead"]
    lines = "\n".join([*looks, '/emit {"text": "x"}', "/emit {", "/nonsense", "/quit", ""])
    done = awake.process("chat", "--from", "dave", "--quiet", stdin=lines)
    assert done.returncode == 0
    for words in ("## 2", "tea is green", "inbox/pending", "dropped emit_", "there is no state page yet"):
        assert words in done.stdout
    assert "/emit: not JSON" in done.stderr
    assert "/nonsense: no such command" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rule_strikes_when_it_is_fired(awake: Any) -> None:
    done = awake.process("chat", "--from", "owner", "--quiet", stdin="/fire morning\n/fire nosuch\n/quit\n")
    assert "dropped fired_" in done.stdout
    assert "there is no rule nosuch; there are" in done.stderr
    awake.wait_for(lambda: "rhythm.morning" in awake("stream", "-n", "20").stdout)


def test_trace_follows_what_was_said_last(awake: Any) -> None:
    first = awake.process("chat", stdin="/trace\n/quit\n")
    assert "say something first" in first.stdout
    awake("say", "hello", "--wait", "30")
    named = awake.process("chat", "--quiet", stdin="/trace evt_none\n/quit\n")
    assert "nothing is known" in named.stderr


def test_without_a_daemon_one_is_started_for_the_chat(kgamma: Any) -> None:
    done = kgamma.process("chat", "--quiet", stdin="hello\n")
    assert done.returncode == 0, done.stderr
    assert "one is started" in done.stderr
    assert "← Hello, owner!" in done.stdout
    assert not kgamma.running()


def test_a_daemon_that_cannot_start_is_told(kgamma: Any) -> None:
    (kgamma.home / "config/topology.yaml").write_text("nodes: 3\n")
    done = kgamma.process("chat", stdin="hello\n")
    assert done.returncode == 1
    assert "the daemon did not start" in done.stderr
    assert "topology.yaml: nodes: must be a list" in done.stderr


def test_on_a_terminal_the_line_can_be_edited(awake: Any) -> None:
    with awake.terminal("chat", "--from", "erin", "--quiet") as terminal:
        terminal.wait_for("erin> ")
        terminal.type("hello 小月\x1b[D\x1b[D\x1b[D, good\x01oh \n")
        terminal.wait_for("←")
        terminal.type("\x1b[A\n/quit\n")
        terminal.to_the_end()
        assert terminal.process.returncode == 0
    awake.wait_for(lambda: awake("stream", "-n", "9").stdout.count("> oh hello, good 小月") == 2)


def test_what_comes_stands_above_the_line_that_is_being_typed(awake: Any) -> None:
    with awake.terminal("chat", "--from", "frank", "--quiet") as terminal:
        terminal.wait_for("frank> ")
        terminal.type("half a\x1b[D")
        terminal.wait_for("half a\b")
        awake("say", "good morning", "--from", "frank")
        seen = terminal.wait_for("frank> half a\r\x1b[12C")  # the cursor is where it was
        assert "half a\b\r\x1b[J← Hello, frank!" in seen, "the line is taken away, not written into"
        terminal.type("\x05\x15/quit\n")
        terminal.to_the_end()
        assert terminal.process.returncode == 0


def test_keys_that_nothing_edits_leave_no_signs_in_the_text(awake: Any) -> None:
    done = awake.process("chat", "--from", "grace", "--quiet", stdin="ni\x1b[D\x1bOPc\x1b[1;5Ce\x07 茶\n")
    assert done.returncode == 0
    awake.wait_for(lambda: "> nice 茶" in awake("stream", "-n", "5").stdout)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("plain 文字\tand tab", "plain 文字\tand tab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b[200~pasted\x1b[201~", "pasted"),
        ("end\x1b", "end"),
        ("\x1bxmeta", "meta"),
    ],
)
def test_escape_sequences_are_stripped(typed: str, meant: str) -> None:
    assert without_escapes(typed) == meant


def test_the_end_of_the_input_ends_the_chat_on_a_line_of_its_own(awake: Any) -> None:
    with awake.terminal("chat", "--quiet") as terminal:
        terminal.wait_for("owner> ")
        terminal.type("\x04")
        assert terminal.to_the_end().endswith("owner> \r\n")
        assert terminal.process.returncode == 0
