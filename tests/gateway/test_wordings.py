"""What is wrong with a field is said in plain words: the field, what is wrong, what is right."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.gateway.conftest import Place

_JARGON = re.compile(r"Input|String|pydantic|valid |pattern|dictionary|instance|unable to parse|\^\[")
UPSERT, SEARCH = "/api/truth/upsert", "/api/truth/search"


@pytest.mark.parametrize(
    ("path", "document", "field", "said"),
    [
        (UPSERT, {"key": ["task.a"], "value": 1}, "key", "must be text, is a list"),
        (UPSERT, {"key": 7, "value": 1}, "key", "must be text, is 7"),
        (UPSERT, {"key": "中文", "value": 1}, "key", "must be made of the characters A-Z a-z 0-9"),
        (UPSERT, {"key": "a b", "value": 1}, "key", "like incident.disk_full.root_cause"),
        (UPSERT, {"key": "", "value": 1}, "key", "must not be empty"),
        (UPSERT, {"key": "x" * 201, "value": 1}, "key", "must have at most 200 characters, has 201"),
        (UPSERT, {"category": "a/b", "value": 1}, "category", "like incident"),
        (UPSERT, {"key": "t.a", "value": 1, "description": ["a"]}, "description", "must be text, is a list"),
        (UPSERT, {"key": "task.a", "value": 1, "locked": "yes"}, "locked", "must be true or false, is text"),
        (UPSERT, {"key": "t.a", "value": 1, "timestamp": 3}, "timestamp", "must be a time like 2026-09-11"),
        (UPSERT, {"key": "task.a", "value": 1, "valeu": 1}, "valeu", "is not a field of this request"),
        (UPSERT, {"key": "task.a"}, "value", "is missing"),
        (UPSERT, {"value": 1}, "body", "needs a key or a category"),
        (UPSERT, [{"key": "task.a", "value": 1}], "body", "must be an object, is a list"),
        (UPSERT, {"truths": []}, "truths", "must not be an empty list"),
        (UPSERT, {"truths": {"key": "task.a", "value": 1}}, "truths", "must be a list, is an object"),
        (UPSERT, {"truths": [{"key": "task.a", "value": 1}, 3]}, None, ""),
        (UPSERT, {"truths": [{"key": "t.a", "value": 1}] * 1001}, "truths", "at most 1000 elements"),
        (SEARCH, {"query": ["a"]}, "query", "must be text, is a list"),
        (SEARCH, {"categories": "error"}, "categories", "must be a list, is text"),
        (SEARCH, {"categories": ["error", "a b"]}, "categories.1", "must be made of the characters"),
        (SEARCH, {"limit": "10"}, "limit", "must be a whole number, is text"),
        (SEARCH, {"limit": 1.5}, "limit", "must be a whole number, is 1.5"),
        (SEARCH, {"limit": 0}, "limit", "must be at least 1, is 0"),
        (SEARCH, {"limit": 1001}, "limit", "must be at most 1000, is 1001"),
        (SEARCH, {"min_similarity": "0.5"}, "min_similarity", "must be a number, is text"),
        (SEARCH, {"include_value": {}}, "include_value", "must be true or false, is an object"),
        (SEARCH, {"task_type": "ops"}, "task_type", "must be one of 'ops_debug', 'dev_deploy', "),
        (SEARCH, {"start_time": "yesterday"}, "start_time", "must be a time like 2026-09-11T23:59:59"),
        (SEARCH, {"start_time": "2026-09-12", "end_time": "2026-09-11"}, "end_time", "is before start_time"),
        ("/api/truth/feedback", {"key": "t.a", "query": "", "relevant": True}, "query", "must not be empty"),
    ],
)  # fmt: skip
def test_a_body_is_refused_in_plain_words(
    shared: Place, path: str, document: object, field: str | None, said: str
) -> None:
    answer = shared.post(path, document)
    assert answer.status_code == 422
    problem: dict[str, Any] = answer.json()
    assert not _JARGON.search(problem["detail"]), problem["detail"]
    if field is not None:
        assert problem["errors"][0]["field"] == field
        assert said in problem["errors"][0]["problem"]
        assert f"{field}: " in problem["detail"]


@pytest.mark.parametrize(
    ("path", "field", "said"),
    [
        ("/api/truths?limit=x", "limit", "must be a whole number, is text"),
        ("/api/truths?limit=0", "limit", "must be at least 1"),
        ("/api/truths?offset=99999999999999999999", "offset", "must be at most 1000000000"),
        ("/api/truths?page=2", "page", "is not a field of this request"),
        ("/api/truth/recent?category=a%20b", "category", "must be made of the characters"),
        ("/api/truth/a%20b", "key", "must be made of the characters"),
        ("/api/truth/task.a?version=new", "version", "must be a whole number, is text"),
        ("/api/self/diary/today", "date", "must be a date like 2026-11-30"),
    ],
)
def test_an_address_is_refused_in_plain_words(shared: Place, path: str, field: str, said: str) -> None:
    answer = shared.get(path)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert said in error["problem"]
    assert not _JARGON.search(answer.json()["detail"])


def test_a_range_of_one_day_or_one_second_is_none_that_runs_backwards(shared: Place) -> None:
    for start, end in [
        ("2026-09-11", "2026-09-11"),
        ("2026-09-11T10:00:00.5", "2026-09-11T10:00:00"),
        ("2026-09-11T18:00:00+08:00", "2026-09-11T10:00:00Z"),
    ]:
        assert shared.post(SEARCH, {"start_time": start, "end_time": end}).status_code == 200
    backwards = {"start_time": "2026-09-11T10:00:00Z", "end_time": "2026-09-11T17:00:00+08:00"}
    assert shared.post(SEARCH, backwards).status_code == 422
