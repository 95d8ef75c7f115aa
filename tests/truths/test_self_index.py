"""The index of the self: it follows the pages, whoever changes them, and can be thrown away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fakes import START, ZONE, FakeClock

from kernel_gamma.contracts.ports import PastEntry
from kernel_gamma.contracts.truths import Level, NewTruth, Search, Truth
from kernel_gamma.errors import TruthLocked
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.self_stream.stream import NOW
from kernel_gamma.truths.self_index import Changes, SelfIndex
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.transfer import backup

ARCHIVE = "stream/archive/2026-11-30.md"
TEA = "我给小明泡了龙井茶，他说杭州的水好。"
RAIN = "I heard the rain begin and closed the kitchen window."
MORNING = "## 2026-11-30 08:15:00 +08:00\n\n"
LATER = "## 2026-11-30 10:30:05 +08:00\n\n"


class Self:
    """A folder of pages, a store, and the index between them."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "self"
        self.db = folder / "memory.db"
        self.clock = FakeClock()
        self.past = PastFiles(self.root, ZONE)
        self.open()

    def open(self) -> None:
        self.store: SqliteTruths = open_truths(self.db, self.clock)
        self.index = SelfIndex(self.store, self.past, self.clock)

    def write(self, page: str, text: str | bytes) -> Path:
        """Save a page as an editor does: whole, at another time than the last."""
        path = self.root / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.clock.advance(60)
        at = self.clock.now().timestamp()
        os.utime(path, (at, at))
        return path

    def found(self, query: str, *levels: Level, categories: tuple[str, ...] = ()) -> list[Truth]:
        finding = self.store.search(Search(query=query, levels=levels, categories=categories))
        return [one.truth for one in finding.results]

    def texts(self, query: str, *levels: Level) -> list[str]:
        return [text_of(truth) for truth in self.found(query, *levels)]

    def standing(self) -> list[str]:
        """The texts of everything in the index, sorted."""
        own = [truth for name in ("stream", "diary", "memory") for truth in self.store.each(name)]
        return sorted(text_of(truth) for truth in own)


def text_of(truth: Truth) -> str:
    assert isinstance(truth.value, dict)
    return str(truth.value["text"])


def page_of(truth: Truth) -> str:
    assert isinstance(truth.value, dict)
    return str(truth.value["page"])


@pytest.fixture
def mind(tmp_path: Path) -> Iterator[Self]:
    found = Self(tmp_path)
    yield found
    found.store.close()


# ---- one fact on its way


def test_a_fact_is_followed_from_now_to_the_archive_to_memory(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n" + LATER + RAIN + "\n\n")
    assert mind.index.refresh() == Changes(added=2)
    (first,) = mind.found("龙井", "L1")
    assert (page_of(first), first.level) == (NOW, "L1")
    assert first.timestamp == datetime(2026, 11, 30, 0, 15, tzinfo=UTC)
    assert mind.found("龙井", "L2", "L3") == []

    mind.write(ARCHIVE, MORNING + TEA + "\n\n")
    mind.write(NOW, LATER + RAIN + "\n\n")
    assert mind.index.refresh() == Changes(moved=1)
    (moved,) = mind.found("龙井", "L2")
    assert (moved.key, page_of(moved), moved.timestamp) == (first.key, ARCHIVE, first.timestamp)
    assert mind.found("龙井", "L1") == []
    assert mind.texts("rain", "L1") == [RAIN]

    mind.write("memories/小明.md", "# 小明\n\n**2026-11-30 22:00** 小明喜欢龙井茶。\n")
    assert mind.index.refresh() == Changes(added=1)
    (kept,) = mind.found("龙井", "L3")
    assert kept.category == "memory"
    assert kept.timestamp == START.replace(hour=22, minute=0, second=0)
    assert {truth.level for truth in mind.found("龙井")} == {"L2", "L3"}


def test_a_rotation_caught_half_way_doubles_nothing(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.index.refresh()
    mind.write(ARCHIVE, MORNING + TEA + "\n\n")
    assert mind.index.refresh() == Changes(moved=1)
    assert [(page_of(truth), truth.level) for truth in mind.found("龙井")] == [(ARCHIVE, "L2")]
    mind.write(NOW, "")
    assert mind.index.refresh() == Changes()
    assert [(page_of(truth), truth.level) for truth in mind.found("龙井")] == [(ARCHIVE, "L2")]


def test_what_stands_on_two_pages_outlives_either(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    archive = mind.write(ARCHIVE, MORNING + TEA + "\n\n")
    assert mind.index.refresh() == Changes(added=1)
    archive.unlink()
    assert mind.index.refresh() == Changes(moved=1)
    (truth,) = mind.found("龙井")
    assert (page_of(truth), truth.level) == (NOW, "L1")


def test_a_passage_moved_by_hand_to_another_archive_page_is_told_by_that_one(mind: Self) -> None:
    other = "stream/archive/2026-12-01.md"
    mind.write(other, MORNING + TEA + "\n\n")
    mind.index.refresh()
    mind.write(ARCHIVE, MORNING + TEA + "\n\n")
    mind.write(other, "")
    mind.index.refresh()
    assert [(page_of(truth), truth.level) for truth in mind.found("龙井")] == [(ARCHIVE, "L2")]


# ---- a person's hand


def test_a_reworded_passage_is_found_by_its_new_words_only(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n" + LATER + RAIN + "\n\n")
    mind.index.refresh()
    mind.write(NOW, MORNING + TEA.replace("龙井", "普洱") + "\n\n" + LATER + RAIN + "\n\n")
    assert mind.index.refresh() == Changes(added=1, removed=1)
    assert mind.texts("龙井") == []
    assert mind.texts("普洱") == [TEA.replace("龙井", "普洱")]
    assert mind.store.categories() == {"stream": 2}


def test_what_a_person_removes_from_a_page_is_gone(mind: Self) -> None:
    mind.write("memories/alice.md", "She lives in Dublin.\n\nShe fears spiders.\n")
    mind.index.refresh()
    mind.write("memories/alice.md", "She lives in Dublin.\n")
    assert mind.index.refresh() == Changes(removed=1)
    assert mind.texts("spiders") == []
    assert mind.texts("Dublin") == ["She lives in Dublin."]


def test_a_deleted_page_takes_its_entries_along(mind: Self) -> None:
    path = mind.write("diary/2026-11-30.md", "## 22:00\n\n下雪了。\n")
    mind.write("memories/alice.md", "She lives in Dublin.\n")
    mind.index.refresh()
    path.unlink()
    assert mind.index.refresh() == Changes(removed=1)
    assert mind.standing() == ["She lives in Dublin."]
    assert mind.index.refresh() == Changes()


def test_a_renamed_page_is_found_under_its_new_name_only(mind: Self) -> None:
    path = mind.write("memories/小明.md", "他喜欢龙井茶。\n")
    mind.index.refresh()
    path.rename(path.with_name("老朋友.md"))
    assert mind.index.refresh() == Changes(added=1, removed=1)
    assert [page_of(truth) for truth in mind.found("龙井")] == ["memories/老朋友.md"]


def test_a_renamed_heading_is_told_with_what_stands_below_it(mind: Self) -> None:
    mind.write("memories/a.md", "# Alice\n\nBirthday in June.\n")
    mind.index.refresh()
    mind.write("memories/a.md", "# Bob\n\nBirthday in June.\n")
    mind.index.refresh()
    (truth,) = mind.found("birthday")
    assert truth.value == {"page": "memories/a.md", "heading": "Bob", "text": "Birthday in June."}


def test_only_the_pages_named_are_looked_at(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.write("memories/alice.md", "She lives in Dublin.\n")
    assert mind.index.refresh([NOW, "state.md", "memories/nobody.md"]) == Changes(added=1)
    assert mind.standing() == [TEA]
    assert mind.index.refresh([]) == Changes()
    assert mind.index.refresh() == Changes(added=1)


# ---- pages of every kind


def test_two_chinese_pages_with_the_same_words_stand_apart(mind: Self) -> None:
    mind.write("memories/小明.md", "生日是六月三日。\n")
    mind.write("memories/小红.md", "生日是六月三日。\n")
    assert mind.index.refresh() == Changes(added=2)
    found = mind.found("生日", "L3")
    keys = {truth.key for name in ("memory",) for truth in mind.store.each(name)}
    assert len(keys) == 2
    assert found
    mind.write("memories/小红.md", "生日是七月三日。\n")
    mind.index.refresh()
    pages = {page_of(truth): text_of(truth) for truth in mind.store.each("memory")}
    assert pages == {"memories/小明.md": "生日是六月三日。", "memories/小红.md": "生日是七月三日。"}


def test_the_same_text_twice_in_a_page_goes_one_by_one(mind: Self) -> None:
    mind.write(NOW, (MORNING + TEA + "\n\n") * 2)
    assert mind.index.refresh() == Changes(added=2)
    mind.write(NOW, MORNING + TEA + "\n\n")
    assert mind.index.refresh() == Changes(removed=1)
    assert mind.texts("龙井") == [TEA]


def test_damaged_bytes_hide_nothing_but_themselves(mind: Self) -> None:
    mind.write(NOW, (MORNING + TEA).encode() + b" \xff\xfe\x00\xe8\n\n" + (LATER + RAIN).encode())
    mind.write(ARCHIVE, b"\xef\xbb\xbf" + b"\x80\x81")
    mind.index.refresh()
    assert mind.texts("龙井")[0].startswith(TEA)
    assert mind.texts("kitchen") == [RAIN]


def test_a_page_whose_name_is_no_utf_8_is_kept_in_step(mind: Self) -> None:
    page = os.fsdecode(b"memories/\xff.md")
    path = mind.write(page, "a strange name\n")
    assert mind.index.refresh() == Changes(added=1)
    assert mind.index.refresh() == mind.index.refresh([page]) == Changes()
    assert [page_of(truth) for truth in mind.found("strange")] == ["memories/\ufffd.md"]
    path.unlink()
    assert mind.index.refresh() == Changes(removed=1)


def test_a_piece_of_any_length_is_taken_in(mind: Self, tmp_path: Path) -> None:
    mind.write("memories/long.md", "长" * 400_000 + "尾声。\n")
    mind.index.refresh()
    assert mind.store.categories() == {"memory": 5}
    assert mind.texts("尾声")[0].endswith("尾声。")


def test_more_entries_than_one_transaction_takes(mind: Self) -> None:
    mind.write("memories/many.md", "\n\n".join(f"fact{n} 第{n}条" for n in range(4_500)))
    mind.write("memories/more.md", "one more\n")
    assert mind.index.refresh() == Changes(added=4_501)
    assert mind.texts("fact4499") == ["fact4499 第4499条"]
    mind.write("memories/many.md", "fact7 第7条\n")
    assert mind.index.refresh() == Changes(removed=4_499)
    assert mind.standing() == ["fact7 第7条", "one more"]


# ---- times


def test_a_memory_without_a_date_keeps_the_time_it_was_first_seen(mind: Self) -> None:
    mind.write("memories/alice.md", "She lives in Dublin.\n")
    saved = mind.clock.now()
    mind.index.refresh()
    mind.write("memories/alice.md", "She lives in Dublin.\n\nShe drinks tea.\n")
    mind.index.refresh()
    times = {text_of(truth): truth.timestamp for truth in mind.store.each("memory")}
    assert times == {"She lives in Dublin.": saved, "She drinks tea.": mind.clock.now()}
    assert mind.index.rebuild() == 2
    assert {text_of(truth): truth.timestamp for truth in mind.store.each("memory")} == times


@pytest.mark.parametrize("nanoseconds", [-1_000_000_000, 2**62])
def test_a_page_with_an_absurd_time_of_change_is_taken_in(mind: Self, nanoseconds: int) -> None:
    path = mind.write("memories/alice.md", "She lives in Dublin.\n")
    os.utime(path, ns=(nanoseconds, nanoseconds))
    assert mind.index.refresh() == Changes(added=1)
    assert mind.index.refresh() == Changes()


# ---- cheap, safe, thrown away


def test_nothing_is_read_where_nothing_changed(mind: Self) -> None:
    class Counting(PastFiles):
        read = 0

        def entries(self, page: str) -> list[PastEntry]:
            self.read += 1
            return super().entries(page)

    past = Counting(mind.root, ZONE)
    index = SelfIndex(mind.store, past, mind.clock)
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.write("memories/alice.md", "She lives in Dublin.\n")
    index.refresh()
    assert past.read == 2
    index.refresh()
    index.refresh([NOW])
    SelfIndex(mind.store, past, mind.clock).refresh()
    assert past.read == 2
    mind.write(NOW, MORNING + RAIN + "\n\n")
    index.refresh()
    assert past.read == 3


def test_a_passage_that_stands_already_is_not_written_again(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.index.refresh()
    (before,) = mind.store.each("stream")
    mind.write(NOW, MORNING + TEA + "\n\n" + LATER + RAIN + "\n\n")
    mind.index.refresh()
    after = next(truth for truth in mind.store.each("stream") if truth.key == before.key)
    assert after == before


def test_a_page_that_cannot_be_read_keeps_its_entries_and_is_tried_again(mind: Self) -> None:
    class Failing(PastFiles):
        fail = True

        def entries(self, page: str) -> list[PastEntry]:
            if self.fail and page == "memories/alice.md":
                raise PermissionError(13, "denied", page)
            return super().entries(page)

    mind.write("memories/alice.md", "She lives in Dublin.\n")
    mind.index.refresh()
    past = Failing(mind.root, ZONE)
    index = SelfIndex(mind.store, past, mind.clock)
    mind.write("memories/alice.md", "She lives in Cork.\n")
    mind.write("memories/bob.md", "He lives in Galway.\n")
    assert index.refresh() == Changes(added=1, unread=("memories/alice.md",))
    assert mind.standing() == ["He lives in Galway.", "She lives in Dublin."]
    past.fail = False
    assert index.refresh() == Changes(added=1, removed=1)
    assert mind.texts("Cork") == ["She lives in Cork."]


def test_a_folder_that_cannot_be_looked_at_loses_nothing(mind: Self) -> None:
    class Blind(PastFiles):
        def marks(self, pages: object = None) -> dict[str, tuple[int, int, int]]:
            return {}

        def entries(self, page: str) -> list[PastEntry]:
            raise PermissionError(13, "denied", page)

    mind.write("memories/alice.md", "She lives in Dublin.\n")
    mind.index.refresh()
    found = SelfIndex(mind.store, Blind(mind.root, ZONE), mind.clock).refresh()
    assert found == Changes(unread=("memories/alice.md",))
    assert mind.standing() == ["She lives in Dublin."]


def test_a_page_that_is_gone_is_not_asked_for_again(mind: Self) -> None:
    class Noting(PastFiles):
        asked: tuple[str, ...] = ()

        def entries(self, page: str) -> list[PastEntry]:
            self.asked += (page,)
            return super().entries(page)

    path = mind.write("memories/alice.md", "She lives in Dublin.\n")
    past = Noting(mind.root, ZONE)
    index = SelfIndex(mind.store, past, mind.clock)
    index.refresh()
    path.unlink()
    index.refresh()
    index.refresh()
    assert past.asked == ("memories/alice.md",) * 2


def test_who_read_a_page_too_early_does_not_undo_what_another_has_taken_in(mind: Self) -> None:
    class Slow(PastFiles):
        def entries(self, page: str) -> list[PastEntry]:
            early = super().entries(page)
            mind.write(page, "She lives in Cork.\n")
            mind.index.refresh()
            return early

    mind.write("memories/alice.md", "She lives in Dublin.\n")
    assert SelfIndex(mind.store, Slow(mind.root, ZONE), mind.clock).refresh() == Changes()
    assert mind.standing() == ["She lives in Cork."]
    assert mind.index.refresh() == Changes()


def test_a_stale_store_catches_up_after_a_restart(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.write("memories/gone.md", "An old thought.\n")
    mind.index.refresh()
    backup(mind.store, mind.db.with_name("old.db"))
    mind.write(ARCHIVE, MORNING + TEA + "\n\n")
    mind.write(NOW, LATER + RAIN + "\n\n")
    (mind.root / "memories/gone.md").unlink()
    mind.write("diary/2026-11-30.md", "## 22:00\n\n下雪了。\n")
    mind.index.refresh()
    expected = mind.standing()

    mind.store.close()
    for path in mind.db.parent.glob("memory.db*"):
        path.unlink()
    mind.db.with_name("old.db").rename(mind.db)
    mind.open()
    assert mind.standing() != expected
    assert mind.index.refresh() == Changes(added=2, moved=1, removed=1)
    assert mind.standing() == expected
    assert mind.texts("龙井", "L2") == [TEA]


def test_a_deleted_store_is_made_again_from_the_pages(mind: Self) -> None:
    mind.write(ARCHIVE, MORNING + TEA + "\n\n")
    mind.write(NOW, LATER + RAIN + "\n\n")
    mind.write("memories/小明.md", "**2026-11-30 22:00** 小明喜欢龙井茶。\n")
    mind.index.refresh()
    before = {truth.key: (truth.value, truth.level, truth.timestamp) for truth in mind.store.each()}
    mind.store.close()
    for path in mind.db.parent.glob("memory.db*"):
        path.unlink()
    mind.open()
    assert mind.index.rebuild() == 3
    assert {t.key: (t.value, t.level, t.timestamp) for t in mind.store.each()} == before


def test_a_rebuild_mends_what_is_wrong_and_leaves_other_truths_alone(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.store.upsert(NewTruth(key="decision.tea", value="龙井"))
    mind.index.refresh()
    (key,) = [truth.key for truth in mind.store.each("stream")]
    mind.store.put_own(
        [NewTruth(key="memory.ghost.1", value={"text": "龙井 was never here"}, level="L3")], [key]
    )
    assert mind.index.refresh() == Changes()
    assert mind.index.rebuild() == 1
    assert mind.standing() == [TEA]
    assert {truth.key for truth in mind.found("龙井")} == {key, "decision.tea"}
    assert mind.store.verify().ok


def test_a_rebuild_that_was_broken_off_is_finished_by_the_next_refresh(mind: Self) -> None:
    class Breaking(PastFiles):
        def entries(self, page: str) -> list[PastEntry]:
            raise KeyboardInterrupt

    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.write("memories/gone.md", "An old thought.\n")
    mind.index.refresh()
    (mind.root / "memories/gone.md").unlink()
    with pytest.raises(KeyboardInterrupt):
        SelfIndex(mind.store, Breaking(mind.root, ZONE), mind.clock).rebuild()
    mind.index.refresh()
    assert mind.standing() == [TEA]
    assert mind.index.refresh() == Changes()


def test_several_at_once_make_one_index(mind: Self, tmp_path: Path) -> None:
    for day in range(1, 29):
        blocks = [f"## 2026-11-{day:02} 10:{n:02}:00 +08:00\n\n第{day}天的第{n}件事\n\n" for n in range(20)]
        mind.write(f"stream/archive/2026-11-{day:02}.md", "".join(blocks))

    def refresh(number: int) -> None:
        store = open_truths(mind.db, FakeClock())
        try:
            for day in range(1, 5):
                SelfIndex(store, PastFiles(mind.root, ZONE), FakeClock()).refresh()
                path = mind.root / f"stream/archive/2026-11-{day:02}.md"
                path.write_text(f"## 2026-11-{day:02} 10:00:00 +08:00\n\n改写{'了' * number}\n")
        finally:
            store.close()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(refresh, range(1, 4)))
    mind.index.refresh()
    expected = sorted(entry.text for page in mind.past.marks() for entry in mind.past.entries(page))
    assert mind.standing() == expected
    assert len(expected) == 24 * 20 + 4
    assert mind.store.categories() == {"stream": len(expected)}


# ---- found again


def test_the_past_is_found_by_level_and_by_category(mind: Self) -> None:
    mind.write(NOW, LATER + "茶 tea now\n\n")
    mind.write(ARCHIVE, MORNING + "茶 tea then\n\n")
    mind.write("diary/2026-11-30.md", "## 22:00\n\n茶 tea in the diary\n")
    mind.write("memories/tea.md", "茶 tea for good\n")
    mind.store.upsert(
        NewTruth(key="decision.tea", value="茶 tea decided", timestamp=START - timedelta(days=1))
    )
    mind.index.refresh()
    for query in ("tea", "茶"):
        assert mind.texts(query, "L1") == ["茶 tea now"]
        assert sorted(mind.texts(query, "L2")) == ["茶 tea in the diary", "茶 tea then"]
        assert mind.texts(query, "L3") == ["茶 tea for good"]
        assert len(mind.texts(query, "L1", "L2", "L3")) == 4
        assert [t.category for t in mind.found(query, categories=("diary",))] == ["diary"]
        assert [t.category for t in mind.found(query, "L2", categories=("stream",))] == ["stream"]
        assert [t.key for t in mind.found(query, categories=("memory.tea",))] == [
            truth.key for truth in mind.store.each("memory")
        ]
        assert len(mind.found(query)) == 5
    assert sorted(mind.texts("", "L2")) == ["茶 tea in the diary", "茶 tea then"]


def test_a_refresh_that_fails_leaves_everything_as_it_was(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.write("memories/alice.md", "She lives in Dublin.\n")
    mind.index.refresh()
    with mind.store.writing_own() as (connection, _):
        connection.run("lock", next(truth.key for truth in mind.store.each("stream")), 1)
    mind.write("memories/alice.md", "She lives in Cork.\n")
    mind.write(ARCHIVE, MORNING + TEA + "\n\n")
    with pytest.raises(TruthLocked):
        mind.index.refresh()
    assert mind.standing() == ["She lives in Dublin.", TEA]
    with mind.store.writing_own() as (connection, _):
        connection.run("lock", next(truth.key for truth in mind.store.each("stream")), 0)
    assert mind.index.refresh() == Changes(added=1, moved=1, removed=1)
    assert mind.standing() == ["She lives in Cork.", TEA]


def test_a_level_is_searched_and_counted_by_itself_however_much_the_others_hold(mind: Self) -> None:
    blocks = [
        f"## 2026-11-{n // 48 + 1:02} {n // 2 % 24:02}:{n % 2 * 30:02}:00 +08:00\n\n茶 tea {n}\n\n"
        for n in range(1200)
    ]
    mind.write(NOW, "".join(blocks))
    mind.write("memories/tea.md", "**2020-01-01** 小明爱喝茶 tea\n")
    mind.write("diary/2020-01-01.md", "茶 tea in the diary\n")
    mind.index.refresh()
    for query in ("tea", "茶", ""):
        assert mind.texts(query, "L3") == ["**2020-01-01** 小明爱喝茶 tea"]
        assert mind.texts(query, "L2") == ["茶 tea in the diary"]
        levels: tuple[Level, ...] = ("L1", "L2", "L3")
        totals = [mind.store.search(Search(query=query, levels=(level,))).total for level in levels]
        assert totals == [1200, 1, 1]
        assert mind.store.search(Search(query=query, levels=("L2", "L3"))).total == 2
    mind.write(ARCHIVE, "".join(blocks[:100]))
    mind.write(NOW, "".join(blocks[100:]))
    mind.index.refresh()
    mind.store.reindex()
    assert mind.store.search(Search(query="茶", levels=("L2",))).total == 101


def test_a_memory_is_found_by_its_topic_and_the_past_not_by_how_it_is_stored(mind: Self) -> None:
    mind.write(NOW, MORNING + TEA + "\n\n")
    mind.write("memories/about_alice.md", "Her birthday is in May.\n")
    mind.write("memories/老朋友.md", "生日是六月三日。\n")
    mind.index.refresh()
    assert mind.texts("alice") == ["Her birthday is in May."]
    assert mind.texts("老朋友") == ["生日是六月三日。"]
    key = next(truth.key for truth in mind.store.each("stream"))
    for query in ("page", "heading", "md", "stream", "memories", "08", key.rpartition(".")[2]):
        assert mind.texts(query) == [], query
    finding = mind.store.search(Search(query="龙井"))
    assert finding.results[0].excerpt == TEA
