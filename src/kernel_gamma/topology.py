"""config/topology.yaml: which nodes there are and how they are wired. Edges follow from the patterns."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_gamma.bus.folders import directory_of, matches, valid_pattern
from kernel_gamma.configuration import read_yaml
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import SettingsError
from kernel_gamma.nodes.agents.externalizer import Externalizer
from kernel_gamma.nodes.agents.internalizer import Internalizer
from kernel_gamma.nodes.agents.memory_consolidator import MemoryConsolidator
from kernel_gamma.nodes.base import Node
from kernel_gamma.nodes.keepers.dead_letter_router import DeadLetterRouter
from kernel_gamma.nodes.keepers.inspector import Inspector
from kernel_gamma.nodes.keepers.metrics_collector import MetricsCollector
from kernel_gamma.nodes.routers.command_dispatcher import CommandDispatcher
from kernel_gamma.nodes.routers.heartbeat_generator import HeartbeatGenerator
from kernel_gamma.nodes.routers.loop_breaker import LoopBreaker
from kernel_gamma.nodes.routers.message_preprocessor import MessagePreprocessor
from kernel_gamma.nodes.routers.timer_scheduler import TimerScheduler

__all__ = ["BUILT_IN", "Declared", "Edge", "NodeSpec", "load_topology", "wiring", "wiring_warnings"]

BUILT_IN: Mapping[str, type[Node]] = {
    "MessagePreprocessor": MessagePreprocessor,
    "Internalizer": Internalizer,
    "Externalizer": Externalizer,
    "CommandDispatcher": CommandDispatcher,
    "MemoryConsolidator": MemoryConsolidator,
    "HeartbeatGenerator": HeartbeatGenerator,
    "TimerScheduler": TimerScheduler,
    "LoopBreaker": LoopBreaker,
    "MetricsCollector": MetricsCollector,
    "DeadLetterRouter": DeadLetterRouter,
    "Inspector": Inspector,
}
"""Classes that may be named without their module."""

_PROBLEMS: Mapping[str, str] = {
    "extra_forbidden": "unknown key",
    "missing": "is missing",
    "model_type": "must be a section with `id` and `class`",
}
_FED_FROM_OUTSIDE = ("inbox/pending", "rhythm/triggers", "heartbeat", "approvals/pending")


class NodeSpec(BaseModel):
    """One entry of `nodes:` as written."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    class_name: Annotated[str, Field(alias="class")]
    enabled: bool = True
    role: str | None = None
    watch: tuple[str, ...] | None = None
    emit: tuple[str, ...] | None = None
    concurrency: Annotated[int, Field(ge=1, le=256)] | None = None
    config: dict[str, Json] = {}


@dataclass(frozen=True, slots=True)
class Declared:
    """A node as it will run: its spec with everything filled in."""

    spec: NodeSpec
    node_class: type[Node]
    watch: tuple[str, ...]
    emit: tuple[str, ...]
    concurrency: int

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def config(self) -> dict[str, Json]:
        """The node's own block, with its role."""
        return {**self.spec.config, **({"role": self.spec.role} if self.spec.role else {})}


@dataclass(frozen=True, slots=True)
class Edge:
    """Files flow from `source` (None: from outside) through `directory` to `target` (None: to outside)."""

    source: str | None
    directory: str
    target: str | None


def load_topology(file: Path, home: Path) -> list[Declared]:
    """The enabled nodes. Raises SettingsError naming the file, the node and what is wrong."""
    document = read_yaml(file)
    extra = sorted(set(document) - {"nodes"})
    if extra:
        raise SettingsError(str(file), extra[0], "unknown key", "the file holds one key: nodes")
    entries = document.get("nodes")
    if not isinstance(entries, list) or not entries:
        raise SettingsError(str(file), "nodes", "must be a list of nodes", "see docs/nodes.md")
    specs = [_spec(file, index, entry) for index, entry in enumerate(entries)]
    _check_ids(file, specs)
    declared = [_declare(file, home, spec) for spec in specs if spec.enabled]
    if not declared:
        raise SettingsError(str(file), "nodes", "no node is enabled", "set enabled: true")
    return declared


def _spec(file: Path, index: int, entry: Json) -> NodeSpec:
    name = entry.get("id", f"nodes[{index}]") if isinstance(entry, dict) else f"nodes[{index}]"
    try:
        return NodeSpec.model_validate(entry)
    except ValidationError as error:
        # an unknown key comes first: it is mostly the missing one, misspelt
        first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        known = [f.alias or n for n, f in NodeSpec.model_fields.items()]
        near = get_close_matches(key, known, 1)
        mend = f"did you mean {near[0]}?" if near and near[0] != key else f"keys are {', '.join(known)}"
        problem = _PROBLEMS.get(first["type"]) or first["msg"].replace("Input should", "must")
        raise SettingsError(str(file), f"{name}.{key}" if key else name, problem, mend) from error


def _check_ids(file: Path, specs: Sequence[NodeSpec]) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.id in seen:
            raise SettingsError(str(file), spec.id, "two nodes have this id", "rename one of them")
        seen.add(spec.id)


def _declare(file: Path, home: Path, spec: NodeSpec) -> Declared:
    node_class = _class_of(file, home, spec)
    watch = spec.watch if spec.watch is not None else node_class.watch
    emit = spec.emit if spec.emit is not None else node_class.emit
    for key, patterns in (("watch", watch), ("emit", emit)):
        for pattern in patterns:
            if not valid_pattern(pattern):
                raise SettingsError(
                    str(file),
                    f"{spec.id}.{key}",
                    f"{pattern!r} is no pattern",
                    "write <queue>/<prefix>_*.json, e.g. pipeline/message_queue/msg_*.json",
                )
    if not watch and not node_class.has_beats():
        raise SettingsError(str(file), f"{spec.id}.watch", "the node watches nothing", "name a queue")
    for wanted, method in ((bool(watch), "handle"), (node_class.has_beats(), "beat")):
        if wanted and getattr(node_class, method) is getattr(Node, method):
            problem = f"{node_class.__name__} has no {method}()"
            raise SettingsError(str(file), f"{spec.id}.class", problem, "write it")
    concurrency = spec.concurrency if spec.concurrency is not None else node_class.concurrency
    return Declared(spec, node_class, tuple(watch), tuple(emit), concurrency)


def _class_of(file: Path, home: Path, spec: NodeSpec) -> type[Node]:
    name = spec.class_name
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, colon, class_name = name.replace(":", ".").rpartition(".")
    if not colon:
        near = get_close_matches(name, BUILT_IN, 1)
        mend = f"did you mean {near[0]}?" if near else "a class of your own is module:Class"
        raise SettingsError(str(file), f"{spec.id}.class", f"no node class {name!r}", mend)
    module = _module(file, home, spec.id, module_name)
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Node)):
        problem = f"{module_name} has no Node class {class_name!r}"
        raise SettingsError(str(file), f"{spec.id}.class", problem, "subclass kernel_gamma.nodes.base.Node")
    return found


def _module(file: Path, home: Path, node_id: str, name: str) -> object:
    """A module file of the home comes first; then anything that can be imported."""
    beside = home / (name.replace(".", "/") + ".py")
    try:
        if beside.is_file():
            spec = importlib.util.spec_from_file_location(name, beside)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
        return importlib.import_module(name)
    except Exception as error:
        problem = f"{name} cannot be imported: {type(error).__name__}: {error}"
        mend = f"put {beside.name} into {home}, or install the package"
        raise SettingsError(str(file), f"{node_id}.class", problem, mend) from error


def wiring(declared: Sequence[Declared]) -> list[Edge]:
    """All edges, from emit patterns to the watch patterns they feed."""
    edges: list[Edge] = []
    for node in declared:
        for pattern in node.emit:
            sample_dir, sample = directory_of(pattern), pattern.rsplit("/", 1)[1].replace("*", "x")
            targets = [n.id for n in declared if any(matches(w, sample_dir, sample) for w in n.watch)]
            ends: list[str | None] = [*targets] or [None]
            edges += [Edge(node.id, sample_dir, target) for target in ends]
    fed = {(e.directory, e.target) for e in edges if e.source != e.target}
    for node in declared:
        for pattern in node.watch:
            if (directory_of(pattern), node.id) not in fed or directory_of(pattern) in _FED_FROM_OUTSIDE:
                edges.append(Edge(None, directory_of(pattern), node.id))
    return edges


def wiring_warnings(declared: Sequence[Declared]) -> list[str]:
    """Nodes that nothing feeds, and emits that nothing watches inside the pipeline."""
    found = []
    for edge in wiring(declared):
        if edge.source is None and not edge.directory.startswith(_FED_FROM_OUTSIDE):
            found.append(f"{edge.target} watches {edge.directory}, and no enabled node writes there")
        if edge.target is None and edge.directory.startswith("pipeline/"):
            found.append(f"{edge.source} writes to {edge.directory}, and no enabled node watches it")
    return found
