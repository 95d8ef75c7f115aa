"""What a file of Channel A may hold: bytes → a checked form. Pure.

Raises SettingsError that names the file, the key and the mend.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import SettingsError

__all__ = [
    "Axioms",
    "F",
    "Identity",
    "Metalaw",
    "Operator",
    "Operators",
    "Skeleton",
    "SteadyCore",
    "read_form",
    "read_text",
    "with_dependencies",
]

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
Weight = Annotated[float, Field(ge=0, le=1)]
Port = Annotated[int, Field(ge=1, le=65_535)]

_SUM_TOLERANCE = 1e-6


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Principle(_Form):
    """A sentence to live by, and the short form in which prompts carry it."""

    text: Line
    short: Line


class Axiom(Principle):
    id: Id


class Axioms(_Form):
    """config/meta_axioms.json."""

    constitution: Principle
    axioms: Annotated[list[Axiom], Field(min_length=9, max_length=9)]


class Metalaw(_Form):
    """One file of config/metalaws/."""

    id: Id
    title: Line
    text: Line


class Identity(_Form):
    """config/identity.json."""

    did: Line
    system_id: Line
    provenance: Line


class SteadyCore(_Form):
    """config/uni_steady_core.json; the weights sum up to 1."""

    id: Id
    version: Line
    weights: Annotated[dict[Id, Weight], Field(min_length=1)]


class SkeletonNode(_Form):
    id: Line
    does: Line


class Skeleton(_Form):
    """config/kernel_skeleton.yaml."""

    ports: dict[Id, Port]
    services: dict[Id, Line]
    nodes: list[SkeletonNode]


class Operator(_Form):
    id: Id
    definition: Line
    depends_on: list[Id] = []
    inputs: list[Line] = []
    outputs: list[Line] = []


class Operators(_Form):
    """config/op_library/registry.json; nothing depends on itself, nor on what is not registered."""

    operators: list[Operator]

    def by_id(self) -> dict[str, Operator]:
        return {operator.id: operator for operator in self.operators}


F = TypeVar("F", Axioms, Metalaw, Identity, SteadyCore, Skeleton, Operators)
"""A form of a file."""


def read_form(file: str, raw: bytes, form: type[F]) -> F:
    """The form a file holds. Raises SettingsError that names the file, the key and the mend."""
    document = _document(file, raw)
    try:
        found = form.model_validate(document)
    except ValidationError as error:
        raise _explained(file, form, error.errors(include_url=False)[0]) from None
    _check(file, found)
    return found


def read_text(file: str, raw: bytes) -> str:
    """A UTF-8 text with plain line breaks and without a BOM. Raises SettingsError."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(file, f"byte {error.start}", "is not UTF-8", "save it as UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise SettingsError(file, "file", "is empty", "write it, or put it back from its last version")
    if "\0" in text:
        raise SettingsError(file, "file", "holds a zero byte", "save it as plain text")
    return text


def with_dependencies(ids: Iterable[str], registry: Mapping[str, Operator]) -> list[str]:
    """`ids` in their order, each behind all it depends on; unknown ones are left out.

    The registry must be acyclic.
    """
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name in registry and name not in found:
            for needed in registry[name].depends_on:
                add(needed)
            found[name] = None

    for name in ids:
        add(name)
    return list(found)


# From bytes to a document


class _Loader(yaml.SafeLoader):
    """No key twice, no aliases: a file a person approves means what it says at first sight."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="an alias (*) is not allowed here", problem_mark=mark)
        return super().compose_node(parent, index)


def _unique_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str) or key in found:
            problem = f"{key} stands here a second time" if key in found else f"{key!r} is no name"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _unique_mapping)


def _document(file: str, raw: bytes) -> Json:
    text = read_text(file, raw)
    try:
        if file.endswith(".json"):
            document: Json = json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_refuse)
        else:
            document = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}" if mark else "file"
        raise SettingsError(file, line, error.problem or "is no YAML", "mend that line") from None
    except json.JSONDecodeError as error:
        raise SettingsError(
            file, f"line {error.lineno}", f"is no JSON: {error.msg}", "mend that line"
        ) from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise SettingsError(file, "file", f"cannot be understood: {error}", "mend it") from None
    return document


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _unique_pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} stands there twice")
        found[key] = value
    return found


# What is wrong, in words


def _explained(file: str, form: type[BaseModel], found: ErrorDetails) -> SettingsError:
    key = ".".join(str(part) for part in found["loc"] if part != "[key]") or "file"
    if found["type"] == "extra_forbidden":
        keys = ", ".join(form.model_fields) if len(found["loc"]) == 1 else "those of docs/static-truths.md"
        return SettingsError(file, key, "unknown key", f"keys are {keys}")
    if found["type"] == "missing":
        return SettingsError(file, key, "is missing", "write it")
    problem = found["msg"].replace("Input should be", "must be").replace("Input should", "must")
    if "model" in found["type"]:
        problem = (
            f"must hold the keys {', '.join(form.model_fields)}" if key == "file" else "must be a section"
        )
    return SettingsError(file, key, problem, "mend it as docs/static-truths.md shows")


def _check(file: str, found: BaseModel) -> None:
    """What types alone cannot say."""
    if isinstance(found, Axioms):
        _once(file, "axioms", [axiom.id for axiom in found.axioms])
    elif isinstance(found, Skeleton):
        _once(file, "nodes", [node.id for node in found.nodes])
    elif isinstance(found, Operators):
        _check_operators(file, found)
    elif isinstance(found, SteadyCore):
        total = sum(found.weights.values())
        if abs(total - 1) > _SUM_TOLERANCE:
            raise SettingsError(
                file, "weights", f"sum up to {total:g}, not to 1", "change them so that they do"
            )


def _once(file: str, key: str, ids: list[str]) -> None:
    twice = next((one for number, one in enumerate(ids) if one in ids[:number]), None)
    if twice is not None:
        raise SettingsError(file, key, f"the id {twice} stands there twice", "rename one")


def _check_operators(file: str, registry: Operators) -> None:
    known = registry.by_id()
    _once(file, "operators", [operator.id.lower() for operator in registry.operators])
    for operator in registry.operators:
        for needed in operator.depends_on:
            if needed not in known:
                problem = f"depends on {needed}, which is not registered"
                raise SettingsError(
                    file, f"operators.{operator.id}", problem, "register it, or remove it there"
                )
    done: set[str] = set()
    for operator in registry.operators:
        _walk(file, operator.id, known, [], done)


def _walk(file: str, name: str, known: Mapping[str, Operator], path: list[str], done: set[str]) -> None:
    if name in path:
        circle = " → ".join([*path[path.index(name) :], name])
        raise SettingsError(file, f"operators.{name}", f"depends on itself: {circle}", "break the circle")
    if name in done:
        return
    if len(path) > 100:
        raise SettingsError(file, f"operators.{name}", "depends on others more than 100 deep", "flatten it")
    for needed in known[name].depends_on:
        _walk(file, needed, known, [*path, name], done)
    done.add(name)
