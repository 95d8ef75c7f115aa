"""Bytes of a dropped file → a JSON document that is safe to walk, store and print, or Poison.

Kinds of Poison: `empty`, `not_json`, `too_deep`, `not_an_object`. The first two may still heal while a
slow writer is at work; the other two never will.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isinf
from typing import NoReturn

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import Poison

__all__ = ["clean_json", "clean_text", "json_kind", "read_document"]

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

_BAD_LETTERS = re.compile("[\x00\ud800-\udfff]")
_BAD_ESCAPES = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
"""Only these escapes can bring a bad letter in: decoding refuses surrogates, JSON refuses a raw NUL."""

_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
"""Whole strings (so that brackets inside them do not count), opening and closing brackets."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError(f"the number {_short(digits)} is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def read_document(raw: bytes, *, max_depth: int) -> Json:
    """One object, or a non-empty array of objects, nested at most `max_depth` deep (itself counts).

    UTF-8, a BOM is tolerated. Lone surrogates and NUL come back as U+FFFD; of equal keys the last
    counts. Raises Poison, whose text says what is wrong and where.
    """
    text = _decode(raw)
    if text.count("{") + text.count("[") > max_depth:
        _check_depth(text, max_depth)
    document = _parse(text)
    if _BAD_ESCAPES.search(text):
        document = _guarded(lambda: clean_json(document))
    _check_shape(document)
    return document


def clean_json(value: Json) -> Json:
    """A copy of `value` in which no string and no key holds a lone surrogate or a NUL."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_json(element) for element in value]
    if isinstance(value, dict):
        return {clean_text(key): clean_json(element) for key, element in value.items()}
    return value


def clean_text(text: str) -> str:
    """`text` with U+FFFD for what neither UTF-8 nor a page of Markdown can hold."""
    return _BAD_LETTERS.sub("\N{REPLACEMENT CHARACTER}", text)


def json_kind(value: Json) -> str:
    """What a JSON value is called in a sentence for a person: `a list`, `null`, …"""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def _decode(raw: bytes) -> str:
    body = raw[len(_BOM) :] if raw.startswith(_BOM) else raw
    if not body or body.isspace():
        raise Poison("the file is empty", kind="empty")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        if body.startswith(_UTF16_BOMS):
            detail = "the file is UTF-16: save it as UTF-8"
        else:
            line = body.count(b"\n", 0, error.start) + 1
            detail = f"not UTF-8: byte 0x{body[error.start]:02x} in line {line}"
        raise Poison(detail, kind="not_json") from None


def _parse(text: str) -> Json:
    try:
        return _guarded(lambda: _DECODER.decode(text))
    except json.JSONDecodeError as error:
        if not text.strip("\0 \t\r\n"):
            detail = "the file holds NUL bytes only: it was cut off before its data reached the disk"
        else:
            detail = f"not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}"
        raise Poison(detail, kind="not_json") from None
    except ValueError as error:  # NaN, an infinite number, more digits than Python reads
        raise Poison(f"not JSON that can be kept: {error}", kind="not_json") from None


def _guarded(run: Callable[[], Json]) -> Json:
    try:
        return run()
    except RecursionError:
        raise Poison("nested too deeply to be read", kind="too_deep") from None
    except MemoryError:
        raise Poison("needs more memory than there is", kind="not_json") from None


def _check_depth(text: str, max_depth: int) -> None:
    depth = 0
    for found in _NESTING.finditer(text):
        letter = text[found.start()]
        if letter in "[{":
            depth += 1
            if depth > max_depth:
                start = found.start()
                line = text.count("\n", 0, start) + 1
                column = start - text.rfind("\n", 0, start)
                raise Poison(
                    f"nested deeper than {max_depth} levels at line {line}, column {column}",
                    kind="too_deep",
                )
        elif letter in "]}":
            depth -= 1


def _check_shape(document: Json) -> None:
    if isinstance(document, dict):
        return
    if not isinstance(document, list):
        raise Poison(f"must be an object, is {json_kind(document)}", kind="not_an_object")
    if not document:
        raise Poison("an empty array holds no event", kind="not_an_object")
    for index, element in enumerate(document):
        if not isinstance(element, dict):
            raise Poison(
                f"element {index} of the array must be an object, is {json_kind(element)}",
                kind="not_an_object",
            )


def _short(digits: str) -> str:
    return digits if len(digits) <= 40 else digits[:37] + "..."
