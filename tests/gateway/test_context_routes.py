"""POST /api/context/assemble: a prompt for a program of any language, and where its account is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import Place

from kernel_gamma.assembly import Assembly, Counting
from kernel_gamma.configuration import Home, lay_out
from kernel_gamma.model.tokens import estimate
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.self_stream.stream import SelfStream
from kernel_gamma.settings import Settings
from kernel_gamma.truths.store import open_truths

TASK = "线上服务启动失败，进入死循环"


@pytest.fixture
def place(serve: Callable[..., Place], tmp_path: Path) -> Iterator[Place]:
    lay_out(tmp_path)
    clock = SystemClock("Asia/Shanghai")
    store = open_truths(tmp_path / "data/memory.db", clock)
    assembly = Assembly(
        Home(tmp_path),
        Settings(),
        store,
        SelfStream(tmp_path / "data/self"),
        clock,
        Counting(lambda role, text: estimate(text), lambda role: 128_000),
        tell=lambda category, description, value: None,
    )
    yield serve(assemble=assembly.asked)
    store.close()


def assembled(place: Place, **asked: Any) -> dict[str, Any]:
    answer = place.post("/api/context/assemble", {"task": TASK, **asked})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_task_gets_its_prompt_and_the_key_of_its_account(place: Place) -> None:
    place.upsert("incident.startup.cause", "线上服务启动失败：缺少端口，进入死循环")
    found = assembled(place)
    assert found["task_type"] == "ops_debug" and found["budget"] == 3000
    assert found["static"][0]["name"] == "meta_axioms"
    (record,) = found["dynamic"]
    assert record["key"] == "incident.startup.cause" and record["timestamp"].endswith("+08:00")
    assert 0 < record["similarity"] <= 1 and record["tokens"] > 0 and "<recalled" not in record["text"]
    assert [turn["role"] for turn in found["turns"]] == ["system", "user"]
    account = place.get(f"/api/truth/{found['audit_key']}").json()
    assert account["value"]["total_tokens"] == found["total_tokens"]


def test_type_budget_and_agent_can_be_asked_for(place: Place) -> None:
    assert assembled(place, task_type="general_query")["task_type"] == "general_query"
    assert assembled(place, budget=900)["budget"] == 900
    alone, with_agent = (
        assembled(place, **more)["turns"][0]["text"] for more in ({}, {"agent": "internalizer"})
    )
    assert len(with_agent) > len(alone) + 300


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"task": ""}, "task"),
        ({"task": "  "}, "task"),
        ({"task": 7}, "task"),
        ({"task": "x", "task_type": "poetry"}, "task_type"),
        ({"task": "x", "agent": "nobody"}, "agent"),
        ({"task": "x", "budget": 0}, "budget"),
        ({"task": "x", "budget": 5}, "budget"),
        ({"task": "x", "more": 1}, "more"),
    ],
)
def test_a_wrong_field_is_named(place: Place, asked: dict[str, Any], field: str) -> None:
    answer = place.post("/api/context/assemble", asked)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_without_an_assembler_there_is_no_such_endpoint(serve: Callable[..., Place]) -> None:
    assert serve("bare").post("/api/context/assemble", {"task": "x"}).status_code == 404
