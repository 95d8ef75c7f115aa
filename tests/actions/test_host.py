"""One action is run once, or refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actions import outside
from tests.fakes import START, MemoryJournal, MemorySelfLog, batch, delivery

from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.host import Tools
from kernel_gamma.actions.registry import build_registry
from kernel_gamma.contracts.effects import Batch, Emit
from kernel_gamma.contracts.payloads import Action, ActionPayload
from kernel_gamma.contracts.ports import ToolResult
from kernel_gamma.settings import Settings

BATCH = batch(delivery({}))


class Desk:
    def __init__(self, tools: dict[str, Any] | None = None, **settings: Any) -> None:
        outside.CALLS.clear()
        self.journal = MemoryJournal()
        registry = build_registry(BUILTINS, {"tools": tools or {}})
        self.tools = Tools(
            registry,
            journal=self.journal,
            self_log=MemorySelfLog(),
            settings=Settings.model_validate(settings),
        )

    async def run(
        self,
        tool: str,
        arguments: dict[str, Any],
        trust: str = "unknown",
        in_batch: Batch = BATCH,
        late: bool = False,
    ) -> ToolResult:
        action = Action(id="act_1", tool=tool, arguments=arguments, idempotency_key="key_1")
        order = ActionPayload.model_validate(
            {"passage_id": "p", "actions": [action], "to": "alice", "trust": trust}
        )
        return await self.tools.run(action, order, batch=in_batch, trace_id="t", now=START, late=late)


def own(name: str, **fields: Any) -> dict[str, Any]:
    entry = {"class": f"tests.actions.outside:{name}", "description": "x", "min_trust": "unknown"}
    return {name: entry | fields}


async def test_an_unknown_tool_and_bad_arguments_are_refused() -> None:
    desk = Desk()
    unknown = await desk.run("fly", {})
    assert unknown.refused and "there is no tool fly" in unknown.error
    wrong = await desk.run("send_message", {"words": "hi"})
    assert wrong.refused and wrong.effects == ()


async def test_off_and_missing_trust_are_refused_before_arguments_are_looked_at() -> None:
    off = await Desk({"recall": {"permission": "off"}}).run("recall", {})
    assert off.refused and "switched off" in off.error
    poor = await Desk({"recall": {"min_trust": "owner"}}).run("recall", {}, "known")
    assert poor.refused and "needs an event trusted as owner" in poor.error


async def test_ask_puts_that_one_action_before_a_person() -> None:
    result = await Desk({"remember": {"permission": "ask"}}).run("remember", {"topic": "a", "text": "b"})
    assert result.refused and not result.ok
    (effect,) = result.effects
    assert isinstance(effect, Emit) and effect.directory == "approvals/pending"
    assert [action["tool"] for action in effect.payload["actions"]] == ["remember"]


async def test_a_builtin_leaves_no_trace_in_the_journal_and_is_told_as_configured() -> None:
    desk = Desk()
    noted = await desk.run("send_message", {"text": "hi"})
    assert noted.ok and not noted.perceive and noted.note.startswith("I replied")
    assert (await desk.run("recall", {"query": "hi"})).perceive
    assert desk.journal.ran == []
    loud = await Desk({"send_message": {"outcome": "perceive"}}).run("send_message", {"text": "hi"})
    assert loud.perceive and len(loud.effects) == 1


async def test_notes_are_in_the_language_of_the_words_or_of_the_setting() -> None:
    assert (await Desk().run("send_message", {"text": "五点见"})).note.startswith("我回复了")
    fixed = await Desk(language="en").run("send_message", {"text": "五点见"})
    assert fixed.note.startswith("I replied")


async def test_a_tool_that_leaves_runs_once_with_its_key() -> None:
    desk = Desk(own("water"))
    first = await desk.run("water", {"minutes": 2})
    second = await desk.run("water", {"minutes": 2})
    assert first == second == ToolResult(True, {"litres": 2}, note="I used water, and it worked.")
    assert outside.CALLS == [({"minutes": 2}, "key_1")]
    assert desk.journal.ran == [("batch_1", "tool.act_1", "tool")]


async def test_what_it_raises_is_its_failure() -> None:
    result = await Desk(own("breaks")).run("breaks", {})
    assert not result.ok and not result.refused and not result.unknown
    assert result.error == "OSError: the pump is dry"


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_tool_that_is_too_slow_may_or_may_not_have_acted(idempotent: bool) -> None:
    desk = Desk(own("dawdles", idempotent=idempotent), actions={"timeout_sec": 0.01})
    result = await desk.run("dawdles", {})
    assert not result.ok and result.unknown is not idempotent
    assert "0.01 s" in result.error


async def test_a_result_that_is_no_json_is_kept_as_its_text() -> None:
    assert (await Desk(own("odd")).run("odd", {})).result == "{1}"


async def test_death_in_the_middle_is_unknown_unless_the_tool_is_idempotent() -> None:
    desk = Desk(own("water"))
    desk.journal.intents.add(("batch_1", "tool.act_1"))
    lost = await desk.run("water", {})
    assert lost.unknown and not lost.ok and outside.CALLS == []
    desk = Desk(own("water", idempotent=True))
    desk.journal.intents.add(("batch_1", "tool.act_1"))
    assert (await desk.run("water", {})).ok
    assert outside.CALLS == [({}, "key_1")]


async def test_what_is_late_is_not_begun_and_what_was_begun_in_time_has_its_receipt() -> None:
    desk = Desk(tools=own("water"))
    assert (await desk.run("send_message", {"text": "a"}, late=True)).expired
    late = await desk.run("water", {}, late=True)
    assert late.expired and late.refused and not late.ok
    in_time = await desk.run("water", {})
    assert await desk.run("water", {}, late=True) == in_time
    desk.journal.results.clear()  # the process ended while it ran
    assert (await desk.run("water", {}, late=True)).unknown
