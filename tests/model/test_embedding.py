"""The model role `embedding` over HTTP: what is sent and taken, and what an endpoint that is away does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.embedding_server import EmbeddingServer, good
from tests.fakes import FakeClock

from kernel_gamma.errors import ModelDown
from kernel_gamma.model.embedding import RoleEncoder
from kernel_gamma.model.roles import ResolvedRole
from kernel_gamma.settings import RoleSettings

KEY = "sk-very-secret"


def refusing(status: int, text: str = "no") -> Callable[[dict[str, Any]], tuple[int, Any]]:
    return lambda body: (status, {"error": {"message": text}})


def role(base_url: str, timeout_sec: float = 20.0) -> ResolvedRole:
    settings = RoleSettings(model="tiny-embedding", base_url=base_url)
    return ResolvedRole("embedding", base_url, KEY, settings, timeout_sec)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    found = EmbeddingServer()
    yield found
    found.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def encoder(server: EmbeddingServer, clock: FakeClock) -> Iterator[RoleEncoder]:
    found = RoleEncoder(role(server.base_url), clock)
    yield found
    found.close()


def components(vector: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{len(vector)}b", vector)


def test_the_vectors_come_in_the_order_of_the_texts_as_signed_bytes(
    server: EmbeddingServer, encoder: RoleEncoder
) -> None:
    vectors = encoder.encode(["ab", "四个汉字"])
    assert [components(vector) for vector in vectors] == [(127, -64, 32), (127, -32, 16)]
    assert server.asked == [
        {"model": "tiny-embedding", "input": ["ab", "四个汉字"], "encoding_format": "float"}
    ]
    assert server.keys == [f"Bearer {KEY}"]


def test_texts_no_endpoint_takes_are_sent_as_ones_it_does(
    server: EmbeddingServer, encoder: RoleEncoder
) -> None:
    encoder.encode(["half \ud83d pair", "", " \n", "x" * 100_000])
    half, empty, blank, long = server.asked[0]["input"]
    assert (half, empty, blank) == ("half ? pair", "-", "-")
    assert 1000 < len(long) < 10_000


def test_the_tokens_are_told(server: EmbeddingServer, clock: FakeClock) -> None:
    told: list[int] = []
    encoder = RoleEncoder(role(server.base_url), clock, count_tokens=told.append)
    encoder.encode(["a"])
    server.answer = lambda body: (200, {"data": good(body)[1]["data"]})
    encoder.encode(["a"])
    assert told == [7]
    encoder.close()


def test_the_name_says_model_and_server_and_no_secret(server: EmbeddingServer, clock: FakeClock) -> None:
    url = server.base_url.replace("http://", "http://user:pass-word@")
    encoder = RoleEncoder(role(url), clock)
    assert "tiny-embedding" in encoder.name
    assert "127.0.0.1" in encoder.name
    assert "pass-word" not in encoder.name
    assert KEY not in encoder.name


def test_what_passes_at_once_is_asked_again_once(server: EmbeddingServer, encoder: RoleEncoder) -> None:
    statuses = iter([503])
    server.answer = lambda body: (status, {}) if (status := next(statuses, 0)) else good(body)
    assert len(encoder.encode(["a"])) == 1
    assert len(server.asked) == 2


@pytest.mark.parametrize("status, asked", [(503, 2), (429, 2), (401, 1), (404, 1), (400, 1)])
def test_a_refusal_is_a_model_that_is_down(
    server: EmbeddingServer, encoder: RoleEncoder, status: int, asked: int
) -> None:
    server.answer = refusing(status, f"the key {KEY} is bad")
    with pytest.raises(ModelDown) as caught:
        encoder.encode(["a"])
    assert str(status) in str(caught.value)
    assert KEY not in str(caught.value)
    assert len(server.asked) == asked


def test_after_a_failure_nothing_is_asked_for_a_while_that_grows(
    server: EmbeddingServer, encoder: RoleEncoder, clock: FakeClock
) -> None:
    server.answer = refusing(500)
    with pytest.raises(ModelDown) as caught:
        encoder.encode(["a"], hurry=True)
    assert len(server.asked) == 1
    assert (caught.value.until - clock.now()).total_seconds() == 30
    for seconds, asked in ((29, 1), (2, 2), (31, 2), (30, 3)):
        clock.advance(seconds)
        with pytest.raises(ModelDown):
            encoder.encode(["a"], hurry=True)
        assert len(server.asked) == asked
    clock.advance(1000)
    server.answer = good
    assert len(encoder.encode(["a"])) == 1
    server.answer = refusing(500)
    with pytest.raises(ModelDown) as caught:
        encoder.encode(["a"])
    assert (caught.value.until - clock.now()).total_seconds() == 30


def test_an_endpoint_that_is_not_there_is_down(clock: FakeClock) -> None:
    server = EmbeddingServer()
    server.close()
    encoder = RoleEncoder(role(server.base_url), clock)
    with pytest.raises(ModelDown, match="cannot be reached"):
        encoder.encode(["a"])
    encoder.close()


def test_an_endpoint_that_does_not_answer_is_waited_for_no_longer_than_its_time(
    server: EmbeddingServer, clock: FakeClock
) -> None:
    server.delay_sec = 1.0
    encoder = RoleEncoder(role(server.base_url, timeout_sec=0.05), clock)
    with pytest.raises(ModelDown, match=r"sent nothing for 0\.05 s"):
        encoder.encode(["a"], hurry=True)
    encoder.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>hello</html>",
        b"\xff\xfe",
        [],
        {},
        {"data": None},
        {"data": []},
        {"data": [{"index": 0}]},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 0, "embedding": [0.0, 0.0]}]},
        {"data": [{"index": 0, "embedding": ["a", "b"]}]},
        {"data": [{"index": 0, "embedding": "AAAA"}]},
        b'{"data": [{"index": 0, "embedding": [1.0, NaN]}]}',
        b'{"data": [{"index": 0, "embedding": [1.0, Infinity]}]}',
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
    ],
)
def test_an_answer_without_the_vectors_is_a_model_that_is_down(
    server: EmbeddingServer, encoder: RoleEncoder, answer: Any
) -> None:
    server.answer = lambda body: (200, answer)
    with pytest.raises(ModelDown):
        encoder.encode(["a"])


def test_vectors_of_two_lengths_are_not_taken(server: EmbeddingServer, encoder: RoleEncoder) -> None:
    rows = [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]
    server.answer = lambda body: (200, {"data": rows})
    with pytest.raises(ModelDown):
        encoder.encode(["a", "b"])
