"""While somebody wants the bus to stand still nothing is committed; afterwards all is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.harness import Rig, node_class, tell

from kernel_gamma.bus.standstill import Gate, standstill


async def test_nothing_is_accepted_or_committed_meanwhile(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"teller": node_class(tell)}) as rig:
        rig.drop("a.json", {"text": "before"})
        await rig.drained()
        with standstill(tmp_path):
            page = rig.now_md
            rig.drop("b.json", {"text": "meanwhile"})
            rig.bus._tender.look()  # type: ignore[union-attr]
            await asyncio.sleep(0.2)
            assert (rig.now_md, rig.names("inbox/taken")) == (page, [])
        await rig.drained()
        assert "meanwhile" in rig.now_md


async def test_a_start_waits_until_it_is_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"teller": node_class(tell)})
    with standstill(tmp_path):
        starting = asyncio.create_task(rig.start())
        await asyncio.sleep(0.1)
        assert not starting.done()
    await starting
    await rig.stop()


def test_a_backup_that_is_killed_lets_go(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from kernel_gamma.bus.standstill import standstill\n"
        "with standstill(Path(sys.argv[1])): print('still', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "still\n"
    gate = Gate(tmp_path)
    assert not gate.enter()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert gate.enter()
    gate.leave()
    gate.close()
