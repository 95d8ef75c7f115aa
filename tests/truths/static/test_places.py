from __future__ import annotations

import pytest
from tests.truths.static.conftest import PLACES

from kernel_gamma.contracts.truths import check_key
from kernel_gamma.errors import SettingsError
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.places import Places, slug_of


@pytest.mark.parametrize(
    ("file", "section"),
    [
        ("config/meta_axioms.json", "meta_axioms"),
        ("config/metalaws/a.json", "metalaws"),
        ("config/metalaws/规则.yaml", "metalaws"),
        ("config/metalaws/a.md", None),
        ("config/metalaws/sub/a.yaml", None),
        ("config/metalaws/.a.yaml", None),
        ("config/core/truth/a.md", "truths"),
        ("config/core/truth/a.md~", None),
        ("config/kernel.yaml", None),
        ("meta_axioms.json", None),
    ],
)
def test_a_file_belongs_to_one_section_or_to_none(file: str, section: str | None) -> None:
    assert PLACES.section_of(file) == section


def test_files_may_lie_elsewhere_in_the_home() -> None:
    moved = Places(StaticPaths(operators="op_library/registry.json", truths="core/truth/"))
    assert moved.section_of("op_library/registry.json") == "operators"
    assert moved.section_of("core/truth/a.md") == "truths"
    assert moved.section_of("config/core/truth/a.md") is None


@pytest.mark.parametrize(
    "path", ["/etc/identity.json", "../identity.json", "", ".", "config/meta_axioms.json"]
)
def test_a_path_that_cannot_be_is_told_with_its_setting(path: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Places(StaticPaths(identity=path))
    assert caught.value.key == "static.paths.identity"


@pytest.mark.parametrize("file", ["config/identity.json", "config/core/truth/磁盘.md", "a" * 300, "。。"])
def test_a_path_makes_one_part_of_a_key(file: str) -> None:
    key = f"static.{slug_of(file)}.{'0' * 16}"
    assert check_key(key).count(".") == 2
