"""The client against a real gateway."""

from __future__ import annotations

import dataclasses
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.gateway.conftest import NOW_PAGE, Place, serving

from kernel_gamma.client import Client, GatewayError

SHANGHAI = timezone(timedelta(hours=8))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(serving(tmp_path / "data", **more))


@pytest.fixture
def place(serve: Callable[..., Place]) -> Place:
    return serve()


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    with Client(place.url) as found:
        yield found


def test_what_is_put_is_got(client: Client) -> None:
    at = datetime(2026, 9, 11, 8, tzinfo=SHANGHAI)
    put = client.put({"原因": "循环"}, key="incident.loop", description="死循环", timestamp=at)
    assert client.get("incident.loop") == put
    assert (put.version, put.value, put.timestamp, put.category) == (1, {"原因": "循环"}, at, "incident")
    with pytest.raises(dataclasses.FrozenInstanceError):
        put.version = 2  # type: ignore[misc]
    assert client.get("incident.none") is None


def test_a_key_is_made_where_none_is_given_and_null_is_a_value(client: Client) -> None:
    made = client.put(None, category="task")
    assert made.key.startswith("task.")
    found = client.get(made.key)
    assert found is not None
    assert found.value is None


def test_versions_are_expected(client: Client) -> None:
    client.put(1, key="task.a", expect_version=0)
    client.put(2, key="task.a", expect_version=1)
    for wrong in (0, 1):
        with pytest.raises(GatewayError) as caught:
            client.put(3, key="task.a", expect_version=wrong)
        assert caught.value.status == 412
    assert [one.value for one in client.versions("task.a").results] == [1, 2]


def test_many_are_put_and_listed(client: Client) -> None:
    at = datetime(2026, 9, 11, tzinfo=SHANGHAI)
    truths = [{"key": f"task.n{n}", "value": n, "timestamp": at + timedelta(minutes=n)} for n in range(5)]
    assert client.put_many(truths) == [f"task.n{n}" for n in range(5)]
    client.put(1, key="error.a", locked=True)
    assert client.categories() == {"task": 5, "error": 1}
    assert client.truths(limit=2).total == 6
    page = client.category("task", limit=2, offset=1)
    assert ([one.value for one in page.results], page.total) == ([3, 2], 5)
    assert client.recent(1, "task").results[0].value == 4
    with pytest.raises(GatewayError, match="locked") as caught:
        client.put(2, key="error.a")
    assert (caught.value.status, caught.value.title) == (409, "Conflict")


def test_a_description_stays_unless_another_is_given(client: Client) -> None:
    client.put(1, key="task.a", description="盘满了")
    assert client.put(2, key="task.a").description == "盘满了"
    client.put_many([{"key": "task.a", "value": 3}])
    found = client.get("task.a")
    assert found is not None and found.description == "盘满了"
    assert client.put(4, key="task.a", description="").description == ""
    with pytest.raises(GatewayError, match="description: must have at most 2000 characters") as caught:
        client.put(5, key="task.a", description="x" * 2001)
    assert caught.value.status == 422


def test_any_mapping_and_any_item_that_was_read_can_be_put_with_others(client: Client) -> None:
    at = datetime(2026, 9, 11, 8, tzinfo=SHANGHAI)
    read = client.put({"n": 1}, key="error.read", description="读", timestamp=at, locked=True)
    frozen = MappingProxyType({"key": "error.frozen", "value": [1], "timestamp": at})
    chained = ChainMap({"value": 2}, {"category": "error", "value": 0})
    copy = dataclasses.replace(read, key="error.copy")
    keys = client.put_many(iter([frozen, chained, copy]))
    assert (keys[0], keys[1].split(".")[0], keys[2]) == ("error.frozen", "error", "error.copy")
    found = client.get("error.copy")
    assert found is not None
    assert (found.value, found.description, found.timestamp, found.locked, found.version) == (
        {"n": 1}, "读", at, True, 1,
    )  # fmt: skip
    other = client.get("error.frozen")
    assert other is not None and other.timestamp == at
    made = client.get(keys[1])
    assert made is not None and made.value == 2
    assert client.put_many([{"key": "task.twice", "value": n} for n in range(2)]) == ["task.twice"] * 2
    assert [one.value for one in client.versions("task.twice").results] == [0, 1]


def test_search_and_feedback(client: Client) -> None:
    client.put("连接超时，重试三次", key="error.timeout", timestamp="2026-09-11T08:00:00")
    client.put("all is well", key="inspection.a", timestamp="2026-09-11T09:00:00")
    hits = client.search(
        "超时",
        categories=["error"],
        start_time="2026-09-01",
        end_time=datetime(2026, 9, 11, 23, 59, 59, tzinfo=SHANGHAI),
        task_type="ops_debug",
    )
    (hit,) = hits.results
    assert (hit.key, hit.value, hits.total) == ("error.timeout", "连接超时，重试三次", 1)
    assert hit.timestamp == datetime(2026, 9, 11, 8, tzinfo=SHANGHAI)
    assert client.search("超时", include_value=False).results[0].value is None
    client.feedback("error.timeout", "超时", relevant=True, by="alice")
    with pytest.raises(GatewayError) as caught:
        client.feedback("error.none", "超时", relevant=False)
    assert caught.value.status == 404


def test_events_and_the_mind(place: Place, client: Client) -> None:
    one = client.event({"text": "你好", "from": "alice"})
    assert one.id and one.trace_id
    two = client.event([{"text": "a"}, {"text": "b"}])
    assert len(two.ids) == len(two.trace_ids) == 2
    assert len(place.inbox()) == 2
    assert client.status()["queues"] == {"inbox/pending": 2}
    assert client.trace("evt_unknown") is None
    assert client.health()


def test_pages_are_read_and_absent_ones_are_none(place: Place, client: Client) -> None:
    assert client.now() is client.state() is client.diary("2026-11-30") is client.memories("alice") is None
    place.write_page("stream/now.md", NOW_PAGE)
    place.write_page("state.md", "fine\n")
    place.write_page("diary/2026-11-30.md", "日记\n")
    place.write_page("memories/小明.md", "茶\n")
    assert client.now() == NOW_PAGE
    assert (client.state(), client.diary("2026-11-30"), client.memories("小明")) == (
        "fine\n",
        "日记\n",
        "茶\n",
    )


def test_an_odd_name_leads_nowhere_else(client: Client) -> None:
    for name in ("..", ".", "a/b", "../status", "?x", "#", "%2e%2e"):
        assert client.memories(name) is None
        assert client.trace(name) is None


def test_a_wrong_request_is_told_with_the_field(client: Client) -> None:
    with pytest.raises(GatewayError, match="limit: must be") as caught:
        client.search(limit=0)
    assert caught.value.status == 422


def test_the_token_is_sent(serve: Callable[..., Place]) -> None:
    place = serve(token="t0ken")
    with Client(place.url, token="t0ken") as client:
        assert client.truths().total == 0
    with Client(place.url) as client, pytest.raises(GatewayError) as caught:
        client.truths()
    assert caught.value.status == 401


def test_a_gateway_that_is_not_there_is_an_error_of_the_client(place: Place) -> None:
    place.server.stop()
    with Client(place.url, timeout_sec=2) as client:
        with pytest.raises(GatewayError, match=place.url) as caught:
            client.truths()
        assert caught.value.status == 0
        assert not client.health()


class _NoGateway(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(502)
        self.end_headers()
        self.wfile.write(b"bad gateway")

    def log_message(self, *_: object) -> None:
        pass


def test_an_answer_that_is_no_problem_document_is_an_error_too() -> None:
    with HTTPServer(("127.0.0.1", 0), _NoGateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            with Client(url) as client, pytest.raises(GatewayError, match="bad gateway") as caught:
                client.truths()
        finally:
            server.shutdown()
            thread.join()
    assert caught.value.status == 502
