"""The JSON object in a model's reply. Pure. Mends what is clearly meant, never what was cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import json_repair

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import clean_json

__all__ = ["read_object"]

_CANDIDATES = 64
_MENDED_CHARS = 200_000
"""Mending is slow on long text; an answer this long that needs it is no answer."""

_LOOKS_LIKE_OBJECT = re.compile(r"""\{\s*(?:["'“]|[A-Za-z_]\w*\s*:|\}|//|/\*)""")
_CLOSES = {"{": "}", "[": "]"}


def read_object(text: str, required: tuple[str, ...]) -> dict[str, Json]:
    """The first object in `text` that has all the `required` keys.

    Understood: fenced JSON, prose around it (with braces of its own), trailing commas, comments,
    single quotes, unescaped line breaks, lone surrogate escapes (U+FFFD in the answer). Raises
    ValueError, fit to be shown to the model, for everything else: an object that is cut off, an
    empty one, none at all.
    """
    missing: list[str] | None = None
    broken = False
    for start in _starts(text):
        end = _end_of_object(text, start)
        found = _parse(text, start, end)
        if found is None and end is None:
            if not _LOOKS_LIKE_OBJECT.match(text, start):
                continue
            raise ValueError(
                "The JSON object is cut off: it is not closed. Answer again with the whole object,"
                " shorter if it was too long."
            )
        if found is None:
            broken = broken or _LOOKS_LIKE_OBJECT.match(text, start) is not None
            continue
        if found and all(key in found for key in required):
            return found
        if missing is None:
            missing = [key for key in required if key not in found]
    raise ValueError(_problem(missing, broken, required))


def _problem(missing: list[str] | None, broken: bool, required: tuple[str, ...]) -> str:
    wanted = ", ".join(f'"{key}"' for key in required) or "the keys that were asked for"
    if missing is None and not broken:
        return f"The answer holds no JSON object. Answer with one object with {wanted}, nothing else."
    if missing is None:
        return f"The answer is not valid JSON. Answer with one valid object with {wanted}."
    if not missing:
        return f"The JSON object is empty. Answer with one object with {wanted}."
    lacking = ", ".join(f'"{key}"' for key in missing)
    return f"The JSON object lacks {lacking}. Answer with one object with {wanted}."


def _starts(text: str) -> Iterator[int]:
    """Where an object may begin: outermost first, then, should that fail, inside it."""
    position = -1
    for _ in range(_CANDIDATES):
        position = text.find("{", position + 1)
        if position < 0:
            return
        yield position


def _end_of_object(text: str, start: int) -> int | None:
    """One past the bracket that closes the one at `start`; None when the text ends before."""
    open_brackets: list[str] = []
    in_string = escaped = False
    for index in range(start, len(text)):
        letter = text[index]
        if in_string:
            in_string = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            in_string = True
        elif letter in _CLOSES:
            open_brackets.append(_CLOSES[letter])
        elif letter in "]}":
            if open_brackets.pop() != letter:
                return None
            if not open_brackets:
                return index + 1
    return None


def _parse(text: str, start: int, end: int | None) -> dict[str, Json] | None:
    """The object that begins at `start`, strictly read, or mended if it is a whole one."""
    try:
        found, _ = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        found = _mended(text[start:end]) if end is not None else None
    return _clean(found) if isinstance(found, dict) else None


def _mended(piece: str) -> Any:
    if len(piece) > _MENDED_CHARS or not _LOOKS_LIKE_OBJECT.match(piece):
        return None
    try:
        mended = json_repair.loads(piece, skip_json_loads=True)
        # It leaves the two halves of an escaped pair apart; a round trip joins them.
        return json.loads(json.dumps(mended))
    except (ValueError, RecursionError):
        return None


def _clean(found: dict[str, Json]) -> dict[str, Json] | None:
    try:
        cleaned = clean_json(found)
    except RecursionError:
        return None
    return cleaned if isinstance(cleaned, dict) else None


def _no_number(name: str) -> None:
    """NaN and the infinities are no JSON: null."""


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_number)
