"""Core alerts: what is badly wrong and not mended yet. They stand in every prompt, whatever the task. Pure
but for the store that is handed in.

A core alert is an `alert.` or `error.` record whose value says `"severity": "core"`. It is resolved when its
newest version says so (`resolved`, or a `state` or `status` of resolved, closed or fixed), or when a later
record that is trusted as much names its key under `resolves`.

What is asked of the store is bounded, so that the answer takes as long with a million records as with a
thousand. The words of a value are in the index with the names of its fields, so one search for "severity
core" finds them: it looks at the 500 newest index rows that hold both words, and the 60 that rank first are
read. Where all of these are core alerts there may be more, and those of the last day and the last month
are asked for by themselves, so that the newest are among them. Of the records that say `resolves` as many
are read; where there are more, each alert that is to be shown is looked up by its key, at most 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from kernel_gamma.context.fences import Count
from kernel_gamma.context.recalled import folded_line, recalled_piece, said_by
from kernel_gamma.contracts.context import Piece
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import language_of
from kernel_gamma.contracts.ports import TruthStore
from kernel_gamma.contracts.trust import reaches
from kernel_gamma.contracts.truths import Search, Truth
from kernel_gamma.errors import TruthError
from kernel_gamma.truths.folding import Folder

__all__ = ["CORE_CATEGORIES", "core_alerts", "is_core", "says_resolved"]

CORE_CATEGORIES = ("alert", "error")
_READ = 60
"""Records of one search."""
_DAYS = (1, 30)
_CHECKED = 16
"""Alerts that are looked up by their keys, at most."""
_LOOKED_UP = 20
_SIDE_BY_SIDE = 3
"""As many share the tokens evenly; what they leave goes to further ones."""
_LEAST_TOKENS = 50
_DONE = frozenset({"resolved", "closed", "fixed"})


def core_alerts(
    store: TruthStore, *, now: datetime, count: Count, max_tokens: int = 300
) -> tuple[Piece, ...]:
    """Unresolved core alerts, the newest first, each in its fence, together at most `max_tokens` tokens.

    `now` is aware; what is dated later counts as of now. Alerts that differ only in times and numbers are
    one piece. Nothing when the store cannot answer: a prompt without alerts is better than none.
    """
    if max_tokens < _LEAST_TOKENS:
        return ()
    try:
        unresolved = [*_unresolved(store, now, most=max_tokens // _LEAST_TOKENS)]
    except TruthError:
        return ()
    pieces: list[Piece] = []
    room = max_tokens
    share = max(_LEAST_TOKENS, max_tokens // min(_SIDE_BY_SIDE, max(1, len(unresolved))))
    for truth, number, first in unresolved:
        said = said_by(truth)
        line = folded_line(number, first, truth.timestamp, language_of(said))
        piece = recalled_piece(truth, said, (), most=min(room, share), count=count, line=line)
        if piece is not None:
            pieces.append(replace(piece, count=number, rank=len(pieces) + 1))
            room -= piece.tokens
    return tuple(pieces)


def is_core(value: Json) -> bool:
    """Whether a record's value says that it is a core alert."""
    return isinstance(value, dict) and _word(value.get("severity")) == "core"


def says_resolved(value: Json) -> bool:
    """Whether a record's value says that what it tells of is over."""
    if not isinstance(value, dict):
        return False
    return bool(value.get("resolved")) or any(_word(value.get(name)) in _DONE for name in ("state", "status"))


def _unresolved(store: TruthStore, now: datetime, *, most: int) -> Iterator[tuple[Truth, int, datetime]]:
    """The newest of each kind, how many there are of it, and the time of the first; at most `most`."""
    kinds = _kinds(_standing(store, now), now)
    if not kinds:
        return
    done, whole = _resolved_by(store, "resolves", None, _READ)
    for kind in [kind for kind in kinds if not _is_done(kind[0], done)][:_CHECKED]:
        newest = kind[0]
        if not whole and _is_done(
            newest, _resolved_by(store, f"resolves {newest.key}", newest, _LOOKED_UP)[0]
        ):
            continue
        yield newest, len(kind), min((truth.timestamp for truth in kind), key=_moment)
        most -= 1
        if most <= 0:
            return


def _standing(store: TruthStore, now: datetime) -> list[Truth]:
    """Core alerts that do not say themselves that they are resolved."""
    found: dict[str, Truth] = {}

    def ask(start: datetime | None) -> bool:
        """Whether there may be more than were read."""
        search = Search(
            query="severity core",
            categories=CORE_CATEGORIES,
            start=start,
            limit=_READ,
            fold=False,
            counted=False,
        )
        core = [one.truth for one in store.search(search).results if is_core(one.truth.value)]
        found.update((truth.key, truth) for truth in core)
        return len(core) >= _READ

    if ask(None):
        for days in _DAYS:
            ask((now.astimezone(UTC) - timedelta(days=days)).astimezone(now.tzinfo))
    return [truth for truth in found.values() if not says_resolved(truth.value)]


def _kinds(truths: list[Truth], now: datetime) -> list[list[Truth]]:
    """Alerts that say the same but for times and numbers together; the newest kind and record first."""
    truths.sort(key=lambda truth: (min(_moment(truth.timestamp), _moment(now)), truth.key), reverse=True)
    folder = Folder()
    for truth in truths:
        folder.add(said_by(truth), truth.timestamp, truth.category)
    return [[truths[number] for number in group.members] for group in folder.groups]


def _resolved_by(
    store: TruthStore, query: str, alert: Truth | None, limit: int
) -> tuple[Mapping[str, list[Truth]], bool]:
    """Key -> the records that say they resolve it, and whether these are all that answer the query.

    Only later ones than `alert` are asked for.
    """
    start = alert.timestamp if alert is not None else None
    found: dict[str, list[Truth]] = {}
    results = store.search(Search(query=query, start=start, limit=limit, fold=False, counted=False)).results
    for one in results:
        for key in _resolves(one.truth.value):
            found.setdefault(key, []).append(one.truth)
    return found, len(results) < limit


def _is_done(alert: Truth, done: Mapping[str, list[Truth]]) -> bool:
    """Whether a record resolves an alert: from its time on, and trusted as much. It may do so itself."""
    if alert.key in _resolves(alert.value):
        return True
    return any(
        _moment(record.timestamp) >= _moment(alert.timestamp) and reaches(record.trust, alert.trust)
        for record in done.get(alert.key, ())
    )


def _resolves(value: Json) -> list[str]:
    named = value.get("resolves") if isinstance(value, dict) else None
    listed = named if isinstance(named, list) else [named]
    return [key for key in listed if isinstance(key, str)]


def _moment(at: datetime) -> datetime:
    """In UTC: times of one zone compare by wall clock, and autumn tells an hour twice."""
    return at.astimezone(UTC)


def _word(value: Json) -> str:
    return value.strip().casefold() if isinstance(value, str) else ""
