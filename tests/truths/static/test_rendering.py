from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.truths.static.conftest import PLACES, counting
from tests.truths.static.test_shipped import FILES

from kernel_gamma.errors import SettingsError
from kernel_gamma.truths.static.rendering import build, joined, operators_section

WORDS = st.text("abc 磁盘é", min_size=1, max_size=30).filter(lambda text: text.strip() != "")


def words(text: str) -> int:
    """A cheap count, for texts of any kind."""
    return len(text) // 4


def with_json(file: str, **changes: Any) -> dict[str, bytes]:
    return {**FILES, file: json.dumps({**json.loads(FILES[file]), **changes}).encode()}


def shuffled(value: Any, pick: Any) -> Any:
    """The same document, its keys in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], pick) for key in pick(list(value))}
    return [shuffled(one, pick) for one in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(st.data())
def test_the_text_does_not_depend_on_the_order_of_keys(data: st.DataObject) -> None:
    def pick(keys: list[Any]) -> list[Any]:
        return data.draw(st.permutations(keys))

    files: dict[str, bytes] = {}
    for file, raw in FILES.items():
        if file.endswith(".json"):
            files[file] = json.dumps(shuffled(json.loads(raw), pick)).encode()
        elif file.endswith(".yaml"):
            files[file] = yaml.safe_dump(shuffled(yaml.safe_load(raw), pick), sort_keys=False).encode()
        else:
            files[file] = raw
    expected, found = build(FILES, PLACES, words), build(files, PLACES, words)
    assert joined(found.sections("full")) == joined(expected.sections("full"))
    assert operators_section(found, found.operators).text == operators_section(found, expected.operators).text


@settings(deadline=None)
@given(WORDS, WORDS, WORDS, st.lists(WORDS, min_size=9, max_size=9))
def test_lean_is_the_beginning_of_full_byte_for_byte(a: str, b: str, c: str, shorts: list[str]) -> None:
    files = with_json("config/identity.json", did=a, provenance=b)
    axioms = [{"id": f"a{n}", "text": "t", "short": short} for n, short in enumerate(shorts)]
    files |= with_json("config/meta_axioms.json", axioms=axioms) | {
        "config/identity.json": files["config/identity.json"]
    }
    files["config/metalaws/90-more.json"] = json.dumps({"id": "more", "title": c, "text": b}).encode()
    block = build(files, PLACES, words)
    lean, full = joined(block.sections("lean")), joined(block.sections("full"))
    assert full.startswith(f"{lean}\n\n")
    assert full.encode().startswith(lean.encode())
    assert all(section.text == section.text.strip() for section in block.sections("full"))


def test_the_sections_stand_in_their_order_and_say_what_they_are_made_of() -> None:
    block = build(FILES, PLACES, counting())
    assert [section.name for section in block.sections("full")] == [
        "meta_axioms", "identity", "metalaws", "metalaw_texts", "steady_core", "kernel_skeleton",
    ]  # fmt: skip
    assert [section.lean for section in block.sections("full")] == [True] * 3 + [False] * 3
    assert all(section.forced for section in block.sections("full"))
    texts = {section.name: section.text for section in block.sections("full")}
    assert "Configuration drift" in texts["metalaws"]
    assert "Approved configuration counts" not in texts["metalaws"]
    assert "Approved configuration counts" in texts["metalaw_texts"]
    assert "evidence 0.3, safety 0.25" in texts["steady_core"]
    assert "gateway 9120" in texts["kernel_skeleton"]
    assert "gather-evidence" not in joined(block.sections("full"))
    assert block.truths["two-pools"].name == "truth.two-pools"
    assert not block.truths["two-pools"].forced


def test_only_the_short_form_of_an_axiom_stands_in_the_prompt() -> None:
    text = joined(build(FILES, PLACES, counting()).lean)
    for axiom in json.loads(FILES["config/meta_axioms.json"])["axioms"]:
        assert axiom["short"] in text
        assert axiom["text"] not in text


LONG = "word " * 600


@pytest.mark.parametrize(
    ("file", "changes", "budget"),
    [
        ("config/identity.json", {"provenance": LONG}, 100),
        ("config/meta_axioms.json", {"constitution": {"text": "t", "short": LONG}}, 300),
        ("config/uni_steady_core.json", {"version": LONG}, 200),
    ],
)
def test_a_section_over_its_budget_is_named_with_its_tokens(file: str, changes: Any, budget: int) -> None:
    with pytest.raises(SettingsError) as caught:
        build(with_json(file, **changes), PLACES, counting())
    assert (caught.value.file, caught.value.key) == (file, "budget")
    assert f"{budget} are allowed" in caught.value.problem
    assert int(caught.value.problem.split()[1]) > 600


def test_metalaws_share_one_budget_and_are_three_to_five() -> None:
    law = {"id": "long", "title": "Long", "text": LONG}
    with pytest.raises(SettingsError) as caught:
        build({**FILES, "config/metalaws/99.json": json.dumps(law).encode()}, PLACES, counting())
    assert (caught.value.file, caught.value.key) == ("config/metalaws", "budget")
    fewer = {file: raw for file, raw in FILES.items() if "30-" not in file}
    with pytest.raises(SettingsError, match="there are 2 approved metalaws"):
        build(fewer, PLACES, counting())
    same = {**FILES, "config/metalaws/99.yaml": FILES["config/metalaws/10-order-of-operations.yaml"]}
    with pytest.raises(SettingsError, match="another metalaw has the id"):
        build(same, PLACES, counting())


def test_what_is_loaded_on_demand_fits_by_itself() -> None:
    with pytest.raises(SettingsError, match="400 are allowed"):
        build({**FILES, "config/core/truth/long.md": LONG.encode()}, PLACES, counting())
    operator = {"id": "long", "definition": LONG, "depends_on": [], "inputs": [], "outputs": []}
    with pytest.raises(SettingsError, match=r"operators\.long"):
        build(with_json("config/op_library/registry.json", operators=[operator]), PLACES, counting())


def test_without_operators_and_truths_all_the_rest_stands() -> None:
    files = {file: raw for file, raw in FILES.items() if "/core/" not in file and "/op_" not in file}
    block = build(files, PLACES, counting())
    assert (dict(block.operators), dict(block.truths)) == ({}, {})


@pytest.mark.parametrize(
    "file", [f for f in sorted(FILES) if "/core/" not in f and "/op_" not in f and "laws" not in f]
)
def test_a_forced_section_that_was_never_approved_is_named(file: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build({name: raw for name, raw in FILES.items() if name != file}, PLACES, counting())
    assert caught.value.file == file
    assert "kgamma init" in caught.value.mend
