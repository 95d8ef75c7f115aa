"""From a home folder and the environment to checked Settings; what `kgamma init` lays out.

Order, later ones win: the defaults of settings.py, config/kernel.yaml, KGAMMA_<SECTION>__<KEY> from `.env`
and the environment. Every problem is found at once; nothing runs on settings that were half understood.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import io
import json
import re
import types
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from dotenv.parser import parse_stream
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, SettingsConfigDict
from pydantic_settings import PydanticBaseSettingsSource as Source

import kernel_gamma
from kernel_gamma import settings as settings_module
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import SettingsError
from kernel_gamma.settings import ClockSettings, GatewaySettings, Settings, StaticSettings

__all__ = [
    "Home",
    "SettingDoc",
    "defaults_dir",
    "describe_settings",
    "home_of",
    "lay_out",
    "load_environment",
    "load_settings",
    "read_yaml",
]

PREFIX = "KGAMMA_"
HOME_VARIABLE = "KGAMMA_HOME"
_NO_SETTINGS = frozenset(
    {
        HOME_VARIABLE,
        "KGAMMA_COMMAND",
        str(GatewaySettings.model_fields["token_env"].default),
        str(StaticSettings.model_fields["approval_secret_env"].default),
    }
)
"""Variables of ours that stand for no setting."""
_NAMING = (("static", "approval_secret_env"), ("gateway", "token_env"))
"""Settings that name a variable which holds a secret: that one is no setting either."""


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one project directory."""

    root: Path

    @property
    def config_dir(self) -> Path:
        return self.root / "config"

    @property
    def settings_file(self) -> Path:
        return self.config_dir / "kernel.yaml"

    @property
    def env_file(self) -> Path:
        return self.root / ".env"

    @property
    def prompts_dir(self) -> Path:
        return self.root / "prompts"

    def data_dir(self, settings: Settings) -> Path:
        return self.root / settings.data_dir

    def topology_file(self, settings: Settings) -> Path:
        return self.root / settings.topology


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One knob, for docs and `kgamma doctor`."""

    key: str
    """Dotted: `bus.settle_sec`."""
    type: str
    default: str
    """As it would stand in kernel.yaml."""
    sentence: str


def home_of(option: str | None, environ: Mapping[str, str]) -> Path:
    """`--home`, else KGAMMA_HOME, else the current directory; absolute, maybe not there yet."""
    return Path(option or environ.get(HOME_VARIABLE) or ".").expanduser().absolute()


def load_environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` completed with the home's `.env`: what is already set wins. Raises SettingsError."""
    path = Home(home).env_file
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return dict(environ)
    except UnicodeDecodeError:
        raise SettingsError(str(path), "file", "is not UTF-8", "save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(str(path), "file", f"cannot be read: {error.strerror}") from None
    found: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            # the line itself may hold a secret: only its number is told
            line = f"line {binding.original.line}"
            raise SettingsError(str(path), line, "is not understood", "write NAME=value")
        if binding.key and binding.value is not None:
            found[binding.key] = binding.value
    return {**found, **environ}


def load_settings(home: Path, environ: Mapping[str, str]) -> Settings:
    """The checked settings of a home.

    Raises SettingsError for the first problem; its text names all of them.
    """
    written = read_yaml(path := Home(home).settings_file)
    origins = _Origins(path)
    variables = dict(origins.known(load_environment(home, environ), written))
    handed_in: dict[str, Any] = {"written": written, "variables": variables}
    try:
        gathered = _Gathered(**handed_in)
    except ValidationError as error:
        origins.problems += map(origins.explain, error.errors(include_url=False))
        raise _all_in_one(origins.problems) from None
    origins.problems += _cross_checks(settings := Settings(**dict(gathered)), origins)
    if origins.problems:
        raise _all_in_one(origins.problems)
    return settings


def defaults_dir() -> Path:
    """Where the shipped config/, prompts/ and data/README.md lie: in the wheel, or in the checkout."""
    package = Path(kernel_gamma.__file__).parent
    for folder in (package / "_defaults", package.parent.parent):
        if Home(folder).settings_file.is_file():
            return folder
    raise SettingsError(
        str(package), "_defaults", "the shipped defaults are missing", "install kernel-gamma again"
    )


def lay_out(target: Path) -> list[Path]:
    """Copy the shipped defaults into `target`, never over anything; returns the files written."""
    source = defaults_dir()
    written = []
    for file in _shipped_files(source):
        copy = target / file.relative_to(source)
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            if copy.is_symlink() or copy.exists():
                continue
            half = copy.with_name(f".{copy.name}.tmp")
            half.write_bytes(file.read_bytes())
            half.rename(copy)
        except OSError as error:
            raise SettingsError(
                str(copy), "init", f"cannot be written: {error.strerror}", "choose another directory"
            ) from None
        written.append(copy)
    return written


def describe_settings() -> list[SettingDoc]:
    """Every setting with the sentence that stands below it in settings.py, in the order of that file."""
    return list(_describe(Settings, "", _sentences()))


# kernel.yaml


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: no key twice; on, off, yes, no and dates are plain words."""


def _unique_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Json]:
    loader.flatten_mapping(node)
    found: dict[str, Json] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str) or key in found:
            problem = f"{key} stands here a second time" if key in found else f"{key!r} is no name"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_BOOL, _TIMESTAMP = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag not in {_BOOL, _TIMESTAMP}]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_constructor("tag:yaml.org,2002:map", _unique_mapping)


def read_yaml(path: Path) -> dict[str, Json]:
    """The sections of a file of config/; empty when it says nothing. Raises SettingsError with the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = yaml.load(text, _Loader)
    except FileNotFoundError:
        mend = f"run `kgamma init {path.parent.parent}`, or name the home with --home or {HOME_VARIABLE}"
        raise SettingsError(str(path), "file", "there is no such file", mend) from None
    except UnicodeDecodeError:
        raise SettingsError(str(path), "file", "is not UTF-8", "save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(str(path), "file", f"cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}" if mark else "file"
        raise SettingsError(str(path), line, error.problem or "is no YAML", "mend that line") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(str(path), "file", f"is no YAML: {error}") from None
    if found is not None and not isinstance(found, dict):
        raise SettingsError(str(path), "file", "must hold sections", "write `bus:` and its keys below it")
    return found or {}


# The sources of settings


class _Gathered(BaseSettings, Settings):
    """Settings as they are gathered: variables first, then the file, then the defaults."""

    model_config = SettingsConfigDict(
        case_sensitive=True,
        env_prefix=PREFIX.lower(),
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: Source,
        env_settings: Source,
        dotenv_settings: Source,
        file_secret_settings: Source,
    ) -> tuple[Source, ...]:
        """Nothing is read from the process itself: what there is was handed in."""
        given = init_settings()
        written = _said(given["written"], Settings())
        return _Variables(settings_cls, given["variables"]), InitSettingsSource(settings_cls, written)


class _Variables(EnvSettingsSource):
    """KGAMMA_ variables out of a mapping; None stands for null."""

    def __init__(self, settings_cls: type[BaseSettings], variables: Mapping[str, str | None]) -> None:
        self._variables = variables
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._variables.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """A list is JSON or a,b,c; what is neither is left for the check to name."""
        if not value.lstrip().startswith("["):
            return [part.strip() for part in value.split(",") if part.strip()]
        try:
            return json.loads(value)
        except ValueError:
            return value


def _said(written: Mapping[str, Json], section: BaseModel) -> dict[str, Json]:
    """What a file says to `section`; a section whose lines are all commented out (null) says nothing."""
    said: dict[str, Json] = {}
    for key, value in written.items():
        inner = getattr(section, key, None)
        if not isinstance(inner, BaseModel):
            said[key] = value
        elif value is not None:
            said[key] = _said(value, inner) if isinstance(value, dict) else value
    return said


class _Origins:
    """Where each setting came from, and what was wrong with it."""

    def __init__(self, path: Path) -> None:
        self.problems: list[SettingsError] = []
        self._path = path
        self._variables: dict[str, str] = {}

    def known(self, environ: Mapping[str, str], written: Mapping[str, Json]) -> Iterator[tuple[str, Any]]:
        """The variables that set something; an unknown one is a problem, an empty one is as good as none."""
        named = set(_named_by(environ, written))
        for variable, value in environ.items():
            if not variable.startswith(PREFIX) or variable in _NO_SETTINGS or variable in named:
                continue
            parts = variable.removeprefix(PREFIX).lower().split("__")
            key = ".".join(parts)
            annotation = _annotation_at(parts)
            if annotation is None:
                self.problems.append(_unknown(f"environment variable {variable}", key, as_variable=True))
            elif value and not _is_broken(written, parts):
                self._variables[key] = variable
                yield variable, None if value == "null" and type(None) in get_args(annotation) else value

    def error(self, key: str, problem: str, mend: str = "") -> SettingsError:
        """A problem with `key`, told of the place that set it."""
        for said, variable in self._variables.items():
            if key == said or key.startswith(said + "."):
                return SettingsError(f"environment variable {variable}", key, problem, mend)
        return SettingsError(str(self._path), key, problem, mend)

    def explain(self, found: ErrorDetails) -> SettingsError:
        """One finding of pydantic as a sentence."""
        key = ".".join(str(part) for part in found["loc"])
        if found["type"] == "extra_forbidden":
            return _unknown(str(self._path), key)
        if found["type"] == "missing":
            return self.error(key, "is missing")
        problem = found["msg"].replace("Input should be", "must be")
        if "model" in found["type"]:
            problem = "must be a section"
        if isinstance(found["input"], str | int | float | bool):
            problem += f", is {json.dumps(found['input'], ensure_ascii=False)}"
        return self.error(key, problem)


def _named_by(environ: Mapping[str, str], written: Mapping[str, Json]) -> Iterator[str]:
    for section, key in _NAMING:
        entry = written.get(section)
        if isinstance(entry, dict) and isinstance(entry.get(key), str):
            yield entry[key]
        if name := environ.get(f"{PREFIX}{section}__{key}".upper()):
            yield name


def _unknown(file: str, key: str, *, as_variable: bool = False) -> SettingsError:
    guess = _closest(key)
    if guess and as_variable:
        guess = PREFIX + guess.upper().replace(".", "__")
    return SettingsError(file, key, "unknown key", f"did you mean {guess}?" if guess else "remove it")


def _closest(key: str) -> str | None:
    """The known key most like `key`; the right word in a wrong section counts too."""
    keys = list(_known_keys(Settings, ""))
    close = difflib.get_close_matches(key, keys, 1, 0.75)
    if close:
        return close[0]
    leaves = {known.rpartition(".")[2]: known for known in reversed(keys)}
    leaf = difflib.get_close_matches(key.rpartition(".")[2], leaves, 1, 0.75)
    return leaves[leaf[0]] if leaf else None


def _known_keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        section = _section_in(field.annotation)
        if section is not None:
            yield from _known_keys(section, f"{prefix}{name}.")


def _section_in(annotation: Any) -> type[BaseModel] | None:
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _annotation_at(parts: list[str]) -> Any:
    """The annotation of the setting a variable names; None when there is none, or it is a section."""
    model: type[BaseModel] | None = Settings
    annotation: Any = None
    for part in parts:
        if model is None or part not in model.model_fields:
            return None
        annotation = model.model_fields[part].annotation
        model = _section_in(annotation)
    return annotation if model is None else None


def _is_broken(written: Json, parts: list[str]) -> bool:
    """Whether the file holds something else where the sections of a variable belong: that is told instead."""
    for part in parts[:-1]:
        written = written.get(part)
        if not isinstance(written, dict):
            return written is not None
    return False


def _all_in_one(problems: list[SettingsError]) -> SettingsError:
    first = problems[0]
    first.args = ("\n".join(str(problem) for problem in problems),)
    return first


# What types alone cannot say


def _cross_checks(settings: Settings, origins: _Origins) -> Iterator[SettingsError]:
    clock, debug = settings.clock, settings.debug
    if clock.zone is not None and not _zone_exists(clock.zone):
        close = difflib.get_close_matches(clock.zone, zoneinfo.available_timezones(), 1)
        mend = f"did you mean {close[0]}?" if close else "write an IANA name like Asia/Shanghai"
        yield origins.error("clock.zone", f"there is no time zone {clock.zone}", mend)
    if not clock.trial:
        for key in ("start", "rate"):
            if getattr(clock, key) != ClockSettings.model_fields[key].default:
                yield origins.error(
                    f"clock.{key}", "is for trials only", "set clock.trial: true, or remove it"
                )
    if clock.start is not None and not _is_moment(clock.start):
        mend = "write it like 2026-11-30T08:00:00+08:00"
        yield origins.error("clock.start", f"is no RFC 3339 time: {clock.start}", mend)
    if debug.kill_at is None:
        return
    if not debug.enabled:
        yield origins.error(
            "debug.kill_at", "is for crash tests only", "set debug.enabled: true, or remove it"
        )
    if not re.fullmatch(r"[^:\s]+(:[1-9]\d*)?", debug.kill_at):
        yield origins.error("debug.kill_at", f"must be `step` or `step:n`, is {debug.kill_at}")


def _zone_exists(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; leads out of the folder; is a folder
        return False
    return True


def _is_moment(text: str) -> bool:
    try:
        return 1 < datetime.fromisoformat(text).year < 9999
    except ValueError:
        return False


# Laying out and describing


def _shipped_files(source: Path) -> list[Path]:
    found = [*sorted((source / "config").rglob("*")), *sorted((source / "prompts").rglob("*"))]
    found = [file for file in found if file.is_file() and not _is_hidden(file.relative_to(source))]
    return [*found, source / "data" / "README.md"]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "__")) or part.endswith("~") for part in path.parts)


def _sentences() -> dict[tuple[str, str], str]:
    """(class, setting) → the string that stands below it, whitespace made plain."""
    tree = ast.parse(inspect.getsource(settings_module))
    found: dict[tuple[str, str], str] = {}
    for section in tree.body:
        if not isinstance(section, ast.ClassDef):
            continue
        for line, below in pairwise(section.body):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                text = getattr(getattr(below, "value", None), "value", None)
                if isinstance(below, ast.Expr) and isinstance(text, str):
                    found[section.name, line.target.id] = " ".join(text.split())
    return found


def _describe(
    model: type[BaseModel], prefix: str, sentences: Mapping[tuple[str, str], str], given: Any = None
) -> Iterator[SettingDoc]:
    for name, field in model.model_fields.items():
        default = getattr(given, name) if given is not None else field.default
        if isinstance(default, BaseModel):
            yield from _describe(type(default), f"{prefix}{name}.", sentences, default)
            continue
        said = (sentences.get((kind.__name__, name)) for kind in model.__mro__)
        yield SettingDoc(prefix + name, _type_words(field), json.dumps(default), next(filter(None, said), ""))


_TYPE_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


def _type_words(field: FieldInfo) -> str:
    metadata = [*field.metadata]
    words = _words_of(field.annotation, metadata)
    found = ((rule, name, sign) for rule in metadata for name, sign in _BOUNDS if hasattr(rule, name))
    return " ".join([words, *(f"{sign} {getattr(rule, name):g}" for rule, name, sign in found)])


def _words_of(annotation: Any, metadata: list[Any]) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " | ".join(get_args(annotation))
    if origin is tuple:
        return f"list of {_words_of(get_args(annotation)[0], metadata)}"
    if origin is Annotated:
        inner, *rules = get_args(annotation)
        for rule in rules:
            metadata += getattr(rule, "metadata", [rule])
        return _words_of(inner, metadata)
    if origin in (Union, types.UnionType):
        return " or ".join(_words_of(kind, metadata) for kind in get_args(annotation))
    return _TYPE_WORDS.get(annotation, "section")
