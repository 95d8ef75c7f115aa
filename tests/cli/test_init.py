from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from kernel_gamma.cli import app


def test_a_home_is_laid_out_and_never_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "new"
    first = CliRunner().invoke(app, ["init", str(target)])
    assert first.exit_code == 0
    assert "config/kernel.yaml" in first.stdout
    assert f"next: kgamma run --home {target}" in first.stdout
    (target / "config/kernel.yaml").write_text("mind: mine\n")
    again = CliRunner().invoke(app, ["init", str(target), "--json"])
    assert json.loads(again.stdout) == {"home": str(target), "written": []}
    assert (target / "config/kernel.yaml").read_text() == "mind: mine\n"


def test_home_names_the_directory_too_but_not_another_one(kgamma: Any, tmp_path: Path) -> None:
    assert kgamma("init").exit_code == 0
    assert kgamma("init", str(tmp_path / "other")).exit_code == 2


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["init", str(tmp_path / "file/home")])
    assert done.exit_code == 1
    assert "cannot be written" in done.stderr
