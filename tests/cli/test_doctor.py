from __future__ import annotations

import json
from typing import Any


def test_a_sound_home_ends_with_0(kgamma: Any) -> None:
    done = kgamma("doctor")
    assert done.exit_code == 0, done.stdout
    assert "fail" not in done.stdout
    found = json.loads(kgamma("doctor", "--json").stdout)
    assert found["ok"] is True
    assert {check["check"] for check in found["checks"]} >= {
        "settings",
        "prompts",
        "topology",
        "data",
        "model",
    }


def test_a_failure_ends_with_1_and_its_mend(kgamma: Any) -> None:
    (kgamma.home / "config/topology.yaml").write_text("nodes:\n  - {id: inner, class: Internaliser}\n")
    done = kgamma("doctor")
    assert done.exit_code == 1
    assert "fail topology" in done.stdout
    assert "did you mean Internalizer?" in done.stdout


def test_without_a_home_it_says_how_to_make_one(kgamma: Any) -> None:
    (kgamma.home / "config/kernel.yaml").unlink()
    done = kgamma("doctor")
    assert done.exit_code == 1
    assert "no mind lives here" in done.stderr
    assert "kgamma init" in done.stderr


def test_who_holds_the_mind_is_told(awake: Any) -> None:
    assert "running, process" in awake("doctor").stdout
