"""What is wrong with a field, in plain words: which kind it has, and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernel_gamma.contracts.json_text import clean_text, json_kind

__all__ = ["CATEGORY_PATTERN", "DATE_PATTERN", "KEY_PATTERN", "said_of"]

KEY_PATTERN = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
CATEGORY_PATTERN = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$"
DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

_OF_PATTERN: Mapping[str, str] = {
    KEY_PATTERN: "must be made of the characters A-Z a-z 0-9 _ - in parts joined by dots, "
    "like incident.disk_full.root_cause; other signs belong into description and value",
    CATEGORY_PATTERN: "must be made of the characters A-Z a-z 0-9 _ - in parts joined by dots, like incident",
    DATE_PATTERN: "must be a date like 2026-11-30",
}
_Found = Mapping[str, Any]


def said_of(error: _Found) -> str:
    """The sentence, without the field's name, for one error of pydantic."""
    kind = error["type"]
    if kind in _SAID:
        return clean_text(_SAID[kind](error))
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}{_is(error)}"
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return clean_text(message)


_WANTED: Mapping[str, str] = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
}
"""By the error's type, what is right."""


def _is(error: _Found) -> str:
    """`, is a list`: what was sent instead. Text is not repeated, it may be long or secret."""
    if "input" not in error:
        return ""
    value = error["input"]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f", is {value}"
    return f", is {json_kind(value)}"


def _bound(error: _Found) -> str:
    context = error["ctx"]
    side = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
    return f"must be {side}{_is(error) if not isinstance(error.get('input'), str) else ''}"


def _too_long(error: _Found) -> str:
    has = f", has {len(error['input'])}" if isinstance(error.get("input"), str) else ""
    return f"must have at most {error['ctx']['max_length']} characters{has}"


def _too_short(error: _Found) -> str:
    least = error["ctx"]["min_length"]
    return "must not be empty" if least == 1 else f"must have at least {least} characters"


def _too_few(error: _Found) -> str:
    least = error["ctx"]["min_length"]
    return "must not be an empty list" if least == 1 else f"must have at least {least} elements"


def _too_many(error: _Found) -> str:
    return f"must have at most {error['ctx']['max_length']} elements"


def _pattern(error: _Found) -> str:
    return _OF_PATTERN.get(error["ctx"]["pattern"], "is not written as this field must be; /docs tells how")


_SAID: Mapping[str, Callable[[_Found], str]] = {
    "extra_forbidden": lambda _: "is not a field of this request; /docs lists its fields",
    "missing": lambda _: "is missing",
    "string_pattern_mismatch": _pattern,
    "string_too_long": _too_long,
    "string_too_short": _too_short,
    "too_long": _too_many,
    "too_short": _too_few,
    "greater_than_equal": _bound,
    "less_than_equal": _bound,
    "int_parsing_size": lambda _: "must be a smaller number",
    "literal_error": lambda error: f"must be one of {error['ctx']['expected'].replace(' or ', ', ')}",
}
