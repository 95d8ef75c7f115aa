"""What a text looks like to who reads it: letters folded, what cannot be seen left out. Pure.

A model reads over blanks, control and format characters, combining marks and fillers; so a name or a tag
of ours that hides behind them is still taken for one.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

__all__ = ["escape_tags", "look", "unescape_tags"]

_TAGS: Final = ("event", "passage", "recalled")
_FILLERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that are drawn as nothing."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Mc", "Me", "Mn", "Zl", "Zp", "Zs"})
_OPENING: Final = re.compile("[<\ufe64\uff1c\u226e]")
_ESCAPED: Final = re.compile("&lt;")
_JOINS: Final = re.compile(r"[\w-]")
"""After a tag's name: it is the beginning of another name."""


@lru_cache(maxsize=4096)
def _seen(character: str) -> str:
    """What of one character is seen, folded; empty for what is not seen."""
    parts = unicodedata.normalize("NFKD", character)
    return "".join(
        part for part in parts if part not in _FILLERS and unicodedata.category(part) not in _UNSEEN
    ).casefold()


def look(text: str) -> str:
    """`text` as it is read: no blanks, nothing unseen, no accents, in one case and one width."""
    return "".join(map(_seen, text))


def escape_tags(text: str) -> str:
    """`text` with the `<` of what looks like a tag of ours, and of nothing else, made `&lt;`."""
    return _OPENING.sub(lambda found: "&lt;" if _is_tag(text, found.end()) else found[0], text)


def unescape_tags(text: str) -> str:
    """The reverse of `escape_tags`."""
    return _ESCAPED.sub(lambda found: "<" if _is_tag(text, found.end()) else found[0], text)


def _is_tag(text: str, start: int) -> bool:
    """Whether from `start` on, after blanks and slashes, the name of a tag of ours is read."""
    name = ""
    for index in range(start, len(text)):
        seen = _seen(text[index])
        if not seen or (not name and seen == "/"):
            continue
        name += seen
        if name in _TAGS:
            return not _goes_on(text[index + 1 : index + 2])
        if not any(tag.startswith(name) for tag in _TAGS):
            return False
    return False


def _goes_on(character: str) -> bool:
    return bool(_JOINS.match(character)) and bool(_seen(character))
