from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any


def test_once_drains_and_ends_well_also_with_dead_letters(kgamma: Any) -> None:
    kgamma.drop("a.json", '{"text": "你好", "from": "小明"}'.encode())
    kgamma.drop("bad.json", b"{nope")
    done = kgamma.process("run", "--once", "--no-gateway")
    assert done.returncode == 0, done.stderr
    for words in (
        "model    none, as model.mode: offline asks", "files    noticed by",
        "perceived  小明: 你好", "said       to 小明 (console): 你好，小明！",
        "set aside  bad.json: not_json", "stopped    all that was pending is dealt with",
    ):  # fmt: skip
        assert words in done.stdout
    assert "OPENAI_API_KEY" not in done.stdout, "it was asked to have no model"
    assert "\x1b" not in done.stdout


def test_once_with_a_rest_that_has_to_wait_ends_with_1_and_the_reason(kgamma: Any) -> None:
    kgamma.drop("a.json", b'{"text": "hello"}')
    nobody = {
        "KGAMMA_MODEL__MODE": "online",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "KGAMMA_MODEL__RETRIES": "0",
    }
    done = kgamma.process("run", "--once", **nobody)
    assert done.returncode == 1
    assert re.search(r"waits      internalizer until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: ", done.stdout)
    assert "stopped    1 file waits for the next start" in done.stdout
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_newcomer_gets_a_home_laid_out_in_an_empty_current_directory(kgamma: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    (empty / "data").mkdir(parents=True)
    (empty / ".env").write_text("")
    done = kgamma.process("run", "--once", cwd=empty)
    assert done.returncode == 0, done.stderr
    assert "was no home yet" in done.stdout
    assert (empty / "config/kernel.yaml").exists()


def test_a_mistyped_home_gets_no_mind(kgamma: Any, tmp_path: Path) -> None:
    kgamma.home = tmp_path / "mistyped"
    for _ in range(2):
        done = kgamma("run", "--once")
        assert done.exit_code == 1
        assert f"kgamma init {kgamma.home}" in done.stderr
        assert not list(tmp_path.glob("mistyped/*"))
        kgamma.home.mkdir(exist_ok=True)


def test_a_folder_of_something_else_gets_no_mind(kgamma: Any, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("")
    done = kgamma.process("run", "--once", cwd=tmp_path)
    assert done.returncode == 1
    assert "no mind lives here" in done.stderr
    assert not (tmp_path / "config").exists()


def test_the_banner_asks_for_a_key_and_warns_of_what_is_wired_wrongly(kgamma: Any) -> None:
    file = kgamma.home / "config/topology.yaml"
    file.write_text("nodes:\n  - id: internalizer\n    class: Internalizer\n")
    done = kgamma("run", "--once", KGAMMA_MODEL__MODE="auto")
    assert done.exit_code == 0, done.stderr
    assert "model    none: rules and templates answer" in done.stdout
    assert f"OPENAI_API_KEY=… into {kgamma.home / '.env'}" in done.stdout
    assert "warning  internalizer watches pipeline/message_queue" in done.stdout


def test_ctrl_c_ends_it_with_a_last_line(kgamma: Any) -> None:
    with kgamma.terminal("run") as terminal:
        terminal.wait_for("stop     Ctrl+C")
        terminal.process.send_signal(signal.SIGINT)
        assert "stopped    as asked; nothing is lost" in terminal.to_the_end().splitlines()[-1]
        assert terminal.process.returncode == 0


def test_a_second_daemon_ends_with_3_and_says_who(awake: Any) -> None:
    done = awake.process("run")
    assert done.returncode == 3
    pid = json.loads(awake("status", "--json").stdout)["pid"]
    assert f"held by process {pid}" in done.stderr


def test_a_signal_ends_it_well(kgamma: Any) -> None:
    with kgamma.daemon() as process:
        assert kgamma.running()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert not kgamma.running()


def test_a_wrong_setting_is_one_line(kgamma: Any) -> None:
    done = kgamma("run", KGAMMA_BUS__WINDOW="many")
    assert done.exit_code == 1
    assert "KGAMMA_BUS__WINDOW: bus.window: must be a valid integer" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_folder_that_cannot_be_made_is_one_line(kgamma: Any) -> None:
    (kgamma.home / "file").write_text("")
    done = kgamma("run", KGAMMA_DATA_DIR="file/kernel")
    assert done.exit_code == 1
    assert "file/kernel" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_does_not_end_the_mind(kgamma: Any) -> None:
    kgamma.drop("a.json", b'{"text": "hello"}')
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        kgamma.command("run", "--once"),
        stdout=writing,
        stderr=subprocess.PIPE,
        env=kgamma.environ,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert "Hello!" in kgamma("stream").stdout
