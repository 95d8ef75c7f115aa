from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import START, FakeClock

from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.truths.candidates import Candidates, Scope, collect, scope_of
from kernel_gamma.truths.rows import micros
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.terms import MOST_QUERY_TERMS, query_terms


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteTruths]:
    found = open_truths(tmp_path / "memory.db", FakeClock())
    yield found
    found.close()


def fill(store: SqliteTruths, texts: list[str], *, category: str = "incident", start: int = 0) -> None:
    store.upsert_many(
        [
            NewTruth(
                key=f"{category}.n{start + n}", value=text, timestamp=START + timedelta(seconds=start + n)
            )
            for n, text in enumerate(texts)
        ]
    )


def scope(store: SqliteTruths, *categories: str, **more: Any) -> Scope:
    start: datetime | None = more.get("start")
    end: datetime | None = more.get("end")
    with store.database.read() as connection:
        return scope_of(
            connection,
            categories=categories,
            levels=more.get("levels", ()),
            asked_only=more.get("asked_only", ("metrics", "incident.noise")),
            start=start,
            end=end,
        )


def found(store: SqliteTruths, query: str, where: Scope, wished: Scope | None = None) -> Candidates:
    with store.database.read() as connection:
        return collect(connection, query_terms(query), where, wished)


def keys(store: SqliteTruths, candidates: Candidates) -> set[str]:
    with store.database.read() as connection:
        places = str(list(candidates.rows))
        return {row[5] for row in connection.all("rows_at_places", places)}


def test_what_is_asked_only_is_left_out_only_while_there_is_any(store: SqliteTruths) -> None:
    fill(store, ["disk"])
    assert scope(store).without == ()
    fill(store, ["disk"], category="metrics")
    fill(store, ["disk"], category="incident.noise")
    where = scope(store)
    assert len(where.without) == 2
    assert where.hidden == ("incident.noise",)
    assert keys(store, found(store, "disk", where)) == {"incident.n0"}
    assert keys(store, found(store, "disk", scope(store, "metrics"))) == {"metrics.n0"}


@pytest.mark.parametrize("name", ["incident", "incident.", "incident.a", "incident.a.b"])
def test_a_folder_is_looked_up_by_its_number(store: SqliteTruths, name: str) -> None:
    fill(store, ["disk"], category="incident.a.b")
    where = scope(store, name)
    assert where.only is not None and len(where.only) == 1
    assert where.under == ()


@pytest.mark.parametrize("name", ["incident.a.b.c", "incident.a.b.c.n0", "incident.20260911"])
def test_a_name_deeper_than_folders_go_is_looked_for_in_the_folder_that_holds_it(
    store: SqliteTruths, name: str
) -> None:
    fill(store, ["disk"], category="incident.a.b.c")
    fill(store, ["disk"], category="incident.20260911.x")
    where = scope(store, name)
    assert where.only is not None and len(where.only) == 1
    assert where.under == (name,)
    assert where.holds(f"{name}.x", 0)
    assert not where.holds(f"{name}x.y", 0)


@pytest.mark.parametrize("name", ["unknown", "incident.zz", "", "...", "a b", "\ud800", "a\0", "x" * 300])
def test_an_unknown_name_leads_nowhere(store: SqliteTruths, name: str) -> None:
    fill(store, ["disk"])
    where = scope(store, name)
    assert where.only == () or where.under == ()
    if name != "incident.zz":
        assert where.only == ()


def test_a_scope_knows_between_which_ids_no_time_need_be_looked_at(store: SqliteTruths) -> None:
    everything = scope(store)
    assert everything.sure == (everything.first, everything.last)
    assert everything.holds("incident.x", micros(datetime.max.replace(tzinfo=START.tzinfo)) - 1)
    where = scope(store, start=START, end=START + timedelta(minutes=1))
    assert where.first < where.sure[0] < where.sure[1] < where.last
    assert where.holds("incident.x", micros(START))
    assert not where.holds("incident.x", micros(START) - 1)
    narrowed = where.narrowed(START - timedelta(days=1), START + timedelta(seconds=1))
    assert (narrowed.since, narrowed.until) == (micros(START), micros(START + timedelta(seconds=1)))


def test_of_a_common_word_the_newest_are_candidates_and_of_two_the_rows_that_hold_both(
    store: SqliteTruths,
) -> None:
    fill(store, ["disk antenna"])
    fill(store, ["disk w"] * 1500, start=1)
    fill(store, ["antenna w"] * 1500, start=2000)
    one = found(store, "disk", scope(store))
    assert len(one.rows) == 500
    assert not one.whole
    assert "incident.n0" not in keys(store, one)
    both = found(store, "disk antenna", scope(store))
    assert "incident.n0" in keys(store, both)


def test_of_a_wished_time_the_rows_are_among_the_candidates_however_old_they_are(store: SqliteTruths) -> None:
    fill(store, ["disk"] * 3000)
    where = scope(store)
    wished = where.narrowed(START + timedelta(seconds=10), START + timedelta(seconds=19))
    assert {f"incident.n{n}" for n in range(10, 20)} <= keys(store, found(store, "disk", where, wished))


def test_the_weight_of_a_word_is_about_that_of_its_true_number(store: SqliteTruths) -> None:
    fill(store, ["common w" if n % 2 else "common rare" if n % 200 == 0 else "common v" for n in range(8000)])
    candidates = found(store, "common rare w", scope(store))
    common, rare, half = candidates.weights
    assert common < half < rare
    assert common < 0.6  # log(1 + 0.5 / 8000) is 0; the estimate from the newest is coarse


def test_of_a_long_query_the_rarest_terms_are_looked_up(store: SqliteTruths) -> None:
    fill(store, [" ".join(f"word{n}" for n in range(60))] * 100)
    fill(store, ["needle"], start=200)
    query = " ".join(f"word{n}" for n in range(60)) + " needle"
    candidates = found(store, query, scope(store))
    assert len(candidates.terms) == MOST_QUERY_TERMS
    assert "needl" in {term.term for term in candidates.terms}
    endless = found(store, " ".join(f"word{n}" for n in range(100_000)), scope(store))
    assert len(endless.terms) <= MOST_QUERY_TERMS


def newest_by_fts5(store: SqliteTruths, term: str, where: Scope) -> list[int]:
    expression = where.within(f'text:"{term}"')
    with store.database.read() as connection:
        rows = connection.all("matching_rows", expression, where.first, where.last, 500)
        taken = connection.all("places_of_rows", str([row[0] for row in rows]))
    return sorted(place for _, place, _ in taken)


@pytest.mark.parametrize(("shown", "aside"), [(900, 100), (500, 900), (30, 900), (3, 4), (0, 700), (700, 0)])
@pytest.mark.parametrize("categories", [(), ("incident",), ("metrics",), ("incident.deep", "metrics.cpu")])
def test_the_candidates_of_a_folder_are_the_newest_that_lie_in_it(
    store: SqliteTruths, shown: int, aside: int, categories: tuple[str, ...]
) -> None:
    fill(store, ["disk"] * (aside // 2), category="metrics", start=0)
    fill(store, ["disk"] * (shown // 2), category="incident.deep.er", start=200)
    fill(store, ["disk"] * (shown - shown // 2), start=300)
    fill(store, ["disk"] * (aside - aside // 2), category="metrics.cpu", start=900)
    for where in (
        scope(store, *categories),
        scope(store, *categories, start=START + timedelta(seconds=250), end=START + timedelta(seconds=1200)),
    ):
        if where.only != ():
            assert sorted(found(store, "disk", where).rows) == newest_by_fts5(store, "disk", where)
