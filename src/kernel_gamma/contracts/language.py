"""Which of the two languages a text is in: prompts and templates follow it."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["Language", "language_of"]

Language = Literal["en", "zh"]

_LOOKED_AT = 4000
"""Characters of a long text that are looked at."""
_CHINESE_SHARE = 0.2
"""A Chinese word is about two letters, an English one five: a fifth of the letters is half the words."""

_NO_PROSE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://[!-~]+|[\w.+-]+@[\w-]+\.[\w.]+", re.DOTALL)
_IDEOGRAPH = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN_WORD = re.compile("[A-Za-z\u00c0-\u024f]{2,}")


def language_of(text: str) -> Language:
    """`zh` when Chinese carries the text, else `en`; code, addresses and links are not counted."""
    sample = text[:_LOOKED_AT]
    if sample.isascii():
        return "en"
    prose = _NO_PROSE.sub(" ", sample)
    ideographs = len(_IDEOGRAPH.findall(prose))
    if not ideographs:
        return "en"
    if not _LATIN_WORD.search(prose):
        return "zh"
    return "zh" if ideographs >= _CHINESE_SHARE * len(_LETTER.findall(prose)) else "en"
