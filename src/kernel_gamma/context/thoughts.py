"""A thought the externalizer hands back: does it say something new, and may it join the stream?"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.self_stream.passages import check_passage, clean

__all__ = ["thought_of"]

_SAME = 0.85
"""A thought this like the passage says nothing new."""


def thought_of(found: Json, passage: str, sources: Sequence[str]) -> str:
    """The thought as it may join the stream; empty when there is none or it is the passage again."""
    if found is None or found == "":
        return ""
    if not isinstance(found, str):
        raise ValueError("`thought` must be a string")
    thought = clean(found)
    new, known = thought.casefold(), passage.casefold()
    if not thought or new in known or difflib.SequenceMatcher(None, new, known).ratio() > _SAME:
        return ""
    if problem := check_passage(thought, prompt_sources=sources, event_texts=(passage,)):
        raise ValueError(f"`thought`: {problem}")
    return thought
