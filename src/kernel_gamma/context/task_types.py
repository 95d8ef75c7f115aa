"""Task types: which there are (config/task_types.yaml), and of which one a task is. Pure.

A task is read by rules, in both languages at once; no model is asked here. Where the rules cannot tell types
apart the guess says so (`tied`), and somebody else may let a fast model decide.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from kernel_gamma.contracts.context import Guess, Profile, TaskRule
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import json_kind
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.truths import TaskType, check_category
from kernel_gamma.errors import SettingsError
from kernel_gamma.truths.terms import index_terms, normal
from kernel_gamma.words import SIGNS, WORD

__all__ = ["FALLBACK", "LEAST_DYNAMIC", "MOST_DYNAMIC", "TASK_TYPES_FILE", "TaskTypes", "load_task_types"]

TASK_TYPES_FILE = "config/task_types.yaml"
FALLBACK = "general_query"
"""What a task is of which no word tells anything; the file must hold it."""
LEAST_DYNAMIC, MOST_DYNAMIC = 500, 2000
"""Between these Channel B's budget is held where it is not 0: less shows nothing whole, more is a log."""

_READ_HEAD, _READ_TAIL = 6000, 2000
"""Characters of a task that are read: a pasted log stands in the middle, what is wanted at an end."""
_WEAK, _STRONG = 1.0, 2.0
_SHOWN_WORDS = 5
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LATIN = re.compile(rf"{WORD}+")
_IDENTIFIER = re.compile(
    r"\b(?:0x[0-9a-f]{6,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{1,3}(?:\.\d{1,3}){3}|[a-z]+-\d\d)\b",
    re.IGNORECASE,
)
_SIGN = re.compile(rf"[{SIGNS}]")


@dataclass(frozen=True, slots=True)
class _Speaks:
    """What a word says of a type."""

    type: str
    weight: float
    at_once: bool
    written: str
    """As the file has it."""


class _Vocabulary:
    """All words of all types, found in a task in one pass; of overlapping ones the first, longest counts."""

    def __init__(self) -> None:
        self._phrases: dict[tuple[str, ...], list[_Speaks]] = {}
        self._longest: dict[str, int] = {}
        self._pieces: dict[str, list[_Speaks]] = {}
        self._any_piece: re.Pattern[str] | None = None

    def add(self, word: str, said: _Speaks) -> bool:
        """Take a word in; False when it holds nothing that could be found."""
        folded = normal(word).strip()
        stems = tuple(stem for stem, _ in _stems(folded))
        if _SIGN.search(folded) or (not stems and any(c.isprintable() and not c.isspace() for c in folded)):
            _put(self._pieces.setdefault(folded, []), said)
        elif stems:
            _put(self._phrases.setdefault(stems, []), said)
            self._longest[stems[0]] = max(len(stems), self._longest.get(stems[0], 0))
        else:
            return False
        return True

    def close(self) -> None:
        """Call it when all words are in."""
        if self._pieces:
            longest = sorted(self._pieces, key=lambda piece: (-len(piece), piece))
            self._any_piece = re.compile("|".join(map(re.escape, longest)))

    def found_in(self, task: str) -> list[_Speaks]:
        """What the task's words say, in the order in which they stand, each once."""
        if len(task) > _READ_HEAD + _READ_TAIL:
            task = f"{task[:_READ_HEAD]} {task[-_READ_TAIL:]}"
        text = normal(task)
        found = [*self._spoken(text)]
        if self._any_piece is not None:
            matches = self._any_piece.finditer(text)
            found += [(match.start(), said) for match in matches for said in self._pieces[match[0]]]
        found.sort(key=lambda place: place[0])
        return list(dict.fromkeys(said for _, said in found))

    def _spoken(self, text: str) -> Iterator[tuple[int, _Speaks]]:
        tokens = list(_stems(text))
        at = 0
        while at < len(tokens):
            stem, place = tokens[at]
            for length in range(self._longest.get(stem, 0), 0, -1):
                phrase = tuple(stem for stem, _ in tokens[at : at + length])
                if phrase in self._phrases:
                    for said in self._phrases[phrase]:
                        yield place, said
                    at += len(phrase) - 1
                    break
            at += 1


@dataclass(frozen=True)
class TaskTypes:
    """All task types of a home; made by `load_task_types`."""

    rules: Mapping[str, TaskRule]
    """By name, in the order of the file."""
    _words: _Vocabulary
    _identified: tuple[str, ...] = ()
    """Types that an identifier of a machine, a session or a process speaks for."""

    def rule(self, name: str) -> TaskRule:
        """The type of a name. Raises ValueError that lists the known ones."""
        found = self.rules.get(name)
        if found is None:
            raise ValueError(f"there is no task type {name!r}; there are {', '.join(self.rules)}")
        return found

    def guess(self, task: str, *, signs: Sequence[str] = (), wanted: str | None = None) -> Guess:
        """Of which type a task is.

        First counts what is `wanted`, then `signs` of an emergency (a short name each, told in `why`), then
        a word that decides at once, then the words' weights together. The same task has the same guess.
        Raises ValueError for an unknown `wanted`.
        """
        if wanted is not None:
            return Guess(rule=self.rule(wanted), why=f"{wanted} was asked for")
        found = [*self._words.found_in(task), *self._identifiers_in(task)]
        scores = self._scores(found)
        emergency = next((rule for rule in self.rules.values() if rule.sign), None)
        if signs and emergency is not None:
            why = f"a sign of an emergency stands: {', '.join(signs[:_SHOWN_WORDS])}"
            return Guess(rule=emergency, why=why, scores=scores)
        for said in found:
            if said.at_once:
                why = f"the task says {_quoted([said])}, which decides at once"
                return Guess(rule=self.rules[said.type], why=why, scores=scores)
        if not scores:
            return Guess(rule=self.rules[FALLBACK], why="no word of the task tells of what type it is")
        best = max(scores.values())
        tied = tuple(name for name, score in scores.items() if score == best)
        why = f"the task says {_quoted(said for said in found if said.type == tied[0])}"
        if len(tied) == 1:
            return Guess(rule=self.rules[tied[0]], why=why, scores=scores)
        others = _quoted(said for said in found if said.type in tied[1:])
        why += f"; {others} tells as much of {' and '.join(tied[1:])}"
        return Guess(rule=self.rules[tied[0]], why=why, scores=scores, tied=tied)

    def _identifiers_in(self, task: str) -> Iterator[_Speaks]:
        """The first identifier of a task, for each type that such a one speaks for."""
        if self._identified and (match := _IDENTIFIER.search(task[:_READ_HEAD])):
            for name in self._identified:
                yield _Speaks(name, _WEAK, False, match[0])

    def _scores(self, found: Iterable[_Speaks]) -> dict[str, float]:
        sums: dict[str, float] = {}
        for said in found:
            sums[said.type] = sums.get(said.type, 0.0) + said.weight
        return {name: sums[name] for name in self.rules if name in sums}


def load_task_types(document: Json, file: str = TASK_TYPES_FILE) -> TaskTypes:
    """The task types a file describes, read by `configuration.read_yaml`.

    There are no types in code: for a home without the file hand in the shipped one. Raises SettingsError for
    the first problem.
    """
    if not isinstance(document, dict) or not document:
        mend = "write `types:` and the types below it, or remove the file: the shipped types hold then"
        problem = "is missing" if not document else f"must stand in a section, is {json_kind(document)}"
        raise SettingsError(file, "types", problem, mend)
    try:
        written = _File.model_validate(document)
    except ValidationError as error:
        raise _explained(error.errors(include_url=False)[0], file) from None
    if FALLBACK not in written.types:
        problem = f"{FALLBACK} is missing: what a task is of which no word tells anything"
        raise SettingsError(file, "types", problem, f"write `{FALLBACK}:` with profile and budget")
    signs = [name for name, entry in written.types.items() if entry.sign]
    if len(signs) > 1:
        problem = f"stands in {signs[0]} too: an emergency is of one type"
        raise SettingsError(file, f"types.{signs[1]}.sign", problem, "remove one")
    words = _Vocabulary()
    rules = {name: _rule(name, entry, words, file) for name, entry in written.types.items()}
    words.close()
    identified = tuple(name for name, entry in written.types.items() if entry.identifiers)
    return TaskTypes(rules, words, identified)


class _Words(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    en: list[str] = Field(default_factory=list, max_length=1000)
    zh: list[str] = Field(default_factory=list, max_length=1000)


class _Type(BaseModel):
    """One entry as it is written."""

    model_config = ConfigDict(extra="forbid", strict=True)
    profile: Profile
    budget: int = Field(ge=100, le=1_000_000)
    dynamic_budget: int = Field(ge=0, le=1_000_000)
    categories: list[str] = Field(default_factory=list, max_length=100)
    hours: float | None = Field(default=None, gt=0, le=876_000)
    static_truths: bool = False
    like: TaskType | None = None
    sign: bool = False
    identifiers: bool = False
    words: _Words = Field(default_factory=_Words)
    strong: _Words = Field(default_factory=_Words)
    at_once: _Words = Field(default_factory=_Words)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    types: dict[str, _Type]


_KEYS = {1: tuple(_File.model_fields), 3: tuple(_Type.model_fields), 4: tuple(_Words.model_fields)}
"""Depth of a key in the file -> what may stand there."""


def _rule(name: str, entry: _Type, words: _Vocabulary, file: str) -> TaskRule:
    at = f"types.{name}"
    if not _NAME.fullmatch(name):
        problem = "is no name for a task type"
        raise SettingsError(file, at, problem, "write small letters a-z, digits and _, a letter first")
    dynamic = entry.dynamic_budget
    dynamic = min(max(dynamic, LEAST_DYNAMIC), MOST_DYNAMIC) if dynamic else 0
    if dynamic > entry.budget:
        problem = f"is {dynamic}, more than the budget of both channels ({entry.budget})"
        raise SettingsError(file, f"{at}.dynamic_budget", problem, "raise budget, or write 0")
    return TaskRule(
        name=name,
        profile=entry.profile,
        budget=entry.budget,
        dynamic_budget=dynamic,
        categories=tuple(_categories(entry.categories, f"{at}.categories", file)),
        hours=entry.hours,
        static_truths=entry.static_truths,
        like=entry.like,
        words=_taken(name, entry, words, file),
        sign=entry.sign,
    )


def _categories(written: Sequence[str], key: str, file: str) -> Iterator[str]:
    for category in written:
        try:
            yield check_category(category)
        except ValueError as error:
            raise SettingsError(file, key, f"{category!r}: {error}", "write it like incident.") from None


def _taken(name: str, entry: _Type, words: _Vocabulary, file: str) -> Mapping[Language, Sequence[str]]:
    """Enter the words of a type; returns them by language."""
    groups = (
        ("at_once", entry.at_once, _STRONG, True),
        ("strong", entry.strong, _STRONG, False),
        ("words", entry.words, _WEAK, False),
    )
    taken: dict[Language, list[str]] = {}
    for group, listed, weight, at_once in groups:
        for language in get_args(Language):
            for word in getattr(listed, language):
                if not words.add(word, _Speaks(name, weight, at_once, word)):
                    key = f"types.{name}.{group}.{language}"
                    raise SettingsError(file, key, f"{word!r} holds no word", "remove it")
                taken.setdefault(language, []).append(word)
    return {language: tuple(found) for language, found in taken.items()}


def _put(saying: list[_Speaks], said: _Speaks) -> None:
    """Of two forms of one word the weightier counts; it is entered first."""
    if all(said.type != other.type for other in saying):
        saying.append(said)


def _stems(text: str) -> Iterator[tuple[str, int]]:
    """Words of a folded text that have spaces between them, as the search has them, and where they begin."""
    for match in _LATIN.finditer(text):
        yield (index_terms(match[0]) or [match[0]])[0], match.start()


def _quoted(found: Iterable[_Speaks]) -> str:
    words = [said.written for said in found]
    more = f" and {len(words) - _SHOWN_WORDS} more" if len(words) > _SHOWN_WORDS else ""
    return ", ".join(f"“{word}”" for word in words[:_SHOWN_WORDS]) + more


def _explained(found: ErrorDetails, file: str) -> SettingsError:
    """One finding of pydantic as a sentence."""
    place: Sequence[Any] = found["loc"]
    key = ".".join(map(str, place))
    if found["type"] == "extra_forbidden":
        known = _KEYS[len(place)]
        close = difflib.get_close_matches(str(place[-1]), known, 1)
        mend = f"did you mean {close[0]}?" if close else f"it may hold {', '.join(known)}"
        return SettingsError(file, key, "unknown key", mend)
    if found["type"] == "missing":
        return SettingsError(file, key, "is missing", "write it as in the shipped file")
    problem = found["msg"].replace("Input should be", "must be")
    if "model" in found["type"] or found["type"] == "dict_type":
        problem = "must be a section"
    mend = (
        "write it in quotes"
        if found["type"] == "string_type"
        else "docs/task-types.md tells what each key means"
    )
    return SettingsError(file, key, f"{problem}, is {json_kind(found['input'])}", mend)
