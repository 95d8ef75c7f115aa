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
from kernel_gamma.errors import BadTruth, TruthError, TruthLocked
from kernel_gamma.truths.retention import Retention, RetentionClass
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
    assert store.page(limit=5, category="incident.disk.n7")[1] == [store.get("incident.disk.n7")]
    store.upsert_many([NewTruth(key="incident.disk", value="all"), NewTruth(key="incident.disk_b", value=1)])
    total, page = store.page(limit=60, category="incident.disk")
    assert (total, page[0].key, len(page)) == (56, "incident.disk", 56)
    assert store.categories() == {"incident": 57, "task": 10}


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


def test_a_forgotten_permanent_record_leaves_a_tombstone_and_the_chain_holds(store: SqliteTruths) -> None:
    fill(store, "incident", 3)
    store.upsert(NewTruth(key="incident.n1", value="the secret 秘密", description="told by Bob"))
    seals = [truth.sha256 for truth in store.versions("incident.n1")]
    store.feedback("incident.n1", "the secret", relevant=True)
    assert store.delete(["incident.n1"], by="alice", why="she asked for it") == 1
    assert store.get("incident.n1") is None and store.versions("incident.n1") == []
    assert store.search(Search(query="secret 秘密")).results == ()
    (stone,) = store.page(limit=5, category="tombstone")[1]
    assert (stone.value["key"], stone.value["by"], stone.value["why"]) == (
        "incident.n1",
        "alice",
        "she asked for it",
    )
    assert [version["sha256"] for version in stone.value["versions"]] == seals
    assert [version["version"] for version in stone.value["versions"]] == [1, 2]
    assert stone.locked and stone.sha256 is not None
    assert "secret" not in str(stone) and "Bob" not in str(stone)
    report = store.verify()
    assert (report.ok, report.links, report.forgotten) == (True, 5, 2)
    with store.database.read() as connection:
        assert connection.db.execute("SELECT count(*) FROM feedback").fetchone() == (0,)
    assert store.upsert(NewTruth(key="incident.n1", value="anew")).version == 1
    assert store.verify().forgotten == 2


def test_a_tombstone_comes_only_when_asked_for_and_stays(store: SqliteTruths) -> None:
    fill(store, "incident", 2)
    store.delete(["incident.n0"])
    assert store.search(Search(query="forgotten incident")).results == ()
    (found,) = store.search(Search(query="forgotten", categories=["tombstone"])).results
    with pytest.raises(BadTruth, match="the hash chain would not hold"):
        store.delete(["incident.n1", found.truth.key])
    assert store.get("incident.n1") is not None
    with pytest.raises(TruthLocked):
        store.upsert(NewTruth(key=found.truth.key, value={}))
    store.unlock(found.truth.key)
    store.upsert(NewTruth(key=found.truth.key, value={"versions": [{"link": "x"}, 3, {"link": 1}]}))
    assert store.verify().ok  # its first version still says it


def test_only_a_tombstone_that_fits_vouches_for_a_missing_record(store: SqliteTruths) -> None:
    fill(store, "incident", 3)
    one, two = store.get("incident.n1"), store.get("incident.n2")
    assert one is not None and two is not None
    for sha256 in (two.sha256, "00", "no hex", None):
        store.upsert(NewTruth(key="tombstone.forged", value={"versions": [{"link": 2, "sha256": sha256}]}))
    with store.database.write() as connection:
        connection.db.execute("DELETE FROM truths WHERE key = 'incident.n1'")
    report = store.verify()
    assert (report.ok, report.broken_link, report.reason) == (False, 2, "its record is missing")


def test_a_record_that_is_not_sealed_leaves_no_tombstone(store: SqliteTruths) -> None:
    fill(store, "debug", 2)
    store.delete(["debug.n0"], by="alice")
    assert store.categories() == {"debug": 1}


def test_of_very_many_versions_every_seal_is_kept(store: SqliteTruths) -> None:
    store.upsert_many([NewTruth(key="incident.often", value=n) for n in range(1100)])
    store.delete(["incident.often"])
    assert store.categories() == {"tombstone": 3}
    assert (store.verify().ok, store.verify().forgotten) == (True, 1100)


def test_with_a_limit_what_is_sealed_is_not_deleted(store: SqliteTruths) -> None:
    fill(store, "incident", 2)
    assert store.delete(["incident.n0", "incident.n1"], before=START) == 0
    assert store.verify().forgotten == 0


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


@pytest.fixture
def days(store: SqliteTruths) -> SqliteTruths:
    """Of two days: errors and alerts that do not say so, and records of other kinds that do."""
    for number, day in enumerate(("today", "yesterday")):
        at = START - timedelta(days=number, minutes=5)
        store.upsert_many(
            [
                NewTruth(key=f"error.disk.{day}", value="磁盘满了 disk full", timestamp=at),
                NewTruth(key=f"alert.load.{day}", value="load 负载 too high", timestamp=at),
                NewTruth(key=f"incident.stop.{day}", value="错误 error: the mill stopped", timestamp=at),
                NewTruth(key=f"note.tea.{day}", value="green tea 绿茶", timestamp=at),
            ]
        )
    return store


def found(store: SqliteTruths, query: str, **more: Any) -> list[str]:
    return [one.truth.key for one in store.search(Search(query=query, fold=False, **more)).results]


@pytest.mark.parametrize("query", ["errors today", "今天的错误"])
def test_the_records_of_a_named_category_come_first_then_those_that_say_the_word(
    days: SqliteTruths, query: str
) -> None:
    assert found(days, query) == ["error.disk.today", "incident.stop.today"]
    assert found(days, query, limit=1) == ["error.disk.today"]
    finding = days.search(Search(query=query))
    assert (finding.total, finding.categories) == (2, ("error",))
    assert finding.start == START.replace(hour=0, minute=0, second=0, microsecond=0)


@pytest.mark.parametrize("query", ["alerts yesterday", "昨天的报警", "昨天有哪些告警"])
def test_a_category_and_a_day_list_that_day(days: SqliteTruths, query: str) -> None:
    assert found(days, query) == ["alert.load.yesterday"]


def test_the_category_that_a_search_names_holds_beside_the_one_its_words_name(days: SqliteTruths) -> None:
    assert found(days, "errors today", categories=["error"]) == ["error.disk.today"]
    assert found(days, "errors yesterday", categories=["error.disk"]) == ["error.disk.yesterday"]
    assert found(days, "errors", categories=["note"]) == []
    assert found(days, "errors", categories=["incident"]) == [
        "incident.stop.today",
        "incident.stop.yesterday",
    ]


@pytest.mark.parametrize("query", ["inspections", "巡检"])
def test_where_the_named_category_holds_nothing_its_word_is_searched_for(
    days: SqliteTruths, query: str
) -> None:
    days.upsert(NewTruth(key="note.round", value="inspection of the mill 巡检"))
    assert found(days, query) == ["note.round"]


@pytest.mark.parametrize("query", ["disk errors", "磁盘 错误"])
def test_beside_other_words_the_named_category_counts_more(days: SqliteTruths, query: str) -> None:
    days.upsert(NewTruth(key="note.disk", value="磁盘满了 disk full"))  # as much of the words, and newer
    similar = {one.truth.key: one.similarity for one in days.search(Search(query=query, fold=False)).results}
    assert similar["error.disk.today"] > similar["note.disk"] > 0


def test_a_category_that_comes_only_when_asked_for_is_not_named_by_a_word(
    tmp_path: Path, clock: FakeClock
) -> None:
    hidden = Retention((RetentionClass(("error",), unasked=False),))
    store = open_truths(tmp_path / "hidden.db", clock, retention=hidden)
    store.upsert(NewTruth(key="error.x", value="error: disk"))
    assert found(store, "errors") == []
    store.close()
