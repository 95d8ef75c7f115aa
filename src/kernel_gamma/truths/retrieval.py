"""The retrieval engine: a search in, the few records that answer it out (dual-channel.md, Channel B).

Three steps, as in the design: parse the need; retrieve and rank along words, folders, time and what stands
around; then fold near-duplicates, cut excerpts, keep to the token budget, and say what was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from kernel_gamma.contracts.ports import Clock
from kernel_gamma.contracts.truths import SELF_CATEGORIES, Finding, Found, Search, Truth, category_of
from kernel_gamma.truths.candidates import Candidates, Scope, collect, scope_of
from kernel_gamma.truths.counting import Counting, any_of, array_of
from kernel_gamma.truths.database import Connection, Database
from kernel_gamma.truths.listing import newest_first
from kernel_gamma.truths.need import Need, in_its_time, need_of
from kernel_gamma.truths.ranking import Ranked, judged, raised
from kernel_gamma.truths.results import MOST_LEFT_OUT, Results, Weighed
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.rows import micros, truth_of, who_of
from kernel_gamma.truths.semantic import Semantic
from kernel_gamma.truths.terms import index_terms
from kernel_gamma.truths.weighing import UNWISHED, exactly, ordered_rows, weights_of

__all__ = ["Retrieval"]

_WEIGHED = 32
_SPARE = 16
"""Of the ranked records as many at least are read whole, weighed exactly and put in their last order."""
_OTHER_CATEGORY = 0.9
_MEANING = 0.4
"""Of what words leave open, meaning the same settles so much: a share stays a share."""
_MEANT = 24
"""Of records without a word of the query as many at least are weighed."""
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
        self._retention = retention
        self._asked_only = tuple(retention.asked_only())
        self._counting = Counting(bound)
        self._semantic = semantic
        self._results = Results(clock.zone, count_tokens)

    def search(self, database: Database, search: Search) -> Finding:
        """One search, on one state of the store."""
        need = need_of(search, self._clock.now())
        with database.read() as connection:
            if need.nothing_but_names and (found := self._named(connection, search, in_its_time(need))):
                return found
            scope = self._scope(connection, search, need)
            if search.limit <= 0 or scope.only == ():
                return self._finding(need, 0, (), ())
            if not need.terms:
                if search.query.strip() and need.start is None and need.end is None and not need.latest:
                    return self._finding(need, 0, (), ())  # signs alone: they ask for nothing
                return self._listed(connection, search, need, scope)
            return self._ranked(connection, search, need, scope)

    def _scope(self, connection: Connection, search: Search, need: Need) -> Scope:
        return scope_of(
            connection,
            categories=[*search.categories] or _levels_categories(search),
            levels=search.levels,
            asked_only=self._asked_only,
            start=need.start,
            end=need.end,
        )

    # ---- without words

    def _listed(self, connection: Connection, search: Search, need: Need, scope: Scope) -> Finding:
        """The newest of the scope."""
        weighed = self._newest(connection, search, need, scope)
        results, left_out = self._results.choose(connection, search, scope, weighed, ())
        total = self._counting.listed(connection, scope) if search.counted else len(left_out)
        return self._finding(need, max(total, len(results)), results, left_out)

    def _newest(self, connection: Connection, search: Search, need: Need, scope: Scope) -> Iterator[Weighed]:
        return newest_first(
            connection,
            scope,
            limit=search.limit,
            zone=self._clock.zone,
            allowed=lambda truth: self._allowed(truth, search, need),
        )

    def _named(self, connection: Connection, search: Search, need: Need) -> Finding | None:
        """Of a query that is nothing but the names of categories and a time: the newest of these categories,
        then what else says the words. None where they hold nothing, or the search names other categories.
        """
        among = search.categories
        if among:
            names = [name for name in among if category_of(name) in need.named]
        else:
            names = [name for name in need.named if self._retention.comes_unasked(f"{name}.x")]
        if search.limit <= 0 or search.levels or not names:
            return None
        listing = replace(search, categories=names)
        scope = self._scope(connection, listing, need)
        total = self._counting.listed(connection, scope) if scope.only else 0
        if not total:
            return None
        weighed = self._newest(connection, listing, need, scope)
        if not among:
            around = self._scope(connection, search, need)
            numbers = [row[0] for name in names if (row := connection.one("prefix_by_name", name))]
            around = replace(around, without=(*around.without, *numbers))
            candidates = collect(connection, need.terms, around)
            total += self._counting.matching(connection, around, candidates, any_of(candidates))
            weighed = chain(weighed, self._saying(connection, search, need, candidates, around))
        words = [term.written for term in need.terms]
        results, left_out = self._results.choose(connection, search, scope, weighed, words)
        return self._finding(need, max(total, len(results)), results, left_out)

    def _saying(
        self, connection: Connection, search: Search, need: Need, candidates: Candidates, scope: Scope
    ) -> Iterator[Weighed]:
        for one in self._weighed(connection, search, need, candidates, scope):
            least = max(search.min_similarity, 1e-9)
            if one.lexical > 0 and one.score >= least and one.truth.category not in need.named:
                yield one

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
        if not search.counted:
            total = len(kept)
        elif search.min_similarity > 0:
            total = self._count_similar(connection, search, need, scope, candidates)
        else:
            total = self._counting.matching(connection, scope, candidates, any_of(candidates))
        total = max(total, len(results))
        return self._finding(need, total, results, [*left_out, *low][:MOST_LEFT_OUT])

    def _weighed(
        self, connection: Connection, search: Search, need: Need, candidates: Candidates, scope: Scope
    ) -> list[Weighed]:
        """Records in their last order: the best ranked are read, and weighed by all that was asked."""
        terms = weights_of(candidates)
        meanings = self._semantic.near(connection, need.text, scope) if self._semantic else {}
        ordered = ordered_rows(candidates, need)
        found: dict[int, Weighed] = {}
        folds: set[tuple[int, bool]] = set()
        wanted = max(_WEIGHED, search.limit + _SPARE)
        for start in range(0, len(ordered), wanted):
            if len(found) >= wanted:
                break
            portion = {row.place: row for row in ordered[start : start + wanted]}
            picked = self._picked(connection, search, need, scope, portion, folds)
            for row in connection.all("truths_by_ids", array_of(picked)):
                if row[0] not in found:
                    truth = truth_of(row, self._clock.zone)
                    if self._allowed(truth, search, need):
                        found[row[0]] = exactly(truth, row[13], picked[row[0]], terms, candidates.mean_length)
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
        for row in connection.all("truths_by_ids", array_of(taken)) if taken else ():
            one = found.get(row[0])
            if one is None:
                truth = truth_of(row, self._clock.zone)
                if not self._allowed(truth, search, need):
                    continue
                one = found[row[0]] = exactly(truth, row[13], Ranked(0, 0.0, 0.0), terms, mean)
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
        standing = {row[0]: row for row in connection.all("rows_at_places", array_of(portion))}
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
        return self._retention.comes_unasked(truth.key)

    def _adjust(self, connection: Connection, search: Search, need: Need, weighed: list[Weighed]) -> None:
        """Everything that weighs besides words: named times and sources, the task, judgements, recency."""
        asked = {term.term for term in need.terms}
        anything_judged = connection.one("judged") != (0,)
        for one in weighed:
            at = micros(one.truth.timestamp)
            if need.wished and not micros(need.wished[0]) <= at < micros(need.wished[1]):
                one.score *= UNWISHED
            if need.preferred and one.truth.category not in need.preferred:
                one.score *= _OTHER_CATEGORY
            if one.truth.category in need.named:
                one.score = raised(one.score)
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
        """Records as similar as was asked."""

        def picked() -> Mapping[int, Ranked]:
            ordered = {row.place: row for row in ordered_rows(candidates, need)}
            return self._picked(connection, replace(search, fold=False), need, scope, ordered, set())

        def weighed(rows: Mapping[int, Ranked]) -> list[Weighed]:
            found = [
                exactly(truth, row[13], rows[row[0]], weights_of(candidates), candidates.mean_length)
                for row in connection.all("truths_by_ids", array_of(rows))
                if self._allowed(truth := truth_of(row, self._clock.zone), search, need)
            ]
            self._adjust(connection, search, need, found)
            return found

        least = search.min_similarity
        return self._counting.similar(connection, scope, candidates, least, picked=picked, weighed=weighed)

    def _finding(
        self, need: Need, total: int, results: Sequence[Found], left_out: Sequence[tuple[str, str]]
    ) -> Finding:
        start, end = need.wished or (need.start, need.end)
        return Finding(
            total=total,
            results=tuple(results),
            bounded=total >= self._counting.bound,
            terms=tuple(term.term for term in need.terms),
            categories=need.named,
            start=start,
            end=end,
            left_out=tuple(left_out),
        )


def _fits(truth: Truth, search: Search, need: Need) -> bool:
    at = micros(truth.timestamp)  # moments of one zone compare by wall clock, and autumn tells an hour twice
    if need.start is not None and at < micros(need.start):
        return False
    if need.end is not None and at > micros(need.end):
        return False
    return not search.levels or truth.level in search.levels


def _levels_categories(search: Search) -> list[str]:
    return sorted(SELF_CATEGORIES) if search.levels else []
