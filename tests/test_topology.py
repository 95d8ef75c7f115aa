"""config/topology.yaml: every mistake is named with its place, and edges follow from the patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_gamma.configuration import lay_out
from kernel_gamma.errors import SettingsError
from kernel_gamma.topology import Declared, load_topology, wiring, wiring_warnings

GOOD = "nodes:\n  - {id: message_preprocessor, class: MessagePreprocessor}\n"


def load(home: Path, text: str) -> list[Declared]:
    file = home / "topology.yaml"
    file.write_text(text)
    return load_topology(file, home)


def test_the_shipped_topology_is_wired_without_a_warning(tmp_path: Path) -> None:
    lay_out(tmp_path)
    declared = load_topology(tmp_path / "config/topology.yaml", tmp_path)
    assert [d.id for d in declared] == [
        "message_preprocessor",
        "internalizer",
        "externalizer",
        "command_dispatcher",
        "memory_consolidator",
        "heartbeat",
        "timer_scheduler",
        "loop_breaker",
        "metrics_collector",
        "dead_letter_router",
        "inspector",
    ]
    assert wiring_warnings(declared) == []
    edges = {(e.source, e.directory, e.target) for e in wiring(declared)}
    assert ("message_preprocessor", "pipeline/message_queue", "internalizer") in edges
    assert ("command_dispatcher", "inbox/pending", "message_preprocessor") in edges
    assert ("command_dispatcher", "outbox/*", None) in edges
    assert (None, "inbox/pending", "message_preprocessor") in edges


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be a list"),
        ("nodes: []", "must be a list"),
        ("nodes: {a: b}", "must be a list"),
        ("nodes: [5]", "nodes[0]: must be a section"),
        ("nodes: [{class: Internalizer}]", "nodes[0].id: is missing"),
        ("nodes: [{id: a}]", "a.class: is missing"),
        ("nodes: [{id: a, klass: Internalizer}]", "a.klass: unknown key (did you mean class?)"),
        ("nodes: [{id: Bad Id, class: Internalizer}]", "id"),
        ("nodes: [{id: a, class: Internaliser}]", "did you mean Internalizer?"),
        ("nodes: [{id: a, class: Internalizer, watsch: [x]}]", "did you mean watch?"),
        ("nodes: [{id: a, class: Internalizer, concurrency: 0}]", "concurrency"),
        ("nodes: [{id: a, class: Internalizer, watch: ['q/**/x.json']}]", "is no pattern"),
        ("nodes: [{id: a, class: Internalizer, watch: []}]", "watches nothing"),
        ("nodes: [{id: a, class: Internalizer, emit: ['../x_*.json']}]", "is no pattern"),
        ("nodes: [{id: a, class: Internalizer}, {id: a, class: Externalizer}]", "two nodes"),
        ("nodes: [{id: a, class: Internalizer, enabled: false}]", "no node is enabled"),
        ("nodes: [{id: a, class: Internalizer}]\nextra: 1", "extra"),
        ("nodes: [{id: a, class: 'nowhere:Node'}]", "cannot be imported"),
        ("nodes: [{id: a, class: 'json:JSONDecoder'}]", "no Node class"),
        ("nodes: [{id: a, class: 'kernel_gamma.nodes.base:Node', watch: ['q/*.json']}]", "has no handle"),
        ("nodes: [{id: a, class: 'broken:Node'}]", "SyntaxError"),
        ("nodes: [", "topology.yaml"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "broken.py").write_text("def (")
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value)
    assert "topology.yaml" in str(caught.value)


def test_a_node_of_the_user_s_own_comes_from_a_file_of_the_home(tmp_path: Path) -> None:
    (tmp_path / "my_nodes").mkdir()
    (tmp_path / "my_nodes/counter.py").write_text(
        "from kernel_gamma.contracts.effects import Outcome\n"
        "from kernel_gamma.nodes.base import Node\n\n\n"
        "class Counter(Node):\n"
        "    watch = ('pipeline/message_queue/msg_*.json',)\n\n"
        "    async def handle(self, batch):\n"
        "        return Outcome()\n"
    )
    text = (
        "  - {id: counter, class: 'my_nodes.counter:Counter', role: fast, config: {by: 2}, concurrency: 3}\n"
    )
    _, counter = load(tmp_path, GOOD + text)
    assert counter.node_class.__name__ == "Counter"
    assert (counter.config, counter.concurrency) == ({"by": 2, "role": "fast"}, 3)


def test_what_the_topology_says_counts_more_than_the_class(tmp_path: Path) -> None:
    (node,) = load(
        tmp_path, "nodes: [{id: a, class: MessagePreprocessor, watch: ['q/*.json'], emit: ['r/m_*.json']}]"
    )
    assert (node.watch, node.emit) == (("q/*.json",), ("r/m_*.json",))


def test_a_node_nothing_feeds_and_a_queue_nobody_reads_are_warned_of(tmp_path: Path) -> None:
    declared = load(tmp_path, GOOD + "  - {id: externalizer, class: Externalizer}\n")
    warnings = wiring_warnings(declared)
    assert any("message_preprocessor writes to pipeline/message_queue" in w for w in warnings)
    assert any("externalizer watches pipeline/internalized" in w for w in warnings)
