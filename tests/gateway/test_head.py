"""HEAD says what GET would say, without a body."""

from __future__ import annotations

import pytest
from tests.gateway.conftest import Place


@pytest.mark.parametrize(
    "path", ["/healthz", "/api/truth/task.head", "/docs", "/api/truths", "/api/truth/task.none"]
)
def test_head_answers_like_get_without_the_body(shared: Place, path: str) -> None:
    if shared.get("/api/truth/task.head").status_code == 404:
        shared.upsert("task.head", 1)
    got, head = shared.get(path), shared.http.head(path)
    assert head.status_code == got.status_code
    assert head.content == b""
    for name in ("content-type", "content-length", "etag"):
        assert head.headers.get(name) == got.headers.get(name)


def test_head_of_what_takes_another_method_or_never_ends_is_refused(shared: Place) -> None:
    for path in ("/api/truth/search", "/api/events", "/api/stream"):
        assert shared.http.head(path).status_code == 405


def test_head_is_guarded_like_get(place: Place) -> None:
    assert place.http.head("/api/truths", headers={"host": "evil.example"}).status_code == 421
