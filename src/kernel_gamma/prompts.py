"""Strict loader of prompts/{en,zh}/*.md: the words a mind is given, kept out of the code.

`{name}` is a placeholder, `{{` and `}}` are braces. Both languages hold the same prompts with the same
placeholders; anything else is a SettingsError at load, never a hole in a prompt later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kernel_gamma.errors import SettingsError

__all__ = ["LANGUAGES", "Prompts"]

Language = Literal["en", "zh"]
_TAKEN = frozenset({"self", "name", "language"})
"""Parameters of `Prompts.text`: a placeholder called like one could never be filled."""

LANGUAGES: Final[tuple[Language, ...]] = ("en", "zh")

_BRACES = re.compile(r"\{\{|\}\}|\{([a-z][a-z0-9_]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class _Prompt:
    path: Path
    source: str
    pieces: tuple[str, ...]
    """Text and placeholder names by turns, text first and last."""

    @property
    def placeholders(self) -> frozenset[str]:
        return frozenset(self.pieces[1::2])


class Prompts:
    """Every prompt of a home, read once; contracts.ports.Prompts."""

    def __init__(self, directory: Path) -> None:
        """Reads `directory`/en and `directory`/zh. Raises SettingsError."""
        self._directory = directory
        self._prompts = _read_all(directory)

    def reload(self) -> None:
        """Read everything again; if anything is wrong raise SettingsError and keep what was there."""
        self._prompts = _read_all(self._directory)

    def text(self, name: str, language: Language, **values: str) -> str:
        """The prompt with its placeholders filled; values are put in as they are.

        Raises SettingsError for an unknown prompt, a placeholder without value, a value without
        placeholder.
        """
        prompt = self._prompts[language].get(name)
        if prompt is None:
            path = self._directory / language / f"{name}.md"
            raise SettingsError(str(path), name, "there is no such prompt", "`kgamma init` restores it")
        if values.keys() != prompt.placeholders:
            raise _mismatch(prompt, values)
        pieces = list(prompt.pieces)
        pieces[1::2] = [values[placeholder] for placeholder in pieces[1::2]]
        return "".join(pieces)

    def sources(self, language: Language) -> Sequence[str]:
        """The text of every prompt of a language as it stands in its file, in order of their names."""
        return tuple(prompt.source for prompt in self._prompts[language].values())


def _mismatch(prompt: _Prompt, values: Mapping[str, str]) -> SettingsError:
    missing = sorted(prompt.placeholders - values.keys())
    if missing:
        return SettingsError(
            str(prompt.path), missing[0], "nothing fills this placeholder", "remove it from the file"
        )
    extra = sorted(values.keys() - prompt.placeholders)[0]
    return SettingsError(
        str(prompt.path), extra, "the placeholder is missing", f"put {{{extra}}} where it belongs"
    )


def _read_all(directory: Path) -> dict[Language, dict[str, _Prompt]]:
    prompts = {language: _read_language(directory / language) for language in LANGUAGES}
    _compare(directory / "zh", prompts["en"], prompts["zh"])
    _compare(directory / "en", prompts["zh"], prompts["en"])
    return prompts


def _read_language(folder: Path) -> dict[str, _Prompt]:
    try:
        paths = sorted(path for path in folder.iterdir() if _is_prompt(path))
    except OSError as error:
        raise SettingsError(
            str(folder), "prompts", f"cannot be read: {error.strerror}", "`kgamma init` lays it out"
        ) from None
    return {path.stem: _read(path) for path in paths}


def _is_prompt(path: Path) -> bool:
    return path.suffix == ".md" and not path.name.startswith(".")


def _read(path: Path) -> _Prompt:
    try:
        source = path.read_text(encoding="utf-8-sig").strip()  # line ends are made \n here
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 (byte {error.start})"
        raise SettingsError(str(path), path.stem, problem, "save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(str(path), path.stem, f"cannot be read: {error.strerror}") from None
    if not source:
        raise SettingsError(str(path), path.stem, "is empty", "write it, or remove it in both languages")
    return _Prompt(path, source, _pieces(path, source))


def _pieces(path: Path, source: str) -> tuple[str, ...]:
    pieces = [""]
    end = 0
    for found in _BRACES.finditer(source):
        pieces[-1] += source[end : found.start()]
        end = found.end()
        if found[1] and found[1] not in _TAKEN:
            pieces += [found[1], ""]
        elif found[0] in {"{{", "}}"}:
            pieces[-1] += found[0][0]
        else:
            line = source.count("\n", 0, found.start()) + 1
            raise SettingsError(
                str(path),
                path.stem,
                f"{found[0]} in line {line} is no placeholder",
                "for a brace itself write {{ or }}; a placeholder is {word} of a-z, 0-9 and _, "
                f"but none of {', '.join(sorted(_TAKEN))}",
            )
    pieces[-1] += source[end:]
    return tuple(pieces)


def _compare(folder: Path, mine: Mapping[str, _Prompt], theirs: Mapping[str, _Prompt]) -> None:
    for name, prompt in mine.items():
        other = theirs.get(name)
        if other is None:
            path = folder / f"{name}.md"
            raise SettingsError(str(path), name, "is missing", f"translate {prompt.path}")
        lacking = sorted(prompt.placeholders - other.placeholders)
        if lacking:
            raise SettingsError(
                str(other.path),
                lacking[0],
                f"the placeholder stands in {prompt.path} only",
                "both languages need the same ones",
            )
