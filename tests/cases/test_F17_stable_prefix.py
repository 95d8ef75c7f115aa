"""F17 stable prefix: fifty calls over three simulated hours, with new memories between them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.scripted_server import ParsedRequest, ScriptedServer

from kernel_gamma.model.tokens import Tokens
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.changes import Changes
from kernel_gamma.truths.store import SqliteTruths, open_truths

CALLS = 50
HOURS = 3
THREE_HOURS = {
    "KGAMMA_CLOCK__TRIAL": "true",
    "KGAMMA_CLOCK__START": "2026-11-30T08:00:00+08:00",
    "KGAMMA_CLOCK__RATE": str(HOURS * 3600 / 8.0),
    "KGAMMA_INTERNALIZER__MEMORY_TOKENS": "800",
    "KGAMMA_BUS__RECONCILE_MAX_SEC": "1",
}
TASKS = (
    "How are you, {}?",
    "The service fails to start: error {}",
    "写一首关于第 {} 场雨的诗",
    "部署第 {} 版",
)


def _until(true: Callable[[], bool]) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came true")


def _systems(requests: list[ParsedRequest], agent: str) -> list[str]:
    return [request.body["messages"][0]["content"] for request in requests if request.agent == agent]


def _accounts(store: SqliteTruths) -> list[dict[str, Any]]:
    return [truth.value for truth in store.each("assembly") if isinstance(truth.value, dict)]


def test_F17_every_prompt_begins_with_the_same_bytes_until_a_truth_is_approved(tmp_path: Path) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    memories = dropper.data / "self/memories"
    axioms = home / "config/meta_axioms.json"

    def say(number: int, server: ScriptedServer) -> None:
        calls = server.count()
        dropper.drop(
            f"e{number:03}.json", {"text": TASKS[number % len(TASKS)].format(number), "from": "alice"}
        )
        _until(lambda: server.count() >= calls + 2)
        memories.mkdir(parents=True, exist_ok=True)
        (memories / f"topic_{number}.md").write_text(f"# Topic {number}\n\nI know fact {number}.\n")

    with ScriptedServer() as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, **THREE_HOURS}
        with nursery.start(home, environ, once=False):
            for number in range(CALLS // 2):
                say(number, server)
            before = list(server.requests)
            document = json.loads(axioms.read_text(encoding="utf-8"))
            document["axioms"][0]["short"] = "Say what is so, in as few words as it takes."
            axioms.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
            say(100, server)
            drifted = list(server.requests)[len(before) :]
            store = open_truths(dropper.data / "memory.db", SystemClock("UTC"))
            changes = Changes(home, StaticPaths(), store, SystemClock("UTC"), count=Tokens().count)
            proposal = changes.propose("config/meta_axioms.json", why="shorter", by="a person")
            changes.approve(proposal.id, name="a person", now=SystemClock("UTC").now())
            say(101, server)
            after = list(server.requests)[len(before) + len(drifted) :]
            accounts = _accounts(store)
            store.close()
            status_file = dropper.data / "metrics/status.json"
            _until(lambda: json.loads(status_file.read_bytes())["context"]["calls"] >= len(server.requests))
            sums = json.loads(status_file.read_bytes())["context"]

    assert len(before) >= CALLS
    for requests in (before, drifted):
        prompts = [request.body["messages"][0]["content"] for request in requests]
        begin = before[0].body["messages"][0]["content"].split("\n\n# ")[0]
        assert len(begin) > 300 and all(prompt.startswith(begin) for prompt in prompts)
        assert "few words as it takes" not in "".join(prompts)
    # One agent, one language, one profile: the whole turn is the same.
    assert len(set(_systems(before, "internalizer"))) <= 4
    assert len(set(_systems(before, "externalizer"))) <= 2
    assert all("few words as it takes" in prompt for prompt in _systems(after, "internalizer"))

    sent = {
        hashlib.sha256(request.body["messages"][0]["content"].encode()).hexdigest(): len(
            request.body["messages"][0]["content"]
        )
        for request in before
    }
    recorded = {account["prefix_hash"]: account["prefix_chars"] for account in accounts}
    assert sent.items() <= recorded.items()
    assert sums["by_agent"].keys() == {"internalizer", "externalizer"} and sums["prompt_tokens"] > 0
    assert sum(sums["by_agent"].values()) == sums["assembled_tokens"] == sum(sums["by_section"].values())
