"""The unit is one that systemd takes, stands where it looks, and is removed without the mind."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

from kernel_gamma.errors import SettingsError
from kernel_gamma.service import home_in, unit_name, unit_text


def environ(tmp_path: Path) -> dict[str, str]:
    """No systemd of a user answers there."""
    return {
        "XDG_CONFIG_HOME": str(tmp_path / "xdg"),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "DBUS_SESSION_BUS_ADDRESS": "",
    }


def test_it_is_installed_told_of_and_removed(kgamma: Shell, tmp_path: Path) -> None:
    env = environ(tmp_path)
    done = kgamma("service", "install", "--no-start", **env)
    assert done.exit_code == 0, done.stderr
    unit = tmp_path / "xdg/systemd/user/kernel-gamma-main.service"
    assert home_in(unit.read_text()) == str(kgamma.home)
    assert "systemctl --user" in done.stderr
    told = kgamma("service", "status", **env)
    assert "installed" in told.stdout and "no daemon holds the mind" in told.stdout
    assert kgamma("service", "uninstall", **env).exit_code == 0
    assert not unit.exists()
    assert (kgamma.home / "config/kernel.yaml").exists()
    again = kgamma("service", "uninstall", **env)
    assert again.exit_code == 1 and "no such unit" in again.stderr


def test_the_unit_of_another_mind_is_left_alone(kgamma: Shell, tmp_path: Path) -> None:
    env = environ(tmp_path)
    unit = tmp_path / "xdg/systemd/user/kernel-gamma-main.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(unit_text(Path("/elsewhere"), Path(sys.executable), grace_sec=10))
    for command in (["install", "--no-start"], ["uninstall"]):
        done = kgamma("service", *command, **env)
        assert done.exit_code == 1 and "another mind" in done.stderr
    assert kgamma("service", "install", "--no-start", "--name", "second", **env).exit_code == 0


@pytest.mark.parametrize("home", ["home", "家 home", 'a "b" \\ 100% $HOME'])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, home: str) -> None:
    folder = tmp_path / home
    folder.mkdir()
    text = unit_text(folder, Path(sys.executable), grace_sec=10)
    file = tmp_path / unit_name("main")
    file.write_text(text)
    assert home_in(text) == str(folder)
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    assert parser["Service"]["RestartPreventExitStatus"] == "2 3"
    if shutil.which("systemd-analyze") is None:
        return
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(file)],
        capture_output=True, text=True, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    assert "Unknown" not in checked.stderr and "Invalid" not in checked.stderr, checked.stderr
    assert "kernel-gamma" not in checked.stderr, checked.stderr


def test_a_name_or_path_no_unit_can_have_is_refused() -> None:
    with pytest.raises(SettingsError, match="letters"):
        unit_name("a/b")
    with pytest.raises(SettingsError, match="control"):
        unit_text(Path("/a\nExecStart=evil"), Path("/p"), grace_sec=1)


def test_the_log_is_shown(lived: Shell) -> None:
    shown = lived("service", "logs", "-n", "3")
    assert shown.exit_code == 0
    assert len(shown.stdout.strip().splitlines()) <= 3 and '"event"' in shown.stdout
