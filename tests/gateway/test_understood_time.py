"""X-Understood-Time: the time range that a search was taken for."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from tests.gateway.conftest import Place

HEADER = "x-understood-time"
SEARCH = "/api/truth/search"


def sides(place: Place, **asked: object) -> list[str]:
    told = place.post(SEARCH, asked).headers[HEADER].split("/")
    assert len(told) == 2
    return told


@pytest.mark.parametrize("query", ["errors yesterday", "yesterday", "昨天", "昨天的错误"])
def test_words_for_a_day_are_told_as_its_range(shared: Place, query: str) -> None:
    start, end = (datetime.fromisoformat(side) for side in sides(shared, query=query))
    assert start.utcoffset() == timedelta(hours=8)
    assert end - start == timedelta(days=1)
    assert (start.hour, start.minute) == (0, 0)


@pytest.mark.parametrize("query", ["timeouts in the last 24 h", "最近24小时 超时"])
def test_words_for_a_stretch_are_told_as_its_range(shared: Place, query: str) -> None:
    start, end = sides(shared, query=query)
    assert datetime.fromisoformat(start).tzinfo is not None
    assert end == ".." or datetime.fromisoformat(end) - datetime.fromisoformat(start) == timedelta(hours=24)


def test_fields_are_told_too_and_an_open_side_is_two_dots(shared: Place) -> None:
    assert sides(shared, start_time="2026-09-01") == ["2026-09-01T00:00:00+08:00", ".."]
    assert sides(shared, query="before 2026-09-01")[0] == ".."


def test_a_search_that_names_no_time_tells_none_and_the_body_is_the_same(shared: Place) -> None:
    answer = shared.post(SEARCH, {"query": "disk"})
    assert HEADER not in answer.headers
    told = shared.post(SEARCH, {"query": "昨天"})
    assert HEADER in told.headers
    assert set(answer.json()) == set(told.json()) == {"total", "returned", "results"}
