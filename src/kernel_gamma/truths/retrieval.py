"""The retrieval engine: a search in, the few records that answer it out (dual-channel.md, Channel B).

Three steps, as in the design: parse the need; retrieve and rank along words, folders, time and what stands
around; then fold near-duplicates, cut excerpts, keep to the token budget, and say what was left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kernel_gamma.contracts.ports import Clock
from kernel_gamma.contracts.truths import SELF_CATEGORIES, Finding, Found, Search, Truth
from kernel_gamma.truths.candidates import Candidates, Scope, collect, scope_of
from kernel_gamma.truths.database import Connection, Database
from kernel_gamma.truths.need import Need, need_of
from kernel_gamma.truths.ranking import MOST_STRENGTH, Ranked, judged, neighbour_share, raised, rank, strength
from kernel_gamma.truths.results import MOST_LEFT_OUT, Results, Weighed
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.rows import found_by, micros, truth_of, who_of
from kernel_gamma.truths.semantic import Semantic
from kernel_gamma.truths.terms import index_terms, term_counts, word_count

__all__ = ["Retrieval"]

_WEIGHED = 32
_SPARE = 16
"""Of the ranked records as many at least are read whole, weighed exactly and put in their last order."""
_DIG = 2000
"""Past as many ranked rows near-duplicates are not looked behind any more."""
_UNWISHED = 0.5
_OTHER_CATEGORY = 0.9
_MEANING = 0.4
"""Of what words leave open, meaning the same settles so much: a share stays a share."""
_MEANT = 24
"""Of records without a word of the query as many at least are weighed."""
_COUNTED_EXACTLY = 1000
_WHOLE_CHARS = 20_000
_LEAST_AROUND = 0.25
"""A row that holds no word of the query is worth this share of the best, or it is none."""


class Retrieval:
    """Searches one store; keeps nothing between searches."""

    def __init__(
        self,
        clock: Clock,
        retention: Retention,
        *,
        bound: int,
        semantic: Semantic | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        """`bound`: matches are counted exactly up to here. Without `count_tokens` they are estimated."""
        self._clock = clock
        self._asked_only = tuple(retention.asked_only())
        self._bound = bound
        self._semantic = semantic
        self._results = Results(clock.zone, count_tokens)

    def search(self, database: Database, search: Search) -> Finding:
        """One search, on one state of the store."""
        need = need_of(search, self._clock.now())
        with database.read() as connection:
            scope = scope_of(
                connection,
                categories=[*search.categories] or _levels_categories(search),
                levels=search.levels,
                asked_only=self._asked_only,
                start=need.start,
                end=need.end,
            )
            if search.limit <= 0 or scope.only == ():
                return self._finding(need, 0, (), ())
            if not need.terms:
                if search.query.strip() and need.start is None and need.end is None and not need.latest:
                    return self._finding(need, 0, (), ())  # signs alone: they ask for nothing
                return self._listed(connection, search, need, scope)
            return self._ranked(connection, search, need, scope)

    # ---- without words

    def _listed(self, connection: Connection, search: Search, need: Need, scope: Scope) -> Finding:
        """The newest of the scope."""
        truths = self._in_time_order(connection, search, need, scope)
        weighed = (Weighed(truth, fold, 1.0, "", 1.0, 0.0) for truth, fold in truths)
        results, left_out = self._results.choose(connection, search, scope, weighed, ())
        total = self._count_listed(connection, scope)
        return self._finding(need, max(total, len(results)), results, left_out)

    def _in_time_order(
        self, connection: Connection, search: Search, need: Need, scope: Scope
    ) -> Iterator[tuple[Truth, int]]:
        last, seen, portion = scope.last, 0, max(2 * search.limit, 50)
        while seen < _DIG + search.limit:
            if scope.under:
                rows = connection.all("newest_under", _names(scope.under), scope.first, last, portion)
            elif scope.only is not None:
                rows = connection.all("newest_filed", scope.filed, scope.first, last, portion)
            else:
                rows = connection.all("newest_rows", _array(scope.without), scope.first, last, portion)
            if not rows:
                return
            for row in sorted(connection.all("truths_by_ids", _array(row[0] for row in rows)), reverse=True):
                truth = truth_of(row, self._clock.zone)
                if self._allowed(truth, search, need):
                    yield truth, row[13]
            last = rows[-1][0] - 1
            seen += len(rows)

    def _count_listed(self, connection: Connection, scope: Scope) -> int:
        within = (scope.first, scope.last)
        exactly = (*scope.sure, scope.since, scope.until)
        if scope.under:
            times = (*within, scope.since, scope.until)
            found = connection.one(
                "count_under", _names(scope.under), *times, _names(scope.levels), self._bound
            )
        elif scope.only is not None:
            found = connection.one("count_filed", scope.filed, *within, *exactly, self._bound)
        else:
            hidden = (_array(scope.without), _names(scope.hidden))
            found = connection.one("count_within", *hidden, *within, *exactly, self._bound)
        return int(found[0]) if found else 0

    # ---- with words

    def _ranked(self, connection: Connection, search: Search, need: Need, scope: Scope) -> Finding:
        wished = scope.narrowed(*need.wished) if need.wished else None
        candidates = collect(connection, need.terms, scope, wished)
        weighed = self._weighed(connection, search, need, candidates, scope)
        best = max((one.score for one in weighed), default=0.0)
        kept = [
            one
            for one in weighed
            if one.score >= max(search.min_similarity, 1e-9)
            and (one.lexical > 0 or one.score >= best * _LEAST_AROUND)
        ]
        results, left_out = self._results.choose(
            connection, search, scope, iter(kept), [term.written for term in need.terms]
        )
        low = [
            (one.truth.key, "below the least similarity")
            for one in weighed
            if one.score < search.min_similarity
        ]
        if search.min_similarity > 0:
            total = self._count_similar(connection, search, need, scope, candidates)
        else:
            total = self._count_matches(connection, scope, candidates, _any_of(candidates))
        total = max(total, len(results))
        return self._finding(need, total, results, [*left_out, *low][:MOST_LEFT_OUT])

    def _weighed(
        self, connection: Connection, search: Search, need: Need, candidates: Candidates, scope: Scope
    ) -> list[Weighed]:
        """Records in their last order: the best ranked are read, and weighed by all that was asked."""
        terms = _weights(candidates)
        meanings = self._semantic.near(connection, need.text, scope) if self._semantic else {}
        ordered = _ordered(candidates, need)
        found: dict[int, Weighed] = {}
        folds: set[tuple[int, bool]] = set()
        wanted = max(_WEIGHED, search.limit + _SPARE)
        for start in range(0, len(ordered), wanted):
            if len(found) >= wanted:
                break
            portion = {row.place: row for row in ordered[start : start + wanted]}
            picked = self._picked(connection, search, need, scope, portion, folds)
            for row in connection.all("truths_by_ids", _array(picked)):
                if row[0] not in found:
                    truth = truth_of(row, self._clock.zone)
                    if self._allowed(truth, search, need):
                        found[row[0]] = _exactly(
                            truth, row[13], picked[row[0]], terms, candidates.mean_length
                        )
        self._add_meanings(connection, search, need, found, meanings, terms, candidates.mean_length)
        weighed = list(found.values())
        self._adjust(connection, search, need, weighed)
        weighed.sort(key=lambda one: (one.score, one.verdict, micros(one.truth.timestamp)), reverse=True)
        return weighed

    def _add_meanings(
        self,
        connection: Connection,
        search: Search,
        need: Need,
        found: dict[int, Weighed],
        meanings: Mapping[int, float],
        terms: Sequence[tuple[str, float]],
        mean: float,
    ) -> None:
        """Add what means the same: to the score of what was found by words, and what has none of them."""
        fresh = [truth for truth in meanings if truth not in found]
        fresh.sort(key=lambda truth: (meanings[truth], truth), reverse=True)
        taken = [*(truth for truth in meanings if truth in found), *fresh[: max(_MEANT, search.limit)]]
        for row in connection.all("truths_by_ids", _array(taken)) if taken else ():
            one = found.get(row[0])
            if one is None:
                truth = truth_of(row, self._clock.zone)
                if not self._allowed(truth, search, need):
                    continue
                one = found[row[0]] = _exactly(truth, row[13], Ranked(0, 0.0, 0.0), terms, mean)
            one.meaning = meanings[row[0]]
            one.score += max(0.0, 1 - one.score) * _MEANING * one.meaning

    def _picked(
        self,
        connection: Connection,
        search: Search,
        need: Need,
        scope: Scope,
        portion: Mapping[int, Ranked],
        folds: set[tuple[int, bool]],
    ) -> dict[int, Ranked]:
        """Truth -> its best ranked row, of rows that exist, lie within the scope and say something new."""
        first, last = (micros(need.wished[0]), micros(need.wished[1])) if need.wished else (0, 0)
        picked: dict[int, Ranked] = {}
        standing = {row[0]: row for row in connection.all("rows_at_places", _array(portion))}
        for place, ranked in portion.items():
            if place not in standing:  # a gap between neighbours, or a folder's end
                continue
            _, id_, part, fold, at, key = standing[place]
            if not scope.holds(key, at):
                continue
            if search.fold:
                kind = fold, first <= at < last
                if kind in folds and id_ - part not in picked:
                    continue
                folds.add(kind)
            picked.setdefault(id_ - part, ranked)
        return picked

    def _allowed(self, truth: Truth, search: Search, need: Need) -> bool:
        if not _fits(truth, search, need):
            return False
        if search.categories:
            return any(f"{truth.key}.".startswith(f"{name.rstrip('.')}.") for name in search.categories)
        return not any(f"{truth.key}.".startswith(f"{name.rstrip('.')}.") for name in self._asked_only)

    def _adjust(self, connection: Connection, search: Search, need: Need, weighed: list[Weighed]) -> None:
        """Everything that weighs besides words: named times and sources, the task, judgements, recency."""
        asked = {term.term for term in need.terms}
        anything_judged = connection.one("judged") != (0,)
        for one in weighed:
            at = micros(one.truth.timestamp)
            if need.wished and not micros(need.wished[0]) <= at < micros(need.wished[1]):
                one.score *= _UNWISHED
            if need.preferred and one.truth.category not in need.preferred:
                one.score *= _OTHER_CATEGORY
            who = who_of(one.truth.value)
            if who and not asked.isdisjoint(index_terms(who)):
                one.score = raised(one.score)
            if anything_judged:
                one.score = self._judged(connection, one, asked)
        if need.latest and weighed:
            times = [one.truth.timestamp.timestamp() for one in weighed]
            span = max(times) - min(times) or 1.0
            for one, time in zip(weighed, times, strict=True):
                one.score *= 0.6 + 0.4 * (time - min(times)) / span

    def _judged(self, connection: Connection, one: Weighed, asked: set[str]) -> float:
        relevant = irrelevant = 0
        for _, terms, verdict in connection.all("feedback_of", one.truth.key):
            judged_terms = set(terms.split())
            if 2 * len(judged_terms & asked) >= len(judged_terms | asked):
                relevant += verdict
                irrelevant += not verdict
        one.verdict = relevant - irrelevant
        return judged(one.score, relevant, irrelevant)

    def _count_similar(
        self, connection: Connection, search: Search, need: Need, scope: Scope, candidates: Candidates
    ) -> int:
        """Records as similar as was asked: weighed one by one where they are few.

        Of more than a thousand those count that hold enough of the query's weight in one index row.
        """
        rows: dict[int, Ranked] = {}
        if candidates.whole:
            if len(candidates.rows) <= _COUNTED_EXACTLY:
                ordered = {row.place: row for row in _ordered(candidates, need)}
                unfolded = replace(search, fold=False)
                rows = self._picked(connection, unfolded, need, scope, ordered, set())
        else:
            expression = _enough(candidates, search.min_similarity / MOST_STRENGTH)
            within = (scope.within(expression), scope.first, scope.last, _COUNTED_EXACTLY + 1)
            ids = connection.all("matching_truths", *within) if expression else []
            if len(ids) <= _COUNTED_EXACTLY:
                rows = {row[0]: Ranked(0, 0.0, 0.0) for row in ids}
        if not rows:
            return self._count_matches(
                connection, scope, candidates, _enough(candidates, search.min_similarity)
            )
        weighed = [
            _exactly(truth, row[13], rows[row[0]], _weights(candidates), candidates.mean_length)
            for row in connection.all("truths_by_ids", _array(rows))
            if self._allowed(truth := truth_of(row, self._clock.zone), search, need)
        ]
        self._adjust(connection, search, need, weighed)
        return sum(one.score >= search.min_similarity for one in weighed)

    def _count_matches(
        self, connection: Connection, scope: Scope, candidates: Candidates, expression: str
    ) -> int:
        """Records in which an expression matches an index row."""
        if not expression:
            return 0
        within = (scope.within(expression), scope.first, scope.last, self._bound)
        if candidates.cut or scope.sure != (scope.first, scope.last) or scope.under:
            exactly = (*scope.sure, scope.since, scope.until, _names(scope.under))
            found = connection.one("count_matching_truths", *within, *exactly)
        else:
            found = connection.one("count_matches", *within)
        return int(found[0]) if found else 0

    def _finding(
        self, need: Need, total: int, results: Sequence[Found], left_out: Sequence[tuple[str, str]]
    ) -> Finding:
        start, end = need.wished or (need.start, need.end)
        return Finding(
            total=total,
            results=tuple(results),
            bounded=total >= self._bound,
            terms=tuple(term.term for term in need.terms),
            start=start,
            end=end,
            left_out=tuple(left_out),
        )


def _exactly(
    truth: Truth, fold: int, row: Ranked, terms: Sequence[tuple[str, float]], mean: float
) -> Weighed:
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


def _weights(candidates: Candidates) -> list[tuple[str, float]]:
    return [(term.term, weight) for term, weight in zip(candidates.terms, candidates.weights, strict=True)]


def _ordered(candidates: Candidates, need: Need) -> list[Ranked]:
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
        key=lambda row: row.score * (1.0 if row.place in candidates.wished else _UNWISHED),
        reverse=True,
    )


def _array(numbers: Iterable[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _names(names: Sequence[str]) -> str:
    return json.dumps(names)


def _fits(truth: Truth, search: Search, need: Need) -> bool:
    at = micros(truth.timestamp)  # moments of one zone compare by wall clock, and autumn tells an hour twice
    if need.start is not None and at < micros(need.start):
        return False
    if need.end is not None and at > micros(need.end):
        return False
    return not search.levels or truth.level in search.levels


def _levels_categories(search: Search) -> list[str]:
    return sorted(SELF_CATEGORIES) if search.levels else []


def _any_of(candidates: Candidates) -> str:
    return " OR ".join(f'text:"{term.term}"' for term in candidates.terms)


def _enough(candidates: Candidates, share: float) -> str:
    """An FTS5 expression for the rows whose own terms weigh at least such a share of the query.

    Of many terms only the weightiest six are combined; a row is then counted when those suffice.
    """
    weights = candidates.weights
    least = share * (sum(weights) or 1.0)
    order = sorted(range(len(weights)), key=lambda number: -weights[number])[:6]
    groups: list[int] = []
    for bits in sorted(range(1, 1 << len(order)), key=lambda bits: bits.bit_count()):
        if any(bits & group == group for group in groups):
            continue
        if sum(weights[number] for place, number in enumerate(order) if bits >> place & 1) >= least - 1e-9:
            groups.append(bits)
    return " OR ".join(
        "("
        + " AND ".join(f'text:"{candidates.terms[n].term}"' for p, n in enumerate(order) if bits >> p & 1)
        + ")"
        for bits in groups
    )
