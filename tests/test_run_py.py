"""run.py as a person starts it: a fake installation for the quick tests, a real one for the slow."""

from __future__ import annotations

import ast
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import run

SOURCE = Path(run.__file__)

# A build backend in the project's own folder: pip installs it for real, and needs no network.
BACKEND = """
import base64, hashlib, zipfile
INFO = "tiny-1.dist-info"
FILES = {
    "tiny_kgamma.py": "import os, sys\\n\\ndef main():\\n"
        "    print('tiny', os.getcwd(), *sys.argv[1:])\\n"
        "    return 7 if 'fail' in sys.argv else 0\\n",
    INFO + "/METADATA": "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\nProvides-Extra: test\\n",
    INFO + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    INFO + "/entry_points.txt": "[console_scripts]\\nkgamma = tiny_kgamma:main\\n",
}

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    record = "".join(f"{name},,\\n" for name in FILES) + f"{INFO}/RECORD,,\\n"
    with zipfile.ZipFile(f"{wheel_directory}/tiny-1-py3-none-any.whl", "w") as wheel:
        for name, text in {**FILES, INFO + "/RECORD": record}.items():
            wheel.writestr(name, text)
    return "tiny-1-py3-none-any.whl"

build_wheel = build_editable
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1"
[project.optional-dependencies]
test = []
"""


@pytest.fixture
def checkout(tmp_path: Path) -> run.Checkout:
    """A folder with run.py and a project of its own, nothing installed."""
    root = tmp_path / "check out"
    root.mkdir()
    shutil.copy(SOURCE, root / "run.py")
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "backend.py").write_text(BACKEND)
    return run.Checkout(root)


def pretend_installed(checkout: run.Checkout, *extras: str) -> None:
    """Stand-ins for the programs of .venv, and the stamp of a finished installation."""
    (checkout.venv / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("kgamma", "python"):
        program = checkout.program(name)
        program.write_text(
            f'#!/bin/sh\necho "{name} in $PWD:" "$@"\n'
            'case $1 in how) echo "called $KGAMMA_COMMAND" ;; esac\nexit 7\n'
        )
        program.chmod(0o755)
    checkout.mark(frozenset(extras))


def command(checkout: run.Checkout, *arguments: str) -> list[str]:
    return [sys.executable, str(checkout.root / "run.py"), *arguments]


def start(
    checkout: run.Checkout, *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(checkout, *arguments),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_no_arguments_run_the_daemon() -> None:
    assert run.understand([]).argv == ("kgamma", "run")


def test_arguments_are_kgammas_and_go_through_untouched() -> None:
    asked = run.understand(["say", "--help", "test"])
    assert asked == run.Start(("kgamma", "say", "--help", "test"))


def test_test_runs_pytest_with_the_test_tools_in_the_checkout() -> None:
    asked = run.understand(["test", "-k", "bus"])
    assert asked.argv == ("python", "-m", "pytest", "-k", "bus")
    assert asked.extras == {"test"}
    assert asked.in_checkout


def test_the_whole_suite_uses_every_processor_and_a_part_of_it_one() -> None:
    assert run.understand(["test"]).argv == ("python", "-m", "pytest", *run.SIDE_BY_SIDE)
    assert "-n" in run.SIDE_BY_SIDE
    assert "-n" not in run.understand(["test", "tests/bus"]).argv


def test_an_older_python_can_read_the_file_as_far_as_its_message() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 7))
    check = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [
        name.name
        for node in tree.body[: tree.body.index(check)]
        if isinstance(node, ast.Import)
        for name in node.names
    ]
    assert imported == ["sys"], "a newer module imported first would hide the message"


def test_an_installed_checkout_starts_at_once_and_passes_the_exit_code(
    checkout: run.Checkout, tmp_path: Path
) -> None:
    pretend_installed(checkout)
    done = start(checkout, "say", "good morning", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, f"kgamma in {tmp_path}: say good morning\n")
    assert done.stderr == ""


def test_the_command_is_told_how_it_was_called(checkout: run.Checkout) -> None:
    pretend_installed(checkout)
    done = subprocess.run(
        ["python3", "run.py", "how"],
        cwd=checkout.root,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "called python3 run.py\n" in done.stdout, done.stderr
    assert run.as_called("python3", "my run.py") == "python3 'my run.py'"


def test_an_interpreter_the_shell_finds_is_named_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert run.as_called(str(python), "run.py") == f"{python} run.py", "its name alone would not start it"
    monkeypatch.setenv("PATH", str(python.parent))
    assert run.as_called(str(python), "run.py") == "python3 run.py"


def test_help_explains_run_py_first_and_then_kgamma(checkout: run.Checkout, tmp_path: Path) -> None:
    pretend_installed(checkout)
    told = start(checkout, "--help", cwd=tmp_path).stdout
    assert told.index("python3 run.py test") < told.index("kgamma in")


def test_pytest_runs_in_the_checkout_from_anywhere(checkout: run.Checkout, tmp_path: Path) -> None:
    pretend_installed(checkout, "test")
    done = start(checkout, "test", "-x", cwd=tmp_path)
    assert done.stdout == f"python in {checkout.root}: -m pytest -x\n"


def test_only_a_finished_installation_of_this_project_here_counts(checkout: run.Checkout) -> None:
    nothing: frozenset[str] = frozenset()
    assert not checkout.is_ready(nothing)
    pretend_installed(checkout)
    assert checkout.is_ready(nothing)
    assert not checkout.is_ready(frozenset({"test"}))
    checkout.mark(frozenset({"test"}))
    assert checkout.is_ready(nothing)

    checkout.unmark()
    assert not checkout.is_ready(nothing), "interrupted"

    checkout.mark(nothing)
    (checkout.root / "pyproject.toml").write_text(PROJECT + "# changed\n")
    assert not checkout.is_ready(nothing)

    checkout.mark(nothing)
    moved = checkout.root.rename(checkout.root.with_name("moved"))
    assert not run.Checkout(moved).is_ready(nothing)


@pytest.mark.parametrize("stamp", ["", "{", "[]", '{"extras": 3}', "\x00\x00"])
def test_a_damaged_stamp_counts_as_none(checkout: run.Checkout, stamp: str) -> None:
    pretend_installed(checkout)
    (checkout.venv / ".installed.json").write_text(stamp)
    assert not checkout.is_ready(frozenset())


def test_a_half_made_venv_is_not_installed_into(checkout: run.Checkout) -> None:
    assert not checkout.is_usable()
    (checkout.venv / "bin").mkdir(parents=True)
    checkout.program("python").symlink_to("/nowhere/python3")
    assert not checkout.is_usable()


def test_clearing_leaves_the_lock_that_is_held(checkout: run.Checkout) -> None:
    pretend_installed(checkout)
    with checkout.alone():
        checkout.clear()
    assert [entry.name for entry in checkout.venv.iterdir()] == [".lock"]


def test_a_second_start_waits_for_the_first_and_installs_nothing(
    checkout: run.Checkout, tmp_path: Path
) -> None:
    with checkout.alone():
        second = subprocess.Popen(
            command(checkout, "status"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert "waiting" in second.stderr.readline()
        pretend_installed(checkout)
    out, err = second.communicate(timeout=60)
    assert (out, err) == (f"kgamma in {tmp_path}: status\n", "")


def test_the_lock_outlives_a_killed_start_as_long_as_its_installer_runs(
    checkout: run.Checkout,
) -> None:
    with checkout.alone() as lock:
        installer = subprocess.Popen(["sleep", "60"], pass_fds=(lock,))
    descriptor = os.open(checkout.venv / ".lock", os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        installer.kill()
        installer.wait()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        installer.kill()
        installer.wait()
        os.close(descriptor)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("The virtual environment was not created ... ensurepip is not available", "apt-get"),
        ("WARNING: Retrying ... NewConnectionError(...)", "network"),
        ("error: subprocess-exited-with-error", "subprocess-exited-with-error"),
    ],
)
def test_a_failure_says_what_to_do(output: str, says: str) -> None:
    assert says in run.explain(output, Path("install.log"))


@pytest.mark.slow
def test_a_first_start_installs_for_real_and_later_ones_do_not(
    checkout: run.Checkout, tmp_path: Path
) -> None:
    # Interrupted before: half a .venv, no stamp.
    (checkout.venv / "bin").mkdir(parents=True)
    (checkout.venv / "bin/python").symlink_to("/nowhere/python3")
    both = [
        subprocess.Popen(
            command(checkout, "status", str(number)),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    told = [process.communicate(timeout=300) for process in both]
    assert [out for out, _ in told] == [f"tiny {tmp_path} status {n}\n" for n in range(2)]
    assert sum("installing" in line for _, err in told for line in err.splitlines()) == 2, told
    assert sum("kernel-gamma: installed" in err for _, err in told) == 1, "one of them waited"

    again = start(checkout, "fail", cwd=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (7, f"tiny {tmp_path} fail\n", "")

    (checkout.root / "pyproject.toml").write_text(PROJECT + "# changed\n")
    changed = start(checkout, "status", cwd=tmp_path)
    assert changed.returncode == 0
    assert "installing" in changed.stderr
    assert "making" not in changed.stderr


@pytest.mark.slow
def test_a_moved_checkout_gets_a_new_venv_even_from_its_own_python(
    checkout: run.Checkout, tmp_path: Path
) -> None:
    assert start(checkout, "status", cwd=tmp_path).returncode == 0
    moved = run.Checkout(checkout.root.rename(tmp_path / "moved"))
    done = subprocess.run(
        [moved.program("python"), moved.root / "run.py", "status"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, f"tiny {tmp_path} status\n"), done.stderr
    assert "making" in done.stderr


@pytest.mark.slow
def test_without_a_network_it_says_so_and_the_next_start_goes_on(
    checkout: run.Checkout, tmp_path: Path
) -> None:
    needy = PROJECT.replace("requires = []", 'requires = ["hatchling"]')
    (checkout.root / "pyproject.toml").write_text(needy)
    offline = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
    }
    failed = start(checkout, "status", cwd=tmp_path, **offline)
    assert failed.returncode == 1
    assert "needs the network" in failed.stderr
    assert str(checkout.log) in failed.stderr
    (checkout.root / "pyproject.toml").write_text(PROJECT)
    assert start(checkout, "status", cwd=tmp_path, **offline).returncode == 0
