"""What one transaction writes: versions, locks, ids, folders, and an index that holds what stands."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes import START, ZONE, FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search, category_of
from kernel_gamma.errors import BadTruth, TruthLocked, VersionConflict
from kernel_gamma.truths.keys import prefixes_of
from kernel_gamma.truths.rows import found_by
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.terms import index_terms
from kernel_gamma.truths.writing import Limits

ENDLESS = 1 << 62


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SqliteTruths]:
    found = open_truths(tmp_path / "memory.db", clock)
    yield found
    found.close()


def put(store: SqliteTruths, key: str, value: Any = "x", **more: Any) -> int:
    return store.upsert(NewTruth(key=key, value=value, **more)).version


def indexed(store: SqliteTruths, term: str) -> set[str]:
    """Keys of the truths in whose index rows a term stands, asked of the index itself."""
    with store.database.read() as connection:
        rows = connection.all("matching_truths", f'text:"{term}"', 0, ENDLESS, ENDLESS)
        found = {connection.one("truth_by_id", row[0]) for row in rows}
    assert None not in found, f"the index has a row of {term} that no truth stands behind"
    return {row[1] for row in found if row}


def check_index(store: SqliteTruths) -> None:
    """The index against a walk over all truths: every term finds what says it, and nothing else."""
    said: dict[str, set[str]] = {}
    folders: Counter[str] = Counter()
    for truth in store.each():
        for term in index_terms(found_by(truth.key, truth.description, truth.value)):
            said.setdefault(term, set()).add(truth.key)
        folders.update(prefixes_of(truth.key))
    with store.database.read() as connection:
        rows = connection.db.execute("SELECT name, truths FROM prefixes WHERE truths <> 0").fetchall()
        (parts,) = connection.db.execute("SELECT coalesce(sum(snippets), 0) FROM truths").fetchone()
        (snippets,) = connection.db.execute("SELECT count(*) FROM snippets").fetchone()
        (words,) = connection.db.execute("SELECT count(*) FROM words WHERE words MATCH 'cat:c*'").fetchone()
        connection.db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, words, col)")
        terms = connection.db.execute("SELECT term FROM vocabulary WHERE col = 'text'").fetchall()
        connection.db.execute("DROP TABLE temp.vocabulary")
    assert {term for (term,) in terms} == set(said)
    for term, keys in said.items():
        assert indexed(store, term) == keys, term
    assert dict(rows) == dict(folders)
    assert parts == snippets == words


# ---- versions and locks


def test_a_key_grows_by_a_version_a_write_and_keeps_the_old_ones(store: SqliteTruths) -> None:
    assert [put(store, "incident.loop.cause", n) for n in range(4)] == [1, 2, 3, 4]
    assert [truth.value for truth in store.versions("incident.loop.cause")] == [0, 1, 2, 3]
    newest = store.get("incident.loop.cause")
    assert newest is not None and (newest.version, newest.value) == (4, 3)
    second = store.get("incident.loop.cause", 2)
    assert second is not None and second.value == 1
    assert store.get("incident.loop.cause", 5) is None
    assert store.verify().ok


def test_a_locked_truth_is_not_written_over_until_it_is_unlocked(store: SqliteTruths) -> None:
    put(store, "spec.rule", 1, locked=True)
    with pytest.raises(TruthLocked, match=r"kgamma truths unlock spec\.rule"):
        put(store, "spec.rule", 2)
    with pytest.raises(TruthLocked):
        put(store, "spec.rule", 2, locked=False)
    standing = store.get("spec.rule")
    assert standing is not None and (standing.version, standing.value, standing.locked) == (1, 1, True)
    assert store.unlock("spec.rule")
    assert put(store, "spec.rule", 2) == 2
    assert not store.unlock("spec.other")


def test_a_write_that_names_the_version_it_follows_fails_when_another_stands(store: SqliteTruths) -> None:
    with pytest.raises(VersionConflict) as caught:
        put(store, "decision.a", expect_version=1)
    assert caught.value.version == 0
    assert put(store, "decision.a", expect_version=0) == 1
    for wrong in (0, 2, -1):
        with pytest.raises(VersionConflict) as caught:
            put(store, "decision.a", expect_version=wrong)
        assert caught.value.version == 1
    assert put(store, "decision.a", expect_version=1) == 2


def test_a_batch_is_written_whole_or_not_at_all(store: SqliteTruths) -> None:
    put(store, "spec.rule", 1, locked=True)
    before = store.page(limit=10)
    good = [NewTruth(key=f"incident.n{n}", value="good batch") for n in range(5)]
    for bad in (NewTruth(key="spec.rule", value=2), NewTruth(key="a..b", value=1)):
        with pytest.raises((TruthLocked, BadTruth)):
            store.upsert_many([*good, bad])
    assert store.page(limit=10) == before
    assert store.search(Search(query="good batch")).total == 0
    check_index(store)


def test_a_batch_may_hold_a_key_twice(store: SqliteTruths) -> None:
    keys = store.upsert_many([NewTruth(key="incident.twice.x", value=f"word{n}") for n in range(5)])
    assert keys == ["incident.twice.x"] * 5
    assert [truth.version for truth in store.versions("incident.twice.x")] == [1, 2, 3, 4, 5]
    assert store.categories() == {"incident": 1}
    assert indexed(store, "word4") == {"incident.twice.x"}
    assert indexed(store, "word3") == set()
    assert store.verify().ok
    check_index(store)


# ---- what is refused


@pytest.mark.parametrize(
    "key",
    [
        "",
        "a b",
        "磁盘.满",
        "a\0b",
        "a.\ud800",
        "x" * 201,
        "search",
        "recent",
        "categories",
        "feedback",
        ".a",
        "a.",
        "a..b",
        "a/b",
        "a\n",
    ],
)
def test_a_key_that_cannot_be_one_is_refused(store: SqliteTruths, key: str) -> None:
    with pytest.raises(BadTruth):
        put(store, key)
    assert store.get(key) is None
    assert store.versions(key) == []
    assert store.page(limit=1) == (0, [])


@pytest.mark.parametrize("key", ["a", "x" * 200, "incident", "A-b_c.D", "search.x"])
def test_a_key_may_be_of_one_part_and_two_hundred_characters_long(store: SqliteTruths, key: str) -> None:
    assert put(store, key) == 1
    truth = store.get(key)
    assert truth is not None and truth.category == category_of(key)
    assert store.categories() == {category_of(key): 1}
    assert store.page(limit=5, category=category_of(key))[0] == 1


def test_a_truth_needs_a_key_or_a_category_that_go_together(store: SqliteTruths) -> None:
    for new in (
        NewTruth(value=1),
        NewTruth(value=1, category="a b"),
        NewTruth(value=1, category="x" * 151),
        NewTruth(value=1, key="incident.x", category="error"),
        NewTruth(value=1, key="incident.x", category="inc"),
    ):
        with pytest.raises(BadTruth):
            store.upsert(new)
    assert store.upsert(NewTruth(value=1, key="incident.x", category="incident")).key == "incident.x"


@pytest.mark.parametrize("key", ["stream.2026-11-30.1", "diary.x", "memory.about_alice"])
def test_the_index_of_the_minds_own_pages_is_not_for_writers_from_outside(
    store: SqliteTruths, key: str
) -> None:
    with pytest.raises(BadTruth, match="write to the pages"):
        put(store, key)


def test_values_beyond_the_limits_are_refused_and_descriptions_are_cut(
    store: SqliteTruths, tmp_path: Path, clock: FakeClock
) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 2_000_000, "磁" * 400_000, float("nan"), deep):
        with pytest.raises(BadTruth):
            put(store, "incident.big", value)
    text = "磁\ud800\0" + "盘" * 5000
    truth = store.upsert(NewTruth(key="incident.x", value="\0 \ud800", description=text))
    assert truth.value == "\0 \ud800"
    assert truth.description == "磁?\0" + "盘" * 1997
    small = open_truths(tmp_path / "small.db", clock, limits=Limits(value_bytes=10))
    with pytest.raises(BadTruth, match="larger than 10 bytes"):
        put(small, "incident.x", "0123456789")
    small.close()


# ---- times and ids


@pytest.mark.parametrize("category", ["incident", "metrics.disk"])
def test_a_made_key_has_category_time_and_ulid(store: SqliteTruths, category: str) -> None:
    at = datetime(2026, 9, 11, 8, 0, 0, tzinfo=UTC)
    truth = store.upsert(NewTruth(category=category, value=1, timestamp=at))
    assert re.fullmatch(rf"{re.escape(category)}\.20260911T080000Z\.[0-9A-HJKMNP-TV-Z]{{26}}", truth.key)
    assert truth.category == category_of(category)
    assert truth.timestamp == at
    assert truth.timestamp.utcoffset() == timedelta(hours=8)


def test_times_from_the_year_1_to_9999_are_kept_and_listed_in_order(store: SqliteTruths) -> None:
    times = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1066, 10, 14, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        START,
        datetime.max.replace(tzinfo=UTC),
    ]
    shuffled = random.Random(1).sample(times, len(times))
    store.upsert_many([NewTruth(category="incident", value="disk", timestamp=at) for at in shuffled])
    assert [truth.timestamp for truth in store.page(limit=10)[1]] == times[::-1]
    assert [truth.timestamp for truth in store.each()] == times
    found = store.search(Search(query="disk", start=times[1], end=times[3], fold=False))
    assert sorted(one.truth.timestamp for one in found.results) == times[1:4]
    assert store.verify().ok


@pytest.mark.parametrize("at", [datetime(1, 1, 1, tzinfo=ZONE), datetime.max.replace(tzinfo=ZONE)])
def test_a_time_that_utc_does_not_have_is_refused(store: SqliteTruths, at: datetime) -> None:
    if at.year == 9999:
        at = at.replace(tzinfo=datetime.strptime("-0800", "%z").tzinfo)
    with pytest.raises(BadTruth, match="between the years 1 and 9999"):
        put(store, "incident.x", timestamp=at)
    assert store.page(limit=1) == (0, [])


def test_ten_thousand_records_of_one_millisecond_all_stand(store: SqliteTruths, clock: FakeClock) -> None:
    store.upsert_many([NewTruth(key=f"incident.n{n}", value=f"crowded w{n}") for n in range(10_000)])
    store.upsert_many([NewTruth(key=f"incident.m{n}", value=f"crowded v{n}") for n in range(100)])
    assert store.page(limit=1)[0] == 10_100
    assert len({truth.key for truth in store.each()}) == 10_100
    for word in ("w0", "w5000", "w9999", "v99"):
        assert store.search(Search(query=word)).total == 1
    now = clock.now()
    assert store.search(Search(start=now, end=now)).total == 10_000  # the bound
    assert store.search(Search(query="w9999", start=now, end=now)).total == 1
    later = now + timedelta(milliseconds=1)
    assert store.search(Search(start=later)).total == 0
    assert store.search(Search(query="crowded", start=later)).total == 0
    put(store, "incident.n0", "changed")
    assert store.search(Search(query="w0")).total == 0


def test_an_import_out_of_order_is_listed_and_found_in_order(store: SqliteTruths) -> None:
    numbers = list(range(2000))
    random.Random(2).shuffle(numbers)
    for start in range(0, 2000, 250):
        store.upsert_many(
            [
                NewTruth(key=f"task.n{n}", value=f"job w{n % 7}", timestamp=START - timedelta(minutes=n))
                for n in numbers[start : start + 250]
            ]
        )
    assert [truth.key for truth in store.page(limit=5, offset=100)[1]] == [
        f"task.n{n}" for n in range(100, 105)
    ]
    found = store.search(
        Search(
            query="job", start=START - timedelta(minutes=20), end=START - timedelta(minutes=10), fold=False
        )
    )
    assert found.total == 11
    check_index(store)
    assert store.verify().ok


# ---- the index


def test_text_that_was_superseded_or_deleted_is_not_found(store: SqliteTruths) -> None:
    put(store, "incident.loop.cause", "the gearbox 变速箱 broke")
    put(store, "incident.loop.cause", "the antenna 天线 broke")
    put(store, "incident.loop.other", "the gyroscope 陀螺仪 broke")
    assert store.delete(["incident.loop.other", "incident.never"]) == 1
    for gone in ("gearbox", "变速箱", "gyroscope", "陀螺仪"):
        assert store.search(Search(query=gone)).total == 0, gone
    for there in ("antenna", "天线"):
        assert store.search(Search(query=there)).total == 1, there
    assert store.versions("incident.loop.other") == []
    check_index(store)


KEYS = st.sampled_from(
    ["a", "a.b", "a.b.c", "a.b.c.d.e", "a.x", "metrics.disk.u", "incident.20260911.z", "b"]
)
WORDS = st.lists(st.sampled_from(["disk", "full", "磁盘", "已满", "w1", "1", "status 500", "🔥"]), max_size=5)
LONG = st.integers(100, 400).map(
    lambda n: ". ".join(f"sentence {k % 50} of the report 报告" for k in range(n))
)
TEXTS = WORDS.map(" ".join) | LONG | st.text(max_size=40)
STEPS = st.lists(
    st.tuples(st.just("put"), KEYS, TEXTS, st.integers(-5000, 5000)) | st.tuples(st.just("delete"), KEYS),
    min_size=1,
    max_size=14,
)


@given(STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_after_any_writes_and_deletes_counts_listings_and_index_are_those_of_what_stands(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    store = open_truths(tmp_path_factory.mktemp("truths") / "memory.db", FakeClock())
    standing: dict[str, str] = {}
    for step in steps:
        if step[0] == "put":
            _, key, text, seconds = step
            put(store, key, {"text": text}, timestamp=START + timedelta(seconds=seconds))
            standing[key] = text
        else:
            assert store.delete([step[1]]) == (step[1] in standing)
            standing.pop(step[1], None)
    told = {truth.key: truth.value["text"] for truth in store.each() if truth.category != "tombstone"}
    assert told == standing
    categories = store.categories()
    categories.pop("tombstone", None)
    assert categories == dict(Counter(map(category_of, standing)))
    for prefix in ("a", "a.b", "a.b.c", "a.b.c.d", "metrics", "metrics.disk", "incident.20260911"):
        under = {key for key in standing if f"{key}.".startswith(f"{prefix}.")}
        total, listed = store.page(limit=100, category=prefix)
        assert (total, {truth.key for truth in listed}) == (len(under), under), prefix
    check_index(store)
    assert store.verify().ok
    store.reindex()
    check_index(store)
    store.close()


def test_the_index_is_the_same_after_it_is_made_anew(store: SqliteTruths) -> None:
    for n in range(60):
        put(store, f"incident.group{n % 3}.n{n}", f"disk w{n} " + "long report 长报告. " * (n * 5))
    put(store, "incident.group0.n0", "other")
    before = [
        (one.truth.key, one.similarity) for one in store.search(Search(query="disk", limit=100)).results
    ]
    assert store.reindex() == 60
    after = [(one.truth.key, one.similarity) for one in store.search(Search(query="disk", limit=100)).results]
    assert after == before
    check_index(store)
    put(store, "incident.group1.n1", "other")
    assert store.delete(["incident.group2.n59"]) == 1
    check_index(store)
