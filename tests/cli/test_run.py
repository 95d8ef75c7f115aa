from __future__ import annotations

import json
import os
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
        "model    none: rules and templates answer", "OPENAI_API_KEY", "files    noticed by",
        "perceived  小明: 你好", "said       to 小明 (console): 你好，小明！",
        "set aside  bad.json: not_json",
    ):  # fmt: skip
        assert words in done.stdout
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
    assert "waits      internalizer until" in done.stdout
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_newcomer_gets_a_home_laid_out(kgamma: Any, tmp_path: Path) -> None:
    kgamma.home = tmp_path / "empty"
    kgamma.home.mkdir()
    done = kgamma.process("run", "--once")
    assert done.returncode == 0, done.stderr
    assert "was no home yet" in done.stdout
    assert (kgamma.home / "config/kernel.yaml").exists()


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
    done = kgamma.process("run", KGAMMA_BUS__WINDOW="many")
    assert done.returncode == 1
    assert "KGAMMA_BUS__WINDOW: bus.window: must be a valid integer" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_folder_that_cannot_be_made_is_one_line(kgamma: Any) -> None:
    (kgamma.home / "file").write_text("")
    done = kgamma.process("run", KGAMMA_DATA_DIR="file/kernel")
    assert done.returncode == 1
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
