"""What the mind's own past holds on a task, from the index of the self: passages, diary, memories. Pure."""

from __future__ import annotations

from dataclasses import replace

from kernel_gamma.context.fences import Count, escape, recalled_fence
from kernel_gamma.contracts.context import Part, Piece
from kernel_gamma.contracts.envelope import rfc3339
from kernel_gamma.contracts.ports import TruthStore
from kernel_gamma.contracts.truths import SELF_CATEGORIES, Found, Search

__all__ = ["with_past"]

_LOOKED_AT = 8
_LEAST_SIMILARITY = 0.2
"""As of records: what holds less of the question's weight shares everyday words with it."""
_QUERY_CHARS = 2000
_PASSAGE_CHARS = 1200


def with_past(memory: Part, task: str, truths: TruthStore, count: Count) -> Part:
    """`memory` with what the index adds, by turns: a page is the mind's own digest, a passage its witness.

    Raises TruthError.
    """
    if not task.strip() or not memory.maximum:
        return memory
    found = truths.search(
        Search(
            query=task[:_QUERY_CHARS],
            categories=sorted(SELF_CATEGORIES),
            limit=_LOOKED_AT,
            min_similarity=_LEAST_SIMILARITY,
            counted=False,
        )
    )
    indexed = [_piece(one, count) for one in found.results]
    recollected = list(memory.pieces)
    merged: list[Piece] = []
    while recollected or indexed:
        merged += recollected[:1] + indexed[:1]
        del recollected[:1], indexed[:1]
    return replace(memory, pieces=[replace(piece, rank=rank) for rank, piece in enumerate(merged, 1)])


def _piece(found: Found, count: Count) -> Piece:
    truth = found.truth
    said = _said(truth.value)
    shown = said if len(said) <= _PASSAGE_CHARS else found.excerpt
    # Pages do not say who taught them what they hold, so nothing recalled is trusted.
    fence = recalled_fence(truth.key, shown, trust="unknown", time=rfc3339(truth.timestamp))
    return Piece(
        source=truth.key,
        text=fence,
        tokens=count(fence),
        plain=escape(shown.strip()),
        score=found.similarity,
        at=truth.timestamp,
        count=found.count,
    )


def _said(value: object) -> str:
    if isinstance(value, dict):
        text = value.get("text")
        return text if isinstance(text, str) else ""
    return value if isinstance(value, str) else ""
