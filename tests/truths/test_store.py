"""The port as its callers see it: listings, counts, feedback, several threads, closing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import START, FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import TruthError
from kernel_gamma.truths.store import COUNT_BOUND, SqliteTruths, open_truths


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SqliteTruths]:
    found = open_truths(tmp_path / "memory.db", clock)
    yield found
    found.close()


def fill(store: SqliteTruths, category: str, count: int, **more: Any) -> None:
    at = START - timedelta(days=1)
    store.upsert_many(
        [
            NewTruth(key=f"{category}.n{n}", value=f"disk w{n}", timestamp=at + timedelta(seconds=n), **more)
            for n in range(count)
        ]
    )


def test_an_empty_store_answers_everything_with_nothing(store: SqliteTruths) -> None:
    assert store.page(limit=5) == (0, [])
    assert store.page(limit=5, category="incident") == (0, [])
    assert store.recent(limit=5) == []
    assert store.categories() == {}
    assert list(store.each()) == list(store.each("incident")) == []
    assert store.search(Search()).total == store.search(Search(query="disk")).total == 0
    assert store.verify().ok and store.verify().links == 0
    assert store.get("incident.x") is None
    assert store.delete(["incident.x"]) == 0
    assert not store.feedback("incident.x", "disk", relevant=True)
    assert store.reindex() == 0


def test_pages_walk_over_all_newest_first_without_a_gap(store: SqliteTruths) -> None:
    fill(store, "incident.disk", 55)
    fill(store, "task", 10)
    seen: list[str] = []
    for offset in range(0, 70, 20):
        total, page = store.page(limit=20, offset=offset, category="incident")
        assert total == 55
        seen += [truth.key for truth in page]
    assert seen == [f"incident.disk.n{n}" for n in range(54, -1, -1)]
    assert store.page(limit=5)[0] == 65
    assert store.page(limit=5, offset=65)[1] == []
    assert store.page(limit=5, category="incident.disk.")[0] == 55
    assert store.page(limit=5, category="incident.dis")[0] == 0
    assert store.categories() == {"incident": 55, "task": 10}


@pytest.mark.parametrize("category", ["", "a b", "..", "磁盘", "\ud800", "a\0"])
def test_a_listing_of_what_can_be_no_category_says_so(store: SqliteTruths, category: str) -> None:
    with pytest.raises(ValueError, match="a category is made of"):
        store.page(limit=5, category=category)
    with pytest.raises(ValueError, match="a category is made of"):
        store.recent(limit=5, category=category)


def test_recent_without_a_category_shows_none_that_come_only_when_asked_for(store: SqliteTruths) -> None:
    fill(store, "incident", 3)
    for category in ("assembly", "metrics", "performance", "debug", "temp"):
        store.upsert_many([NewTruth(category=category, value=n) for n in range(1200)])
    assert [truth.key for truth in store.recent(limit=10)] == ["incident.n2", "incident.n1", "incident.n0"]
    assert store.search(Search()).total == 3
    assert len(store.recent(limit=10, category="metrics")) == 10


def test_a_whole_store_is_walked_in_time_order_while_others_write(store: SqliteTruths) -> None:
    fill(store, "incident", 1200)
    walked = []
    for number, truth in enumerate(store.each("incident")):
        walked.append(truth.key)
        if number == 600:
            fill(store, "task", 5)
    assert walked == [f"incident.n{n}" for n in range(1200)]


def test_the_chain_holds_permanent_records_only_and_survives_deletes(store: SqliteTruths) -> None:
    fill(store, "incident", 5)
    fill(store, "debug", 5)
    assert store.verify().links == 5
    first = store.get("incident.n0")
    second = store.get("incident.n1")
    assert first is not None and second is not None
    assert first.prev_sha256 is None
    assert second.prev_sha256 == first.sha256
    debug = store.get("debug.n0")
    assert debug is not None and debug.sha256 is None
    store.delete(["debug.n0"])
    assert store.verify().ok


def test_a_record_that_was_altered_behind_the_stores_back_is_named(store: SqliteTruths) -> None:
    fill(store, "incident", 5)
    with store.database.write() as connection:
        connection.db.execute("UPDATE truths SET value = '\"forged\"' WHERE key = 'incident.n3'")
    report = store.verify()
    assert not report.ok
    assert report.broken_key == "incident.n3"


def test_a_delete_spares_what_was_locked_or_is_newer(store: SqliteTruths) -> None:
    fill(store, "debug", 4)
    store.upsert(NewTruth(key="debug.locked", value=1, locked=True, timestamp=START - timedelta(days=3)))
    before = START - timedelta(days=1) + timedelta(seconds=2)
    gone = store.delete([f"debug.n{n}" for n in range(4)] + ["debug.locked", "\ud800"], before=before)
    assert gone == 2
    assert {truth.key for truth in store.each()} == {"debug.n2", "debug.n3", "debug.locked"}


def test_feedback_takes_any_query_but_only_standing_keys(store: SqliteTruths) -> None:
    fill(store, "incident", 1)
    for query in ("disk", "", "\ud800\0", "x" * 100_000, "磁盘满了吗"):
        assert store.feedback("incident.n0", query, relevant=True, by="\ud800 alice")
    for key in ("incident.n9", "\ud800", "a\0", ""):
        assert not store.feedback(key, "disk", relevant=False)
        assert not store.unlock(key)


def test_many_threads_read_and_write_at_once(store: SqliteTruths) -> None:
    def write(name: str) -> None:
        for n in range(40):
            store.upsert(NewTruth(key=f"incident.{name}.n{n}", value=f"disk {name} w{n}"))

    def read() -> None:
        for _ in range(40):
            total = store.search(Search(query="disk", limit=3)).total
            assert total <= store.page(limit=1)[0]
            store.recent(limit=3)

    with ThreadPoolExecutor(11) as pool:
        running = [pool.submit(write, f"t{n}") for n in range(3)]
        running += [pool.submit(read) for _ in range(8)]
        for one in running:
            one.result()
    assert store.categories() == {"incident": 120}
    assert store.verify().ok


def test_a_closed_store_says_so_to_readers_and_writers(store: SqliteTruths) -> None:
    fill(store, "incident", 1)
    store.close()
    store.close()
    with pytest.raises(TruthError, match="the store is closed"):
        store.get("incident.n0")
    with pytest.raises(TruthError, match="the store is closed"):
        store.search(Search(query="disk"))
    with pytest.raises(TruthError, match="the store is closed"):
        fill(store, "incident", 1)


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path, clock: FakeClock) -> None:
    for round_ in range(3):
        store = open_truths(tmp_path / "kept.db", clock, full=True)
        assert store.upsert(NewTruth(key="incident.x", value=round_)).version == round_ + 1
        store.close()
    store = open_truths(tmp_path / "kept.db", clock)
    assert [truth.value for truth in store.versions("incident.x")] == [0, 1, 2]
    store.close()


def test_a_page_of_a_long_prefix_is_counted_to_the_bound(store: SqliteTruths) -> None:
    store.upsert_many([NewTruth(key=f"task.job.n{n}", value=n) for n in range(COUNT_BOUND + 50)])
    assert store.page(limit=1, category="task.job")[0] == COUNT_BOUND
    assert store.page(limit=1, category="task")[0] == COUNT_BOUND + 50
    assert store.search(Search(categories=["task"])).bounded
