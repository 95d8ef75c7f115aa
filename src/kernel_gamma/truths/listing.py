"""Records of a scope in the order of their time, the newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import tzinfo

from kernel_gamma.contracts.truths import Truth
from kernel_gamma.truths.candidates import Scope
from kernel_gamma.truths.counting import array_of, names_of
from kernel_gamma.truths.database import Connection
from kernel_gamma.truths.results import Weighed
from kernel_gamma.truths.rows import truth_of

__all__ = ["newest_first"]

_DIG = 2000
"""Past as many records near-duplicates are not looked behind any more."""


def newest_first(
    connection: Connection, scope: Scope, *, limit: int, zone: tzinfo, allowed: Callable[[Truth], bool]
) -> Iterator[Weighed]:
    """The newest of a scope, as they are asked for, each with a score of 1; `limit`: as many are wanted."""
    last, seen, portion = scope.last, 0, max(2 * limit, 50)
    while seen < _DIG + limit:
        if scope.under:
            rows = connection.all("newest_under", names_of(scope.under), scope.first, last, portion)
        elif scope.only is not None:
            rows = connection.all("newest_filed", scope.filed, scope.first, last, portion)
        else:
            rows = connection.all("newest_rows", array_of(scope.without), scope.first, last, portion)
        if not rows:
            return
        for row in sorted(connection.all("truths_by_ids", array_of(row[0] for row in rows)), reverse=True):
            truth = truth_of(row, zone)
            if allowed(truth):
                yield Weighed(truth, row[13], 1.0, "", 1.0, 0.0)
        last = rows[-1][0] - 1
        seen += len(rows)
