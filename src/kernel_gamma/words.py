"""Which characters are words, in any language. Pure; used by the checks and by the search."""

from __future__ import annotations

__all__ = ["EMOJI", "SIGNS", "WORD"]

SIGNS = (
    "\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Inside of a regex class: Chinese, Japanese and Korean, written without spaces or nearly so."""

EMOJI = "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
"""Inside of a regex class: pictures that stand for a word."""

WORD = rf"[^\W_{SIGNS}]"
"""Regex: one letter or digit of a language that puts spaces between its words."""
