"""Every model call passes here: role, budget, breaker, endpoint, usage.

Without a configured endpoint the OfflineModel answers instead. A call that cannot be made raises
Park (ModelDown, BudgetSpent), never loses its input; only a prompt that no try can get answered is
Poison. An answer that finds no end is Unusable: an attempt of that input, no outage for the others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock, Reply, Role, Spending, Turn, Usage
from kernel_gamma.errors import ModelDown, Poison, Unusable
from kernel_gamma.model.answers import Answer
from kernel_gamma.model.asking import Ask
from kernel_gamma.model.breaker import Breaker, BreakerState
from kernel_gamma.model.budget import Amount, Budget
from kernel_gamma.model.failures import CallFailed
from kernel_gamma.model.messages import ReadAttachment, messages_of
from kernel_gamma.model.offline import OFFLINE_MODEL, OfflineModel
from kernel_gamma.model.refusals import Kind
from kernel_gamma.model.roles import ROLES, ResolvedRole, Roles, shown_url
from kernel_gamma.model.tokens import Calibration, Tokens, encoding_for, estimate
from kernel_gamma.settings import ModelSettings, RoleSettings, Settings

if TYPE_CHECKING:
    from kernel_gamma.model.openai_client import OpenAIClient

__all__ = ["ModelGateway"]

_TURN_TOKENS = 4
"""What an endpoint's template adds to each turn, about."""
_PICTURE_TOKENS = 800
_EXPECTED_ANSWER_TOKENS = 500
"""Reserved for an answer whose length is not limited, until its usage is known."""
_BYTES_PER_TOKEN = 4
"""Of an answer that was broken off: about what its text has cost."""
_NOT_IN_A_HEADER = re.compile(r"[^\x21-\x7e]")


class ModelGateway:
    """The Model port. One event loop uses it; close with `aclose`."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        spending: Spending,
        environ: Mapping[str, str],
        read_attachment: ReadAttachment,
    ) -> None:
        """Raises SettingsError when a role can reach no endpoint. Opens no connection yet."""
        self._settings = settings.model
        self._budget = Budget(settings.budget, clock, spending)
        self._clock = clock
        self._read_attachment = read_attachment
        self._roles = Roles(settings.model, environ)
        self._offline = OfflineModel(
            settings.language,
            window=settings.model.quality.window,
            today=lambda: clock.now().date(),
        )
        self._tokens = Tokens()
        self._calibrations: dict[tuple[str, str], Calibration] = {}
        self._clients: dict[str, OpenAIClient] = {}
        self._opening = asyncio.Lock()
        self._breakers: dict[str, Breaker] = {}
        self._last_error: str | None = None

    @property
    def offline(self) -> bool:
        """Whether rules and templates answer instead of a language model."""
        return self._roles.offline

    async def warm(self) -> None:
        """Load the SDK and the token tables now, in a thread: a second or two that nobody waits for.

        Harmless to call twice, or never: the first call does the same, and until then tokens are estimated.
        """
        for role in ROLES:
            if not self.offline and self._roles.has(role):
                resolved = self._roles.resolve(role)
                await self._client(resolved)
                await self._load_table(resolved.settings)

    async def complete(
        self,
        role: Role,
        turns: Sequence[Turn],
        *,
        agent: str,
        trace_id: str,
        schema: Mapping[str, Json] | None = None,
        for_people: bool = True,
        rule: str = "",
    ) -> Reply:
        """See ports.Model. The budget is checked before the call, calls in flight included."""
        if self.offline:
            return await self._offline.complete(
                role, turns, agent=agent, trace_id=trace_id, schema=schema, for_people=for_people
            )
        resolved = self._roles.resolve(role)
        await self._load_table(resolved.settings)
        counted = self._prompt_tokens(resolved, turns)
        prompt = self._calibration(resolved).applied(counted)
        answer_tokens = resolved.settings.max_output_tokens or _EXPECTED_ANSWER_TOKENS
        reserved = Amount(prompt + answer_tokens, _cost(resolved.settings, prompt, 0, answer_tokens))
        started = self._clock.monotonic()
        with self._budget.reserve(reserved, for_people=for_people, rule=rule) as call:
            try:
                ask = await self._ask(resolved, turns, agent, trace_id, schema)
                answer = await self._guarded(resolved, ask)
            except CallFailed as failure:
                received = failure.received // _BYTES_PER_TOKEN
                call.spent = reserved + Amount(received, _cost(resolved.settings, 0, 0, received))
                raise Unusable(f"the model's answer could not be used: {failure}") from None
            usage = self._usage(resolved, counted, answer)
            call.spent = Amount(usage.prompt_tokens + usage.completion_tokens, usage.cost)
        return Reply(
            text=answer.text,
            finish_reason=answer.finish_reason,
            model=answer.model or resolved.settings.model,
            usage=usage,
            duration_sec=self._clock.monotonic() - started,
        )

    def has_role(self, role: Role) -> bool:
        """Whether the role is configured by itself; offline only `quality` is there."""
        return role == "quality" if self.offline else self._roles.has(role)

    def count_tokens(self, role: Role, text: str) -> int:
        """Tokens of `text`; estimated until the table is loaded, so that nobody waits for it here."""
        resolved = self._roles.resolve(role)
        encoding, _ = encoding_for(resolved.settings.model)
        loaded = self._tokens.loaded(encoding)
        return self._calibration(resolved).applied(
            self._tokens.count(text, encoding) if loaded else estimate(text)
        )

    def window(self, role: Role) -> int:
        """The role's context window in tokens."""
        return self._roles.settings_of(role).window

    def status(self) -> dict[str, Json]:
        """Mode, the worst breaker and until when, the last error (None once a call succeeded)."""
        worst: BreakerState = "closed"
        until: datetime | None = None
        for breaker in self._breakers.values():
            if breaker.state == "open" or worst == "closed":
                worst = breaker.state
            if breaker.until is not None:
                until = max(until or breaker.until, breaker.until)
        return {
            "mode": "offline" if self.offline else "online",
            "breaker": worst,
            "until": until.isoformat(timespec="seconds") if until else None,
            "last_error": self._last_error,
            "roles": {role: self._role_status(role) for role in ROLES if self.has_role(role)},
        }

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _role_status(self, role: Role) -> dict[str, Json]:
        if self.offline:
            return {"model": OFFLINE_MODEL, "base_url": None, "token_ratio": 1.0}
        resolved = self._roles.resolve(role)
        calibration = self._calibration(resolved)
        return {
            "model": resolved.settings.model,
            "base_url": shown_url(resolved.base_url),
            "token_ratio": round(calibration.ratio, 2),
        }

    # --- before the call -------------------------------------------------------------------------

    async def _load_table(self, settings: RoleSettings) -> None:
        encoding, _ = encoding_for(settings.model)
        if not self._tokens.loaded(encoding):
            await asyncio.to_thread(self._tokens.load, encoding)

    def _prompt_tokens(self, resolved: ResolvedRole, turns: Sequence[Turn]) -> int:
        encoding, _ = encoding_for(resolved.settings.model)
        return sum(
            self._tokens.count(turn.text, encoding)
            + _TURN_TOKENS
            + (_PICTURE_TOKENS * len(turn.images) if resolved.role == "multimodal" else 0)
            for turn in turns
        )

    def _calibration(self, resolved: ResolvedRole) -> Calibration:
        key = (resolved.endpoint, resolved.settings.model)
        if key not in self._calibrations:
            _, exact = encoding_for(resolved.settings.model)
            self._calibrations[key] = Calibration(exact=exact)
        return self._calibrations[key]

    async def _ask(
        self,
        resolved: ResolvedRole,
        turns: Sequence[Turn],
        agent: str,
        trace_id: str,
        schema: Mapping[str, Json] | None,
    ) -> Ask:
        sees = resolved.role == "multimodal"
        return Ask(
            messages=await messages_of(turns, self._read_attachment if sees else None),
            settings=resolved.settings,
            timeout_sec=resolved.timeout_sec,
            headers={
                "X-Kgamma-Agent": _NOT_IN_A_HEADER.sub("_", agent),
                "X-Kgamma-Trace": _NOT_IN_A_HEADER.sub("_", trace_id),
            },
            schema=schema,
        )

    # --- the call --------------------------------------------------------------------------------

    async def _guarded(self, resolved: ResolvedRole, ask: Ask) -> Answer:
        """The call, if the endpoint's breaker lets it through; its outcome is told to the breaker.

        Raises CallFailed only for an answer without an end, which says nothing about the endpoint.
        """
        client = await self._client(resolved)
        breaker = self._breaker(resolved)
        now = self._clock.now()
        if not breaker.admit(now):
            raise ModelDown(
                f"the model rests after failures: {self._last_error}",
                until=breaker.wait_until(now),
            )
        probe = breaker.state == "half_open"
        try:
            answer = await client.call(ask, retries=0 if probe else self._settings.retries)
        except CallFailed as failure:
            if failure.kind is Kind.ENDLESS:
                breaker.abandoned()
                self._last_error = str(failure)
                raise
            raise self._told(failure, resolved, breaker) from None
        except BaseException:
            # Cancelled, or a fault of our own: says nothing about the endpoint.
            breaker.abandoned()
            raise
        breaker.succeeded()
        self._last_error = None
        return answer

    async def _client(self, resolved: ResolvedRole) -> OpenAIClient:
        async with self._opening:
            if resolved.endpoint not in self._clients:
                # In a thread: the SDK imports its larger half when its first client is made.
                self._clients[resolved.endpoint] = await asyncio.to_thread(
                    _open_client, resolved, self._settings, self._clock
                )
            return self._clients[resolved.endpoint]

    def _breaker(self, resolved: ResolvedRole) -> Breaker:
        if resolved.endpoint not in self._breakers:
            self._breakers[resolved.endpoint] = Breaker(
                failures=self._settings.breaker_failures,
                pause_sec=self._settings.breaker_sec,
                max_pause_sec=self._settings.breaker_max_sec,
            )
        return self._breakers[resolved.endpoint]

    def _told(self, failure: CallFailed, resolved: ResolvedRole, breaker: Breaker) -> ModelDown | Poison:
        """What a failed call means: the prompt's fault, or an endpoint to wait for."""
        if failure.kind in (Kind.TOO_LONG, Kind.FORBIDDEN):
            breaker.succeeded()
            word = "too_long" if failure.kind is Kind.TOO_LONG else "refused"
            return Poison(f"the model cannot take this prompt: {failure}", kind=word)
        now = self._clock.now()
        if failure.kind is Kind.NO_MODEL:
            breaker.abandoned()  # the endpoint answers; its other models are not held back
        else:
            lasting = failure.kind is Kind.LASTING
            breaker.failed(now, retry_at=failure.retry_at, lasting=lasting)
        self._last_error = f"{failure}{_advice(failure, resolved)}"
        return ModelDown(self._last_error, until=breaker.wait_until(now))

    def _usage(self, resolved: ResolvedRole, counted: int, answer: Answer) -> Usage:
        """What the endpoint reported, else what we count; with its price."""
        settings = resolved.settings
        calibration = self._calibration(resolved)
        if answer.prompt_tokens is not None:
            if resolved.role != "multimodal":
                calibration.observe(counted, answer.prompt_tokens)
            prompt, completion = answer.prompt_tokens, answer.completion_tokens
        else:
            encoding, _ = encoding_for(settings.model)
            prompt = calibration.applied(counted)
            completion = calibration.applied(self._tokens.count(answer.text, encoding))
        cached = min(answer.cached_tokens, prompt)
        return Usage(prompt, completion, cached, _cost(settings, prompt, cached, completion))


def _cost(settings: RoleSettings, prompt: int, cached: int, completion: int) -> float:
    """Money; `cached` is part of `prompt`."""
    price_cached = settings.price_in if settings.price_cached is None else settings.price_cached
    fresh = (prompt - cached) * settings.price_in
    return (fresh + cached * price_cached + completion * settings.price_out) / 1_000_000


def _advice(failure: CallFailed, resolved: ResolvedRole) -> str:
    """What a person can do about it."""
    variable = resolved.settings.api_key_env
    if failure.status in (401, 403):
        return f" (check the key in the environment variable {variable})"
    if failure.kind is Kind.NO_MODEL:
        return f" (check model.{resolved.role}.model: {resolved.settings.model})"
    return ""


def _open_client(resolved: ResolvedRole, settings: ModelSettings, clock: Clock) -> OpenAIClient:
    """The only place that imports the SDK: it costs a second and 40 MB, which the offline mode and
    short commands should not pay."""
    from kernel_gamma.model.openai_client import OpenAIClient

    return OpenAIClient(
        resolved.base_url,
        resolved.api_key,
        now=clock.now,
        structured=settings.structured,
        stream=settings.stream,
    )
