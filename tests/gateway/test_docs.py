"""docs/gateway.md: every command and the program, against a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.gateway.conftest import NOW_PAGE, Place

PAGE = Path(__file__).parents[2] / "docs/gateway.md"
TOKEN = "t0ken"


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def here(text: str, place: Place) -> str:
    return text.replace("http://127.0.0.1:9120", place.url)


def run(place: Place, command: str) -> str:
    environ = {**os.environ, "KGAMMA_GATEWAY_TOKEN": TOKEN, "no_proxy": "*"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", here(command, place)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_command_of_the_page_does_what_the_page_says(serve: Callable[..., Place]) -> None:
    place = serve()
    place.write_page("stream/now.md", NOW_PAGE)
    printed = [run(place, block) for block in blocks("bash")]
    everything = "\n".join(printed)
    assert '"status": 422' not in everything
    assert '"status": 415' not in everything
    stored, found = printed[0].splitlines(), json.loads(printed[4])
    assert len(stored) == 2 and stored[0] == stored[1]
    assert found["results"][0]["key"] == "incident.startup_loop_20260911.root_cause"
    assert json.loads(printed[3].splitlines()[-1])["total"] == 2
    assert NOW_PAGE in everything
    (event,) = place.inbox()
    assert event["payload"]["text"] == "水开了"


def test_the_command_with_a_token_carries_it(serve: Callable[..., Place]) -> None:
    place = serve(token=TOKEN)
    (command,) = [block for block in blocks("bash") if "Authorization" in block]
    assert json.loads(run(place, command))["total"] == 0


def test_the_program_runs(place: Place) -> None:
    (program,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", here(program, place)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith("incident.disk ")
    assert last.startswith("412 ")
