"""What says the same as something that stands in the prompt already. Pure.

A piece is a duplicate when its text stands inside another's, or is all but the same, letter for letter. Texts
that differ in a number or a time are told apart here: folding those is the business of retrieval, which
counts them.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from rapidfuzz import fuzz

__all__ = ["Said", "said_plainly"]

_ALIKE = 97.0
_SHORTEST = 12
"""Characters; what is shorter is inside of many texts by chance and counts only as a whole."""


def said_plainly(text: str) -> str:
    """`text` as it is compared: one case, one width, one kind of space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(slots=True)
class Said:
    """What stands in a prompt so far."""

    _texts: list[tuple[str, str]] = field(default_factory=list)
    """(where it stands, as it is compared)."""

    def add(self, where: str, text: str) -> None:
        """`text` stands in the prompt, in the part `where`."""
        if plain := said_plainly(text):
            self._texts.append((where, plain))

    def where(self, text: str) -> str | None:
        """The part that says `text` already; None when none does."""
        plain = said_plainly(text)
        if not plain:
            return None
        for where, known in self._texts:
            if plain == known or (len(plain) >= _SHORTEST and plain in known):
                return where
        numbers = _numbers(plain)
        for where, known in self._texts:
            if fuzz.ratio(plain, known, score_cutoff=_ALIKE) and _numbers(known) == numbers:
                return where
        return None


def _numbers(text: str) -> str:
    return "".join(sign for sign in text if sign.isdigit())
