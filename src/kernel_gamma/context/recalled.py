"""A record of the memory store as it stands in a prompt: fenced, and cut until it fits. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from kernel_gamma.context.fences import MAX_CHARS_PER_TOKEN, Count, recalled_fence
from kernel_gamma.contracts.context import Piece
from kernel_gamma.contracts.envelope import rfc3339
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.truths import Truth
from kernel_gamma.truths.excerpts import excerpt, searchable_text

__all__ = ["folded_line", "recalled_piece", "said_by", "without_key_words"]

_RECORD_CHARS = 20_000
_LAST = re.compile(r"(?:\n| … )([^\n…]*)\Z")
_LEAST_CHARS = 80
"""Of a record that is cut: a few words of it are not worth their fence."""

_FOLDED: Mapping[Language, str] = {
    "en": "×{count}, first {first}, last {last}",
    "zh": "×{count}，首次 {first}，末次 {last}",
}


def said_by(truth: Truth) -> str:
    """What a record says, of a very long one its beginning: cutting an excerpt of it all takes long."""
    return searchable_text(truth.description, truth.value)[:_RECORD_CHARS]


def without_key_words(text: str, key: str) -> str:
    """An excerpt of the store without the words of its key at the end: the fence says them already."""
    last = _LAST.search(text)
    if last is not None and set(last[1].split()) <= set(key.split(".")):
        return text[: last.start()]
    return text


def folded_line(count: int, first: datetime | None, last: datetime | None, language: Language) -> str:
    """The line that tells how many records one stands for; empty when it stands for itself alone."""
    if count < 2 or first is None or last is None:
        return ""
    return _FOLDED[language].format(count=count, first=rfc3339(first), last=rfc3339(last))


def recalled_piece(
    truth: Truth, said: str, words: Sequence[str], *, most: int, count: Count, line: str = ""
) -> Piece | None:
    """A record between its fence, cut around `words` until it takes at most `most` tokens, fence included.

    `said`: what it says, in full or an excerpt. `line` stands below it, whole. None when not even a few
    words of it fit.
    """
    said = said.strip()

    def fenced(shown: str) -> str:
        body = "\n".join(part for part in (shown, line) if part)
        return recalled_fence(truth.key, body, trust=truth.trust, time=rfc3339(truth.timestamp))

    least = min(_LEAST_CHARS, len(said))
    chars = min(len(said), most * MAX_CHARS_PER_TOKEN)
    bare: int | None = None
    while True:
        shown = excerpt(said, words, chars)
        text = fenced(shown)
        tokens = count(text)
        if tokens <= most and 2 * len(shown) >= least:
            return Piece(
                source=truth.key,
                text=text,
                tokens=tokens,
                plain=shown,
                at=truth.timestamp,
                sha256=truth.sha256 or "",
            )
        bare = count(fenced("")) if bare is None else bare
        if bare >= most or chars <= least:
            return None
        fitting = len(shown) * (most - bare) // max(1, tokens - bare)
        chars = max(least, min(fitting, chars * 9 // 10))
