"""The scripted server as programs outside the test process use it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.scripted_server import ScriptedServer

EVENTS = "".join(
    f'<event id="evt_{n}" type="{kind}" from="A &amp; B" trust="unknown" time="t">\nhi\n</event>\n'
    for n, kind in enumerate(("message", "rhythm"))
)


def post(url: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def said(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


def turn(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def test_the_default_script_names_every_event_and_answers_each_message_once() -> None:
    with ScriptedServer() as server:
        url = f"{server.base_url}/chat/completions"
        passage = said(post(url, turn(EVENTS), **{"X-Kgamma-Agent": "internalizer"}))
        assert "evt_0" in passage
        assert "evt_1" in passage
        assert passage.count("I decide to reply to A & B: echo evt_0") == 1
        assert "echo evt_1" not in passage
        actions = json.loads(said(post(url, turn(f"<passage>\n{passage}\n</passage>"))))["actions"]
        assert actions == [{"tool": "send_message", "arguments": {"to": "A & B", "text": "echo evt_0"}}]
        assert server.counters() == {"internalizer": 1, "": 1}


def test_it_runs_as_a_program_and_is_told_to_refuse() -> None:
    script = Path(__file__).parents[1] / "scripted_server.py"
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base = process.stdout.readline().strip()
            root = base.removesuffix("/v1")
            assert said(post(f"{base}/chat/completions", turn("hi"))) == "I am here."
            post(f"{root}/control", {"retry_after": 7})
            with pytest.raises(urllib.error.HTTPError) as caught:
                post(f"{base}/chat/completions", turn("hi"))
            assert caught.value.headers["Retry-After"] == "7"
            caught.value.close()
            with urllib.request.urlopen(f"{root}/requests", timeout=10) as answer:
                assert json.load(answer)["count"] == 2
        finally:
            process.terminate()
