"""Which pages a text touches, by their words. Pure; English and Chinese alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from kernel_gamma.truths.terms import index_terms, query_terms

__all__ = ["nearest"]

_HEAD_WEIGHT = 3.0
_FEWEST_BODY_TERMS = 3
"""Without a word of its name or its heading, a page is touched by as many words of its text."""

_SHARE_OF_NEAREST = 0.5
"""A page that is touched by a stray word is none beside one that is meant."""


def nearest(text: str, pages: Mapping[str, str]) -> list[str]:
    """Names of the pages that `text` touches, the nearest first; `pages` is name → Markdown.

    Words that all pages (or all their names and headings) share say nothing.
    """
    asked = {term.term for term in query_terms(text, alone=False)}
    if not asked or not pages:
        return []
    heads = {name: asked.intersection(index_terms(_head(name, page))) for name, page in pages.items()}
    bodies = {name: asked.intersection(index_terms(page)) for name, page in pages.items()}
    in_heads = Counter(term for terms in heads.values() for term in terms)
    in_bodies = Counter(term for terms in bodies.values() for term in terms)
    count = len(pages)
    scores: dict[str, float] = {}
    for name in pages:
        head = {term for term in heads[name] if in_heads[term] < count or count == 1}
        body = {term for term in bodies[name] if in_bodies[term] < count or count == 1}
        if head or len(body) >= _FEWEST_BODY_TERMS:
            scores[name] = sum(_HEAD_WEIGHT * math.log1p(count / in_heads[term]) for term in sorted(head))
            scores[name] += sum(math.log1p(count / in_bodies[term]) for term in sorted(body))
    least = _SHARE_OF_NEAREST * max(scores.values(), default=0.0)
    near = (name for name, score in scores.items() if score >= least)
    return sorted(near, key=lambda name: (-scores[name], name))


def _head(name: str, page: str) -> str:
    """The words of a page's name and headings."""
    headings = (line.lstrip("# ") for line in page.splitlines() if line.startswith("#"))
    return "\n".join([name.replace("-", " ").replace("_", " "), *headings])
