"""config/tools.yaml: what it may change, and what it is told when it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.fakes import PROMPTS

from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.registry import Registry, build_registry
from kernel_gamma.errors import SettingsError

OWN = {"class": "tests.actions.outside:water", "description": "Water the plants."}


def build(**tools: Any) -> Registry:
    return build_registry(BUILTINS, {"tools": tools})


def test_the_shipped_file_says_what_the_builtins_are_anyway() -> None:
    text = Path(PROMPTS.parent, "config", "tools.yaml").read_text(encoding="utf-8")
    assert build_registry(BUILTINS, yaml.safe_load(text)) == build_registry(BUILTINS, None)


def test_a_builtin_is_changed_by_its_entry() -> None:
    spec = build(recall={"permission": "ask", "min_trust": "owner", "outcome": "note"}).get("recall")
    assert spec is not None
    assert (spec.permission, spec.min_trust, spec.outcome) == ("ask", "owner", "note")


def test_a_bare_off_in_yaml_is_off() -> None:
    found = build_registry(BUILTINS, yaml.safe_load("tools: {recall: {permission: off}}"))
    assert "recall" not in [tool["name"] for tool in found.catalogue("owner", "en")]


def test_a_tool_of_ones_own_needs_known_trust_unless_it_says_otherwise() -> None:
    registry = build(water=OWN | {"idempotent": True})
    spec = registry.get("water")
    assert spec is not None and spec.outside is not None
    assert (spec.min_trust, spec.outcome, spec.idempotent) == ("known", "perceive", True)
    assert registry.catalogue("unknown", "en") == build().catalogue("unknown", "en")
    assert registry.catalogue("known", "zh")[-1]["description"] == "Water the plants."


def test_the_catalogue_speaks_both_languages_and_is_made_once() -> None:
    registry = build()
    assert "日记" in registry.catalogue("unknown", "zh")[1]["description"]
    assert "diary" in registry.catalogue("unknown", "en")[1]["description"]
    assert registry.catalogue("unknown", "en") is registry.catalogue("unknown", "en")
    assert registry.catalogue("web", "en") == []


@pytest.mark.parametrize(
    ("document", "key", "said"),
    [
        ({"tool": {}}, "tool", "did you mean tools?"),
        ({"tools": []}, "tools", "mapping"),
        ({"tools": {"send_mesage": {}}}, "tools.send_mesage", "did you mean send_message?"),
        ({"tools": {"x": {"permission": "ask"}}}, "tools.x", "module:callable"),
        ({"tools": {"recall": {"permision": "ask"}}}, "tools.recall.permision", "permission?"),
        ({"tools": {"recall": {"permission": "yes"}}}, "tools.recall.permission", "free, ask, off"),
        ({"tools": {"recall": {"min_trust": "all"}}}, "tools.recall.min_trust", "owner"),
        ({"tools": {"recall": OWN}}, "tools.recall", "built in"),
        ({"tools": {"a b": OWN}}, "tools.a b", "letters"),
        ({"tools": {"w": OWN | {"descripton": ""}}}, "tools.w.descripton", "description?"),
        ({"tools": {"w": {"class": OWN["class"]}}}, "tools.w.description", "missing"),
        ({"tools": {"w": OWN | {"class": "water"}}}, "tools.w.class", "module:callable"),
        ({"tools": {"w": OWN | {"class": "no.such:thing"}}}, "tools.w.class", "no.such"),
        (
            {"tools": {"w": OWN | {"class": "tests.actions.outside:not_async"}}},
            "tools.w.class",
            "async",
        ),
        ({"tools": {"w": OWN | {"parameters": {"type": 3}}}}, "tools.w.parameters", "Schema"),
        ({"tools": {"w": OWN | {"parameters": {"type": "string"}}}}, "tools.w.parameters", "object"),
        ({"tools": {"w": OWN | {"idempotent": "yes"}}}, "tools.w.idempotent", "true or false"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_mend(document: Any, key: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build_registry(BUILTINS, document)
    assert (caught.value.file, caught.value.key) == ("config/tools.yaml", key)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("send_message", {"text": "hi"}, None),
        ("send_message", {}, "'text' is a required property"),
        ("send_message", {"text": 3}, "argument text: 3 is not of type 'string'"),
        ("send_message", {"text": "hi", "cc": "x"}, "unexpected"),
        ("recall", {"query": "x", "limit": 99}, "argument limit"),
        ("fly\n", {}, "there is no tool fly; there are send_message,"),
    ],
)
def test_arguments_are_checked_against_the_schema(
    name: str, arguments: dict[str, Any], said: str | None
) -> None:
    problem = build().problem(name, arguments)
    assert problem is None if said is None else said in str(problem)


VALUES = ["words", "", 3, True, None, 2.0, ["x"], {"a": "b"}]


@pytest.mark.parametrize("given", VALUES)
@pytest.mark.parametrize("kind", ["string", "integer", "boolean", "number", ["string", "null"]])
@pytest.mark.parametrize("more", [{}, {"description": "…"}, {"enum": ["words", 3]}, {"maxLength": 2}])
def test_the_quick_look_at_arguments_never_differs_from_the_schema(kind: Any, more: Any, given: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": kind} | more, "b": {"type": "string"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    open_ended = {"additionalProperties": {"type": "string"}}
    for rules in (schema, schema | {"minProperties": 2}, schema | open_ended):
        registry = build(water=OWN | {"parameters": rules})
        validator = Draft202012Validator(rules)
        for arguments in ({"a": given, "b": "x"}, {"a": given}, {"b": given}, {"b": "x", "c": given}):
            assert (registry.problem("water", arguments) is None) == validator.is_valid(arguments)
