"""The gateway against a real server, through the real SDK; only clock and ledger are fakes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from tests.fakes import START, FakeClock
from tests.scripted_server import Answer, ParsedRequest, Script, ScriptedServer

from kernel_gamma.contracts.payloads import Attachment
from kernel_gamma.contracts.ports import Model, Reply, Turn
from kernel_gamma.errors import BudgetSpent, ModelDown, Poison, QuietHours, SettingsError, Unusable
from kernel_gamma.model.gateway import ModelGateway
from kernel_gamma.model.tokens import Tokens, estimate
from kernel_gamma.settings import BudgetSettings, ModelSettings, RoleSettings, Settings

WELL = Answer("I am well")
UNLIMITED = BudgetSettings(tokens_per_day=0)
KEY = "sk-very-secret-key"
TURNS = [Turn("system", "You are a mind."), Turn("user", "How are you?")]


class Ledger:
    """Spending by day."""

    def __init__(self, **days: int) -> None:
        self.days = days
        self.default = 0
        """Of the day the tests begin on."""
        self.money = 0.0
        self.rules: dict[str, int] = {}

    def spent_on(self, day: str) -> tuple[int, float]:
        if day != "2026-11-30":
            return self.days.get(day, 0), 0.0
        return self.days.get(day, self.default), self.money

    def tokens_of_rule(self, day: str, rule: str) -> int:
        return self.rules.get(rule, 0) if day == "2026-11-30" else 0


class Stage:
    """A server and a gateway that talks to it."""

    def __init__(self, server: ScriptedServer, gateway: ModelGateway, clock: FakeClock, ledger: Ledger):
        self.server = server
        self.gateway = gateway
        self.clock = clock
        self.ledger = ledger

    async def ask(self, role: Any = "quality", turns: Any = TURNS, **options: Any) -> Reply:
        options = {"agent": "internalizer", "trace_id": "trace_1"} | options
        return await self.gateway.complete(role, turns, **options)

    async def down(self, **options: Any) -> ModelDown:
        with pytest.raises(ModelDown) as caught:
            await self.ask(**options)
        assert KEY not in str(caught.value)
        return caught.value


Open = Callable[..., Stage]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def open_stage(
            script: Script | Answer = WELL,
            *,
            budget: BudgetSettings = UNLIMITED,
            files: dict[str, bytes] | None = None,
            **model: Any,
        ) -> Stage:
            run = script if callable(script) else lambda request: script
            server = stack.enter_context(ScriptedServer(run))
            model = {"retries": 0, "timeout_sec": 10} | model
            clock, ledger = FakeClock(), Ledger()

            def read(path: str) -> bytes:
                try:
                    return (files or {})[path]
                except KeyError:
                    raise FileNotFoundError(path) from None

            gateway = ModelGateway(
                Settings(model=ModelSettings(**model), budget=budget),
                clock=clock,
                spending=ledger,
                environ={"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url},
                read_attachment=read,
            )
            stack.push_async_callback(gateway.aclose)
            return Stage(server, gateway, clock, ledger)

        yield open_stage


async def test_a_call_brings_text_usage_and_cost(opened: Open) -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 400},
    }
    role = RoleSettings(model="gpt-4.1-mini", price_in=1.0, price_cached=0.5, price_out=4.0)
    stage = opened(Answer("I am well", usage=usage), quality=role)
    reply = await stage.ask()
    assert (reply.text, reply.finish_reason, reply.model) == ("I am well", "stop", "gpt-4.1-mini")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (1000, 100)
    assert reply.usage.cached_tokens == 400
    assert reply.usage.cost == pytest.approx((600 * 1.0 + 400 * 0.5 + 100 * 4.0) / 1e6)


async def test_every_call_carries_agent_and_trace(opened: Open) -> None:
    stage = opened()
    await stage.ask(agent="externalizer", trace_id="trace_ä\n1")
    assert stage.server.requests[0].agent == "externalizer"
    assert stage.server.requests[0].trace == "trace___1"


async def test_without_reported_usage_the_tokens_are_counted(opened: Open) -> None:
    stage = opened(Answer("I am well", usage={}))
    usage = (await stage.ask()).usage
    assert 10 <= usage.prompt_tokens <= 25
    assert usage.completion_tokens == 3


async def test_a_reply_that_was_cut_by_length_says_so(opened: Open) -> None:
    assert (await opened(Answer("I am", finish_reason="length")).ask()).finish_reason == "length"


async def test_roles_have_their_own_models(opened: Open) -> None:
    stage = opened(fast=RoleSettings(model="small", window=9000))
    await stage.ask("fast")
    await stage.ask("quality")
    await stage.ask("embedding")
    models = [request.body["model"] for request in stage.server.requests]
    assert models == ["small", "gpt-4.1-mini", "gpt-4.1-mini"]
    assert stage.gateway.window("fast") == 9000
    assert stage.gateway.has_role("fast")
    assert not stage.gateway.has_role("multimodal")


async def test_an_outage_opens_the_breaker_and_one_probe_closes_it(opened: Open) -> None:
    stage = opened()
    stage.server.down = True
    for _ in range(3):
        down = await stage.down()
    assert down.until == START + timedelta(seconds=30)
    assert stage.gateway.status()["breaker"] == "open"
    assert stage.gateway.status()["until"] == "2026-11-30T10:30:35+08:00"
    assert "cannot be reached" in stage.gateway.status()["last_error"]
    await stage.down()
    assert stage.server.count() == 3, "an open breaker sends nothing"
    stage.clock.advance(30)
    assert (await stage.down()).until == stage.clock.now() + timedelta(seconds=60)
    stage.server.up()
    stage.clock.advance(60)
    assert (await stage.ask()).text == "I am well"
    assert stage.gateway.status()["breaker"] == "closed"
    assert stage.gateway.status()["last_error"] is None


async def test_f08_a_dead_provider_is_asked_once_per_deadline_it_named(opened: Open) -> None:
    stage = opened(retries=2)
    stage.server.retry_after = 3600
    for _ in range(6):
        for _ in range(50):
            down = await stage.down()
            assert down.until == stage.clock.now() + timedelta(seconds=3600)
            break
        for _ in range(49):
            await stage.down()
        stage.clock.advance(3600)
    assert stage.server.count() == 6
    stage.server.up()
    assert (await stage.ask()).text == "I am well"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_parks_and_names_the_variable(opened: Open, status: int) -> None:
    stage = opened(Answer(f"bad key {KEY}", status=status), retries=2)
    down = await stage.down()
    assert "OPENAI_API_KEY" in str(down)
    assert down.until > START
    assert stage.server.count() == 1
    assert KEY not in str(stage.gateway.status())


async def test_an_unknown_model_parks_and_does_not_hold_back_the_others(opened: Open) -> None:
    def script(request: ParsedRequest) -> Answer:
        known = request.body["model"] != "typo"
        return Answer("I am well") if known else Answer("model not found", status=404)

    stage = opened(script, fast=RoleSettings(model="typo"))
    assert "model.fast.model" in str(await stage.down(role="fast"))
    assert (await stage.ask("quality")).text == "I am well"


async def test_a_prompt_that_can_never_be_answered_is_poison(opened: Open) -> None:
    stage = opened(Answer("maximum context length is 8192 tokens", status=400))
    with pytest.raises(Poison) as caught:
        await stage.ask()
    assert caught.value.kind == "too_long"
    stage = opened(Answer("content_policy_violation", status=400))
    with pytest.raises(Poison) as caught:
        await stage.ask()
    assert caught.value.kind == "refused"
    assert stage.gateway.status()["breaker"] == "closed"


async def test_a_stalled_stream_is_an_outage(opened: Open) -> None:
    stage = opened(Answer("I am well", hang=True), timeout_sec=0.1)
    assert "sent nothing" in str(await stage.down())


async def test_endpoints_have_breakers_of_their_own(opened: Open) -> None:
    other = RoleSettings(model="m", base_url="http://127.0.0.1:9/v1")
    stage = opened(fast=other)
    for _ in range(4):
        await stage.down(role="fast")
    assert (await stage.ask("quality")).text == "I am well"
    assert stage.gateway.status()["breaker"] == "open"


async def test_the_budget_is_checked_before_the_call(opened: Open) -> None:
    stage = opened(budget=BudgetSettings(tokens_per_day=10_000, reserved_for_people=0.2))
    stage.ledger.default = 7900
    with pytest.raises(BudgetSpent, match=r"budget\.tokens_per_day") as caught:
        await stage.ask(for_people=False)
    assert caught.value.until.isoformat() == "2026-12-01T00:00:00+08:00"
    await stage.ask(for_people=True)
    stage.ledger.default = 9900
    with pytest.raises(BudgetSpent):
        await stage.ask(for_people=True)
    assert stage.server.count() == 1
    stage.ledger.days = {"2026-12-01": 0}
    stage.clock.advance(14 * 3600)
    await stage.ask(for_people=False)


@pytest.mark.parametrize(("for_people", "per_day"), [(True, 6000), (False, 7500)])
async def test_a_call_larger_than_any_days_budget_waits_and_says_which_setting_is_too_small(
    opened: Open, for_people: bool, per_day: int
) -> None:
    role = RoleSettings(model="gpt-4.1-mini", max_output_tokens=6000)
    turns = [Turn("user", "hello")]
    stage = opened(quality=role, budget=BudgetSettings(tokens_per_day=per_day))
    with pytest.raises(BudgetSpent, match="too small for this call on any day") as caught:
        await stage.ask(turns=turns, for_people=for_people)
    assert "budget.tokens_per_day" in str(caught.value) and "config/kernel.yaml" in str(caught.value)
    said = int(str(caught.value).split("at least ")[1].split(" ")[0])
    assert stage.server.count() == 0
    enough = opened(quality=role, budget=BudgetSettings(tokens_per_day=said))
    await enough.ask(turns=turns, for_people=for_people)
    with pytest.raises(BudgetSpent, match="today's budget"):
        await enough.ask(turns=turns, for_people=for_people)


async def test_a_day_kept_for_people_alone_names_that_setting(opened: Open) -> None:
    stage = opened(budget=BudgetSettings(tokens_per_day=10_000, reserved_for_people=1.0))
    with pytest.raises(BudgetSpent, match=r"^budget\.reserved_for_people keeps"):
        await stage.ask(for_people=False)
    assert (await stage.ask(for_people=True)).text == "I am well"


async def test_an_answer_without_end_is_an_attempt_of_its_input_and_no_outage(opened: Open) -> None:
    stage = opened(Answer("x" * 2_100_000, sse=False), breaker_failures=1, stream="off")
    with pytest.raises(Unusable, match="longer than 2 MB"):
        await stage.ask()
    assert stage.gateway.status()["breaker"] == "closed"
    assert "longer than 2 MB" in str(stage.gateway.status()["last_error"])
    stage.server.script = lambda request: WELL
    assert (await stage.ask()).text == "I am well"


async def test_what_an_answer_without_end_has_cost_counts(opened: Open) -> None:
    stage = opened(Answer("x" * 2_100_000), stream="off", budget=BudgetSettings(tokens_per_day=500_000))
    with pytest.raises(Unusable):
        await stage.ask()
    with pytest.raises(BudgetSpent):
        await stage.ask()
    assert stage.server.count() == 1


async def test_answered_calls_count_before_the_ledger_knows_of_them(opened: Open) -> None:
    usage = {"prompt_tokens": 4000, "completion_tokens": 1000}
    stage = opened(Answer("I am well", usage=usage), budget=BudgetSettings(tokens_per_day=10_000))
    await stage.ask()
    stage.ledger.default = 5000
    await stage.ask()
    with pytest.raises(BudgetSpent):
        await stage.ask()


async def test_calls_in_flight_count_too(opened: Open) -> None:
    role = RoleSettings(model="gpt-4.1-mini", max_output_tokens=6000)
    stage = opened(Answer("I am well", delay=0.2), quality=role, budget=BudgetSettings(tokens_per_day=10_000))
    first = asyncio.create_task(stage.ask())
    while not stage.server.count():
        await asyncio.sleep(0.001)
    with pytest.raises(BudgetSpent):
        await stage.ask()
    assert (await first).text == "I am well"


async def test_a_failed_or_cancelled_call_frees_its_reservation(opened: Open) -> None:
    role = RoleSettings(model="gpt-4.1-mini", max_output_tokens=6000)
    stage = opened(quality=role, budget=BudgetSettings(tokens_per_day=10_000))
    stage.server.down = True
    await stage.down()
    stage.server.up()
    stage.server.script = lambda request: Answer("I am well", hang=True)
    running = asyncio.create_task(stage.ask())
    while stage.server.count() < 2:
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stage.server.script = lambda request: Answer("I am well")
    assert (await stage.ask()).text == "I am well"


async def test_counts_of_an_unknown_model_follow_the_reported_usage(opened: Open) -> None:
    role = RoleSettings(model="qwen2.5-7b-instruct")
    usage = {"prompt_tokens": 2400, "completion_tokens": 5}
    stage = opened(Answer("I am well", usage=usage), quality=role)
    long = "I walk in the park every day. " * 200
    before = stage.gateway.count_tokens("quality", long)
    await stage.ask(turns=[Turn("user", long)])
    assert stage.gateway.count_tokens("quality", long) > before * 1.2


async def test_pictures_go_to_the_multimodal_role_only(opened: Open) -> None:
    pictures = (
        Attachment(path="a.png", media_type="image/png"),
        Attachment(url="https://example.org/b.jpg", media_type="image/jpeg"),
        Attachment(path="gone.png", media_type="image/png"),
        Attachment(path="a.txt", media_type="text/plain"),
    )
    turns = [Turn("user", "Look", pictures)]
    stage = opened(files={"a.png": b"PNG", "a.txt": b"x"}, multimodal=RoleSettings(model="eyes"))
    await stage.ask("multimodal", turns)
    await stage.ask("quality", turns)
    seen, blind = (request.body["messages"][0]["content"] for request in stage.server.requests)
    assert [part["type"] for part in seen] == ["text", "image_url", "image_url"]
    assert seen[1]["image_url"]["url"] == "data:image/png;base64,UE5H"
    assert seen[2]["image_url"]["url"] == "https://example.org/b.jpg"
    assert blind == "Look"


async def test_without_a_multimodal_role_no_picture_is_sent(opened: Open) -> None:
    stage = opened(files={"a.png": b"PNG"})
    await stage.ask("multimodal", [Turn("user", "Look", (Attachment(path="a.png", media_type="image/png"),))])
    assert stage.server.requests[0].body["messages"][0]["content"] == "Look"


def offline(**settings: Any) -> ModelGateway:
    return ModelGateway(
        Settings(**settings),
        clock=FakeClock(),
        spending=Ledger(),
        environ={},
        read_attachment=lambda path: b"",
    )


async def test_without_key_and_address_rules_answer(opened: Open) -> None:
    gateway: Model = offline(budget=BudgetSettings(tokens_per_day=1))
    fenced = '<event id="e" type="message" from="Alice" trust="unknown" time="">\nhello\n</event>'
    reply = await gateway.complete("quality", [Turn("user", fenced)], agent="a", trace_id="t")
    assert "I decide to reply to Alice: " in reply.text
    assert not gateway.has_role("fast")
    status = offline().status()
    assert (status["mode"], status["breaker"], status["last_error"]) == ("offline", "closed", None)
    assert status["roles"]["quality"]["model"] == "offline"


async def test_online_mode_without_a_key_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        offline(model=ModelSettings(mode="online"))


async def test_warming_loads_tables_and_sdk_before_the_first_call(opened: Open) -> None:
    stage = opened()
    await stage.gateway.warm()
    assert stage.gateway.count_tokens("quality", "hello world") == 2
    assert stage.server.count() == 0
    await offline().warm()


async def test_counting_never_waits_for_the_tables_and_the_first_call_loads_them(opened: Open) -> None:
    stage = opened()
    text = "hello world " * 400
    before = stage.gateway.count_tokens("quality", text)
    assert before == estimate(text)
    await stage.ask()
    assert stage.gateway.count_tokens("quality", text) == Tokens().count(text)


async def test_the_status_holds_roles_and_no_secret(opened: Open) -> None:
    stage = opened(fast=RoleSettings(model="small"))
    status = stage.gateway.status()
    assert status["mode"] == "online"
    assert status["roles"]["fast"]["model"] == "small"
    assert status["roles"]["quality"]["base_url"] == stage.server.base_url
    assert KEY not in str(status)


def test_the_sdk_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, kernel_gamma.model.gateway; print('openai' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


PRICED = RoleSettings(model="gpt-4.1-mini", price_in=1000.0, price_out=1000.0, max_output_tokens=100)
"""A thousand tokens cost 1."""


async def test_money_is_a_budget_too_with_a_share_kept_for_people(opened: Open) -> None:
    stage = opened(quality=PRICED, budget=BudgetSettings(tokens_per_day=0, money_per_day=10.0))
    stage.ledger.money = 7.95
    with pytest.raises(BudgetSpent, match=r"budget\.money_per_day") as caught:
        await stage.ask(for_people=False)
    assert not caught.value.holds_all, "a person's call may still be made"
    await stage.ask(for_people=True)
    stage.ledger.money = 9.95
    with pytest.raises(BudgetSpent, match="today's budget") as caught:
        await stage.ask(for_people=True)
    assert caught.value.holds_all
    assert stage.server.count() == 1


async def test_a_call_that_no_days_money_covers_names_the_setting(opened: Open) -> None:
    stage = opened(quality=PRICED, budget=BudgetSettings(tokens_per_day=0, money_per_day=0.01))
    with pytest.raises(BudgetSpent, match=r"budget\.money_per_day is too small for this call on any day"):
        await stage.ask()
    assert stage.server.count() == 0


async def test_a_rule_that_has_spent_its_own_budget_waits_alone(opened: Open) -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 50}
    budget = BudgetSettings(tokens_per_day=0, per_rule={"hourly": 1200})
    stage = opened(Answer("I am well", usage=usage), budget=budget)
    await stage.ask(for_people=False, rule="hourly")
    with pytest.raises(BudgetSpent, match="budget of the rule hourly") as caught:
        await stage.ask(for_people=False, rule="hourly")
    assert not caught.value.holds_all
    await stage.ask(for_people=False, rule="morning")
    await stage.ask(for_people=False)
    await stage.ask(for_people=True, rule="hourly")
    stage.clock.advance(24 * 3600)
    await stage.ask(for_people=False, rule="hourly")
    assert stage.server.count() == 5


async def test_what_the_ledger_knows_of_a_rule_holds_after_a_restart(opened: Open) -> None:
    stage = opened(budget=BudgetSettings(tokens_per_day=0, per_rule={"hourly": 1000}))
    stage.ledger.rules = {"hourly": 900}
    with pytest.raises(BudgetSpent, match="900 of 1000"):
        await stage.ask(for_people=False, rule="hourly")
    stage.ledger.rules = {}
    small = opened(budget=BudgetSettings(tokens_per_day=0, per_rule={"hourly": 10}))
    with pytest.raises(BudgetSpent, match=r"budget\.per_rule\.hourly is too small"):
        await small.ask(for_people=False, rule="hourly")


async def test_in_quiet_hours_only_people_are_answered(opened: Open) -> None:
    stage = opened(budget=BudgetSettings(quiet_hours="23:00-11:00"))
    with pytest.raises(QuietHours, match=r"budget\.quiet_hours") as caught:
        await stage.ask(for_people=False)
    assert caught.value.until.isoformat() == "2026-11-30T11:00:00+08:00"
    assert not caught.value.holds_all
    await stage.ask(for_people=True)
    stage.clock.advance(3600)
    await stage.ask(for_people=False)
    assert stage.server.count() == 2


async def test_a_clock_set_back_over_midnight_opens_nothing_anew(opened: Open) -> None:
    stage = opened(budget=BudgetSettings(tokens_per_day=10_000))
    stage.ledger.default = 100
    stage.ledger.days = {"2026-12-01": 9900}
    with pytest.raises(BudgetSpent):
        await stage.ask()
    stage.ledger.days = {"2027-12-01": 9900}  # a clock that was a year ahead does not hold anything up
    await stage.ask()
