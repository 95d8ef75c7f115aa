from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PATIENCE_SEC = 30.0


@contextmanager
def serving(shell: Any, *options: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`kgamma gateway` and its address, until the block ends."""
    process = subprocess.Popen(
        shell.command("gateway", *options),
        env={**shell.environ, "PYTHONUNBUFFERED": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("stop"):
            line = process.stdout.readline()
            assert line, lines
            lines.append(line)
        found = re.fullmatch(r"gateway  (http://\S+:\d+)\n", lines[0])
        assert found is not None, lines
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SEC)


def ask(url: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=PATIENCE_SEC) as answer:
        return json.loads(answer.read())


def test_what_is_written_over_http_is_read_from_the_shell_and_back(kgamma: Any) -> None:
    with serving(kgamma, "--port", "0") as (_, url):
        written = ask(f"{url}/api/truth/upsert", {"key": "incident.disk", "value": "磁盘满了"})
        assert written["version"] == 1
        assert json.loads(kgamma("truths", "get", "incident.disk", "--json").stdout)["value"] == "磁盘满了"
        kgamma("truths", "put", "incident.disk", "-", stdin="free again")
        assert ask(f"{url}/api/truth/incident.disk")["version"] == 2
        found = ask(f"{url}/api/truth/search", {"query": "free again"})
        assert found["results"][0]["key"] == "incident.disk"
    assert kgamma("truths", "verify").stdout == "the chain holds: 2 links\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_when_it_is_told_to(kgamma: Any, number: int) -> None:
    with serving(kgamma, "--port", "0") as (process, url):
        assert ask(f"{url}/healthz")["status"] == "ok"
        process.send_signal(number)
        output, _ = process.communicate(timeout=PATIENCE_SEC)
        assert process.returncode == 0
        assert "Traceback" not in output
        with pytest.raises(urllib.error.URLError):
            ask(f"{url}/healthz")


def test_a_truth_outlives_a_kill(kgamma: Any) -> None:
    with serving(kgamma, "--port", "0") as (process, url):
        for n in range(20):
            ask(f"{url}/api/truth/upsert", {"key": f"task.n{n}", "value": n})
        process.kill()
        process.wait(PATIENCE_SEC)
    assert json.loads(kgamma("truths", "categories", "--json").stdout)["categories"][0]["count"] == 20
    assert kgamma("truths", "verify").exit_code == 0


def test_the_port_of_the_settings_and_a_port_that_is_taken(kgamma: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = kgamma("gateway", KGAMMA_GATEWAY__PORT=port)
        assert done.exit_code == 1
        assert f"port {port} of 127.0.0.1 is in use" in done.stderr
        assert "--port" in done.stderr
        assert "Traceback" not in done.stderr
    with serving(kgamma, KGAMMA_GATEWAY__PORT=port) as (_, url):
        assert url.endswith(f":{port}")


def test_other_machines_need_a_token(kgamma: Any) -> None:
    done = kgamma("gateway", "--host", "0.0.0.0", "--port", "0")
    assert done.exit_code == 1
    assert "KGAMMA_GATEWAY_TOKEN" in done.stderr
    (kgamma.home / ".env").write_text("KGAMMA_GATEWAY_TOKEN=sesame\n")
    with serving(kgamma, "--host", "0.0.0.0", "--port", "0") as (_, url):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(f"{url}/api/truth/recent")
        assert refused.value.code == 401
        refused.value.close()
        assert ask(f"{url}/api/truth/recent", Authorization="Bearer sesame")["total"] == 0


def test_a_posted_event_waits_for_the_mind_and_is_lived(kgamma: Any) -> None:
    with serving(kgamma, "--port", "0") as (_, url):
        taken = ask(f"{url}/api/events", {"text": "hello from afar", "from": "alice"})
        assert taken["id"]
        assert ask(f"{url}/api/status")["running"] is False
        with pytest.raises(urllib.error.HTTPError) as unknown:
            ask(f"{url}/api/trace/{taken['trace_id']}")
        assert unknown.value.code == 404
        unknown.value.close()
        kgamma.live()
        assert ask(f"{url}/api/trace/{taken['trace_id']}")
        with urllib.request.urlopen(f"{url}/api/self/now", timeout=PATIENCE_SEC) as answer:
            assert "hello from afar" in answer.read().decode()


def test_it_prunes_when_it_starts(kgamma: Any) -> None:
    old = {"key": "temp.old", "value": 1, "timestamp": "2026-01-01T00:00:00Z"}
    kgamma("truths", "import", "-", stdin=json.dumps(old))
    with serving(kgamma, "--port", "0"):
        kgamma.wait_for(lambda: kgamma("truths", "get", "temp.old").exit_code == 1)


def test_without_a_home_it_says_how_to_make_one(kgamma: Any, tmp_path: Any) -> None:
    kgamma.home = tmp_path / "nowhere"
    done = kgamma("gateway")
    assert done.exit_code == 1
    assert "kgamma init" in done.stderr
    assert not kgamma.home.exists()


@pytest.mark.parametrize("options", [("--port", "70000"), ("--port", "many"), ("--host", " ")])
def test_a_wrong_call_ends_with_2(kgamma: Any, options: tuple[str, ...]) -> None:
    assert kgamma("gateway", *options).exit_code == 2


def test_an_address_that_is_not_ours(kgamma: Any) -> None:
    done = kgamma("gateway", "--host", "192.0.2.1", "--port", "0", KGAMMA_GATEWAY_TOKEN="sesame")
    assert done.exit_code == 1
    assert "192.0.2.1" in done.stderr
    assert os.path.exists(kgamma.home)
