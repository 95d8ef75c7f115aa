"""A real server on a loopback port, a real store, a real folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from kernel_gamma.bus.folders import INBOX, SELF
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.trace import journey
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.gateway.bounds import Bounds
from kernel_gamma.gateway.following import follow_pages
from kernel_gamma.gateway.ports import GatewayPorts
from kernel_gamma.gateway.server import GatewayServer
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.rhythm.ids import UlidIds
from kernel_gamma.self_stream.stream import SelfStream
from kernel_gamma.settings import GatewaySettings, Settings
from kernel_gamma.truths.store import SqliteTruths, open_truths

ZONE = "Asia/Shanghai"
NOW_PAGE = "## 2026-11-30 10:30:05 +08:00\n\nI heard 小明 say hello.\n\n"


@dataclass
class Place:
    """One served mind: its folder, its store, its address."""

    data: Path
    store: SqliteTruths
    server: GatewayServer
    http: httpx2.Client

    @property
    def url(self) -> str:
        return self.server.url

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.http.get(path, **more)

    def post(self, path: str, document: Any, **headers: str) -> httpx2.Response:
        return self.http.post(
            path, json=document, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    def raw(self, path: str, body: bytes, **headers: str) -> httpx2.Response:
        given = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return self.http.post(path, content=body, headers=given)

    def upsert(self, key: str, value: Any, **more: Any) -> dict[str, Any]:
        answer = self.post("/api/truth/upsert", {"key": key, "value": value, **more})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def inbox(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted((self.data / INBOX).glob("*.json"))]

    def write_page(self, name: str, text: str) -> None:
        path = self.data / SELF / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def ports_of(data: Path, store: SqliteTruths, gateway: Mapping[str, Any]) -> GatewayPorts:
    settings = Settings(gateway=GatewaySettings(**{"port": 0, **gateway}))
    clock = SystemClock(ZONE)
    pages = SelfStream(data / SELF)

    def trace(asked: str) -> dict[str, Any] | None:
        if not (data / "ledger.db").exists():
            return None
        with closing(Ledger.open(data / "ledger.db", read_only=True)) as ledger:
            found = journey(ledger, os.fsencode(data), asked, clock.zone)
        return None if found is None else found.as_json()

    def status() -> dict[str, Any]:
        queue = sum(1 for _ in (data / INBOX).glob("*.json"))
        return {"running": False, "mind": settings.mind, "queues": {INBOX: queue}, "dead_letters": 0}

    return GatewayPorts(
        truths=store,
        clock=clock,
        ids=UlidIds(clock),
        settings=settings,
        version="9.9.9",
        pages=pages,
        follow=partial(follow_pages, pages),
        status=status,
        trace=trace,
        data=data,
    )


@contextmanager
def serving(
    folder: Path,
    *,
    gateway: Mapping[str, Any] | None = None,
    bounds: Bounds | None = None,
    **changed: Any,
) -> Iterator[Place]:
    """A server until the block ends; `gateway` are its settings, `changed` replaces ports."""
    (folder / INBOX).mkdir(parents=True, exist_ok=True)
    store = open_truths(folder / "memory.db", SystemClock(ZONE))
    ports = replace(ports_of(folder, store, gateway or {}), **changed)
    server = GatewayServer(ports, bounds)
    server.start()
    headers = {"authorization": f"Bearer {ports.token}"} if ports.token else {}
    http = httpx2.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False)
    try:
        yield Place(folder, store, server, http)
    finally:
        http.close()
        server.stop()
        store.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """Starts servers on folders of this test."""
    with ExitStack() as stack:
        yield lambda name="data", **more: stack.enter_context(serving(tmp_path / name, **more))


@pytest.fixture
def place(serve: Callable[..., Place]) -> Place:
    """One server with nothing in it."""
    return serve()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One server for all tests of a module that change nothing or only what is theirs."""
    with serving(tmp_path_factory.mktemp("shared") / "data") as place:
        place.write_page("stream/now.md", NOW_PAGE)
        yield place


def loop_incident() -> NewTruth:
    """The record of the seed's example."""
    return NewTruth(
        key="incident.startup_loop_20260911.root_cause",
        value={"cause": "配置循环依赖", "restarts": 17},
        description="启动失败死循环根因分析",
    )
