"""Events by HTTP: taken, refused, handed to whoever takes them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import make_shell
from tests.gateway.conftest import Place, serving

from kernel_gamma.errors import Poison

FORMS: list[dict[str, Any]] = [
    {"text": "晚上好", "from": "alice"},
    {
        "envelope": {
            "id": "msg_1",
            "trace_id": "trace_1",
            "timestamp": "2026-11-30T10:00:00+08:00",
            "source_node": "cam",
            "session_key": "system",
        },
        "payload": {"text": "motion"},
    },
    {"specversion": "1.0", "id": "c1", "source": "cam", "type": "motion", "data": {"zone": 3}},
    {
        "header": {"message_id": "m1", "source": {"app": "qq"}},
        "payload": {"type": "message.received", "session_id": "1", "summary": "你好", "data": {}},
    },
]


@pytest.mark.parametrize("form", FORMS, ids=["plain", "envelope", "cloudevents", "amp"])
def test_each_form_is_taken(place: Place, form: dict[str, Any]) -> None:
    answer = place.post("/api/events", form)
    assert answer.status_code == 202
    told = answer.json()
    assert {"id", "trace_id"} <= set(told)
    assert len(place.inbox()) == 1


def test_given_ids_are_kept(place: Place) -> None:
    told = place.post("/api/events", FORMS[1]).json()
    assert (told["id"], told["trace_id"]) == ("msg_1", "trace_1")
    assert place.inbox() == [FORMS[1]]


def test_a_cloud_event_may_be_declared_as_one(place: Place) -> None:
    answer = place.post("/api/events", FORMS[2], content_type="application/cloudevents+json")
    assert answer.status_code == 202
    assert place.inbox() == [FORMS[2]]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b'{"from": "alice"}', 422, "text"),
        (b'{"text": "a", "time": "soon"}', 422, "time"),
        (b'{"specversion": "2.0", "id": "1", "source": "a", "type": "b"}', 422, "specversion"),
        (b'[{"text": "a"}, {"from": "b"}]', 422, "element 1"),
        (b"3", 422, "object"),
        (b"{nope", 400, "not JSON"),
        (b"", 400, "empty"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(
    shared: Place, body: bytes, status: int, said: str
) -> None:
    before = len(shared.inbox())
    answer = shared.raw("/api/events", body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]
    assert len(shared.inbox()) == before


def test_an_event_that_outgrows_the_limit_of_the_inbox_is_refused(serve: Callable[..., Place]) -> None:
    place = serve(gateway={"max_bytes": 3_000_000})
    answer = place.post("/api/events", {"text": "é" * 600_000})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["kind"] == "too_large"
    assert "inbox.max_bytes is 1048576" in answer.json()["detail"]
    assert place.inbox() == []
    assert place.post("/api/events", {"text": "é" * 500_000}).status_code == 202


def test_without_a_mind_there_is_nowhere_to_put_it(serve: Callable[..., Place]) -> None:
    answer = serve(data=None).post("/api/events", {"text": "hello"})
    assert answer.status_code == 503
    assert "without a mind" in answer.json()["detail"]


def test_a_daemon_may_take_events_itself(serve: Callable[..., Place]) -> None:
    taken: list[bytes] = []

    async def emit(raw: bytes) -> dict[str, str]:
        if b"bad" in raw:
            raise Poison("text: is bad")
        taken.append(raw)
        return {"id": "evt_1", "trace_id": "trace_1"}

    place = serve(emit=emit)
    assert place.post("/api/events", {"text": "hello"}).json() == {"id": "evt_1", "trace_id": "trace_1"}
    refused = place.post("/api/events", {"text": "bad"})
    assert (refused.status_code, refused.json()["errors"]) == (422, [{"field": "text", "problem": "is bad"}])
    assert len(taken) == 1
    assert place.inbox() == []


@pytest.mark.parametrize(("code", "status"), [(errno.ENOSPC, 507), (errno.EACCES, 503)])
def test_a_disk_that_takes_nothing_is_told(serve: Callable[..., Place], code: int, status: int) -> None:
    def emit(raw: bytes) -> dict[str, str]:
        raise OSError(code, os.strerror(code))

    answer = serve(emit=emit).post("/api/events", {"text": "hello"})
    assert answer.status_code == status
    assert os.strerror(code) in answer.json()["detail"]


def test_the_mind_knows_the_event_by_the_ids_that_were_told(tmp_path: Path) -> None:
    shell = make_shell(tmp_path / "home")
    with serving(shell.data) as place:
        told = place.post("/api/events", {"text": "水开了", "from": "alice"}).json()
        cloud = place.post("/api/events", FORMS[2]).json()
        assert place.get(f"/api/trace/{told['id']}").status_code == 404
        ended = shell.process("run", "--once", "--no-gateway")
        assert ended.returncode == 0, ended.stderr
        for asked in (told["id"], told["trace_id"], told["file"]):
            journey = place.get(f"/api/trace/{asked}").json()
            assert told["trace_id"] in journey["traces"]
        assert place.get(f"/api/trace/{cloud['id']}").status_code == 200
        assert "水开了" in place.get("/api/self/now").text
