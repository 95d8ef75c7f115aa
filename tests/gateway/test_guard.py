"""Who may ask, and with what."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator

import httpx2
import pytest
from tests.gateway.conftest import Place

from kernel_gamma.errors import SettingsError
from kernel_gamma.gateway.guard import is_loopback, token_of
from kernel_gamma.settings import GatewaySettings

TOKEN = "mHkq2-zoo_42"


def is_problem(answer: httpx2.Response, status: int) -> bool:
    document = answer.json()
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    return bool(document["title"] and document["detail"] and document["type"])


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.1.2.3:9120", "[::1]:9120", "localhost."]
)
def test_loopback_names_are_this_gateway(shared: Place, host: str) -> None:
    assert shared.get("/api/truths", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.5:9120",
        "",
        "a b",
        "[::2]",
        "@localhost",
    ],
)
def test_other_host_names_are_refused(shared: Place, host: str) -> None:
    for path in ("/api/truths", "/healthz", "/docs", "/nothing"):
        assert is_problem(shared.get(path, headers={"host": host}), 421)


def test_a_host_can_be_allowed(serve: Callable[..., Place]) -> None:
    place = serve(gateway={"allowed_hosts": ("Mind.example",)})
    assert place.get("/api/truths", headers={"host": "mind.example:80"}).status_code == 200
    assert place.get("/api/truths", headers={"host": "other.example"}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", ""]
)
def test_pages_of_other_origins_are_refused(shared: Place, origin: str) -> None:
    assert is_problem(shared.get("/api/truths", headers={"origin": origin}), 403)
    answer = shared.post("/api/truth/upsert", {"key": "temp.evil", "value": 1}, origin=origin)
    assert is_problem(answer, 403)
    assert shared.get("/api/truth/temp.evil").status_code == 404


def test_a_page_of_the_gateway_itself_may_ask(shared: Place) -> None:
    assert shared.get("/api/truths", headers={"origin": shared.url}).status_code == 200


def test_an_allowed_origin_may_ask_and_its_browser_hears_so(serve: Callable[..., Place]) -> None:
    page = "https://mind.example.org"
    place = serve(gateway={"allowed_origins": (page,)})
    answer = place.get("/api/truths", headers={"origin": page})
    assert answer.headers["access-control-allow-origin"] == page
    assert "Origin" in answer.headers["vary"]
    asked = {
        "origin": page,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    preflight = place.http.request("OPTIONS", "/api/truth/upsert", headers=asked)
    assert preflight.status_code == 204
    assert "content-type" in preflight.headers["access-control-allow-headers"]
    other = place.http.request(
        "OPTIONS", "/api/truth/upsert", headers={**asked, "origin": "https://b.example"}
    )
    assert is_problem(other, 403)
    assert "access-control-allow-origin" not in other.headers


@pytest.fixture
def locked(serve: Callable[..., Place]) -> Iterator[Place]:
    yield serve(token=TOKEN)


@pytest.mark.parametrize(
    "given",
    [
        None,
        "Bearer",
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN[:-1]}",
        "Bearer é",
        "Bearer 密码",
        "",
        "bearer",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer, {TOKEN}",
        f"Bearer{TOKEN}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN}é",
        f'Bearer "{TOKEN}"',
        f"Token {TOKEN}",
    ],
)
def test_without_the_token_nothing_is_told(locked: Place, given: str | None) -> None:
    headers = [] if given is None else [(b"authorization", given.encode())]
    for path in (
        "/api/truths",
        "/api/status",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/nothing",
        "/api/stream",
    ):
        answer = httpx2.get(locked.url + path, headers=headers)
        assert is_problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_with_the_token_it_answers(locked: Place) -> None:
    for scheme in ("Bearer", "bearer", "BEARER", "Bearer   "):
        answer = httpx2.get(f"{locked.url}/api/truths", headers={"authorization": f"{scheme} {TOKEN}"})
        assert answer.status_code == 200
    assert httpx2.get(f"{locked.url}/healthz").status_code == 200


def test_the_token_is_in_no_log(locked: Place, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        locked.get("/api/truths")
        httpx2.get(f"{locked.url}/api/truths", headers={"authorization": "Bearer wrong-but-close"})
    assert TOKEN not in caplog.text
    assert "wrong-but-close" not in caplog.text


def test_the_token_is_in_no_answer_and_no_log_whatever_fails(
    serve: Callable[..., Place], caplog: pytest.LogCaptureFixture
) -> None:
    def status() -> dict[str, object]:
        raise ZeroDivisionError(f"holds {TOKEN}")

    place = serve(token=TOKEN, status=status, gateway={"max_bytes": 2000})
    with caplog.at_level(logging.DEBUG, logger="uvicorn"):
        answers = [
            place.get("/api/status"),
            place.get("/nothing"),
            place.get("/metrics"),
            place.get("/docs"),
            place.get("/openapi.json"),
            place.get("/api/truths", headers={"host": "evil.example"}),
            place.get("/api/truths", headers={"origin": "https://evil.example"}),
            place.get("/api/truths", headers={"authorization": f"Basic {TOKEN}"}),
            place.get(f"/api/truths?token={TOKEN}"),
            place.raw("/api/truth/search", b"{"),
            place.raw("/api/truth/search", b" " * 3000),
            place.raw("/api/truth/search", b"{}", content_type="text/plain"),
            place.post("/api/truth/search", {"limit": TOKEN, "categories": TOKEN, "task_type": TOKEN}),
            place.post("/api/truth/upsert", {"key": "task.a", "value": 1}, if_match=TOKEN),
        ]
        with socket.create_connection(("127.0.0.1", place.server.port), timeout=10) as line:
            line.sendall(f"no request at all\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert TOKEN.encode() not in line.recv(65536)
    assert all(TOKEN not in answer.text for answer in answers)
    assert all(TOKEN not in str(answer.headers) for answer in answers)
    said = [record.getMessage() for record in caplog.records if record.name != "httpx2"]
    assert all(TOKEN not in text for text in said)


def test_other_machines_are_let_in_only_with_a_token(serve: Callable[..., Place]) -> None:
    for host in ("0.0.0.0", "::", "mind.example.org", "10.0.0.1"):
        with pytest.raises(SettingsError, match="KGAMMA_GATEWAY_TOKEN"):
            serve(gateway={"host": host})
    place = serve(gateway={"host": "0.0.0.0"}, token=TOKEN)
    assert place.get("/api/truths").status_code == 200
    assert httpx2.get(f"{place.url}/api/truths").status_code == 401


def test_the_token_comes_from_the_named_variable() -> None:
    local, remote = GatewaySettings(), GatewaySettings(host="0.0.0.0", token_env="MY_TOKEN")
    assert token_of(local, {}) is None
    assert token_of(local, {"KGAMMA_GATEWAY_TOKEN": f" {TOKEN}\n"}) == TOKEN
    assert token_of(remote, {"MY_TOKEN": TOKEN}) == TOKEN
    with pytest.raises(SettingsError, match="MY_TOKEN"):
        token_of(remote, {"MY_TOKEN": "  ", "KGAMMA_GATEWAY_TOKEN": TOKEN})
    with pytest.raises(SettingsError, match="printable ASCII") as caught:
        token_of(local, {"KGAMMA_GATEWAY_TOKEN": "密码密码"})
    assert "密码" not in str(caught.value)


def test_which_hosts_are_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost", "[::1]"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


# Bodies


@pytest.mark.parametrize(
    "said",
    ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "multipart/form-data"],
)
def test_a_body_that_is_not_declared_as_json_is_refused(shared: Place, said: str) -> None:
    for path in ("/api/truth/search", "/api/truth/upsert", "/api/events"):
        assert is_problem(shared.raw(path, b"{}", content_type=said), 415)


@pytest.mark.parametrize(
    "said", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"]
)
def test_json_may_be_declared_in_many_ways(shared: Place, said: str) -> None:
    assert shared.raw("/api/truth/search", b"{}", content_type=said).status_code == 200


def test_a_body_larger_than_the_bound_is_refused(serve: Callable[..., Place]) -> None:
    place = serve(gateway={"max_bytes": 2000})
    fits = b'{"query": "' + b"x" * 1980 + b'"}'
    assert len(fits) < 2000
    assert place.raw("/api/truth/search", fits).status_code == 200
    for body in (fits + b" " * 100, b" " * 3_000_000):
        assert is_problem(place.raw("/api/truth/search", body), 413)
        chunks = httpx2.post(
            f"{place.url}/api/events",
            content=iter([body[:1500], body[1500:]]),
            headers={"content-type": "application/json"},
        )
        assert is_problem(chunks, 413)
    assert place.get("/api/truths").status_code == 200


def test_a_body_that_says_it_is_huge_is_refused_before_it_is_read(shared: Place) -> None:
    with socket.create_connection(("127.0.0.1", shared.server.port), timeout=10) as line:
        line.sendall(
            b"POST /api/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n{"
        )
        assert line.recv(64).startswith(b"HTTP/1.1 413 ")


def test_a_sender_that_leaves_in_the_middle_harms_nobody(shared: Place) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", shared.server.port), timeout=10) as line:
            line.sendall(
                b"POST /api/truth/upsert HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b'Content-Length: 100\r\n\r\n{"key": "temp.half"'
            )
    assert shared.get("/api/truth/temp.half").status_code == 404
