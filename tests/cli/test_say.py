from __future__ import annotations

import json
import threading
from typing import Any

import pytest


def pending(shell: Any) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in (shell.data / "inbox/pending").glob("*.json")]


def test_words_become_one_whole_event_file(kgamma: Any) -> None:
    done = kgamma("say", "你好，世界", "--from", "小明", "--channel", "qq")
    assert done.exit_code == 0
    (event,) = pending(kgamma)
    assert event["text"] == "你好，世界"
    assert (event["from"], event["session"], event["channel"]) == ("小明", "private:小明", "qq")
    assert done.stdout.strip() == event["id"]
    assert "no daemon is running" in done.stderr
    assert [path.name for path in (kgamma.data / "inbox/pending").iterdir() if path.suffix == ".tmp"] == []


def test_the_owner_speaks_unless_somebody_is_named(kgamma: Any) -> None:
    kgamma("say", "hello", "--session", "group:42")
    (event,) = pending(kgamma)
    assert (event["from"], event["session"], event["type"]) == ("owner", "group:42", "message")


def test_json_tells_the_file_and_that_nobody_has_taken_it(kgamma: Any) -> None:
    done = json.loads(kgamma("say", "hello", "--json").stdout)
    assert done["taken"] is False
    assert (kgamma.data / "inbox/pending" / done["file"]).exists()
    assert done["id"].startswith("evt_")


def test_waiting_for_nobody_ends_at_once_with_4_and_keeps_the_file(kgamma: Any) -> None:
    done = kgamma.process("say", "hello", "--wait", "600")  # a process is given 60 s
    assert done.returncode == 4
    assert "no daemon is running" in done.stderr
    assert "stays in the inbox" in done.stderr
    assert len(pending(kgamma)) == 1


def test_a_running_mind_gives_id_and_trace(awake: Any) -> None:
    done = awake("say", "hello there", "--from", "alice")
    assert done.exit_code == 0
    event_id, trace_id = done.stdout.split()
    assert event_id.startswith("evt_")
    assert trace_id.startswith("trace_")


def test_wait_prints_the_reply_to_these_words_and_no_other(awake: Any) -> None:
    other = threading.Thread(target=awake.process, args=("say", "good evening", "--from", "eve"))
    other.start()
    done = awake.process("say", "hello there", "--from", "alice", "--wait", "30")
    other.join()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hello, alice!")


def test_a_chinese_question_gets_its_reply(awake: Any) -> None:
    done = awake.process("say", "你好", "--from", "小明", "--wait", "30", "--json")
    assert json.loads(done.stdout)["reply"]["text"].startswith("你好，小明！")


def test_a_reply_that_a_consumer_has_taken_already_is_found(awake: Any) -> None:
    outbox, ended = awake.data / "outbox/console", threading.Event()
    (outbox / "done").mkdir(parents=True, exist_ok=True)

    def consume() -> None:
        while not ended.wait(0.001):
            for path in outbox.glob("out_*.json"):
                path.rename(outbox / "done" / path.name)

    consumer = threading.Thread(target=consume)
    consumer.start()
    done = awake.process("say", "hello", "--from", "carol", "--wait", "30")
    ended.set()
    consumer.join()
    assert done.stdout.startswith("Hello, carol!")


def test_a_mind_that_never_answers_ends_with_4(awake: Any) -> None:
    done = awake("say", "hello", "--from", "dave", "--wait", "0")
    assert done.exit_code == 4
    assert "kgamma trace evt_" in done.stderr


NOBODY = {
    "KGAMMA_MODEL__MODE": "online",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "KGAMMA_MODEL__RETRIES": "0",
}


def test_a_mind_that_waits_for_its_model_tells_the_reason(kgamma: Any) -> None:
    with kgamma.daemon(**NOBODY):
        done = kgamma.process("say", "hello", "--wait", "3")
        assert done.returncode == 4
        assert "internalizer waits until 2" in done.stderr
        assert "127.0.0.1:9" in done.stderr
        assert "kgamma trace evt_" in done.stderr


def test_a_spent_budget_is_told_without_waiting_for_tomorrow(kgamma: Any) -> None:
    with kgamma.daemon(**NOBODY, KGAMMA_BUDGET__TOKENS_PER_DAY="1"):
        done = kgamma.process("say", "hello", "--wait", "50")  # a process is given 60 s
        assert done.returncode == 4
        assert "budget" in done.stderr
        assert "is not lost" in done.stderr


FORMS = {
    "plain": {"text": "hi", "from": "alice", "id": "evt_plain"},
    "envelope": {
        "envelope": {
            "id": "evt_worn",
            "trace_id": "trace_worn",
            "timestamp": "2026-11-30T10:30:00+08:00",
            "source_node": "test",
            "session_key": "system",
        },
        "payload": {"text": "hi"},
    },
    "cloudevent": {"specversion": "1.0", "id": "1", "source": "/door", "type": "door.opened"},
    "amp": {
        "header": {"message_id": "m1", "source": {"app": "qq"}},
        "payload": {"type": "message.received", "session_id": "1", "summary": "hi", "data": {}},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_dropped_byte_for_byte(kgamma: Any, form: str) -> None:
    raw = json.dumps(FORMS[form], indent=3)
    file = kgamma.home / "event.json"
    file.write_text(raw)
    assert kgamma("emit", str(file)).exit_code == 0
    (path,) = (kgamma.data / "inbox/pending").glob("*.json")
    assert path.read_text() == raw


def test_emit_reads_stdin_and_tells_the_given_id(kgamma: Any) -> None:
    done = kgamma("emit", "-", stdin=json.dumps(FORMS["plain"]))
    assert done.exit_code == 0
    assert done.stdout.strip() == "evt_plain"


def test_an_array_is_told_event_by_event(awake: Any) -> None:
    done = awake("emit", "-", stdin='[{"text": "one", "id": "evt_1"}, {"text": "two", "id": "evt_2"}]')
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["evt_1", "evt_2"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("{nope", "not JSON"),
        ('{"from": "alice"}', "needs `text` or `type`"),
        ("[]", "empty array"),
        ('{"text": "' + "x" * 1_048_576 + '"}', "inbox.max_bytes"),
    ],
)
def test_what_the_mind_would_refuse_is_not_dropped(kgamma: Any, raw: str, said: str) -> None:
    done = kgamma("emit", "-", stdin=raw)
    assert done.exit_code == 1
    assert said in done.stderr
    assert not (kgamma.data / "inbox/pending").exists()


def test_a_file_that_is_not_there_is_named(kgamma: Any) -> None:
    done = kgamma("emit", str(kgamma.home / "no.json"))
    assert done.exit_code == 1
    assert "no.json: No such file" in done.stderr
