"""Does a text that comes in say what the mind itself said? Pure.

What she sends is remembered by hashes alone, each under a key of its own (effects.Claim): one for the whole
text, and for a longer text four for the smallest of its shingles, so that it is known again with a few words
before or after it. Case, width, blanks, punctuation and a quotation mark `>` make no difference. Quoted lines
above words of one's own are not looked at: who answers her words does not echo them.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.loops.keys import digest
from kernel_gamma.words import SIGNS, WORD

__all__ = ["Echo", "Saying", "echo_of", "is_sign", "saying", "tokens", "weight"]

_SAID, _NEAR = "loop.said:", "loop.near:"
_QUOTE = re.compile(r"^[ \t]*(?:[>＞][ \t]*)+")
_TOKENS = re.compile(rf"[{SIGNS}]|{WORD}+")
_SIGN = re.compile(f"[{SIGNS}]")
_WORD_WEIGHT, _SIGN_WEIGHT = 5, 3
_SHORT = 20
"""Fewer than four words, or than seven Chinese signs: anybody may say the same by chance."""
_LONG = 40
"""From eight words, or fourteen signs, on a text is also known by its shingles."""
_SHINGLE = 4
_SMALLEST = 4
_ENOUGH = 2
"""Of the four smallest shingles, so many must be the same."""
_ADDED, _ADDED_SHARE = 5, 0.15
"""Tokens that may stand around her words, and their share: a name, a time. Who adds more says something."""
_LOOKED_AT = 2000
"""Tokens of a long text."""


@dataclass(frozen=True, slots=True)
class Saying:
    """A text as it is known again."""

    key: str
    near: tuple[str, ...]
    short: bool
    length: int
    """In tokens."""

    def claims(self, *, session: str, hops: int, at: float) -> Iterator[tuple[str, Mapping[str, Json]]]:
        """What to remember when she says it; `at` in epoch seconds."""
        yield self.key, {"session": session, "hops": hops, "at": at, "length": self.length}
        for key in self.near:
            yield key, {"said": self.key}


@dataclass(frozen=True, slots=True)
class Echo:
    """Her own words, come back."""

    session: str
    """Where she said them last."""
    hops: int
    at: float
    """When, in epoch seconds."""
    short: bool


def tokens(text: str) -> list[str]:
    """Words and single signs of scripts without spaces, in one case and one width; a long text's first."""
    plain = unicodedata.normalize("NFKC", text[: _LOOKED_AT * 20]).casefold()
    return _TOKENS.findall(plain)[:_LOOKED_AT]


def is_sign(token: str) -> bool:
    """Whether a token is a sign of a script without spaces."""
    return _SIGN.match(token) is not None


def weight(found: list[str]) -> int:
    """How much tokens say: a word is 5, a Chinese sign 3."""
    return sum(_SIGN_WEIGHT if is_sign(token) else _WORD_WEIGHT for token in found)


def saying(text: str) -> Saying | None:
    """How `text` is known again; None when it says nothing."""
    own = _unquoted(text)
    found = tokens(own)
    said = " ".join(found) or "".join(unicodedata.normalize("NFKC", own).split())
    if not said:
        return None
    heavy = weight(found)
    near = _smallest(found) if heavy >= _LONG else ()
    return Saying(_SAID + digest(said), near, heavy < _SHORT, len(found))


def echo_of(said: Saying, seen: Callable[[str], Mapping[str, Json] | None]) -> Echo | None:
    """The words of hers that `said` repeats, if `seen` remembers any."""
    known = seen(said.key)
    if known is None and said.near:
        hits = Counter(str(found["said"]) for key in said.near if (found := seen(key)) is not None)
        likeliest, count = hits.most_common(1)[0] if hits else ("", 0)
        known = seen(likeliest) if count >= _ENOUGH else None
        if known is not None and said.length - int(known["length"]) > max(
            _ADDED, _ADDED_SHARE * int(known["length"])
        ):
            return None  # her words, and then somebody's own
    if known is None:
        return None
    return Echo(str(known["session"]), int(known["hops"]), float(known["at"]), said.short)


def _unquoted(text: str) -> str:
    """The lines that are no quotation; when all of them are, what they quote."""
    if ">" not in text and "＞" not in text:
        return text
    lines = text.splitlines()
    own = "\n".join(line for line in lines if not _QUOTE.match(line))
    return own if _TOKENS.search(own) else "\n".join(_QUOTE.sub("", line) for line in lines)


def _smallest(found: list[str]) -> tuple[str, ...]:
    """Keys of the smallest hashes among all rows of four tokens: near texts share most of them."""
    rows = {" ".join(found[start : start + _SHINGLE]) for start in range(len(found) - _SHINGLE + 1)}
    return tuple(_NEAR + row for row in sorted(map(digest, rows))[:_SMALLEST])
