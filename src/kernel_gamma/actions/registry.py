"""Every tool the mind may use: the built-in ones, changed and extended by config/tools.yaml."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast, get_args

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.trust import TRUST_ORDER, Trust, reaches
from kernel_gamma.errors import SettingsError

__all__ = ["Outside", "Permission", "Registry", "ToolSpec", "build_registry"]

Permission = Literal["free", "ask", "off"]
Telling = Literal["note", "perceive"]

Outside: TypeAlias = Callable[..., Awaitable[Json]]
"""`async def tool(arguments, *, idempotency_key)`: returns JSON, raises to fail."""

_OVERRIDES = ("permission", "min_trust", "outcome")
_USER_KEYS = (*_OVERRIDES, "class", "description", "parameters", "idempotent")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "permission": get_args(Permission),
    "min_trust": TRUST_ORDER,
    "outcome": get_args(Telling),
}
_NO_ARGUMENTS: Mapping[str, Json] = {"type": "object", "properties": {}}
_PLAIN = frozenset({"type", "properties", "required", "additionalProperties", "description", "title"})
_TYPE_ONLY = frozenset({"type", "description", "title"})
_KINDS: Mapping[str, type] = {"string": str, "boolean": bool, "integer": int}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as it is declared."""

    name: str
    description: Mapping[str, str]
    """By language: `en`, `zh`."""
    parameters: Mapping[str, Json]
    """JSON Schema of the arguments, an object."""
    idempotent: bool = False
    """May be run again with the same idempotency key when nobody knows whether it ran."""
    permission: Permission = "free"
    """`ask`: a person must approve each use."""
    min_trust: Trust = "unknown"
    """The least trusted event behind an action must reach it."""
    outcome: Telling = "perceive"
    """How a success is told: `note` a line in the stream, `perceive` an event."""
    outside: Outside | None = None
    """Set for tools that leave the data directory; None = built in, pure."""

    def described(self, language: str) -> str:
        """The description in `language`, or in whichever language there is."""
        return self.description.get(language) or next(iter(self.description.values()), self.name)


@dataclass(frozen=True, slots=True)
class Registry:
    """The tools by name. Validators and catalogues are made once."""

    specs: Mapping[str, ToolSpec]
    _validators: dict[str, tuple[_Flat, Draft202012Validator]] = field(default_factory=dict)
    _catalogues: dict[tuple[Trust, str], list[dict[str, Json]]] = field(default_factory=dict)

    def get(self, name: str) -> ToolSpec | None:
        return self.specs.get(name)

    def catalogue(self, trust: Trust, language: str) -> list[dict[str, Json]]:
        """`{name, description, parameters}` of all tools that `trust` reaches and that are not off."""
        key = (trust, language)
        if key not in self._catalogues:
            self._catalogues[key] = [
                {
                    "name": spec.name,
                    "description": spec.described(language),
                    "parameters": dict(spec.parameters),
                }
                for spec in self.specs.values()
                if spec.permission != "off" and reaches(trust, spec.min_trust)
            ]
        return self._catalogues[key]

    def problem(self, name: str, arguments: Mapping[str, Json]) -> str | None:
        """What is wrong with the name or the arguments, in a sentence; None if nothing is."""
        spec = self.specs.get(name)
        if spec is None:
            known = ", ".join(self.specs)
            return f"there is no tool {_quoted(name)}; there are {known}"
        if name not in self._validators:
            self._validators[name] = _Flat(spec.parameters), Draft202012Validator(spec.parameters)
        flat, validator = self._validators[name]
        if flat.fits(arguments):
            return None
        for error in validator.iter_errors(arguments):
            where = ".".join(str(step) for step in error.absolute_path)
            at = f"argument {where}" if where else "the arguments"
            return f"{name}: {at}: {_quoted(error.message, 200)}"
        return None


class _Flat:
    """Sees at once that arguments fit a plain schema. What it does not see, the validator decides."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        properties: Json = schema.get("properties", ())
        self._kinds: dict[str, type] = {}
        self._required: tuple[str, ...] = tuple(schema.get("required", ()))
        self._is_plain = isinstance(properties, dict) and schema.keys() <= _PLAIN
        for name, rule in properties.items() if isinstance(properties, dict) else ():
            kind = rule.get("type") if isinstance(rule, dict) and rule.keys() <= _TYPE_ONLY else None
            if isinstance(kind, str) and kind in _KINDS:
                self._kinds[name] = _KINDS[kind]

    def fits(self, arguments: Mapping[str, Json]) -> bool:
        """True: they are valid. False: they may be, or not."""
        return (
            self._is_plain
            and all(type(value) is self._kinds.get(name) for name, value in arguments.items())
            and all(name in arguments for name in self._required)
        )


def build_registry(
    builtins: Iterable[ToolSpec], document: Json, *, file: str = "config/tools.yaml"
) -> Registry:
    """The built-in tools with what `document`, the parsed `file`, says of them, and its own tools.

    `document` None changes nothing. Raises SettingsError for an unknown key, a wrong value
    or a class that cannot be had.
    """
    specs = {spec.name: spec for spec in builtins}
    top = _mapping(document, file, "the file")
    _only(top, ("tools",), file, "")
    tools = _mapping(top.get("tools"), file, "tools")
    for name, entry in tools.items():
        key = f"tools.{name}"
        given = _mapping(entry, file, key)
        if "class" in given:
            if name in specs:
                raise SettingsError(file, key, "is built in", "give your own tool another name")
            specs[name] = _user_tool(str(name), given, file)
        elif name in specs:
            _only(given, _OVERRIDES, file, key)
            specs[name] = replace(specs[name], **_chosen(given, file, key))
        else:
            mend = _nearest(str(name), specs) or 'a tool of your own needs class: "module:callable"'
            raise SettingsError(file, key, "there is no such built-in tool", mend)
    return Registry(specs)


def _user_tool(name: str, given: Mapping[str, Json], file: str) -> ToolSpec:
    key = f"tools.{name}"
    _only(given, _USER_KEYS, file, key)
    if not (name.isascii() and name.replace("_", "").isalnum() and len(name) <= 64):
        raise SettingsError(file, key, "is no tool name", "use letters, digits and _, up to 64")
    description = given.get("description")
    if isinstance(description, str):
        description = {"en": description, "zh": description}
    if not isinstance(description, dict) or not description:
        raise SettingsError(
            file, f"{key}.description", "is missing", "a sentence, or one under en: and under zh:"
        )
    idempotent = given.get("idempotent", False)
    if not isinstance(idempotent, bool):
        raise SettingsError(file, f"{key}.idempotent", "must be true or false")
    return ToolSpec(
        name=name,
        description={str(k): str(v) for k, v in description.items()},
        parameters=_schema(given.get("parameters", _NO_ARGUMENTS), file, f"{key}.parameters"),
        idempotent=idempotent,
        outside=_callable(given["class"], file, f"{key}.class"),
        **_chosen({"min_trust": "known", **given}, file, key),
    )


def _chosen(given: Mapping[str, Json], file: str, key: str) -> dict[str, Any]:
    """The overrides among `given`, checked."""
    chosen = {name: given[name] for name in _OVERRIDES if name in given}
    if chosen.get("permission") is False:
        chosen["permission"] = "off"  # how YAML reads a bare `off`
    for name, value in chosen.items():
        if value not in _CHOICES[name]:
            mend = "one of " + ", ".join(_CHOICES[name])
            raise SettingsError(file, f"{key}.{name}", f"{value!r} is not allowed", mend)
    return chosen


def _schema(schema: Json, file: str, key: str) -> Mapping[str, Json]:
    found = _mapping(schema, file, key)
    try:
        Draft202012Validator.check_schema(found)
    except SchemaError as error:
        raise SettingsError(file, key, f"is no JSON Schema: {error.message}") from error
    if found.get("type") != "object":
        raise SettingsError(file, key, "must describe an object", "begin with type: object")
    return found


def _callable(target: Json, file: str, key: str) -> Outside:
    module_name, colon, attribute = str(target).partition(":")
    if not colon or not attribute:
        raise SettingsError(file, key, f"{target!r} names no callable", 'write "module:callable"')
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise SettingsError(
            file, key, f"{target} cannot be had: {error}", "is it installed, or in the home?"
        ) from error
    if not inspect.iscoroutinefunction(found):
        raise SettingsError(file, key, f"{target} is not an async function", "async def it")
    return cast(Outside, found)


def _mapping(value: Json, file: str, key: str) -> Mapping[str, Json]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(file, key, "must be a mapping of keys to values")
    return value


def _only(given: Mapping[str, Json], allowed: Iterable[str], file: str, key: str) -> None:
    for name in given:
        if name not in allowed:
            where = f"{key}.{name}" if key else str(name)
            mend = _nearest(str(name), allowed) or "known keys: " + ", ".join(allowed)
            raise SettingsError(file, where, "unknown key", mend)


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {found[0]}?" if found else ""


def _quoted(text: str, limit: int = 80) -> str:
    """Words that came from a model: on one line, bounded."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
