from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.conftest import QUICK
from typer.testing import CliRunner

import kernel_gamma
from kernel_gamma.cli import COMMANDS, app
from kernel_gamma.cli.terminal import call_it


def test_without_arguments_it_prints_help_and_ends_well(kgamma: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_gamma"],
        capture_output=True,
        text=True,
        env=kgamma.environ,
        check=False,
    )
    assert done.returncode == 0
    for command in COMMANDS:
        assert command in done.stdout


def test_help_loads_neither_the_mind_nor_the_settings() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from kernel_gamma.cli import app;"
        "CliRunner().invoke(app, ['--help']);"
        "heavy = ('kernel_gamma.mind', 'kernel_gamma.daemon', 'openai', 'pydantic');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_has_help_and_takes_a_home(kgamma: Any, name: str) -> None:
    group: Any = typer.main.get_command(app)
    with group.make_context("kgamma", []) as ctx:
        _, command, _ = group.resolve_command(ctx, [name])
    leaves = list(getattr(command, "commands", {}).values()) or [command]
    for leaf in leaves:
        assert leaf.help
        options = {option for param in leaf.params for option in param.opts}
        assert "--home" in options


def test_version(kgamma: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_gamma", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == kernel_gamma.__version__


@pytest.mark.parametrize(
    "args", [("nonsense",), ("say",), ("stream", "-n", "many"), ("dead-letter", "burn", "x"), ("say", " ")]
)
def test_a_wrong_call_ends_with_2(kgamma: Any, args: tuple[str, ...]) -> None:
    assert kgamma(*args).exit_code == 2


def test_a_missing_home_is_one_line_that_says_what_to_do(tmp_path: Path, kgamma: Any) -> None:
    kgamma.home = tmp_path / "nowhere"
    done = kgamma.process("status")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{kgamma.home}: no mind lives here" in done.stderr
    assert f"kgamma init {kgamma.home}" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_wrong_setting_names_file_key_and_mend(kgamma: Any) -> None:
    file = kgamma.home / "config/kernel.yaml"
    file.write_text("bus:\n  setle_sec: 1\n")
    done = kgamma("state")
    assert done.exit_code == 1
    assert f"{file}: bus.setle_sec: unknown key (did you mean bus.settle_sec?)" in done.stderr


def test_the_home_can_come_from_the_environment(kgamma: Any, lived: Any) -> None:
    command = [part for part in kgamma.command("memories", "--json")[:-2]]
    environ = {**kgamma.environ, "KGAMMA_HOME": str(lived.home)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    assert "小明" in done.stdout


def test_the_home_may_stand_before_the_command_and_the_one_behind_wins(lived: Any, tmp_path: Path) -> None:
    for arguments in (
        ["--home", str(lived.home), "memories", "--json"],
        ["--home", str(tmp_path), "memories", "--json", "--home", str(lived.home)],
    ):
        assert "小明" in CliRunner().invoke(app, arguments, env=QUICK).stdout
    before = CliRunner().invoke(app, ["--home", str(lived.home), "dead-letter", "list"], env=QUICK)
    assert "broken.json" in before.stdout
    other = CliRunner().invoke(app, ["--home", str(lived.home), "init", str(tmp_path)])
    assert other.exit_code == 2
    assert "two directories are named" in other.stderr


def test_hints_name_the_command_and_the_home_as_they_have_to_be_typed(kgamma: Any, tmp_path: Path) -> None:
    called = {"KGAMMA_COMMAND": "python3 run.py"}
    here = kgamma.process("status", cwd=kgamma.home, **called)
    assert "(python3 run.py run)" in here.stdout
    assert "Usage: python3 run.py say" in kgamma.process("say", **called).stderr
    call_it("python3 run.py")
    try:
        assert f"(python3 run.py run --home '{kgamma.home}')" in kgamma("status").stdout
        assert f"for `python3 run.py run --home '{kgamma.home}'`" in kgamma("say", "hello").stderr
        kgamma.home = tmp_path
        assert f"python3 run.py init {tmp_path}" in kgamma("status").stderr
    finally:
        call_it("kgamma")


def test_output_survives_a_terminal_that_knows_only_ascii(lived: Any) -> None:
    done = lived.process("stream", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert r"\u5c0f\u660e" in done.stdout
