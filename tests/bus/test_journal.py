"""A repeated handler repeats nothing; a tool without a receipt is unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import batch, delivery
from tests.harness import Rig, finish, node_class

from kernel_gamma.bus.journal import LedgerJournal
from kernel_gamma.bus.steps import KillSwitch
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import OutcomeUnknown

BATCH = batch(delivery({}))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = await Rig(tmp_path, {"a": node_class(finish)}).start(circuit=False)
    yield made
    await made.stop()


def journal(rig: Rig) -> LedgerJournal:
    return LedgerJournal(rig.bus.disk, rig.clock, KillSwitch(None))


class Runs:
    """Counts its runs; raises on the first when told to."""

    def __init__(self, result: Json = None, *, fails: bool = False) -> None:
        self.result, self.fails, self.count = result, fails, 0

    async def __call__(self) -> Json:
        self.count += 1
        if self.fails and self.count == 1:
            raise ConnectionError("cut")
        return self.result


@pytest.mark.parametrize("result", [None, {"text": "lone \ud800"}, [1, "二"], "words", "长" * 2000])
async def test_a_step_runs_once_and_its_result_is_kept(rig: Rig, result: Json) -> None:
    run = Runs(result)
    for _ in range(3):
        assert await journal(rig).once(BATCH, "s", run, kind="tool") == result
    assert run.count == 1
    await journal(rig).once(batch(delivery({}), id="batch_2"), "s", run, kind="tool")
    await journal(rig).once(BATCH, "other", run, kind="tool")
    assert run.count == 3


@pytest.mark.parametrize("result", [{"ok": True}, {"ok": True, "result": "words " * 500}])
async def test_what_ran_before_is_kept_for_who_comes_too_late(rig: Rig, result: Json) -> None:
    assert await journal(rig).kept(BATCH, "s") is None
    await journal(rig).once(BATCH, "s", Runs(result), kind="tool")
    assert await journal(rig).kept(BATCH, "s") == result


async def test_a_model_call_without_an_answer_is_simply_made_again(rig: Rig) -> None:
    run = Runs("answer", fails=True)
    with pytest.raises(ConnectionError):
        await journal(rig).once(BATCH, "s", run, kind="model")
    assert await journal(rig).once(BATCH, "s", run, kind="model") == "answer"


async def test_a_tool_without_a_receipt_may_have_run(rig: Rig) -> None:
    run = Runs(fails=True)
    with pytest.raises(ConnectionError):
        await journal(rig).once(BATCH, "s", run, kind="tool")
    with pytest.raises(OutcomeUnknown):
        await journal(rig).once(BATCH, "s", run, kind="tool")
    assert run.count == 1


async def test_an_idempotent_tool_is_run_again(rig: Rig) -> None:
    run = Runs("done", fails=True)
    with pytest.raises(ConnectionError):
        await journal(rig).once(BATCH, "s", run, kind="tool", again=True)
    assert await journal(rig).once(BATCH, "s", run, kind="tool", again=True) == "done"
