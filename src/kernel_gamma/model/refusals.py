"""What an endpoint's refusal means for the call. Pure: status and text in, a verdict out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum

from kernel_gamma.contracts.envelope import Json

__all__ = ["Kind", "Quirk", "error_text", "kind_of", "named_quirks", "retry_at", "without_secrets"]

_SHOWN_CHARS = 300
_LONGEST_RETRY_AFTER = timedelta(days=1)


class Kind(Enum):
    """How a call can fail."""

    PASSING = "passing"
    """May be gone at once: try again."""
    LASTING = "lasting"
    """Another try changes nothing until a person or time mends it."""
    NO_MODEL = "no_model"
    """The endpoint is well, it does not know this model."""
    TOO_LONG = "too_long"
    """This prompt does not fit the model, ever."""
    FORBIDDEN = "forbidden"
    """This prompt breaks the provider's rules, always will."""
    ENDLESS = "endless"
    """The endpoint answers, but does not come to an end."""
    UNCLEAR = "unclear"
    """A 4xx for a reason of its own: either this prompt or the way of asking."""


class Quirk(Enum):
    """A parameter some endpoints refuse; once refused it is left out for that model."""

    STREAM_OPTIONS = "stream_options"
    STREAM = "stream"
    TEMPERATURE = "temperature"
    MAX_TOKENS = "max_tokens"
    """Newer endpoints want max_completion_tokens instead."""


_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|limit)|maximum context|prompt is too long|too many tokens"
    r"|exceed\w*.{0,40}(context|tokens)|reduce the length|string_above_max_length|input is too long",
    re.IGNORECASE | re.DOTALL,
)
_FORBIDDEN = re.compile(
    r"content[ _-]?(filter|policy|management)|content_policy_violation|safety system"
    r"|data_inspection_failed|inappropriate content|invalid_prompt|moderation",
    re.IGNORECASE,
)
_NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model.{0,80}(not (found|exist)|does not exist|unknown|not supported|no such)"
    r"|(unknown|invalid|no such) model|model_not_found",
    re.IGNORECASE | re.DOTALL,
)
_NAMES = {
    Quirk.STREAM_OPTIONS: re.compile(r"\bstream_options\b|\binclude_usage\b"),
    Quirk.STREAM: re.compile(r"\bstream(ing)?\b", re.IGNORECASE),
    Quirk.TEMPERATURE: re.compile(r"\btemperature\b", re.IGNORECASE),
    Quirk.MAX_TOKENS: re.compile(r"\bmax_(completion_)?tokens\b"),
}
_KEY_LIKE = re.compile(r"\b(sk|pk|key|gsk|xai)-[A-Za-z0-9_*\-]{6,}|Bearer\s+\S+", re.IGNORECASE)


def kind_of(status: int, text: str) -> Kind:
    """What a refusal with this status and body text is."""
    if status == 413:
        return Kind.TOO_LONG
    if status == 404 or (status in (400, 422) and _NO_MODEL.search(text)):
        return Kind.NO_MODEL
    if status in (401, 402, 403):
        return Kind.LASTING
    if status == 429:
        return Kind.LASTING if _NO_QUOTA.search(text) else Kind.PASSING
    if status in (408, 409, 425) or status >= 500:
        return Kind.PASSING
    if _TOO_LONG.search(text):
        return Kind.TOO_LONG
    return Kind.FORBIDDEN if _FORBIDDEN.search(text) else Kind.UNCLEAR


def named_quirks(text: str) -> list[Quirk]:
    """The parameters a refusal complains about."""
    return [quirk for quirk in Quirk if _NAMES[quirk].search(text)]


def retry_at(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """The moment of a Retry-After header (seconds or an HTTP date), at most a day from `now`.

    A date is measured against the server's own Date header: its clock need not be ours.
    """
    value = headers.get("retry-after", "").strip()
    try:
        wait = timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        named = _http_date(value)
        wait = named - (_http_date(headers.get("date", "")) or now) if named else timedelta(0)
    if wait <= timedelta(0):
        return None
    return now + min(wait, _LONGEST_RETRY_AFTER)


def without_secrets(text: str, *secrets: str) -> str:
    """`text` on one line, short, without the given secrets and anything that looks like a key."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    line = " ".join(_KEY_LIKE.sub("***", text).split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"


def error_text(body: Json, fallback: str) -> str:
    """Message, code and parameter of an error body, for matching and for showing."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error) if error else fallback
    found = [error.get(key) for key in ("message", "detail", "code", "type", "param")]
    words = " ".join(str(word) for word in found if word)
    return words or fallback


def _http_date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
