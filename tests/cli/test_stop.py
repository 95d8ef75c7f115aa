from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from kernel_gamma.bus.holding_process import holding_process


def test_a_running_daemon_is_stopped_and_waited_for(kgamma: Any) -> None:
    with kgamma.daemon() as daemon:
        done = kgamma("stop")
        assert (done.exit_code, done.stdout) == (0, "main: stopped\n")
        assert daemon.wait(10) == 0
        assert not kgamma.running()


def test_where_none_runs_the_exit_code_is_4(kgamma: Any) -> None:
    done = kgamma("stop")
    assert done.exit_code == 4
    assert "not running" in done.stderr
    assert not kgamma.data.exists()
    kgamma.live()
    assert kgamma("stop").exit_code == 4


def test_the_number_a_dead_daemon_left_is_nobody_to_stop(kgamma: Any) -> None:
    kgamma.live()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (kgamma.data / "daemon.json").write_text(json.dumps({"pid": stranger.pid}))
        assert kgamma("stop").exit_code == 4
        assert stranger.poll() is None
        stranger.kill()


def test_with_a_strangers_number_the_real_holder_is_stopped(kgamma: Any) -> None:
    with (
        kgamma.daemon() as daemon,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger,
    ):
        (kgamma.data / "daemon.json").write_text(json.dumps({"pid": stranger.pid}))
        found = holding_process(kgamma.data)
        assert found is not None
        assert found.pid == daemon.pid
        found.close()
        assert kgamma("stop").exit_code == 0
        assert daemon.wait(10) == 0
        assert stranger.poll() is None
        stranger.kill()


def test_it_tells_when_the_wait_was_too_short(kgamma: Any) -> None:
    with kgamma.daemon() as daemon:
        daemon.send_signal(signal.SIGSTOP)  # it cannot answer
        try:
            late = kgamma("stop", "--wait", "0.2")
            assert late.exit_code == 1
            assert f"process {daemon.pid} was asked to stop and still runs" in late.stderr
        finally:
            daemon.send_signal(signal.SIGCONT)
        assert daemon.wait(10) == 0


def test_with_no_wait_it_only_asks(kgamma: Any) -> None:
    with kgamma.daemon() as daemon:
        asked = kgamma("stop", "--wait", "0")
        assert (asked.exit_code, "was asked to stop" in asked.stdout) == (0, True)
        assert daemon.wait(10) == 0
