"""How many records answer a search: exact up to a bound, whatever the store holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from kernel_gamma.truths.candidates import Candidates, Scope
from kernel_gamma.truths.database import Connection
from kernel_gamma.truths.ranking import MOST_STRENGTH, Ranked
from kernel_gamma.truths.results import Weighed

__all__ = ["Counting", "any_of", "array_of", "names_of"]

_EXACTLY = 1000
"""As many records at most are weighed one by one to count those that are similar enough."""
_COMBINED = 6


class Counting:
    """Counts within one store."""

    def __init__(self, bound: int) -> None:
        """`bound`: matches are counted exactly up to here."""
        self.bound = bound

    def listed(self, connection: Connection, scope: Scope) -> int:
        """Records of a scope."""
        within = (scope.first, scope.last)
        exactly = (*scope.sure, scope.since, scope.until)
        if scope.under:
            times = (*within, scope.since, scope.until)
            found = connection.one(
                "count_under", names_of(scope.under), *times, names_of(scope.levels), self.bound
            )
        elif scope.only is not None:
            found = connection.one("count_filed", scope.filed, *within, *exactly, self.bound)
        else:
            hidden = (array_of(scope.without), names_of(scope.hidden))
            found = connection.one("count_within", *hidden, *within, *exactly, self.bound)
        return int(found[0]) if found else 0

    def matching(self, connection: Connection, scope: Scope, candidates: Candidates, expression: str) -> int:
        """Records of a scope in which an expression matches an index row."""
        if not expression:
            return 0
        within = (scope.within(expression), scope.first, scope.last, self.bound)
        if candidates.cut or scope.sure != (scope.first, scope.last) or scope.under:
            exactly = (*scope.sure, scope.since, scope.until, names_of(scope.under))
            found = connection.one("count_matching_truths", *within, *exactly)
        else:
            found = connection.one("count_matches", *within)
        return int(found[0]) if found else 0

    def similar(
        self,
        connection: Connection,
        scope: Scope,
        candidates: Candidates,
        least: float,
        *,
        picked: Callable[[], Mapping[int, Ranked]],
        weighed: Callable[[Mapping[int, Ranked]], Iterable[Weighed]],
    ) -> int:
        """Records at least so similar, 0 to 1: weighed one by one where they are few.

        Of more than a thousand those count that hold enough of the query's weight in one index row.
        `picked` gives the records of all candidates with their ranked rows, `weighed` weighs some of them.
        """
        rows: Mapping[int, Ranked] = {}
        if candidates.whole:
            if len(candidates.rows) <= _EXACTLY:
                rows = picked()
        else:
            expression = _enough(candidates, least / MOST_STRENGTH)
            within = (scope.within(expression), scope.first, scope.last, _EXACTLY + 1)
            ids = connection.all("matching_truths", *within) if expression else []
            if len(ids) <= _EXACTLY:
                rows = {row[0]: Ranked(0, 0.0, 0.0) for row in ids}
        if not rows:
            return self.matching(connection, scope, candidates, _enough(candidates, least))
        return sum(one.score >= least for one in weighed(rows))


def any_of(candidates: Candidates) -> str:
    """An FTS5 expression for the rows in which any of the terms stands."""
    return " OR ".join(f'text:"{term.term}"' for term in candidates.terms)


def array_of(numbers: Iterable[int]) -> str:
    """Numbers as a JSON array."""
    return f"[{','.join(map(str, numbers))}]"


def names_of(names: Sequence[str]) -> str:
    """Names as a JSON array."""
    return json.dumps(names)


def _enough(candidates: Candidates, share: float) -> str:
    """An FTS5 expression for the rows whose own terms weigh at least such a share of the query.

    Of many terms only the weightiest six are combined; a row is then counted when those suffice.
    """
    weights = candidates.weights
    least = share * (sum(weights) or 1.0)
    order = sorted(range(len(weights)), key=lambda number: -weights[number])[:_COMBINED]
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
