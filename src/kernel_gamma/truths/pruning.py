"""Retention carried out: what a class keeps for so many days goes when they are over, and nothing else.

Never touched: what is locked, what has a link in the hash chain (also of an old version, also when its class
was changed since), what is kept for ever. Of a truth that is written again and again the old versions go one
by one while the newest stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from kernel_gamma.contracts.truths import category_of
from kernel_gamma.queries import load_queries
from kernel_gamma.truths.database import Row
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.rows import micros, moment, row_id
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["prune", "prune_daily"]

_BATCH = 200
"""Records in one transaction: other writers get their turn in between."""
_SLACK_US = 3_600_000_000
"""Rows stand in the order of their time, but for those that found their millisecond full."""
_LAST_DAY = "pruned on"


def prune_daily(store: SqliteTruths, retention: Retention, now: datetime) -> dict[str, int] | None:
    """Prune once in each local day, whoever asks, however often; None when it was done today."""
    today = f"{now:%Y-%m-%d}"
    with store.database.read() as connection:
        row = connection.one("get_meta", _LAST_DAY)
    if row is not None and row[0] == today:
        return None
    gone = prune(store, retention, now)
    with store.database.write() as connection:
        connection.run("set_meta", _LAST_DAY, today)
    return gone


def prune(
    store: SqliteTruths, retention: Retention, now: datetime, *, dry_run: bool = False
) -> dict[str, int]:
    """Delete what is due; returns prefix -> records (truths, and old versions of truths that stay).

    `now` must be aware; a clock that is wrong by years deletes accordingly. With `dry_run` nothing is
    deleted. Raises StoreFull, StoreDamaged; what was deleted until then stays deleted.
    """
    limits = {prefix: micros(before) for prefix, before in retention.due(now)}
    gone = dict.fromkeys(limits, 0)
    for category in dict.fromkeys(map(category_of, limits)):
        latest = max(before for prefix, before in limits.items() if category_of(prefix) == category)
        for rows in _batches(store, "due_truths", category, latest):
            found = [(key, retention.prefix_of(key), at) for _, key, at in rows]
            due = [(key, prefix) for key, prefix, at in found if at < limits.get(prefix, at)]
            for _, prefix in due:
                gone[prefix] += 1
            if not dry_run:
                # each class by its own limit: what was written anew meanwhile may have become younger
                for prefix in dict.fromkeys(prefix for _, prefix in due):
                    going = [key for key, found in due if found == prefix]
                    store.delete(going, before=moment(limits[prefix], UTC))
        for rows in _batches(store, "due_versions", category, latest):
            old = [(number, retention.prefix_of(key), at, stands) for number, key, at, stands in rows]
            past = [(n, prefix) for n, prefix, at, stands in old if at < limits.get(prefix, at) <= stands]
            for _, prefix in past:
                gone[prefix] += 1
            if past and not dry_run:
                _drop_versions(store, [number for number, _ in past])
    return {prefix: count for prefix, count in gone.items() if count}


def _batches(store: SqliteTruths, query: str, category: str, before: int) -> Iterator[list[Row]]:
    """Rows of a query in portions; each is read before anything of it is deleted."""
    sql = load_queries("kernel_gamma.truths", "pruning.sql")[query]
    after, end = -1, row_id(before + _SLACK_US)
    while True:
        with store.database.read() as connection:
            rows = connection.db.execute(sql, (category, after, end, before, _BATCH)).fetchall()
        if not rows:
            return
        after = rows[-1][0]
        yield rows


def _drop_versions(store: SqliteTruths, numbers: list[int]) -> None:
    sql = load_queries("kernel_gamma.truths", "pruning.sql")["drop_version"]
    with store.database.write() as connection:
        connection.db.executemany(sql, [(number,) for number in numbers])
