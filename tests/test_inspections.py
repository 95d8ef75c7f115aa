"""The mind looks at its own body while it lives: what is wrong is told once, and costs nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FakeClock
from tests.harness import QUICK, drop

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.configuration import Home, lay_out
from kernel_gamma.contracts.alerts import Inspection, Look
from kernel_gamma.inspections import Inspections, Seen
from kernel_gamma.mind import Mind
from kernel_gamma.settings import Settings
from kernel_gamma.topology import load_topology
from kernel_gamma.truths.store import SqliteTruths, open_truths

DAY = 86_400.0
WELL = Seen({"breaker": "closed"}, ("inotify", ""))


@asynccontextmanager
async def alive(home: Path, **sections: Any) -> AsyncIterator[Mind]:
    if not (home / "config").exists():
        lay_out(home)
    chosen: dict[str, Any] = {
        "bus": QUICK,
        "model": {"mode": "offline"},
        "preprocessor": {"debounce_sec": 0},
        "gateway": {"enabled": False},
        **sections,
    }
    mind = Mind(home, Settings.model_validate(chosen), {})
    await mind.start()
    running = asyncio.create_task(mind.run())
    try:
        yield mind
    finally:
        await mind.stop()
        await running


async def until(found: Callable[[], Any]) -> Any:
    async with asyncio.timeout(20):
        while not (value := found()):
            await asyncio.sleep(0.05)
        return value


def alerts(mind: Mind) -> list[str]:
    """What stands in the store, oldest first: `open CODE` and `closed CODE`."""
    stored = mind.keeping.store.recent(limit=100, category="alert.inspector")
    values = [truth.value for truth in reversed(stored)]
    return [f"{value['state']} {value['code']}" for value in values]


def status(mind: Mind) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mind.data / "metrics/status.json").read_bytes())
    return found


def shown(mind: Mind) -> list[str]:
    return [alert["code"] for alert in status(mind)["alerts"]]


async def test_drift_is_an_alert_once_also_across_a_restart_and_over_when_it_is_put_back(
    tmp_path: Path,
) -> None:
    often = {"inspector": {"every_sec": 0.2}}
    identity = tmp_path / "config/identity.json"
    async with alive(tmp_path, **often) as mind:
        whole = identity.read_bytes()
        identity.write_bytes(whole + b"\n")
        await until(lambda: shown(mind) == ["drift:config/identity.json"])
        await until(lambda: alerts(mind))
    opened = ["open drift:config/identity.json"]
    async with alive(tmp_path, **often) as mind:
        assert [one["code"] for one in mind.status()["alerts"]] == ["drift:config/identity.json"]
        looks = mind.keeping.store.categories()["inspection"]
        await until(lambda: mind.keeping.store.categories()["inspection"] > looks + 1)
        assert alerts(mind) == opened
        identity.write_bytes(whole)
        await until(lambda: len(alerts(mind)) > 1)
        await until(lambda: not shown(mind))
        assert alerts(mind) == [*opened, "closed drift:config/identity.json"]


NOT_OURS = ("ledger.db", "memory.db", "heartbeat/", "rhythm/", "metrics/status.json", "self/stream/")
"""Databases, the signs of the rhythm, and the page that day and night may come to stand in."""


def files_of(data: Path) -> list[str]:
    found = (str(path.relative_to(data)) for path in data.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(NOT_OURS))


async def test_an_idle_day_asks_no_model_and_leaves_no_files(tmp_path: Path) -> None:
    clock = {"trial": True, "start": "2026-11-30T09:00:00+08:00", "zone": "Asia/Shanghai", "rate": 14_400}
    async with alive(tmp_path, clock=clock) as mind:
        began, before = mind.clock.now(), files_of(mind.data)
        await until(lambda: (mind.clock.now() - began).total_seconds() > DAY)
        assert files_of(mind.data) == before
        ledger = sqlite3.connect(mind.data / "ledger.db")
        assert ledger.execute("SELECT count(*) FROM journal").fetchone() == (0,)
        assert ledger.execute("SELECT count(*) FROM usage").fetchone() == (0,)
        by_node = dict(ledger.execute("SELECT node, count(*) FROM commits GROUP BY node"))
        assert 3 <= by_node["inspector"] <= 26
        assert not {"metrics_collector", "dead_letter_router"} & set(by_node)
        ledger.close()
        written = status(mind)
        assert written["alerts"] == [] and set(written["stale"].values()) == {0}
        assert set(written["measures"]["queues"]) <= {"rhythm/triggers"}
        assert written["measures"]["tokens_today"] == 0
    async with alive(tmp_path) as mind:
        counts = mind.keeping.store.categories()
        assert 3 <= counts["inspection"] <= 26
        assert alerts(mind) == []


async def test_a_busy_queue_is_measured_and_recorded_once_while_nothing_more_happens(tmp_path: Path) -> None:
    often = {"every_sec": 0.2, "record_every_sec": 0.2}
    async with alive(tmp_path, metrics=often) as mind:
        for number in range(5):
            drop(mind.data, f"{number}.json", {"text": f"word {number}", "from": f"p{number}"})
        drop(mind.data, "odd.json", {"no": "event"})
        async with asyncio.timeout(20):
            await mind.drained()
        flow = await until(
            lambda: (
                (found := (status(mind)["measures"] or {}).get("queues", {}).get("inbox/pending"))
                and found["out_day"] == 6
                and found
            )
        )
        assert flow["in_hour"] == flow["in_day"] == flow["out_hour"] == 6
        assert flow["dead_day"] == 1 and flow["retries_day"] == 0
        assert 0 <= flow["dwell_p50_sec"] <= flow["dwell_p99_sec"] < 20
        measures = status(mind)["measures"]
        assert measures["rss_mb"] > 10 and measures["cpu_sec"] > 0 and measures["disk_free_mb"] > 0
        await asyncio.sleep(1.0)
        at = status(mind)["measures"]["at"]
        await until(lambda: status(mind)["measures"]["at"] > at)
    async with alive(tmp_path) as mind:
        kept = [
            truth.value
            for truth in mind.keeping.store.each("metrics")
            if "queues" in truth.value and truth.value["queues"]["inbox/pending"]["out_day"] == 6
        ]
        assert len(kept) == len({(one["last_file"], one["last_ended"]) for one in kept}) >= 1


async def test_without_the_nodes_of_an_old_topology_nothing_is_measured(tmp_path: Path) -> None:
    lay_out(tmp_path)
    topology = tmp_path / "config/topology.yaml"
    topology.write_text("nodes:\n  - {id: message_preprocessor, class: MessagePreprocessor}\n")
    async with alive(tmp_path) as mind:
        await until(lambda: "measures" in status(mind))
        assert status(mind)["measures"] is None and status(mind)["stale"] is None
        assert status(mind)["alerts"] == []


class Body:
    """A home with a ledger and a store, and the checks over them."""

    def __init__(self, home: Path, **settings: Any) -> None:
        lay_out(home)
        self.home = home
        self.settings = Settings.model_validate(settings)
        self.data = Home(home).data_dir(self.settings)
        self.data.mkdir(parents=True)
        self.clock = FakeClock()
        self.ledger = Ledger.open(self.data / "ledger.db")
        self.store: SqliteTruths = open_truths(self.data / "memory.db", self.clock)
        self.checks = Inspections(
            Home(home),
            self.settings,
            self.data,
            self.clock,
            load_topology(home / "config/topology.yaml", home),
            self.store,
            lambda: [],
        )

    def look(self, look: Look = "hourly", seen: Seen = WELL) -> Inspection:
        return self.checks.look(look, seen)

    def codes(self, look: Look = "hourly", seen: Seen = WELL) -> list[str]:
        return [one.code for one in self.look(look, seen).findings]

    def old(self, name: str, *, days: float) -> Path:
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        then = time.time() - days * DAY
        os.utime(path, (then, then))
        return path

    def waits(self, node: str, *, since_sec: float, ttl_sec: float | None = None) -> None:
        at = self.clock.now().timestamp() - since_sec
        ends = None if ttl_sec is None else at + ttl_sec
        seq = self.ledger.one("last_seq")[0] + 1  # type: ignore[index]
        name = f"{seq}.json".encode()
        with self.ledger.transaction(full=False):
            self.ledger.run(
                "add_file", seq, "inbox/pending", name, name, "dropped", "live", "known", None, None, None,
                at, ends, None,
            )  # fmt: skip
            self.ledger.run("add_delivery", node, seq)


@pytest.fixture
def body(tmp_path: Path) -> Body:
    return Body(tmp_path)


def test_a_healthy_body_has_no_findings_and_every_kind_was_looked_at(body: Body) -> None:
    found = body.look("daily")
    assert found.findings == ()
    assert found.facts["ledger"] == "ok" and found.facts["chain"] == {"ok": True, "links": 0}
    assert {"disk.low", "queue.stuck", "ledger.damaged", "chain.broken", "skeleton.differs"} <= found.checked
    assert "ledger.damaged" not in body.look("hourly").checked
    assert body.codes("stale") == []


@pytest.mark.parametrize(
    ("least", "codes"), [(10**9, ["disk.full"]), (0, [])]
)  # no disk has a thousand terabytes free
def test_little_room_on_the_disk(tmp_path: Path, least: int, codes: list[str]) -> None:
    body = Body(tmp_path, inspector={"disk_free_mb": least})
    assert body.codes() == codes


def test_what_waits_too_long_for_a_node(body: Body) -> None:
    body.waits("internalizer", since_sec=7 * 3600)
    body.waits("internalizer", since_sec=60)
    body.waits("externalizer", since_sec=60)
    (found,) = body.look().findings
    assert found.code == "queue.stuck:internalizer" and "2 deliveries" in found.text


def test_a_model_that_is_away_and_a_watcher_that_lists(body: Body) -> None:
    seen = Seen({"breaker": "open", "last_error": "no route"}, ("polling", "too many watches"))
    away, polling = body.look(seen=seen).findings
    assert away.code == "endpoint.away" and "no route" in away.text
    assert polling.code == "watcher.polling" and "too many watches" in polling.text
    assert "endpoint.away" not in body.look(seen=Seen({"breaker": "half_open"}, ("inotify", ""))).checked
    assert body.codes() == []


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_that_is_set_anew_is_told_once(body: Body, seconds: float) -> None:
    body.clock.advance(3600)
    assert body.codes() == []
    body.clock.advance(seconds)
    body.clock.elapsed -= seconds
    assert body.codes() == ["time.jumped"]
    body.clock.advance(3600)
    assert body.codes() == []


def test_a_topology_that_the_skeleton_does_not_tell_of(body: Body) -> None:
    skeleton = body.home / "config/kernel_skeleton.yaml"
    skeleton.write_text(skeleton.read_text().replace("id: inspector", "id: watchman"))
    (found,) = [one for one in body.look("daily").findings if one.code == "skeleton.differs"]
    assert "watchman" in found.text and "inspector" in found.text


def test_a_damaged_ledger_is_a_core_alert_and_the_other_checks_are_made(body: Body) -> None:
    for number in range(400):
        body.waits("internalizer", since_sec=number)
    body.ledger.close()
    path = body.data / "ledger.db"
    raw = bytearray(path.read_bytes())
    raw[8192:-4096] = b"\xff" * (len(raw) - 12288)
    path.write_bytes(raw)
    found = body.look("daily")
    damaged = [one for one in found.findings if one.code == "ledger.damaged"]
    assert damaged and damaged[0].severity == "core"
    assert "chain.broken" in found.checked


def test_what_nobody_takes_up_is_told_by_place_and_nothing_is_moved(body: Body) -> None:
    left = [
        body.old("pipeline/message_queue/odd_1.json", days=1),
        body.old("pipeline/old_node/msg_1.json", days=1),
        body.old("outbox/console/out_1.json", days=8),
        body.old("approvals/pending/act_1.json", days=2),
        body.old("tools/kettle/requests/act_1.json", days=2),
    ]
    body.old("pipeline/message_queue/msg_1.json", days=1)
    body.old("pipeline/message_queue/done/2026-11-01/odd_2.json", days=9)
    body.old("outbox/console/out_2.json", days=6)
    body.old("outbox/console/done/out_3.json", days=30)
    body.old("tools/kettle/requests/act_2.json", days=2)
    body.old("tools/kettle/receipts/act_2.json", days=1)
    body.waits("internalizer", since_sec=3 * 3600, ttl_sec=60)
    body.waits("internalizer", since_sec=60, ttl_sec=30)
    assert body.codes("stale") == [
        "files.orphan:pipeline/message_queue",
        "files.orphan:pipeline/old_node",
        "files.expired:internalizer",
        "outbox.untaken:console",
        "approvals.waiting",
        "tools.unanswered:kettle",
    ]
    assert body.checks.stale == {
        "orphans": 2,
        "expired": 1,
        "outbox": 1,
        "approvals": 1,
        "tool_requests": 1,
    }
    assert all(path.exists() for path in left)


def test_a_name_that_is_no_text_can_be_told(body: Body) -> None:
    path = os.fsencode(body.data / "pipeline/message_queue") + b"/\xff\xfe.json"
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(b"{}")
    os.utime(path, (1, 1))
    (found,) = body.look("stale").findings
    assert "\\xff" in found.text and found.text.encode()
