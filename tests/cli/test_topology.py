from __future__ import annotations

import json
from typing import Any


def test_the_circuit_as_json(kgamma: Any) -> None:
    found = json.loads(kgamma("topology", "--json").stdout)
    assert [node["id"] for node in found["nodes"]] == [
        "message_preprocessor", "internalizer", "externalizer", "command_dispatcher", "memory_consolidator",
        "heartbeat", "timer_scheduler", "loop_breaker", "metrics_collector", "dead_letter_router",
        "inspector",
    ]  # fmt: skip
    edge = {"from": "internalizer", "directory": "pipeline/internalized", "to": "externalizer"}
    assert edge in found["edges"]
    assert {"from": None, "directory": "inbox/pending", "to": "message_preprocessor"} in found["edges"]
    assert found["warnings"] == []


def test_the_tables_name_nodes_and_edges(kgamma: Any) -> None:
    done = kgamma("topology")
    assert done.exit_code == 0
    assert "pipeline/message_queue/msg_*.json" in done.stdout
    assert "(outside)" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_mermaid_draws_every_node(kgamma: Any) -> None:
    lines = kgamma("topology", "--mermaid").stdout.splitlines()
    assert lines[0] == "flowchart LR"
    assert '    message_preprocessor -->|"pipeline/message_queue"| internalizer' in lines


def test_a_node_that_nothing_feeds_is_warned_of(kgamma: Any) -> None:
    file = kgamma.home / "config/topology.yaml"
    file.write_text("nodes:\n  - id: command_dispatcher\n    class: CommandDispatcher\n")
    done = kgamma("topology")
    assert done.exit_code == 0
    assert "warning: command_dispatcher watches pipeline/action_queue" in done.stderr


def test_an_unknown_class_is_one_line(kgamma: Any) -> None:
    file = kgamma.home / "config/topology.yaml"
    file.write_text("nodes:\n  - id: inner\n    class: Internaliser\n")
    done = kgamma("topology")
    assert done.exit_code == 1
    assert "did you mean Internalizer?" in done.stderr
