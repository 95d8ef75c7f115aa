"""Status, traces, pages and the stream by HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
import pytest
from tests.gateway.conftest import NOW_PAGE, Place

from kernel_gamma.errors import SettingsError, StoreDamaged, StoreFull

SECOND = "## 2026-11-30 10:31:00 +08:00\n\n水开了 \N{TEACUP WITHOUT HANDLE}\n\nand the tea is made.\n\n"
THIRD = "## 2026-11-30 10:32:00 +08:00\n\nI wait.\n\n"


def test_the_status_is_told(shared: Place) -> None:
    found = shared.get("/api/status").json()
    assert (found["mind"], found["running"]) == ("main", False)


def test_an_unknown_trace_is_not_there(shared: Place) -> None:
    for asked in ("evt_1", "%2e%2e", "小明.json", "x" * 255):
        assert shared.get(f"/api/trace/{asked}").status_code == 404


def test_a_known_trace_is_told(serve: Callable[..., Place]) -> None:
    journey = {"asked": "evt_1", "files": [{"path": "inbox/done/a.json"}]}
    place = serve(trace={"evt_1": journey}.get)
    assert place.get("/api/trace/evt_1").json() == journey
    assert place.get("/api/trace/evt_2").status_code == 404


@pytest.mark.parametrize(
    ("address", "page", "text"),
    [
        ("now", "stream/now.md", NOW_PAGE),
        ("state", "state.md", "I feel fine. 今天很好。\n"),
        ("diary/2026-11-30", "diary/2026-11-30.md", "# 日记\n"),
        ("memories/about_alice", "memories/about_alice.md", "Alice likes tea.\n"),
        ("memories/About Alice", "memories/about_alice.md", "Alice likes tea.\n"),
        ("memories/小明", "memories/小明.md", "小明喝绿茶。\n"),
    ],
)
def test_pages_come_as_markdown(place: Place, address: str, page: str, text: str) -> None:
    assert place.get(f"/api/self/{address}").status_code == 404
    place.write_page(page, text)
    answer = place.get(f"/api/self/{address}")
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.content.decode() == text
    etag = answer.headers["etag"]
    assert place.get(f"/api/self/{address}", headers={"if-none-match": etag}).status_code == 304
    place.write_page(page, text + "more\n")
    assert place.get(f"/api/self/{address}", headers={"if-none-match": etag}).status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "diary/2026-11-30.md",
        "diary/..",
        "diary/today",
        "memories/..%2f..%2fkernel",
        "memories/%2e%2e",
        "memories/.history",
        "memories/a%00b",
        "memories/" + "x" * 300,
        "stream/now.md",
    ],
)
def test_nothing_but_pages_is_read(shared: Place, address: str) -> None:
    with socket.create_connection(("127.0.0.1", shared.server.port), timeout=10) as line:
        line.sendall(
            f"GET /api/self/{address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.split()[1] in (b"404", b"422"), answer


def test_a_link_out_of_the_self_is_not_followed(place: Place) -> None:
    place.write_page("memories/a.md", "a")
    secret = place.data / "secret.txt"
    secret.write_text("secret")
    (place.data / "self/memories/out.md").symlink_to(secret)
    (place.data / "self/state.md").symlink_to(secret)
    for address in ("memories/out", "state"):
        answer = place.get(f"/api/self/{address}")
        assert answer.status_code in (404, 503)
        assert "secret" not in answer.json().values()


# The stream


class Listener:
    """Hears server-sent events in a thread."""

    def __init__(self, response: httpx2.Response) -> None:
        self.events: list[dict[str, Any]] = []
        self.ended = threading.Event()
        self._lines = response.iter_lines()
        self.opening = next(self._lines)
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        try:
            for line in self._lines:
                if line.startswith("data: "):
                    self.events.append(json.loads(line.removeprefix("data: ")))
        except httpx2.HTTPError:
            pass
        finally:
            self.ended.set()

    def heard(self, count: int) -> list[str]:
        deadline = time.monotonic() + 20
        while len(self.events) < count:
            assert time.monotonic() < deadline, self.events
            time.sleep(0.02)
        return [event["text"] for event in self.events]


@contextmanager
def listening(place: Place, **headers: str) -> Iterator[Listener]:
    with httpx2.stream("GET", f"{place.url}/api/stream", headers=headers, timeout=30) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        listener = Listener(response)
        try:
            yield listener
        finally:
            with suppress(OSError):  # wakes the thread, which waits for the next event
                response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            listener.thread.join(20)


def append(place: Place, text: str) -> None:
    with (place.data / "self/stream/now.md").open("a") as page:
        page.write(text)


def test_new_passages_are_heard_as_they_come(place: Place) -> None:
    place.write_page("stream/now.md", NOW_PAGE)
    with listening(place) as listener:
        assert listener.opening == "retry: 2000"
        append(place, SECOND)
        assert listener.heard(1) == [SECOND.split("\n", 2)[2].strip()]
        append(place, THIRD)
        assert listener.heard(2)[1] == "I wait."
        assert listener.events[0]["heading"] == "2026-11-30 10:31:00 +08:00"
        place.server.stop()
        assert listener.ended.wait(10)


def test_a_listener_that_was_away_hears_what_it_missed(place: Place) -> None:
    place.write_page("stream/now.md", NOW_PAGE)
    with listening(place) as listener:
        append(place, SECOND)
        listener.heard(1)
    last = listener.events[0]["id"]
    append(place, THIRD)
    with listening(place, **{"Last-Event-ID": last}) as listener:
        assert listener.heard(1) == ["I wait."]
    with listening(place, **{"Last-Event-ID": "no such id"}) as listener:
        append(place, SECOND.replace("10:31", "10:40"))
        assert len(listener.heard(1)) == 1


# When something is broken


@pytest.mark.parametrize(
    ("error", "status"), [(StoreFull("memory.db: disk is full"), 507), (StoreDamaged("memory.db: x"), 503)]
)
def test_a_store_that_cannot_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for name in ("upsert", "categories"):
        monkeypatch.setattr(place.store, name, fail)
    answer = place.post("/api/truth/upsert", {"key": "task.a", "value": 1})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert place.get("/healthz").status_code == 503


def test_a_mind_that_cannot_be_read_says_why(serve: Callable[..., Place]) -> None:
    def status() -> dict[str, Any]:
        raise SettingsError("ledger.db", "version", "written by a newer version")

    answer = serve(status=status).get("/api/status")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert "newer version" in answer.json()["detail"]


def test_an_unforeseen_error_tells_no_inside(serve: Callable[..., Place]) -> None:
    def status() -> dict[str, Any]:
        raise ZeroDivisionError("the inside")

    place = serve(status=status)
    answer = place.get("/api/status")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "inside" not in answer.text
    assert place.get("/api/truths").status_code == 200


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/", 404), ("GET", "/api", 404), ("GET", "/api/truths/", 404), ("DELETE", "/api/truths", 405),
    ("GET", "/api/truth/search", 405), ("GET", "/api/truth/upsert", 405), ("POST", "/api/truth/recent", 405),
    ("PUT", "/api/truth/a.b", 405), ("OPTIONS", "/api/events", 405), ("GET", "/api/truth/a/b/c", 404),
])  # fmt: skip
def test_other_addresses_and_methods_are_problems(shared: Place, method: str, path: str, status: int) -> None:
    answer = shared.http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert status != 405 or answer.headers["allow"] in answer.json()["detail"]
