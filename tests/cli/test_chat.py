from __future__ import annotations

from typing import Any


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
