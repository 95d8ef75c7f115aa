"""What of a new page is news. Pure.

A sentence is no news when another one says all of it already: its words, but for those that only say that
something is recalled or told, stand there in the same order, and neither denies more than the other. So a
changed name, number or "not" is always news, and a mere repetition never is, however it is introduced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernel_gamma.words import SIGNS, WORD

__all__ = ["Known", "sentences", "without"]

_END = re.compile(r"(?<=[.!?;])(?=[\s\"'”’)*_]|$)|(?<=[。！？；])|\n")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_LEAD = re.compile(r"^\s*(?:[-*+>]\s+|\d+[.)]\s+)?(?:\*\*[^*\n]{1,60}\*\*[:：]?\s*)?")
_TOKEN = re.compile(rf"[{SIGNS}]|{WORD}+(?:['’-]{WORD}+)*")
_LEAST = 3
"""Words, or Chinese characters, below which a sentence says too little to be compared."""
_SAID = frozenset(
    re.split(
        r"\s+",
        "i me my mine myself that this it its the a an and so then again also now still just recall recalls"
        " recalled remember remembers remembered remembering know knew known told tell tells said say her him"
        " them to of as is was am are were be been being have has had",
    )
).union("我自己想起来了记得又再说过知道也就还是的地着这那它她他们告诉样和")
"""Words that say that something is told or recalled, or nothing."""
_DENIES = frozenset(
    ("not", "no", "never", "nobody", "nothing", "none", "neither", "nor", "without", "cannot")
)
_DENIES = _DENIES.union("不没沒无無未别別非莫")


@dataclass(frozen=True, slots=True)
class _Said:
    """What a sentence says, word by word."""

    words: tuple[str, ...]
    denials: int


class Known:
    """Sentences that are known, to be asked whether they say what another one says."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._all = [
            said for text in texts for sentence in sentences(text) if (said := _said(sentence)).words
        ]
        self._by_word: dict[str, list[_Said]] = {}
        for said in self._all:
            for word in set(said.words):
                self._by_word.setdefault(word, []).append(said)

    def says(self, sentence: str) -> bool:
        """Whether one of them says all that `sentence` says; False for what says too little."""
        asked = _said(sentence)
        if len(asked.words) < _LEAST:
            return False
        found = [self._by_word.get(word, []) for word in asked.words]
        return any(
            known.denials == asked.denials and _within(asked.words, known.words)
            for known in min(found, key=len)
        )


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, headings left out."""
    for line in text.split("\n"):
        lead = _LEAD.match(line)
        if _HEADING.match(line) or lead is None:
            continue
        parts = _END.split(line[lead.end() :])
        parts[0] = lead[0] + parts[0]
        yield from (part for part in parts if part.strip())


def without(page: str, unwanted: Iterable[str]) -> str:
    """The page without some of its sentences; a line that said nothing else goes too."""
    left_out = set(unwanted)
    lines: list[str] = []
    for line in page.split("\n"):
        parts = [line] if _HEADING.match(line) else list(sentences(line))
        kept = [part for part in parts if part not in left_out]
        if len(kept) == len(parts):
            lines.append(line)
        elif any(_TOKEN.search(_LEAD.sub("", part)) for part in kept):
            lead = _LEAD.match(line)
            shown = "".join(kept).strip()
            if lead and lead[0].strip() and not shown.startswith(lead[0].strip()):
                shown = lead[0] + shown
            lines.append(shown.rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _said(sentence: str) -> _Said:
    tokens = [_plain(token) for token in _TOKEN.findall(_LEAD.sub("", sentence).lower())]
    words = tuple(token for token in tokens if token not in _SAID)
    return _Said(words, sum(token in _DENIES or token.endswith("n't") for token in tokens))


def _plain(token: str) -> str:
    return token.replace("’", "'").removesuffix("'s")


def _within(asked: tuple[str, ...], known: tuple[str, ...]) -> bool:
    """Whether the words of one stand in the other in their order."""
    rest = iter(known)
    return all(word in rest for word in asked)
