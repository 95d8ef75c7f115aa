"""SIGKILL at every named step of a consolidation: each page changes once, each passage stands once."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.crash.accounting import read_ledger
from tests.crash.processes import Nursery, make_home
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.self_stream.passages import render
from kernel_gamma.self_stream.rotation import is_bridge

OLD = "# Alice\n\nI know Alice from the mill.\n"
NEW = "# Alice\n\nI know Alice from the mill. She told me that she keeps bees there.\n"
BOB = "# 小波\n\n我知道小波出生在成都。\n"
TOLD = (
    "Alice tells me that she keeps bees at the mill.",
    "小波告诉我他出生在成都。",
    "I walk home along the river.",
    "I have not answered Carol yet.",
    "还有一件事我没有想完。",
)
STEPS = (
    *("deliver.marked", "journal.intent", "journal.ran", "journal.result"),
    *("commit.before", "commit.recorded"),
    *("apply.replace.kept", "apply.replace.written", "apply.replace.renamed"),
    *("apply.rotate.before", "apply.rotate.half", "apply.rotate.archived"),
    *("apply.rotate.written", "apply.rotate.renamed"),
    *("apply.move.before", "apply.move.after", "records.flushed", "commit.applied"),
)
TWICE = ("apply.replace.kept:2", "apply.replace.written:2", "apply.replace.renamed:2", "apply.rotate.half:2")
"""Two pages are written, and two days are archived."""


def furnish(home: Path) -> list[bytes]:
    """A mind of this node alone, with a stream of two days; returns its passages."""
    (home / "config/topology.yaml").write_text(
        "nodes:\n  - {id: memory_consolidator, class: MemoryConsolidator, role: quality}\n"
    )
    now = datetime.now(UTC)
    begin = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(minutes=2)
    passages = [render(begin + timedelta(minutes=n), text).encode() for n, text in enumerate(TOLD)]
    put(home, "stream/now.md", b"".join(passages).decode())
    put(home, "memories/alice.md", OLD)
    trigger = {"envelope": {}, "payload": {"rule": "evening", "slot": "x", "text": "", "idle": False}}
    path = home / "data/kernel/rhythm/triggers/evening_20261130T220000Z.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(trigger))
    return passages


def put(home: Path, page: str, text: str) -> None:
    path = home / "data/kernel/self" / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def script(passages: list[bytes]) -> object:
    stays = passages[3].decode().split("\n")[0].removeprefix("## ")
    memories = [{"topic": "alice", "page": NEW}, {"topic": "小波", "page": BOB}]

    def answer(request: ParsedRequest) -> Answer:
        assert request.agent == "memory_consolidator"
        return Answer(json.dumps({"memories": memories, "keep_from": stays}))

    return answer


def expect(home: Path, passages: list[bytes]) -> None:
    data = home / "data/kernel"
    root = data / "self"
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (root / "memories").glob("*.md")}
    assert pages == {"alice": NEW, "小波": BOB}
    history = [path.read_text(encoding="utf-8") for path in (root / ".history").iterdir()]
    assert history == [OLD]
    days = sorted((root / "stream/archive").glob("*.md"))
    assert [day.read_bytes() for day in days] == [b"".join(passages[:2]), passages[2]]
    bridge, _, rest = (root / "stream/now.md").read_bytes().partition(b"\n\n")
    assert is_bridge(bridge.decode()) and rest == b"".join(passages[3:])
    assert not list(data.rglob("*.tmp"))
    assert not list((data / "rhythm/triggers").glob("*.json"))
    assert not read_ledger(data, "SELECT n FROM commits WHERE applied = 0")
    assert len(read_ledger(data, "SELECT n FROM commits WHERE node = 'memory_consolidator'")) == 1


@pytest.mark.parametrize("durability", ["process", "full"])
@pytest.mark.parametrize("step", [*STEPS, *TWICE])
def test_a_kill_in_a_consolidation_loses_and_doubles_nothing(
    nursery: Nursery, tmp_path: Path, step: str, durability: str
) -> None:
    home = make_home(tmp_path)
    passages = furnish(home)
    with ScriptedServer(script(passages)) as server:  # type: ignore[arg-type]
        environ = {
            "OPENAI_BASE_URL": server.base_url,
            "KGAMMA_BUS__DURABILITY": durability,
            "KGAMMA_CLOCK__ZONE": "UTC",
            "KGAMMA_INTERNALIZER__MEMORY_TOKENS": "800",
        }
        deadly = {**environ, "KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": step}
        output = home / "output.txt"
        assert nursery.once(home, deadly) == -signal.SIGKILL, output.read_text()
        assert nursery.once(home, environ) == 0, output.read_text()
        asked = server.count()
    expect(home, passages)
    assert asked <= 2, "only a call whose answer was not stored yet is made again"
