"""`kgamma backup` and `restore` from the shell: what is printed, exit codes, a mind that goes on."""

from __future__ import annotations

import json

from tests.cli.conftest import Shell

from kernel_gamma.bus.lock import hold, let_go


def test_a_mind_goes_on_in_another_home(kgamma: Shell) -> None:
    kgamma.drop("hello.json", '{"text": "你好", "from": "小明"}'.encode())
    kgamma.live()
    file = kgamma.home.parent / "mind.tar.gz"
    done = kgamma("backup", str(file), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["mind"] == "main"
    assert "is whole" in kgamma("backup", str(file), "--verify").stdout
    again = kgamma("backup", str(file))
    assert (again.exit_code, "is there already" in again.stderr) == (1, True)

    second = Shell(kgamma.home.parent / "second")
    restored = second("restore", str(file))
    assert restored.exit_code == 0, restored.stderr
    assert ".env" in restored.stderr
    assert "你好" in (second.data / "self/stream/now.md").read_text()
    second.drop("more.json", b'{"text": "and on it goes", "from": "alice"}')
    second.live()
    assert "and on it goes" in (second.data / "self/stream/now.md").read_text()


def test_a_living_or_standing_mind_is_not_written_over(kgamma: Shell) -> None:
    kgamma.live()
    file = kgamma.home.parent / "mind.tar.gz"
    assert kgamma("backup", str(file), "--data-only").exit_code == 0
    refused = kgamma("restore", str(file))
    assert refused.exit_code == 1 and "--replace" in refused.stderr
    lock = hold(kgamma.data)
    try:
        held = kgamma("restore", str(file), "--replace")
        assert held.exit_code == 3
    finally:
        let_go(kgamma.data, lock)
    done = kgamma("restore", str(file), "--replace", "--json")
    assert done.exit_code == 0, done.stderr
    (aside,) = json.loads(done.stdout)["set_aside"]
    assert aside.endswith("kernel.replaced-1")
    assert (kgamma.home / "config/kernel.yaml").exists()
    kgamma.live()


def test_a_damaged_file_is_one_line(kgamma: Shell) -> None:
    file = kgamma.home.parent / "no.tar.gz"
    file.write_bytes(b"no")
    for command in (["backup", str(file), "--verify"], ["restore", str(file), "--replace"]):
        done = kgamma(*command)
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1 and "no.tar.gz" in done.stderr
