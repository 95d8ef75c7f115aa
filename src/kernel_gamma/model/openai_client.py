"""One OpenAI-compatible endpoint over the official SDK: Chat Completions, streamed or not.

Importing the SDK takes about a second and 40 MB, so the gateway imports this module only when the
first call goes out. What an endpoint refuses (a parameter, a way of asking for JSON) is left out from
then on, per model. Nothing here decides what a failure means for the mind: the gateway does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import httpx2
import openai

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.model.answers import Answer, AnswerReader, BadAnswer, EndlessAnswer, ErrorInAnswer
from kernel_gamma.model.asking import Ask, Level, body_of, levels_for, refusable
from kernel_gamma.model.failures import CallFailed
from kernel_gamma.model.refusals import (
    Kind,
    Quirk,
    error_text,
    kind_of,
    named_quirks,
    retry_at,
    without_secrets,
)
from kernel_gamma.model.roles import shown_url

__all__ = ["OpenAIClient"]

_CONNECT_SEC = 15.0
_LONGEST_PAUSE_SEC = 5.0
"""A longer Retry-After is not slept through inside a call: the breaker keeps it."""
_REST_SEC = 0.2
"""After the last piece: how long the end of the body is waited for, to keep the connection."""
_LONGEST_SEC = 600.0
_LONGEST_IN_TIMEOUTS = 5
"""No answer may take longer than the longer of the two, however steadily its pieces come."""
_MENDABLE_STATUS = (400, 422, 500, 501)
"""Answers of servers to a parameter they do not know; some say 500."""


@dataclass(slots=True)
class _Manners:
    """What one model of this endpoint is known to take."""

    levels: tuple[Level, ...]
    left_out: frozenset[Quirk] = field(default=frozenset())
    answered: bool = False
    level_proven: bool = False
    """The first of `levels` has worked: a 500 is then an outage, not a refusal of the level."""


class OpenAIClient:
    """Calls of one endpoint. Close with `aclose`."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        now: Callable[[], datetime],
        structured: Literal["auto"] | Level = "auto",
        stream: Literal["auto", "on", "off"] = "auto",
        backoff_sec: float = 0.5,
        longest_sec: float = _LONGEST_SEC,
    ) -> None:
        """`now` turns Retry-After into a moment; `backoff_sec` is the first pause between tries.

        `longest_sec` ends an answer that goes on and on; five times the call's timeout if that is longer.
        """
        self._secrets = (api_key, base_url) if "@" in base_url else (api_key,)
        self._where = shown_url(base_url)
        self._official = "api.openai.com" in self._where
        self._now = now
        self._levels = levels_for(structured)
        self._stream = stream
        self._backoff_sec = backoff_sec
        self._longest_sec = longest_sec
        self._manners: dict[str, _Manners] = {}
        self._sdk = openai.AsyncOpenAI(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=_CONNECT_SEC),
        )
        # Any: the SDK's overloads want every parameter spelled out.
        self._create: Any = self._sdk.chat.completions.with_streaming_response.create

    async def call(self, ask: Ask, *, retries: int) -> Answer:
        """One whole answer, after at most `retries` repeats of what may pass at once.

        Raises CallFailed. What stalled or found no end is not repeated: the wait was long enough.
        """
        for left in range(retries, -1, -1):
            try:
                return await self._negotiated(ask)
            except CallFailed as failure:
                pause_sec = self._pause_sec(failure, retries - left)
                if not left or pause_sec is None:
                    raise
                await asyncio.sleep(pause_sec)
        raise AssertionError("the last try returns or raises")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sdk.close()

    def _pause_sec(self, failure: CallFailed, tried: int) -> float | None:
        """Seconds until the next try; None when another try is no use."""
        if failure.kind is not Kind.PASSING or not failure.repeat:
            return None
        if failure.retry_at is None:
            return float(self._backoff_sec * 2**tried)
        wait_sec = (failure.retry_at - self._now()).total_seconds()
        return max(wait_sec, 0.0) if wait_sec <= _LONGEST_PAUSE_SEC else None

    async def _negotiated(self, ask: Ask) -> Answer:
        """One answer; on the way down whatever the endpoint refuses is left out, then remembered."""
        model = ask.settings.model
        manners = self._manners.setdefault(model, _Manners(self._levels))
        levels, left_out = manners.levels, manners.left_out
        if ask.schema is None:
            levels = ("plain",)
        stepped = False
        while True:
            body = body_of(
                ask,
                levels[0],
                stream=self._streams(ask),
                left_out=left_out,
                new_limit_name=self._official,
            )
            try:
                answer = await self._exchange(body, ask)
            except CallFailed as failure:
                unwelcome = refusable(body, self._new_quirks(failure, left_out))
                if unwelcome is not None:
                    left_out |= {unwelcome}
                elif len(levels) > 1 and _refuses_level(failure, manners):
                    levels, stepped = levels[1:], True
                else:
                    raise await self._judged(failure, ask, manners, stepped) from None
            else:
                manners.left_out = left_out
                manners.answered = True
                if ask.schema is not None:
                    manners.levels, manners.level_proven = levels, True
                return answer

    def _streams(self, ask: Ask) -> bool:
        return self._stream == "on" or (self._stream == "auto" and ask.schema is None)

    def _new_quirks(self, failure: CallFailed, left_out: frozenset[Quirk]) -> list[Quirk]:
        if failure.status not in _MENDABLE_STATUS or failure.kind is Kind.TOO_LONG:
            return []
        return [quirk for quirk in named_quirks(failure.text) if quirk not in left_out]

    async def _judged(self, failure: CallFailed, ask: Ask, manners: _Manners, stepped: bool) -> CallFailed:
        """The failure as it is told: a refusal for no clear reason is the prompt's, or everybody's.

        It is the prompt's only if this model answers other prompts; otherwise every event would be
        set aside for a mistake in the configuration.
        """
        if failure.kind is Kind.UNCLEAR:
            prompts_fault = manners.answered or await self._answers_at_all(ask)
            return failure.as_kind(Kind.FORBIDDEN if prompts_fault else Kind.LASTING)
        return failure.not_repeated() if stepped else failure

    async def _answers_at_all(self, ask: Ask) -> bool:
        plain = replace(ask, messages=({"role": "user", "content": "Hello"},), schema=None)
        bare = frozenset({Quirk.TEMPERATURE})
        body = body_of(plain, "plain", stream=False, left_out=bare, new_limit_name=self._official)
        try:
            await self._exchange(body, plain)
        except CallFailed:
            return False
        return True

    async def _exchange(self, body: Mapping[str, Json], ask: Ask) -> Answer:
        """Send one request and read its whole answer."""
        reader = AnswerReader()
        try:
            await self._read(reader, body, ask)
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        except (TimeoutError, openai.APIConnectionError, httpx2.HTTPError) as error:
            # What breaks after the last piece (only the usage was still to come) spoils nothing.
            if not reader.complete:
                raise self._unreachable(error, ask) from None
        except BadAnswer as error:
            raise self._nonsense(error, reader) from None
        try:
            return reader.finish()
        except BadAnswer as error:
            raise self._nonsense(error, reader) from None

    async def _read(self, reader: AnswerReader, body: Mapping[str, Json], ask: Ask) -> None:
        """Feed the reader. TimeoutError: no piece (no whole answer, if not streamed) for too long.

        EndlessAnswer: pieces keep coming, but the last of them does not.
        """
        loop = asyncio.get_running_loop()
        longest_sec = max(self._longest_sec, _LONGEST_IN_TIMEOUTS * ask.timeout_sec)
        ends = loop.time() + longest_sec
        sent = self._create(**body, extra_headers=dict(ask.headers))
        limit = asyncio.timeout(ask.timeout_sec)
        try:
            async with limit, sent as response:
                async for data in response.iter_bytes():
                    piece = reader.feed(data)
                    if reader.done:
                        limit.reschedule(loop.time() + _REST_SEC)
                    elif piece and "stream" in body:
                        limit.reschedule(min(loop.time() + ask.timeout_sec, ends))
        except TimeoutError:
            if reader.complete or limit.when() != ends:
                raise
            raise EndlessAnswer(f"the answer had not ended after {longest_sec:g} s") from None

    def _refused(self, error: openai.APIStatusError) -> CallFailed:
        status = error.status_code
        text = error_text(error.body, error.message)
        return CallFailed(
            kind_of(status, text),
            f"{self._where} answered {status}: {self._shown(text)}",
            status=status,
            text=text,
            retry_at=retry_at(error.response.headers, self._now()),
        )

    def _unreachable(self, error: Exception, ask: Ask) -> CallFailed:
        if isinstance(error, TimeoutError):
            message = f"{self._where} sent nothing for {ask.timeout_sec:g} s"
            return CallFailed(Kind.PASSING, message, repeat=False)
        # The SDK's error says only "Connection error."; its cause says which.
        said = str(error.__cause__ or error) or type(error).__name__
        return CallFailed(Kind.PASSING, f"{self._where} cannot be reached: {self._shown(said)}")

    def _nonsense(self, error: BadAnswer, reader: AnswerReader) -> CallFailed:
        text = str(error)
        status = error.status if isinstance(error, ErrorInAnswer) else None
        kind = kind_of(status, text) if status else Kind.PASSING
        message = f"{self._where}: {self._shown(text)}"
        if isinstance(error, EndlessAnswer):
            return CallFailed(Kind.ENDLESS, message, received=reader.received)
        return CallFailed(kind, message, status=status, text=text)

    def _shown(self, text: str) -> str:
        return without_secrets(text, *self._secrets)


def _refuses_level(failure: CallFailed, manners: _Manners) -> bool:
    """Whether the way JSON was asked for may be what the endpoint does not take."""
    if failure.status in (500, 501):
        return not manners.level_proven
    return failure.status in (400, 422) and failure.kind in (Kind.UNCLEAR, Kind.NO_MODEL)
