from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


def test_the_tour_shows_everything_and_leaves_nothing(kgamma: Any, tmp_path: Path) -> None:
    environ = {**kgamma.environ, "TMPDIR": str(tmp_path), "OPENAI_API_KEY": "must-not-be-used"}
    done = subprocess.run(
        [sys.executable, "-m", "kernel_gamma", "demo"],
        capture_output=True,
        text=True,
        env=environ,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "I hear from alice", "Hello, alice!", "我每天早上喝绿茶", "self/memories/小明.md", "self/diary/",
        "somebody came to visit", "dead_letter/", "message_preprocessor: finished", "kgamma init",
    ):  # fmt: skip
        assert words in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("kgamma-demo")] == []


def test_a_home_that_is_one_already_is_left_alone(kgamma: Any) -> None:
    assert kgamma("demo").exit_code == 2
    assert not kgamma.data.exists()
