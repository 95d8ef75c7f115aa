"""context, why, tokens: what is sent, what is not and why, the same call again, and the sums over calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import make_shell

TASK = "线上服务启动失败，进入死循环"
CAUSE = "线上服务启动失败：缺少端口配置，反复重启进入死循环"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A home with incidents and one answered message."""
    shell = make_shell(tmp_path_factory.mktemp("told"))
    records = [
        {"key": "incident.startup.cause", "value": CAUSE},
        *(
            {
                "key": f"incident.n{letter}",
                "value": f"服务 {letter * 5} 启动失败，进入死循环，由 {letter * 7} 引起",
            }
            for letter in "abcdefghijklmnopqrstuvwxyz"
        ),
        {"key": "error.water", "value": "the coffee machine leaks"},
    ]
    lines = "\n".join(json.dumps(record) for record in records)
    assert shell("truths", "import", "-", stdin=lines).exit_code == 0
    assert shell("say", "The service fails to start and loops", "--from", "owner").exit_code == 0
    shell.live()
    return shell


def asked(shell: Any, *args: str) -> Any:
    done = shell(*args, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def kept(found: dict[str, Any], channel: str) -> list[str]:
    return [part["source"] for part in found["parts"] if part["kept"] and part["channel"] == channel]


@pytest.mark.parametrize("task", [TASK, "the live service fails to start and loops for ever"])
def test_an_operations_task_gets_static_truths_and_the_incidents_within_its_budget(
    told: Any, task: str
) -> None:
    found = asked(told, "context", task)
    assert (found["task_type"], found["budget"]) == ("ops_debug", 3000)
    assert 0 < found["static_tokens"] <= 2000 and 0 < found["dynamic_tokens"] <= 1400
    sums = [found[f"{name}_tokens"] for name in ("static", "self", "dynamic", "agent")]
    assert sum(sums) == found["total_tokens"] == sum(p["tokens"] for p in found["parts"] if p["kept"])
    assert {"name", "channel", "source", "tokens", "kept", "reason"} <= found["parts"][0].keys()
    assert not any("coffee" in turn["text"] for turn in found["turns"])


def test_the_right_incident_comes_first(told: Any) -> None:
    found = asked(told, "context", TASK)
    assert kept(found, "dynamic")[1] == "incident.startup.cause"
    assert CAUSE in found["turns"][-1]["text"]


@pytest.mark.parametrize("task", ["who are you?", "你是谁？"])
def test_who_are_you_asks_no_records_and_shows_the_own_past(told: Any, task: str) -> None:
    found = asked(told, "context", task)
    assert (found["task_type"], found["dynamic_tokens"]) == ("general_query", 0)
    assert any(source.startswith("stream/now.md") for source in kept(found, "self"))


def test_explain_is_a_table_that_adds_up(told: Any) -> None:
    done = told("context", TASK, "--explain")
    assert done.exit_code == 0
    assert "ops_debug (full): the task says" in done.stdout
    assert "incident.startup.cause" in done.stdout and "left out:" in done.stdout
    assert "budget 3000 for Channel A and B" in done.stdout and "kept as assembly." in done.stdout


def test_without_explain_the_prompt_itself_is_printed(told: Any) -> None:
    done = told("context", "who are you?")
    assert done.stdout.startswith("--- system\n") and "--- user\n" in done.stdout


def test_why_tells_of_a_call_that_was_made_and_of_what_lost(told: Any) -> None:
    key = asked(told, "context", TASK)["audit_key"]
    (call,) = asked(told, "why", key)
    lost = [part for part in call["parts"] if not part["kept"]]
    assert call["key"] == key and lost and all(part["reason"] for part in lost)
    done = told("why", key, "--about", lost[0]["source"])
    assert done.exit_code == 0 and f"left out: {lost[0]['reason']}"[:40] in done.stdout


def test_why_finds_the_calls_of_a_trace_and_of_a_file_that_belongs_to_it(told: Any) -> None:
    (trace,) = {
        truth["value"]["trace_id"]
        for truth in asked(told, "truths", "recent", "--category", "assembly", "--limit", "50")
        if truth["value"]["trace_id"]
    }
    calls = asked(told, "why", trace)
    assert [call["agent"] for call in calls] == ["internalizer", "externalizer"]
    assert calls[0]["task_type"] == "ops_debug" and "usage" in calls[0]
    dropped = asked(told, "trace", trace)["files"][0]["name"]
    assert asked(told, "why", dropped) == calls


def test_a_call_is_made_again_under_another_budget_without_a_model(told: Any) -> None:
    sent = asked(told, "context", TASK)
    same = asked(told, "context", "--replay", sent["audit_key"])
    assert same["total_tokens"] == sent["total_tokens"] == same["was_tokens"]
    budget = sent["static_tokens"] + sent["dynamic_tokens"] // 2
    less = asked(told, "context", "--replay", sent["audit_key"], "--budget", str(budget))
    assert less["static_tokens"] == sent["static_tokens"] and less["total_tokens"] < sent["total_tokens"]
    assert less["static_tokens"] + less["dynamic_tokens"] <= budget
    done = told("context", "--replay", sent["audit_key"], "--budget", "10")
    assert done.exit_code == 1 and "may have" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("context",), 2, "which task?"),
        (("context", " "), 2, "which task?"),
        (("context", "x", "--task-type", "poetry"), 2, "there is no task type 'poetry'"),
        (("context", "x", "--agent", "nobody"), 2, "nobody"),
        (("context", "x", "--budget", "3"), 1, "give it more with --budget"),
        (("context", "x", "--replay", "trace_1"), 2, "takes no task"),
        (("context", "--replay", "trace_nobody"), 1, "no call is kept for it"),
        (("why", "assembly.nobody"), 1, "no call is kept for it"),
        (("why", "incident.startup.cause"), 1, "no call is kept for it"),
    ],
)
def test_mistakes_are_told_in_a_line(told: Any, args: tuple[str, ...], code: int, words: str) -> None:
    done = told(*args)
    assert (done.exit_code, words in done.stderr) == (code, True), done.stderr


def test_tokens_adds_up_the_calls_and_not_what_was_only_asked(told: Any) -> None:
    found = asked(told, "tokens", "--days", "2")
    assert found["calls"] == 2
    assert found["by_agent"].keys() == {"internalizer", "externalizer"}
    total = sum(found["by_agent"].values())
    assert total == found["assembled_tokens"] == sum(found["by_section"].values())
    assert sum(found["by_type"].values()) == total and "static/meta_axioms" in found["by_section"]
    assert 0 < found["saved_share"] < 1
    shown = told("tokens")
    assert "2 calls" in shown.stdout and "saved" in shown.stdout


def test_tokens_of_a_mind_that_never_thought(tmp_path: Any) -> None:
    shell = make_shell(tmp_path)
    assert "no call was made" in shell("tokens").stdout


def test_an_edit_without_approval_shows_in_status_and_changes_no_byte(tmp_path: Any) -> None:
    shell = make_shell(tmp_path)
    before = asked(shell, "context", "who are you?")
    file = tmp_path / "config/meta_axioms.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["axioms"][0]["short"] = "Anything goes on Fridays."
    file.write_text(json.dumps(document), encoding="utf-8")
    assert asked(shell, "status")["static_drift"] == ["config/meta_axioms.json"]
    assert asked(shell, "context", "who are you?")["prefix_hash"] == before["prefix_hash"]
    assert "changed without approval" in shell("context", "who are you?", "--explain").stdout
    done = shell("static", "propose", "config/meta_axioms.json", "--json")
    assert done.exit_code == 0, done.stderr
    proposal = json.loads(done.stdout)["id"]
    assert shell("static", "approve", proposal, "--name", "a person").exit_code == 0
    after = asked(shell, "context", "who are you?")
    assert after["prefix_hash"] != before["prefix_hash"]
    assert "Anything goes on Fridays." in after["turns"][0]["text"]
    (change,) = asked(shell, "truths", "recent", "--category", "operation.static_change")
    assert change["value"]["before_sha256"] != change["value"]["after_sha256"]
    assert asked(shell, "status")["static_drift"] == []
