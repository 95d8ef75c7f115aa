"""Writing, reading, listing truths over HTTP."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from tests.gateway.conftest import Place

FIELDS = {
    "key",
    "category",
    "description",
    "timestamp",
    "version",
    "locked",
    "sha256",
    "prev_sha256",
    "value",
}


def test_what_was_written_is_read_back_with_every_field(place: Place) -> None:
    written = place.upsert("incident.disk.full", {"disk": "sda1", "满": True}, description="盘满了")
    assert set(written) == FIELDS
    assert written["version"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?\+08:00", written["timestamp"])
    assert re.fullmatch("[0-9a-f]{64}", written["sha256"])
    answer = place.get("/api/truth/incident.disk.full")
    assert answer.json() == written
    assert answer.headers["etag"] == '"1"'
    assert place.store.get("incident.disk.full").trust == "unknown"


def test_without_a_key_one_is_made_from_the_category(place: Place) -> None:
    made = place.post(
        "/api/truth/upsert", {"category": "incident", "value": 1, "timestamp": "2026-09-11T08:00:00"}
    )
    assert re.fullmatch(r"incident\.20260911T000000Z\.[0-9A-Z]{26}", made.json()["key"])


def test_a_second_write_is_the_next_version_and_the_first_is_kept(place: Place) -> None:
    first = place.upsert("task.a", 1)
    second = place.upsert("task.a", 2)
    assert second["version"] == 2
    assert second["prev_sha256"] == first["sha256"]
    kept = place.get("/api/truth/task.a/versions").json()
    assert [(one["version"], one["value"]) for one in kept["results"]] == [(1, 1), (2, 2)]
    assert kept["total"] == 2
    page = place.get("/api/truth/task.a/versions?limit=1&offset=1").json()
    assert [one["version"] for one in page["results"]] == [2]


def test_an_unchanged_truth_is_not_sent_again(place: Place) -> None:
    place.upsert("task.a", 1)
    answer = place.get("/api/truth/task.a", headers={"If-None-Match": '"1"'})
    assert (answer.status_code, answer.content) == (304, b"")
    place.upsert("task.a", 2)
    assert place.get("/api/truth/task.a", headers={"If-None-Match": '"1"'}).status_code == 200


def test_a_write_can_name_the_version_it_follows(place: Place) -> None:
    new = {"key": "task.a", "value": 1}
    assert place.post("/api/truth/upsert", new, if_none_match="*").status_code == 200
    again = place.post("/api/truth/upsert", new, if_none_match="*")
    assert (again.status_code, again.json()["version"]) == (412, 1)
    assert again.headers["etag"] == '"1"'
    assert place.post("/api/truth/upsert", new, if_match='"1"').json()["version"] == 2
    assert place.post("/api/truth/upsert", new, if_match='"1"').status_code == 412
    assert place.post("/api/truth/upsert", new, if_match='"7", "2"').json()["version"] == 3
    assert place.post("/api/truth/upsert", new, if_match="*").json()["version"] == 4
    absent = {"key": "task.b", "value": 1}
    for condition in ("*", '"1"', '"0"', 'W/"4"', '"nonsense"'):
        assert place.post("/api/truth/upsert", absent, if_match=condition).status_code == 412, condition
    assert place.get("/api/truth/task.b").status_code == 404


def test_of_many_writers_that_follow_one_version_one_wins(place: Place) -> None:
    place.upsert("task.a", 0)

    def write(number: int) -> int:
        return httpx2.post(
            f"{place.url}/api/truth/upsert",
            json={"key": "task.a", "value": number},
            headers={"If-Match": '"1"'},
            timeout=30,
        ).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(write, range(16)))
    assert statuses == [200] + [412] * 15


def test_a_locked_truth_is_not_written_over(place: Place) -> None:
    assert place.upsert("decision.a", 1, locked=True)["locked"] is True
    answer = place.post("/api/truth/upsert", {"key": "decision.a", "value": 2})
    assert answer.status_code == 409
    assert "unlock" in answer.json()["detail"]
    assert (
        place.post("/api/truth/upsert", {"key": "decision.a", "value": 2, "locked": False}).status_code == 409
    )
    assert place.get("/api/truth/decision.a").json()["value"] == 1


def test_several_are_written_together_or_not_at_all(place: Place) -> None:
    place.upsert("task.locked", 0, locked=True)
    good = [{"category": "task", "value": n, "description": f"第{n}件"} for n in range(5)]
    written = place.post("/api/truth/upsert", {"truths": good}).json()
    assert written["written"] == 5
    assert [place.get(f"/api/truth/{key}").json()["value"] for key in written["keys"]] == [0, 1, 2, 3, 4]
    bad = place.post(
        "/api/truth/upsert", {"truths": [{"key": "task.x", "value": 1}, {"key": "task.locked", "value": 1}]}
    )
    assert bad.status_code == 409
    assert place.get("/api/truth/task.x").status_code == 404
    wrong = place.post(
        "/api/truth/upsert", {"truths": [{"key": "task.x", "value": 1}, {"key": "a b", "value": 1}]}
    )
    assert wrong.json()["errors"][0]["field"] == "truths.1.key"


@pytest.mark.parametrize(
    "document", [{"key": "stream.2026-11-30", "value": 1}, {"category": "diary", "value": 1}]
)
def test_the_minds_own_past_takes_no_writes_from_outside(shared: Place, document: dict[str, object]) -> None:
    for body in (document, {"truths": [{"key": "task.fine", "value": 1}, document]}):
        answer = shared.post("/api/truth/upsert", body)
        assert answer.status_code == 403
        assert answer.headers["content-type"] == "application/problem+json"
    assert shared.get("/api/truth/task.fine").status_code == 404


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"key": "task.a"}, "value"),
        ({"value": 1}, "body"),
        ({"key": "no spaces", "value": 1}, "key"),
        ({"key": "a..b", "value": 1}, "key"),
        ({"key": ".a", "value": 1}, "key"),
        ({"key": "a.", "value": 1}, "key"),
        ({"key": "x" * 201, "value": 1}, "key"),
        ({"key": "中文", "value": 1}, "key"),
        ({"key": "recent", "value": 1}, "key"),
        ({"key": "upsert", "value": 1}, "key"),
        ({"key": "task.a", "category": "error", "value": 1}, "category"),
        ({"key": "task.a", "value": 1, "timestamp": "soon"}, "timestamp"),
        ({"key": "task.a", "value": 1, "locked": 1}, "locked"),
        ({"key": "task.a", "value": 1, "version": 3}, "version"),
        ({"key": "task.a", "value": 1, "trust": "owner"}, "trust"),
        ({"truths": []}, "truths"),
        ([{"key": "task.a", "value": 1}], "body"),
    ],
)
def test_what_cannot_be_written_is_named(shared: Place, document: object, field: str) -> None:
    answer = shared.post("/api/truth/upsert", document)
    assert answer.status_code == 422, answer.text
    if "errors" in answer.json():
        assert answer.json()["errors"][0]["field"] == field


def test_a_value_that_is_too_large_for_the_store_is_a_problem(place: Place) -> None:
    answer = place.post("/api/truth/upsert", {"key": "task.big", "value": "x" * 1_000_000})
    assert answer.status_code in (200, 422)


def test_listings_are_paged_newest_first(place: Place) -> None:
    truths = [
        {"key": f"task.n{n:02}", "value": n, "timestamp": f"2026-09-11T08:{n:02}:00"} for n in range(30)
    ]
    place.post(
        "/api/truth/upsert", {"truths": [*truths, {"key": "error.a", "value": 1, "timestamp": "2026-09-12"}]}
    )
    page = place.get("/api/truth/category/task?limit=5&offset=10").json()
    assert {key: page[key] for key in ("total", "returned", "limit", "offset")} == {
        "total": 30,
        "returned": 5,
        "limit": 5,
        "offset": 10,
    }
    assert [one["value"] for one in page["results"]] == [19, 18, 17, 16, 15]
    assert place.get("/api/truths").json()["total"] == 31
    assert len(place.get("/api/truths").json()["results"]) == 20
    recent = place.get("/api/truth/recent").json()
    assert (recent["total"], recent["returned"]) == (31, 10)
    assert recent["results"][0]["key"] == "error.a"
    beyond = place.get("/api/truths?offset=1000").json()
    assert (beyond["total"], beyond["results"]) == (31, [])


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "offset=-1", "offset=99999999999999999999", "page=2"]
)
def test_a_wrong_page_is_refused(shared: Place, query: str) -> None:
    answer = shared.get(f"/api/truths?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == query.split("=")[0]


def test_categories_come_with_their_counts(place: Place) -> None:
    for key in ("task.a", "task.b", "error.a"):
        place.upsert(key, 1)
    assert place.get("/api/truth/categories").json() == {
        "total": 2,
        "categories": [{"category": "task", "count": 2}, {"category": "error", "count": 1}],
    }


def test_feedback_is_taken_for_a_truth_that_exists(place: Place) -> None:
    place.upsert("error.a", "连接超时")
    judged = {"key": "error.a", "query": "超时", "relevant": True, "by": "小明"}
    assert place.post("/api/truth/feedback", judged).json() == {"key": "error.a", "relevant": True}
    assert place.post("/api/truth/feedback", {**judged, "key": "error.b"}).status_code == 404
    assert place.post("/api/truth/feedback", {**judged, "relevant": "yes"}).status_code == 422


def test_near_duplicates_come_as_one_with_their_number(place: Place) -> None:
    truths = [
        {
            "category": "inspection",
            "value": f"line 3 inspected, temperature {40 + n} C, no fault found",
            "timestamp": f"2026-09-11T{n:02}:00:00",
        }
        for n in range(6)
    ]
    place.post("/api/truth/upsert", {"truths": truths})
    found = place.post("/api/truth/search", {"query": "line temperature fault"}).json()
    (one,) = found["results"]
    assert one["count"] == 6
    assert (one["first"], one["last"]) == ("2026-09-11T00:00:00+08:00", "2026-09-11T05:00:00+08:00")


@pytest.mark.parametrize(
    "body",
    [
        b'{"key": "temp.odd", "value": "a\\u0000b"}',
        b'{"key": "temp.odd", "value": "\\ud800"}',
        b'{"key": "temp.odd", "value": {"\\ud800": 1}, "description": "\\udfff\\u0000"}',
    ],
)
def test_nul_and_lone_surrogates_are_kept_as_the_replacement_sign(shared: Place, body: bytes) -> None:
    answer = shared.raw("/api/truth/upsert", body)
    assert answer.status_code == 200
    assert "\ufffd" in shared.get("/api/truth/temp.odd").text


@pytest.mark.parametrize("body", [b"{nope", b"", b"\xff\xfe{}", b'{"value": NaN}', b'{"limit": 1e999}'])
def test_what_is_no_json_is_refused(shared: Place, body: bytes) -> None:
    for path in ("/api/truth/search", "/api/truth/upsert", "/api/truth/feedback"):
        assert shared.raw(path, body).status_code in (400, 422)


def test_deep_nesting_is_refused(shared: Place) -> None:
    body = b'{"key": "task.deep", "value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    answer = shared.raw("/api/truth/upsert", body)
    assert answer.status_code == 422
    assert "64 levels" in answer.json()["detail"]


def test_a_long_search_holds_up_no_write(place: Place) -> None:
    truths = [{"category": "error", "value": f"timeout of node {n}, 连接 {n} 超时"} for n in range(1000)]
    place.post("/api/truth/upsert", {"truths": truths})
    ended = threading.Event()

    def search() -> None:
        with httpx2.Client(base_url=place.url, timeout=60) as http:
            while not ended.is_set():
                http.post(
                    "/api/truth/search", json={"query": "timeout node 连接 超时", "limit": 1000}
                ).raise_for_status()

    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(search) for _ in range(6)]
        try:
            for n in range(20):
                place.upsert(f"task.n{n}", n)
                assert place.get(f"/api/truth/task.n{n}").json()["value"] == n
        finally:
            ended.set()
        for one in running:
            one.result()
