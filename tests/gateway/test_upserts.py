"""What a write follows: descriptions that stay, versions that are named, keys that stand twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from tests.gateway.conftest import Place, serving

UPSERT = "/api/truth/upsert"


def descriptions(place: Place, key: str) -> list[str]:
    return [one["description"] for one in place.get(f"/api/truth/{key}/versions").json()["results"]]


def test_without_a_description_the_standing_one_stays(place: Place) -> None:
    place.upsert("task.a", 1, description="盘满了 disk full")
    assert place.upsert("task.a", 2)["description"] == "盘满了 disk full"
    assert place.upsert("task.a", 3, description=None)["description"] == "盘满了 disk full"
    assert place.upsert("task.a", 4, description="")["description"] == ""
    assert place.upsert("task.a", 5)["description"] == ""
    assert place.upsert("task.new", 1)["description"] == ""
    found = place.post("/api/truth/search", {"query": "磁盘 盘满了", "categories": ["task"]}).json()
    assert found["total"] == 0  # the newest version has none


def test_in_a_batch_too_and_with_a_precondition(place: Place) -> None:
    place.upsert("task.a", 1, description="first")
    truths = [{"key": "task.a", "value": 2}, {"key": "task.b", "value": 1}, {"category": "task", "value": 0}]
    assert place.post(UPSERT, {"truths": truths}).status_code == 200
    assert descriptions(place, "task.a") == ["first", "first"]
    answer = place.post(UPSERT, {"key": "task.a", "value": 3}, if_match='"2"')
    assert (answer.json()["version"], answer.json()["description"]) == (3, "first")
    assert place.post(UPSERT, {"key": "task.a", "value": 4}, if_match='"2"').status_code == 412
    assert place.post(UPSERT, {"key": "task.a", "value": 4}, if_match="*").json()["description"] == "first"


def test_a_key_that_stands_twice_in_a_batch_gets_its_versions_in_order(place: Place) -> None:
    place.upsert("task.a", 0, description="before")
    truths = [
        {"key": "task.a", "value": 1},
        {"key": "task.b", "value": 1, "description": "b"},
        {"key": "task.a", "value": 2, "description": "within"},
        {"key": "task.a", "value": 3},
        {"key": "task.b", "value": 2},
    ]
    answer = place.post(UPSERT, {"truths": truths}).json()
    assert answer == {"written": 5, "keys": ["task.a", "task.b", "task.a", "task.a", "task.b"]}
    kept = place.get("/api/truth/task.a/versions").json()["results"]
    assert [(one["version"], one["value"], one["description"]) for one in kept] == [
        (1, 0, "before"), (2, 1, "before"), (3, 2, "within"), (4, 3, "within"),
    ]  # fmt: skip
    assert descriptions(place, "task.b") == ["b", "b"]
    assert place.get("/api/truths").json()["total"] == 2
    assert place.store.verify().ok


def test_a_key_that_is_locked_within_a_batch_takes_no_more(place: Place) -> None:
    truths = [{"key": "task.a", "value": 1, "locked": True}, {"key": "task.a", "value": 2}]
    assert place.post(UPSERT, {"truths": truths}).status_code == 409
    assert place.get("/api/truth/task.a").status_code == 404


def test_a_description_is_never_lost_between_two_writers(place: Place) -> None:
    """One changes the description, others only the value: no value is written under an older description."""
    place.upsert("task.a", 0, description="d0")

    def describe() -> None:
        with httpx2.Client(base_url=place.url, timeout=60) as http:
            for n in range(1, 31):
                document = {"key": "task.a", "value": 0, "description": f"d{n}"}
                http.post(UPSERT, json=document).raise_for_status()

    def count() -> None:
        with httpx2.Client(base_url=place.url, timeout=60) as http:
            for n in range(30):
                http.post(UPSERT, json={"key": "task.a", "value": n + 1}).raise_for_status()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(describe), pool.submit(count), pool.submit(count)]:
            done.result()
    told = [
        one["description"] for one in place.get("/api/truth/task.a/versions?limit=1000").json()["results"]
    ]
    assert len(told) == 91
    assert told == sorted(told, key=lambda text: int(text[1:]))


def test_two_gateways_on_one_file_keep_each_others_descriptions(place: Place) -> None:
    with serving(place.data) as other:
        place.upsert("task.a", 0, description="kept")

        def write(one: Place) -> None:
            with httpx2.Client(base_url=one.url, timeout=60) as http:
                for n in range(25):
                    http.post(UPSERT, json={"key": "task.a", "value": n}).raise_for_status()

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(write, place), pool.submit(write, other)]:
                done.result()
        found = other.get("/api/truth/task.a").json()
    assert (found["version"], found["description"]) == (51, "kept")


# Descriptions that are too long


def test_a_description_the_store_would_cut_is_refused(place: Place) -> None:
    for text in ("x" * 2000, "满" * 2000, "🔥" * 2000):
        assert place.upsert("task.a", 1, description=text)["description"] == text
        answer = place.post(UPSERT, {"key": "task.b", "value": 1, "description": f"{text}x"})
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert error == {"field": "description", "problem": "must have at most 2000 characters, has 2001"}
    assert place.get("/api/truth/task.b").status_code == 404


def test_in_a_batch_its_place_is_told(place: Place) -> None:
    truths = [{"key": f"task.n{n}", "value": n, "description": "x" * (2000 + n // 2)} for n in range(3)]
    answer = place.post(UPSERT, {"truths": truths})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["truths.2.description"]
    assert place.get("/api/truths").json()["total"] == 0


# Preconditions


@pytest.mark.parametrize("given", ["1", "nonsense", '"1', "'1'", '"1" "2"', "*, *", '"1",', "", "é"])
def test_an_if_match_that_is_none_is_refused_with_the_right_way(place: Place, given: str) -> None:
    place.upsert("task.a", 1)
    answer = httpx2.post(
        f"{place.url}{UPSERT}", json={"key": "task.a", "value": 2}, headers=[(b"If-Match", given.encode())]
    )
    assert answer.status_code == 412
    (error,) = answer.json()["errors"]
    assert error["field"] == "If-Match"
    assert 'in quotes, as ETag has it, like "3"' in error["problem"]
    assert place.get("/api/truth/task.a").json()["version"] == 1


def race(place: Place, count: int, **headers: str) -> list[int]:
    """The statuses of as many writers of one key at once."""

    def write(number: int) -> int:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        document = {"key": "task.race", "value": number}
        return httpx2.post(f"{place.url}{UPSERT}", json=document, headers=sent, timeout=60).status_code

    with ThreadPoolExecutor(count) as pool:
        return sorted(pool.map(write, range(count)))


@pytest.mark.parametrize("round", range(5))
def test_of_two_writers_that_follow_one_version_one_wins(place: Place, round: int) -> None:
    place.upsert("task.race", -1, description="d")
    assert race(place, 2, If_Match='"1"') == [200, 412]
    found = place.get("/api/truth/task.race").json()
    assert (found["version"], found["description"]) == (2, "d")


def test_of_many_writers_that_expect_none_one_wins(place: Place) -> None:
    assert race(place, 8, If_None_Match="*") == [200] + [412] * 7


def test_writers_that_follow_any_version_all_win(place: Place) -> None:
    place.upsert("task.race", -1)
    assert race(place, 8, If_Match="*") == [200] * 8
    assert place.get("/api/truth/task.race").json()["version"] == 9


def test_of_writers_that_follow_one_of_two_versions_one_wins(place: Place) -> None:
    place.upsert("task.race", -1)
    assert race(place, 6, If_Match='"7", "1"') == [200] + [412] * 5
