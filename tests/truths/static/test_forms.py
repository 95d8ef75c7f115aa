from __future__ import annotations

import json
from typing import Any

import pytest
from tests.truths.static.test_shipped import FILES

from kernel_gamma.errors import SettingsError
from kernel_gamma.truths.static.forms import (
    Axioms,
    Identity,
    Metalaw,
    Operators,
    Skeleton,
    SteadyCore,
    read_form,
    read_text,
    with_dependencies,
)

AXIOMS = json.loads(FILES["config/meta_axioms.json"])
CORE = {"id": "CORE", "version": "1.0", "weights": {"a": 0.5, "b": 0.5}}


def refused(raw: Any, form: Any, file: str = "config/x.json") -> SettingsError:
    body = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
    with pytest.raises(SettingsError) as caught:
        read_form(file, body, form)
    assert caught.value.file == file
    assert caught.value.mend
    return caught.value


def operators(*entries: tuple[str, list[str]]) -> dict[str, Any]:
    return {
        "operators": [{"id": name, "definition": "does", "depends_on": needed} for name, needed in entries]
    }


def test_there_are_nine_axioms_each_with_an_id_of_its_own() -> None:
    assert len(read_form("x.json", json.dumps(AXIOMS).encode(), Axioms).axioms) == 9
    eight = {**AXIOMS, "axioms": AXIOMS["axioms"][:8]}
    assert refused(eight, Axioms).key == "axioms"
    twice = {**AXIOMS, "axioms": [*AXIOMS["axioms"][:8], AXIOMS["axioms"][0]]}
    assert "twice" in refused(twice, Axioms).problem


def test_a_misspelt_or_missing_key_is_named() -> None:
    found = refused({"did": "d", "system": "s", "provenance": "p"}, Identity)
    assert found.key in ("system", "system_id")
    assert refused({"did": "d", "system_id": "s"}, Identity).key == "provenance"
    assert refused({"did": "d", "system_id": "s", "provenance": " "}, Identity).key == "provenance"
    assert refused({"did": "d", "system_id": 7, "provenance": "p"}, Identity).key == "system_id"
    assert refused([], Identity).key == "file"


@pytest.mark.parametrize(
    "weights", [{"a": 0.5, "b": 0.4}, {"a": 1.5, "b": -0.5}, {}, {"a": "1"}, {"a": True}, {"a b": 1.0}]
)
def test_weights_lie_between_0_and_1_and_sum_up_to_1(weights: Any) -> None:
    assert refused({**CORE, "weights": weights}, SteadyCore).key.startswith("weights")


def test_weights_of_thirds_sum_up_to_1() -> None:
    thirds = {"a": 0.333333333, "b": 0.333333333, "c": 0.333333334}
    assert read_form("x.json", json.dumps({**CORE, "weights": thirds}).encode(), SteadyCore)


@pytest.mark.parametrize(
    "raw", [b'{"id": NaN}', b'{"a": 1, "a": 2}', b"{", b"[" * 5000, b"\xff\xfe", b"", b"{}\0"]
)
def test_what_is_no_sound_json_is_told(raw: bytes) -> None:
    refused(raw, Identity)


@pytest.mark.parametrize(
    "raw",
    ["id: a\nid: b\n", "a: &x 1\nb: *x\n", "a: [\n", "\t- x", "1: x\n", "a: !!python/object:os.system x\n"],
)
def test_what_is_no_plain_yaml_is_told(raw: str) -> None:
    refused(raw.encode(), Metalaw, "config/metalaws/x.yaml")


def test_the_line_of_a_mistake_is_named() -> None:
    assert refused(b"id: a\ntitle: t\nid: b\n", Metalaw, "x.yaml").key == "line 3"
    assert refused(b'{\n"did": }', Identity).key == "line 2"


def test_a_bom_and_line_breaks_of_another_system_do_no_harm() -> None:
    raw = "\ufeffid: a\r\ntitle: 标题\r\ntext: 正文\r\n".encode()
    assert read_form("x.yaml", raw, Metalaw).title == "标题"
    assert read_text("x.md", "\ufeff一\r\n二\r三".encode()) == "一\n二\n三"


def test_a_port_is_a_number_and_no_node_stands_twice() -> None:
    sound: dict[str, Any] = {"ports": {"gateway": 9120}, "services": {}, "nodes": []}
    assert read_form("x.json", json.dumps(sound).encode(), Skeleton)
    for port in (0, 70_000, "9120", 9120.5):
        assert refused({**sound, "ports": {"gateway": port}}, Skeleton).key == "ports.gateway"
    nodes = [{"id": "a", "does": "x"}, {"id": "a", "does": "y"}]
    assert "twice" in refused({**sound, "nodes": nodes}, Skeleton).problem


def test_operators_that_depend_in_a_circle_are_told_with_the_circle() -> None:
    found = refused(operators(("a", ["b"]), ("b", ["c"]), ("c", ["a"])), Operators)
    assert "a → b → c → a" in found.problem
    assert "a → a" in refused(operators(("a", ["a"])), Operators).problem
    assert "not registered" in refused(operators(("a", ["z"])), Operators).problem
    assert "twice" in refused(operators(("a", []), ("A", [])), Operators).problem


def test_many_ways_to_one_operator_are_walked_once() -> None:
    layers = [(f"n{i}{side}", [f"n{i + 1}a", f"n{i + 1}b"]) for i in range(40) for side in "ab"]
    registry = operators(*layers, ("n40a", []), ("n40b", []))
    assert read_form("x.json", json.dumps(registry).encode(), Operators)
    deep = operators(*((f"n{i}", [f"n{i + 1}"]) for i in range(300)), ("n300", []))
    assert "deep" in refused(deep, Operators).problem


def test_what_an_operator_needs_comes_before_it_and_once() -> None:
    raw = json.dumps(operators(("c", ["a", "b"]), ("b", ["a"]), ("a", []))).encode()
    registry = read_form("x.json", raw, Operators).by_id()
    assert with_dependencies(["c", "a", "unknown"], registry) == ["a", "b", "c"]
