"""The requests and answers of the dual-channel seed, field by field."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.gateway.conftest import Place, serving

KEY = "incident.startup_loop_20260911.root_cause"
REQUEST = {
    "query": "死循环 启动失败",
    "categories": ["incident", "error"],
    "start_time": "2026-09-01T00:00:00",
    "end_time": "2026-09-11T23:59:59",
    "limit": 10,
    "min_similarity": 0.6,
    "include_value": True,
    "task_type": "ops_debug",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("seed") / "data") as found:
        found.upsert(
            KEY,
            {"cause": "配置循环依赖", "restarts": 17},
            description="启动失败死循环根因分析",
            timestamp="2026-09-11T08:00:00",
        )
        found.upsert(
            "inspection.line_3.hourly",
            {"ok": True},
            description="每小时产线巡检",
            timestamp="2026-09-11T09:00:00",
        )
        found.upsert("error.port_taken", "port 9120 is taken", timestamp="2026-09-12T00:00:00")
        yield found


def test_the_search_of_the_seed_finds_its_record(place: Place) -> None:
    answer = place.post("/api/truth/search", REQUEST)
    assert answer.status_code == 200
    document = answer.json()
    assert set(document) == {"total", "returned", "results"}
    assert document["returned"] == len(document["results"]) == 1
    assert document["total"] >= 1
    (found,) = document["results"]
    assert set(found) == {"key", "category", "description", "timestamp", "similarity", "value", "excerpt"}
    assert found["key"] == KEY
    assert found["category"] == "incident"
    assert found["description"] == "启动失败死循环根因分析"
    assert found["timestamp"] == "2026-09-11T08:00:00+08:00"
    assert 0.6 <= found["similarity"] <= 1
    assert found["value"] == {"cause": "配置循环依赖", "restarts": 17}


@pytest.mark.parametrize("field", list(REQUEST))
def test_every_field_of_the_search_is_optional(place: Place, field: str) -> None:
    assert (
        place.post("/api/truth/search", {k: v for k, v in REQUEST.items() if k != field}).status_code == 200
    )
    assert place.post("/api/truth/search", {**REQUEST, field: None}).status_code == 200


def test_an_empty_search_gives_ten_with_their_values(place: Place) -> None:
    document = place.post("/api/truth/search", {}).json()
    assert document["total"] == document["returned"] == 3
    assert all(found["similarity"] == 1 and "value" in found for found in document["results"])


def test_values_can_be_left_out(place: Place) -> None:
    (found,) = place.post("/api/truth/search", {**REQUEST, "include_value": False}).json()["results"]
    assert "value" not in found
    assert found["excerpt"]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("query", 3),
        ("categories", "incident"),
        ("categories", ["no such sign!"]),
        ("start_time", "yesterday"),
        ("end_time", "2026-02-30T00:00:00"),
        ("end_time", 1_790_000_000),
        ("limit", 0),
        ("limit", 1001),
        ("limit", "10"),
        ("min_similarity", 1.1),
        ("min_similarity", -0.1),
        ("include_value", "yes"),
        ("task_type", "运维调试"),
        ("querry", "a"),
    ],
)
def test_a_wrong_field_is_named(place: Place, field: str, wrong: object) -> None:
    answer = place.post("/api/truth/search", {**REQUEST, field: wrong})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    named = [error["field"] for error in answer.json()["errors"]]
    assert [name.split(".")[0] for name in named] == [field]


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ("2026-09-11T08:00:00", True),
        ("2026-09-11T07:59:59", False),
        ("2026-09-11T08:00", True),
        ("2026-09-11", True),
        ("2026-09-10", False),
        ("2026-09-11T00:00:00Z", True),
        ("2026-09-10T23:59:59Z", False),
    ],
)
def test_both_ends_of_the_time_range_belong_to_it(place: Place, end: str, found: bool) -> None:
    asked = {"categories": ["incident"], "start_time": "2026-09-10", "end_time": end}
    keys = [one["key"] for one in place.post("/api/truth/search", asked).json()["results"]]
    assert keys == ([KEY] if found else [])


def test_a_fraction_of_the_last_second_is_still_inside(place: Place) -> None:
    place.upsert("temp.late", 1, timestamp="2026-09-11T23:59:59.900")
    asked = {"categories": ["temp"], "end_time": "2026-09-11T23:59:59"}
    assert place.post("/api/truth/search", asked).json()["returned"] == 1


def test_the_other_endpoints_of_the_seed(place: Place) -> None:
    assert place.get(f"/api/truth/{KEY}").json()["value"]["restarts"] == 17
    assert place.get("/api/truths").json()["limit"] == 20
    listed = place.get("/api/truth/category/incident?limit=20&offset=0").json()
    assert [one["key"] for one in listed["results"]] == [KEY]
    recent = place.get("/api/truth/recent?limit=10&category=incident").json()
    assert [one["key"] for one in recent["results"]] == [KEY]
    names = [one["category"] for one in place.get("/api/truth/categories").json()["categories"]]
    assert {"incident", "inspection", "error"} <= set(names)
