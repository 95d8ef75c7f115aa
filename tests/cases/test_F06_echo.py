"""F06 echo: every reply is dropped back as an event, by the mind's own name or under another one."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.crash.accounting import read_json, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Daemon, Nursery, make_home, until
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.status import status_of

MOST_REPLIES = 4
"""The one to the person, one to each of the two echoes that are perceived, and one to spare."""

REPLIES = {
    "en": "Good to hear from you, {who}; I will think about what you said number {n} and write tomorrow.",
    "zh": "很高兴收到你的消息，{who}；你说的第 {n} 件事我会好好想一想，明天再写信给你。",
}
HELLO = {"en": "Are you there? I have a question.", "zh": "你在吗？我有个问题想请教。"}


class Replying:
    """Answers every message with new words each time; the words are long enough to be known again."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, request: ParsedRequest) -> Answer:
        if request.agent == "externalizer":
            actions = [
                {"tool": "send_message", "arguments": {"text": line.split("：", 1)[-1].split(": ", 1)[-1]}}
                for line in (request.passage or "").splitlines()
                if line.startswith(("I decide to reply", "我决定回复"))
            ]
            return Answer(json.dumps({"thought": "", "actions": actions}, ensure_ascii=False))
        lines = ["我听到了。" if self._language == "zh" else "I hear what is said to me."]
        for event in request.events:
            with self._lock:
                self._count += 1
                n = self._count
            text = REPLIES[self._language].format(who=event["from"], n=n)
            lines.append(f"我决定回复：{text}" if self._language == "zh" else f"I decide to reply: {text}")
        return Answer("\n\n".join(lines))


class EchoAdapter:
    """Watches outbox/ and drops every reply back, as a careless chat adapter does."""

    def __init__(self, dropper: Dropper, back: Callable[[Mapping[str, Any], int], Mapping[str, Any]]) -> None:
        self._dropper = dropper
        self._back = back
        self._seen: set[Path] = set()
        self.dropped: list[str] = []

    def turn(self) -> None:
        for path in sorted((self._dropper.data / "outbox").glob("*/out_*.json")):
            if path not in self._seen:
                self._seen.add(path)
                payload = read_json(path)["payload"]
                if payload["session"] == "private:olga":
                    continue  # hers is another adapter
                name = f"back-{len(self.dropped):03}.json"
                self.dropped.append(name)
                self._dropper.drop(name, dict(self._back(payload, len(self.dropped))))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        over = threading.Event()

        def work() -> None:
            while not over.wait(0.02):
                self.turn()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def replies(data: Path, session: str | None = None) -> list[str]:
    found = [read_json(path)["payload"] for path in sorted((data / "outbox").glob("*/out_*.json"))]
    return [one["text"] for one in found if session is None or one["session"] == session]


def answered(data: Path, count: int) -> bool:
    return len(replies(data, "private:olga")) == count


def stop(daemon: Daemon) -> None:
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def settled(data: Path, dropper: Dropper) -> bool:
    counts = where_files_are(data, dropper.files)
    queues = [
        p
        for q in ("message_queue", "internalized", "action_queue")
        for p in (data / "pipeline" / q).glob("*.json")
    ]
    return not counts["pending"] and not counts["taken"] and not queues


@pytest.mark.parametrize("language", HELLO)
@pytest.mark.parametrize("name", ["main", "self", "Aurora"])
def test_F06_a_reply_that_comes_back_under_her_own_name_is_not_answered(
    tmp_path: Path, language: str, name: str
) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    adapter = EchoAdapter(dropper, lambda out, n: {"text": out["text"], "from": name, "channel": "chat"})
    with ScriptedServer(Replying(language)) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_LOOP__OWN_NAMES": '["Aurora"]'}
        with nursery.start(home, environ, once=False) as daemon, adapter.at_work():
            dropper.drop("hello.json", {"text": HELLO[language], "from": "alice"})
            until(lambda: adapter.dropped and settled(dropper.data, dropper))
            stop(daemon)
        assert nursery.once(home, environ) == 0
        assert server.counters() == {"internalizer": 1, "externalizer": 1}
    assert len(replies(dropper.data)) == 1 and len(adapter.dropped) == 1
    ack = read_json(dropper.data / "inbox/acks/back-000.json")
    assert ack["ok"] is True and "echo" in ack["noted"]
    assert where_files_are(dropper.data, dropper.files)["done"] == 2


WAYS: Mapping[str, Callable[[Mapping[str, Any], int], Mapping[str, Any]]] = {
    "same-session": lambda out, n: {"text": out["text"], "from": "mirror", "session": out["session"]},
    "own-session": lambda out, n: {"text": out["text"], "from": "mirror"},
    "with-a-prefix": lambda out, n: {"text": f"[{n}] mirror says: {out['text']}", "from": "mirror"},
    "quoted": lambda out, n: {"text": f"> {out['text']}", "from": "mirror"},
    "ever-new-names": lambda out, n: {"text": out["text"].upper(), "from": f"mirror-{n}"},
    "no-message": lambda out, n: {"type": "post.created", "text": out["text"], "from": "mirror"},
}


@pytest.mark.parametrize("language", HELLO)
@pytest.mark.parametrize("way", WAYS)
def test_F06_her_words_under_another_name_end_in_a_handful_of_replies(
    tmp_path: Path, language: str, way: str
) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    adapter = EchoAdapter(dropper, WAYS[way])
    with ScriptedServer(Replying(language)) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url}
        with nursery.start(home, environ, once=False) as daemon, adapter.at_work():
            dropper.drop("hello.json", {"text": HELLO[language], "from": "alice"})
            until(lambda: status_of(open_place(home))["open_loops"])
            until(lambda: settled(dropper.data, dropper))
            (loop,) = status_of(open_place(home))["open_loops"]
            assert (loop["kind"], loop["state"]) == ("echo", "open") and loop["source"].startswith("mirror")
            assert len(replies(dropper.data)) <= MOST_REPLIES
            calls = server.count()
            for number in range(3):  # other sessions go on
                dropper.drop(f"olga-{number}.json", {"text": f"{HELLO[language]} {number}", "from": "olga"})
                until(partial(answered, dropper.data, number + 1))
            assert server.count() == calls + 6
            daemon.signal(signal.SIGKILL)
            daemon.wait()
        (loop,) = status_of(open_place(home))["open_loops"]  # the circuit outlives the process
        assert loop["state"] == "open"
        dropper.drop(
            "late.json", {"text": adapter_words(dropper), "from": loop["source"], "session": loop["session"]}
        )
        assert nursery.once(home, environ) == 0
        assert server.count() == calls + 6
    assert where_files_are(dropper.data, dropper.files)["done"] == len(dropper.files)
    stream = (dropper.data / "self/stream/now.md").read_text()
    assert stream.count("My own words keep coming back" if language == "en" else "我自己的话不断从") == 1


def adapter_words(dropper: Dropper) -> str:
    """What she said last before the circuit opened."""
    return [text for text in replies(dropper.data) if "olga" not in text][-1]


class Chatterbox:
    """A webhook that answers each of her messages at once with news of its own, never with hers."""

    WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")

    def __call__(self, out: Mapping[str, Any], n: int) -> Mapping[str, Any]:
        word = self.WORDS[n % 10] + self.WORDS[n // 10 % 10]
        text = (
            f"构建 {word} 完成了，请看一看。" if "很高兴" in out["text"] else f"Build {word} is done, look."
        )
        return {"type": "build.done", "text": text, "from": "ci", "session": "hook:ci"}


@pytest.mark.parametrize("language", HELLO)
def test_F06_a_source_that_answers_every_act_with_news_waits_behind_its_circuit(
    tmp_path: Path, language: str
) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    adapter = EchoAdapter(dropper, Chatterbox())
    with ScriptedServer(Replying(language)) as server, Nursery() as nursery:
        environ = {
            "OPENAI_BASE_URL": server.base_url,
            "KGAMMA_LOOP__MAX_TURNS": "5",
            "KGAMMA_LOOP__CIRCUIT_SEC": "600",
        }
        with nursery.start(home, environ, once=False) as daemon, adapter.at_work():
            first = Chatterbox()({"text": REPLIES[language]}, 77)
            dropper.drop("first.json", dict(first))
            until(lambda: status_of(open_place(home))["open_loops"])
            until(lambda: where_files_are(dropper.data, dropper.files)["taken"] == 1)
            assert len(replies(dropper.data)) == 5
            dropper.drop("olga-0.json", {"text": HELLO[language], "from": "olga"})
            until(partial(answered, dropper.data, 1))
            daemon.signal(signal.SIGKILL)
            daemon.wait()
        (loop,) = status_of(open_place(home))["open_loops"]
        assert (loop["kind"], loop["source"], loop["state"]) == ("turns", "ci", "open")
        calls = server.count()
        with nursery.start(home, environ, once=False) as daemon:  # it still waits after a restart
            dropper.drop("olga-1.json", {"text": HELLO[language] + "!", "from": "olga"})
            until(partial(answered, dropper.data, 2))
            assert server.count() == calls + 2
            stop(daemon)
        later = {"KGAMMA_CLOCK__TRIAL": "true", "KGAMMA_CLOCK__START": in_an_hour()}
        assert nursery.once(home, {**environ, **later}) == 0  # half open: what waited is perceived
    counts = where_files_are(dropper.data, dropper.files)
    assert counts["done"] == len(dropper.files)
    assert len(replies(dropper.data)) == 5 + 2 + 1


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()
