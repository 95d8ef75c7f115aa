"""Vectors of texts from the model role `embedding`, over the official SDK.

An endpoint that is down must not hold up searches: after a failure it is left alone for a while, longer each
time, and whoever asks is told so at once.
"""

from __future__ import annotations

import json
import math
import threading
from array import array
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import ModelDown
from kernel_gamma.model.refusals import error_text, without_secrets
from kernel_gamma.model.roles import ResolvedRole, shown_url

if TYPE_CHECKING:
    import openai

__all__ = ["RoleEncoder"]

_CONNECT_SEC = 3.0
_LONGEST_SEC = 30.0
_HURRY_SEC = 3.0
"""A search waits no longer for the vector of its question."""
_REST_SEC = 30.0
_LONGEST_REST_SEC = 900.0
"""After a failure nothing is asked for so long; it doubles from the first to the second."""
_PASSING_STATUS = (408, 409, 429)
_MOST_CHARS = 6000


class RoleEncoder:
    """truths.encoders.Encoder over one OpenAI-compatible endpoint. Safe to use from several threads."""

    def __init__(
        self, role: ResolvedRole, clock: Clock, *, count_tokens: Callable[[int], None] | None = None
    ) -> None:
        """`count_tokens` is told the prompt tokens of each answer that says how many they were."""
        self._role = role
        self._clock = clock
        self._count_tokens = count_tokens
        self._name = f"{role.settings.model} at {shown_url(role.base_url)}"
        self._secrets = (role.api_key, role.base_url) if "@" in role.base_url else (role.api_key,)
        self._opening = threading.Lock()
        self._sdk: openai.OpenAI | None = None
        self._asked_again_at = -math.inf
        self._rest_sec = _REST_SEC
        self._failure = ""

    @property
    def name(self) -> str:
        """Model and server."""
        return self._name

    def encode(self, texts: Sequence[str], *, hurry: bool = False) -> list[bytes]:
        """For each text its vector as signed bytes. Raises ModelDown.

        One repeat for what may pass at once; none with `hurry`, which also waits a few seconds at most.
        """
        wait_sec = self._asked_again_at - self._clock.monotonic()
        if wait_sec > 0:
            raise ModelDown(self._failure, until=self._clock.now() + timedelta(seconds=wait_sec))
        try:
            found = self._asked([_encodable(text) for text in texts], hurry=hurry)
        except _Failed as failure:
            raise self._down(str(failure)) from None
        self._rest_sec = _REST_SEC
        return found

    def close(self) -> None:
        """Close the connections."""
        if self._sdk is not None:
            self._sdk.close()

    def _down(self, problem: str) -> ModelDown:
        self._failure = f"{self._name}: {without_secrets(problem, *self._secrets)[:400]}"
        self._asked_again_at = self._clock.monotonic() + self._rest_sec
        until = self._clock.now() + timedelta(seconds=self._rest_sec)
        self._rest_sec = min(2 * self._rest_sec, _LONGEST_REST_SEC)
        return ModelDown(self._failure, until=until)

    def _asked(self, texts: Sequence[str], *, hurry: bool) -> list[bytes]:
        try:
            return self._exchange(texts, hurry=hurry)
        except _Failed as failure:
            if hurry or not failure.passing:
                raise
        return self._exchange(texts, hurry=hurry)

    def _exchange(self, texts: Sequence[str], *, hurry: bool) -> list[bytes]:
        import openai  # a second and 40 MB, which what never encodes should not pay

        client = self._client()
        longest = min(self._role.timeout_sec, _HURRY_SEC if hurry else _LONGEST_SEC)
        try:
            answer = client.embeddings.with_raw_response.create(
                model=self._role.settings.model,
                input=list(texts),
                encoding_format="float",  # the SDK's own base64 is not understood everywhere
                timeout=openai.Timeout(longest, connect=min(_CONNECT_SEC, longest)),
            )
            # Not through the SDK's types: it checks nothing of what came, and a server may answer anything.
            body = json.loads(answer.content)
        except openai.APIStatusError as error:
            passing = error.status_code >= 500 or error.status_code in _PASSING_STATUS
            text = error_text(error.body, error.message)
            raise _Failed(f"answered {error.status_code}: {text}", passing=passing) from None
        except openai.APITimeoutError:
            raise _Failed(f"sent nothing for {longest:g} s", passing=True) from None
        except openai.OpenAIError as error:
            said = str(error.__cause__ or error) or type(error).__name__
            raise _Failed(f"cannot be reached: {said}", passing=True) from None
        except ValueError:
            raise _Failed("its answer is no JSON") from None
        vectors = _vectors_of(body, len(texts))
        self._tell_tokens(body)
        return vectors

    def _client(self) -> openai.OpenAI:
        import openai

        with self._opening:
            if self._sdk is None:
                self._sdk = openai.OpenAI(
                    api_key=self._role.api_key, base_url=self._role.base_url, max_retries=0
                )
            return self._sdk

    def _tell_tokens(self, body: Any) -> None:
        usage = body.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if self._count_tokens is not None and isinstance(tokens, int) and tokens > 0:
            self._count_tokens(tokens)


class _Failed(Exception):
    """An exchange without vectors."""

    def __init__(self, problem: str, *, passing: bool = False) -> None:
        super().__init__(problem)
        self.passing = passing


def _vectors_of(body: Any, count: int) -> list[bytes]:
    """The vectors of an answer, in the order of the texts."""
    try:
        rows = sorted(body["data"], key=lambda row: row["index"])
        vectors = [_signed_bytes(row["embedding"]) for row in rows]
    except (TypeError, KeyError, ValueError, OverflowError):
        raise _Failed("its answer holds no vectors") from None
    if len(vectors) != count or len({len(vector) for vector in vectors}) > 1:
        raise _Failed(f"{count} texts were sent, {len(vectors)} vectors came, or not all of one length")
    return vectors


def _signed_bytes(vector: Sequence[float]) -> bytes:
    """The direction of a vector, its largest component at 127."""
    largest = max(map(abs, vector))
    if not 0 < largest < math.inf:
        raise ValueError("a vector without direction")
    return array("b", [round(127 * component / largest) for component in vector]).tobytes()


def _encodable(text: str) -> str:
    """Half a surrogate pair cannot be sent, and some endpoints refuse an empty text."""
    return text[:_MOST_CHARS].encode("utf-8", "replace").decode().strip() or "-"
