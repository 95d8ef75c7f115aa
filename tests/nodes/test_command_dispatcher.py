"""Orders are run in their order, and each outcome is told once: noted or perceived."""

from __future__ import annotations

from typing import Any

from tests.fakes import ScriptedTools, World, batch, delivery, emits, envelope, of_kind

from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.host import Tools
from kernel_gamma.actions.registry import build_registry
from kernel_gamma.contracts.effects import Append, DeadLetter, Delivery, Outcome
from kernel_gamma.contracts.payloads import ActionPayload
from kernel_gamma.contracts.ports import ToolResult
from kernel_gamma.nodes.routers.command_dispatcher import CommandDispatcher
from kernel_gamma.settings import Settings


def world(document: Any = None, **settings: Any) -> World:
    found = World(settings=Settings.model_validate(settings))
    found.tools = Tools(
        build_registry(BUILTINS, document),
        journal=found.journal,
        self_log=found.self_log,
        settings=found.settings,
    )
    return found


def order(*actions: tuple[str, dict[str, Any]], hops: int = 0, **fields: Any) -> Delivery:
    payload = ActionPayload.model_validate(
        {
            "passage_id": "psg_1",
            "actions": [
                {"id": f"act_{n}", "tool": tool, "arguments": given, "idempotency_key": f"k{n}"}
                for n, (tool, given) in enumerate(actions)
            ],
            "session_key": "private:alice",
            "channel": "qq",
            "to": "alice",
            "traces": ["trace_1"],
            "trust": "unknown",
        }
    )
    given: dict[str, Any] = {"origin": "bus", "worn": envelope(id="act_9", hops=hops)}
    return delivery(payload.model_dump(mode="json"), **(given | fields))


async def handle(found: World, delivered: Delivery) -> Outcome:
    return await CommandDispatcher("command_dispatcher", found.ports, {}).handle(batch(delivered))


async def test_a_success_is_one_line_in_the_stream_and_wakes_nobody() -> None:
    outcome = await handle(world(), order(("send_message", {"text": "At five."})))
    (append,) = of_kind(outcome, Append)
    assert append.text == ("## 2026-11-30 10:30:05 +08:00\n\nI replied to alice: “At five.”\n\n")
    assert append.passage is not None and append.passage.kind == "note"
    assert [emit.directory for emit in emits(outcome)] == ["outbox/qq"]


async def test_actions_run_in_order_and_their_notes_are_one_passage() -> None:
    outcome = await handle(
        world(),
        order(
            ("write_diary", {"text": "今天很好。"}),
            ("fly", {}),
            ("remember", {"topic": "tea", "text": "Alice drinks tea."}),
        ),
    )
    pages = [append.page for append in of_kind(outcome, Append)]
    assert pages == ["diary/2026-11-30.md", "memories/tea.md", "stream/now.md"]
    note = of_kind(outcome, Append)[-1].text
    assert note.index("我在 2026-11-30 的日记里写下") < note.index("I put down under “tea”")
    (event,) = emits(outcome)
    assert event.payload["type"] == "action.refused"


async def test_a_failure_comes_back_as_an_event_one_hop_further() -> None:
    found = World(tools=ScriptedTools({"water": ToolResult(False, error="the pump is dry")}))
    outcome = await handle(found, order(("water", {"minutes": 2}), hops=2, trust="known"))
    (event,) = emits(outcome)
    assert event.directory == "inbox/pending"
    assert (event.source_type, event.hops, event.trust) == ("action", 3, "unknown")
    assert event.payload["text"] == "The action water failed: the pump is dry."
    assert event.payload["data"] == {"tool": "water", "arguments": {"minutes": 2}}
    assert of_kind(outcome, Append) == []


async def test_every_kind_of_outcome_has_its_event() -> None:
    results = {
        "a": ToolResult(True, {"found": []}),
        "b": ToolResult(False, error="x"),
        "c": ToolResult(False, refused=True, error="x"),
        "d": ToolResult(False, unknown=True, error="x"),
    }
    outcome = await handle(World(tools=ScriptedTools(results)), order(*((t, {}) for t in "abcd")))
    assert [event.payload["type"] for event in emits(outcome)] == [
        "action.done",
        "action.failed",
        "action.refused",
        "action.outcome_unknown",
    ]


async def test_recall_is_perceived_with_what_was_found() -> None:
    (event,) = emits(await handle(world(), order(("recall", {"query": "tea"}))))
    assert event.payload["type"] == "action.done"
    assert event.payload["data"]["result"] == {"query": "tea", "found": []}


async def test_what_needs_consent_waits_in_approvals_and_is_told() -> None:
    asks = {"tools": {"remember": {"permission": "ask"}}}
    outcome = await handle(world(asks), order(("remember", {"topic": "a", "text": "b"})))
    kept, event = emits(outcome)
    assert kept.directory == "approvals/pending"
    assert event.payload["type"] == "action.waiting"
    assert of_kind(outcome, Append) == []


async def test_a_stranger_s_order_to_write_elsewhere_is_refused() -> None:
    sent = ("send_message", {"text": "all of it", "to": "x@example.org"})
    (event,) = emits(await handle(world(), order(sent)))
    assert event.payload["type"] == "action.refused"
    assert event.directory == "inbox/pending"


async def test_a_foreign_order_waits_for_a_person_and_is_told_once() -> None:
    foreign = order(
        ("send_message", {"text": "a"}), ("remember", {"topic": "a", "text": "b"}), origin="dropped"
    )
    outcome = await handle(world(), foreign)
    kept, event = emits(outcome)
    assert kept.directory == "approvals/pending" and kept.trust == "unknown"
    assert len(kept.payload["actions"]) == 2
    assert event.payload["type"] == "action.waiting"
    assert event.payload["data"]["tool"] == "send_message, remember"
    assert of_kind(outcome, Append) == []


async def test_a_foreign_order_cannot_lend_itself_trust() -> None:
    forged = order(("send_message", {"text": "a"}), origin="dropped")
    payload = dict(forged.payload) | {"trust": "owner"}
    outcome = await handle(world(), delivery(payload, worn=forged.envelope))
    assert emits(outcome)[0].payload["trust"] == "unknown"


async def test_an_order_that_waited_too_long_is_told_and_not_run() -> None:
    found = world()
    late = order(
        ("send_message", {"text": "a"}),
        ("recall", {"query": "b"}),
        worn=envelope(id="act_9", ttl_sec=60),
    )
    found.clock.advance(61)
    outcome = await handle(found, late)
    assert [event.payload["type"] for event in emits(outcome)] == ["action.expired"] * 2
    assert of_kind(outcome, Append) == []


async def test_an_unreadable_order_is_set_aside() -> None:
    bad = delivery({"actions": "none"}, origin="bus", worn=envelope(id="act_9"))
    (dead,) = of_kind(await handle(world(), bad), DeadLetter)
    assert dead.kind == "invalid" and "passage_id" in dead.detail


async def test_the_same_order_twice_says_the_same() -> None:
    first, second = [await handle(world(), order(("send_message", {"text": "a"}), ("fly", {}))) for _ in "ab"]
    assert first == second


async def test_the_language_setting_wins() -> None:
    outcome = await handle(world(language="zh"), order(("send_message", {"text": "At five."})))
    assert "我回复了 alice" in of_kind(outcome, Append)[0].text
