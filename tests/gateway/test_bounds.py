"""Connections that are too many, too slow or silent."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from tests.gateway.conftest import Place

from kernel_gamma.gateway.bounds import Bounds

_HEAD = b"HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connected(place: Place) -> socket.socket:
    return socket.create_connection(("127.0.0.1", place.server.port), timeout=20)


def received_until(line: socket.socket, wanted: bytes) -> bytes:
    """What came, up to the piece with `wanted` in it, or to the end."""
    raw = b""
    while wanted not in raw and (piece := line.recv(65536)):
        raw += piece
    return raw


def answer_of(line: socket.socket) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Reads until the server closes."""
    raw = b"".join(iter(lambda: line.recv(65536), b""))
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = dict(one.lower().split(": ", 1) for one in rest)
    return int(first.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize(
    "sent",
    [
        _HEAD + b'Content-Length: 100\r\n\r\n{"query": ',
        _HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"que\r\n',
        _HEAD + b"Content-Length: 100\r\n\r\n",
    ],
)
def test_a_body_that_does_not_come_whole_in_time_is_given_up(
    serve: Callable[..., Place], sent: bytes
) -> None:
    place = serve(bounds=Bounds(body_sec=0.2))
    for path in (b"/api/truth/search", b"/api/truth/upsert", b"/api/events"):
        with connected(place) as line:
            line.sendall(b"POST " + path + b" " + sent)
            status, headers, document = answer_of(line)
        assert (status, document["status"]) == (408, 408)
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        assert "0.2 seconds" in document["detail"]
    assert place.get("/api/truths").status_code == 200


def test_a_body_that_trickles_is_given_up_too(serve: Callable[..., Place]) -> None:
    place = serve(bounds=Bounds(body_sec=0.3))
    with connected(place) as line:
        line.sendall(b"POST /api/truth/search " + _HEAD + b"Content-Length: 100000\r\n\r\n{")
        line.settimeout(0.02)
        answered = b""
        until = time.monotonic() + 20
        while not answered and time.monotonic() < until:
            line.sendall(b" ")
            try:
                answered = line.recv(64)
            except TimeoutError:
                continue
    assert answered.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_or_never_ends_its_head_is_closed(serve: Callable[..., Place]) -> None:
    place = serve(bounds=Bounds(head_sec=0.2))
    for said in (b"", b"GET /healthz HTTP/1.1\r\nHost: local"):
        with connected(place) as line:
            line.sendall(said)
            assert line.recv(64) == b""


def test_a_second_request_that_never_ends_its_head_is_closed(serve: Callable[..., Place]) -> None:
    place = serve(bounds=Bounds(head_sec=0.2))
    with connected(place) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'"ok"' in received_until(line, b'"ok"')
        line.sendall(b"GET /healthz HT")
        assert line.recv(64) == b""


def test_a_request_that_takes_long_is_not_cut_off(serve: Callable[..., Place]) -> None:
    def status() -> dict[str, Any]:
        time.sleep(0.6)
        return {"mind": "main"}

    place = serve(bounds=Bounds(head_sec=0.1, body_sec=0.1), status=status)
    assert place.get("/api/status").json() == {"mind": "main"}


def test_one_connection_too_many_is_told_so_and_those_before_it_go_on(serve: Callable[..., Place]) -> None:
    place = serve(bounds=Bounds(connections=4))
    assert place.get("/healthz").status_code == 200  # this one is kept open
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(place)) for _ in range(3)]
        with connected(place) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, headers, document = answer_of(line)
        assert (status, document["status"]) == (503, 503)
        assert headers["content-type"] == "application/problem+json"
        assert headers["retry-after"] == "1"
        assert "4 connections" in document["detail"]
        assert place.get("/healthz").status_code == 200
        silent[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert silent[0].recv(64).startswith(b"HTTP/1.1 200 ")
    text = place.get("/metrics").text
    assert 'route="other",status="503"' in text


def test_far_too_many_connections_are_not_heard_at_all(serve: Callable[..., Place]) -> None:
    place = serve(bounds=Bounds(connections=2))
    assert place.get("/healthz").status_code == 200
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(place))
        with connected(place) as line:
            try:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert line.recv(64) == b""
            except ConnectionError:
                pass
    assert place.get("/healthz").status_code == 200


def test_the_limits_are_wide_for_honest_callers() -> None:
    assert Bounds() == Bounds(connections=256, head_sec=30, body_sec=30)
