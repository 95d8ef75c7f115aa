"""What a search's candidates weigh by words: as rows in an order, and each record read whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_gamma.contracts.truths import Truth
from kernel_gamma.truths.candidates import Candidates
from kernel_gamma.truths.need import Need
from kernel_gamma.truths.ranking import Ranked, neighbour_share, rank, strength
from kernel_gamma.truths.results import Weighed
from kernel_gamma.truths.rows import found_by
from kernel_gamma.truths.terms import term_counts, word_count

__all__ = ["UNWISHED", "exactly", "ordered_rows", "weights_of"]

UNWISHED = 0.5
"""A record outside a wished time counts as much of what it would."""
_WHOLE_CHARS = 20_000


def exactly(truth: Truth, fold: int, row: Ranked, terms: Sequence[tuple[str, float]], mean: float) -> Weighed:
    """A record with the share of the query that its own text holds, and how strongly.

    Of old rows not every common term is known from the postings: the text itself tells.
    """
    text = found_by(truth.key, truth.description, truth.value)
    if len(text) > _WHOLE_CHARS:  # reading all of it for every search would take long
        return Weighed(truth, fold, row.score, text, row.held, max(0.0, row.score - row.held))
    lexical, strong = strength(term_counts(text), terms, length=word_count(text), mean_length=mean)
    around = max(0.0, row.score - row.held) * neighbour_share(mean)
    if lexical > row.held > 0:  # what the neighbours add may be what it holds itself
        around *= row.held / lexical
    return Weighed(truth, fold, strong + around, text, lexical, around)


def weights_of(candidates: Candidates) -> list[tuple[str, float]]:
    """(term, weight) of all that were looked up."""
    return [(term.term, weight) for term, weight in zip(candidates.terms, candidates.weights, strict=True)]


def ordered_rows(candidates: Candidates, need: Need) -> list[Ranked]:
    """The best first. Rows of a wished time are ranked by themselves too: among all they might be cut off."""

    def ranked(rows: Mapping[int, int]) -> list[Ranked]:
        return rank(
            rows,
            candidates.lengths,
            candidates.weights,
            around=need.question,
            mean_length=candidates.mean_length,
        )

    ordered = ranked(candidates.rows)
    if not candidates.wished:
        return ordered
    best = {row.place: row for row in (*ranked(candidates.wished), *ordered)}
    return sorted(
        best.values(),
        key=lambda row: row.score * (1.0 if row.place in candidates.wished else UNWISHED),
        reverse=True,
    )
