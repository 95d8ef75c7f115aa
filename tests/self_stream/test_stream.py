"""Reading Pool A as it is found: cut anywhere, edited, moved, damaged."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.contracts.ports import PageStore, Passage, PassagePlace, SelfLog
from kernel_gamma.self_stream import PageFiles, SelfStream, render

NOW = "stream/now.md"
ZONE = timezone(timedelta(hours=8))
MORNING = datetime(2026, 11, 30, 10, 30, 5, tzinfo=ZONE)


def block(seconds: int, text: str) -> bytes:
    return render(MORNING + timedelta(seconds=seconds), text).encode()


ENGLISH = block(0, "I replied to Alice.")
CHINESE = block(1, "我给小雨回了信。\n\n天在下雨。")
JAPANESE = block(2, "I said ありがとう.")


def put(root: Path, page: str, data: bytes) -> Path:
    path = root / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def place(data: bytes, offset: int, page: str = NOW) -> PassagePlace:
    return PassagePlace(
        passage_id="psg_1",
        page=page,
        offset=offset,
        length=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        heading=data.split(b"\n")[0].decode().removeprefix("## "),
    )


def texts(passages: list[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def test_both_sides_fit_their_ports(tmp_path: Path) -> None:
    log: SelfLog = SelfStream(tmp_path)
    store: PageStore = PageFiles(tmp_path)
    store.append(NOW, ENGLISH)
    assert texts(log.tail(1000)) == ["I replied to Alice."]


# --- tail ----------------------------------------------------------------------------------------


def test_the_tail_of_no_stream_is_empty(tmp_path: Path) -> None:
    assert SelfStream(tmp_path).tail(1000) == []
    put(tmp_path, NOW, b"")
    assert SelfStream(tmp_path).tail(1000) == []


def test_the_tail_holds_whole_passages_oldest_first(tmp_path: Path) -> None:
    put(tmp_path, NOW, b"Earlier today.\n\n" + ENGLISH + CHINESE + JAPANESE)
    stream = SelfStream(tmp_path)
    both = len(CHINESE + JAPANESE)
    assert texts(stream.tail(both)) == ["我给小雨回了信。\n\n天在下雨。", "I said ありがとう."]
    assert texts(stream.tail(both - 1)) == ["I said ありがとう."]
    assert stream.tail(10**6)[0] == Passage("", "Earlier today.")
    assert stream.tail(10) == stream.tail(0) == stream.tail(-1) == []


def test_a_tail_that_is_cut_inside_a_line_takes_no_part_of_it_for_a_heading(
    tmp_path: Path,
) -> None:
    put(tmp_path, NOW, ENGLISH + b"I saw " + CHINESE + JAPANESE)
    assert texts(SelfStream(tmp_path).tail(len(CHINESE + JAPANESE))) == ["I said ありがとう."]


@given(
    st.lists(st.sampled_from([ENGLISH, CHINESE, JAPANESE, b"\xff\xfe\0\n\n"]), max_size=6),
    st.integers(0, 400),
)
def test_a_tail_cut_at_any_byte_is_the_end_of_the_whole(parts: list[bytes], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        put(Path(folder), NOW, b"".join(parts))
        stream = SelfStream(Path(folder))
        whole, tail = stream.tail(10**6), stream.tail(size)
        assert whole[len(whole) - len(tail) :] == tail
        assert sum(len(passage.text.encode()) for passage in tail) <= size + 9  # 3 U+FFFD


def test_bad_bytes_and_nuls_do_not_hide_the_rest(tmp_path: Path) -> None:
    put(tmp_path, NOW, ENGLISH + block(3, "我").replace("我".encode(), b"I \xff\xe6 am") + b"\0" * 9)
    assert texts(SelfStream(tmp_path).tail(1000)) == ["I replied to Alice.", "I \ufffd\ufffd am"]


def test_a_page_with_windows_line_ends_reads_alike(tmp_path: Path) -> None:
    put(tmp_path, NOW, (ENGLISH + CHINESE).replace(b"\n", b"\r\n"))
    stream = SelfStream(tmp_path)
    assert texts(stream.tail(1000)) == ["I replied to Alice.", "我给小雨回了信。\n\n天在下雨。"]
    assert texts(stream.tail(len(CHINESE) + 10)) == ["我给小雨回了信。\n\n天在下雨。"]


def test_the_tail_follows_every_save(tmp_path: Path) -> None:
    stream, pages = SelfStream(tmp_path), PageFiles(tmp_path)
    pages.append(NOW, ENGLISH)
    first = stream.tail(1000)
    first.clear()  # what was handed out is the caller's own
    assert texts(stream.tail(1000)) == ["I replied to Alice."]
    pages.append(NOW, CHINESE)
    assert texts(stream.tail(1000))[1:] == ["我给小雨回了信。\n\n天在下雨。"]
    assert texts(stream.tail(len(CHINESE))) == ["我给小雨回了信。\n\n天在下雨。"]
    put(tmp_path, "stream/edited", ENGLISH.replace(b"Alice", b"Clara") + CHINESE).rename(tmp_path / NOW)
    assert texts(stream.tail(1000))[0] == "I replied to Clara."
    (tmp_path / NOW).unlink()
    assert stream.tail(1000) == []


# --- one passage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_a_passage_is_read_where_it_was_put(tmp_path: Path, data: bytes) -> None:
    pages = PageFiles(tmp_path)
    pages.append(NOW, JAPANESE)
    found = SelfStream(tmp_path).passage(place(data, pages.append(NOW, data)))
    assert found is not None and found.text in data.decode()


@pytest.mark.parametrize("data", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_a_passage_that_an_edit_has_moved_is_found(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, NOW, "我在上面加了一段。\n\n".encode() + JAPANESE + data)
    found = SelfStream(tmp_path).passage(place(data, len(JAPANESE)))
    assert found is not None and found.text in data.decode()


def test_of_passages_of_one_second_the_right_one_is_found(tmp_path: Path) -> None:
    one, other = block(0, "I thought once."), block(0, "我又想了想。")
    put(tmp_path, NOW, JAPANESE + one + other)
    stream = SelfStream(tmp_path)
    for data in (one, other):
        found = stream.passage(place(data, 0))
        assert found is not None and found.text in data.decode()


def test_a_rotated_passage_is_found_in_the_archive_of_its_day(tmp_path: Path) -> None:
    put(tmp_path, NOW, "今天早些时候……\n\n".encode() + JAPANESE)
    put(tmp_path, "stream/archive/2026-11-30.md", ENGLISH + CHINESE)
    found = SelfStream(tmp_path).passage(place(CHINESE, 0))
    assert found == Passage("2026-11-30 10:30:06 +08:00", "我给小雨回了信。\n\n天在下雨。")


def test_a_reworded_passage_is_found_by_its_heading(tmp_path: Path) -> None:
    put(tmp_path, NOW, ENGLISH.replace(b"Alice", "爱丽丝".encode()) + CHINESE)
    assert SelfStream(tmp_path).passage(place(ENGLISH, 0)) == Passage(
        "2026-11-30 10:30:05 +08:00", "I replied to 爱丽丝."
    )


def test_of_reworded_passages_of_one_second_the_nearest_is_taken(tmp_path: Path) -> None:
    put(tmp_path, NOW, block(0, "I ran.") + block(0, "我走了。") + block(0, "I sat."))
    stream = SelfStream(tmp_path)
    for told in ("I ran.", "我走了。", "I sat."):
        offset = (tmp_path / NOW).read_bytes().index(told.encode()) - 28
        found = stream.passage(place(ENGLISH, offset))
        assert found is not None and found.text == told


def test_the_very_passage_in_the_archive_wins_over_a_reworded_one(tmp_path: Path) -> None:
    put(tmp_path, NOW, ENGLISH.replace(b"Alice", b"Bob"))
    put(tmp_path, "stream/archive/2026-11-30.md", ENGLISH)
    found = SelfStream(tmp_path).passage(place(ENGLISH, 0))
    assert found is not None and found.text == "I replied to Alice."


def test_a_removed_passage_is_gone(tmp_path: Path) -> None:
    stream = SelfStream(tmp_path)
    assert stream.passage(place(ENGLISH, 0)) is None
    put(tmp_path, NOW, CHINESE)
    assert stream.passage(place(ENGLISH, 0)) is None


def test_a_heading_quoted_inside_a_line_is_no_passage(tmp_path: Path) -> None:
    heading = ENGLISH.split(b"\n")[0]
    put(tmp_path, NOW, CHINESE + b"I saw " + heading + b"\n#" + heading + b"\n" + heading + b" x\n")
    assert SelfStream(tmp_path).passage(place(ENGLISH, 0)) is None


def test_a_long_reworded_passage_is_read_to_its_end(tmp_path: Path) -> None:
    long = block(0, "我" * 60_000)
    put(tmp_path, NOW, ENGLISH.replace(b"Alice", b"Bob") + JAPANESE)
    put(tmp_path, NOW, long + JAPANESE)
    found = SelfStream(tmp_path).passage(place(ENGLISH, 0))
    assert found is not None and found.text == "我" * 60_000


# --- pages ---------------------------------------------------------------------------------------


def test_a_missing_page_is_empty_text_without_a_hash(tmp_path: Path) -> None:
    page = SelfStream(tmp_path).state()
    assert (page.name, page.text, page.sha256) == ("state.md", "", None)


def test_the_hash_is_over_the_bytes_as_they_are(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + "# 心情\r\n\xa0".encode() + b"\xff\0"
    put(tmp_path, "state.md", data)
    page = SelfStream(tmp_path).state()
    assert page.text == "# 心情\r\n\xa0\ufffd"
    assert page.sha256 == hashlib.sha256(data).hexdigest()
    assert PageFiles(tmp_path).replace("state.md", b"new", expect=page.sha256, history="1.md")


def test_an_empty_page_has_the_hash_of_nothing(tmp_path: Path) -> None:
    put(tmp_path, "state.md", b"")
    assert SelfStream(tmp_path).state().sha256 == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("name", ["../x.md", "/etc/x.md", ".history/1.md", "state", "a/.b.md", ""])
def test_what_is_no_page_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no page"):
        SelfStream(tmp_path).page(name)


def test_a_link_that_leads_out_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "secret.md", b"tea")
    root = tmp_path / "self"
    put(root, "memories/mine.md", b"I like tea. ")
    (root / "memories" / "theirs.md").symlink_to(tmp_path / "secret.md")
    stream = SelfStream(root)
    with pytest.raises(OSError, match="leads out") as raised:
        stream.page("memories/theirs.md")
    assert raised.value.errno == errno.ELOOP
    assert stream.memories() == ["mine"]
    assert [snippet.key for snippet in stream.search("tea", 5)] == ["memory.mine"]


def test_memories_are_listed_newest_change_first(tmp_path: Path) -> None:
    stream = SelfStream(tmp_path)
    assert stream.memories() == []
    for age, name in enumerate(["小雨", "about_alice", "old"]):
        path = put(tmp_path, f"memories/{name}.md", b"I know.")
        os.utime(path, ns=(0, 10**18 - age * 10**9))
    put(tmp_path, "memories/.hidden.md", b"")
    put(tmp_path, "memories/notes.txt", b"")
    (tmp_path / "memories" / "folder.md").mkdir()
    assert stream.memories() == ["小雨", "about_alice", "old"]


def test_days_are_listed_oldest_first(tmp_path: Path) -> None:
    for day in ("2026-11-30", "2025-01-02", "draft"):
        put(tmp_path, f"diary/{day}.md", b"x")
        put(tmp_path, f"stream/archive/{day}.md", b"x")
    stream = SelfStream(tmp_path)
    assert stream.diary_dates() == stream.archive_dates() == ["2025-01-02", "2026-11-30"]


# --- search --------------------------------------------------------------------------------------


def test_the_whole_past_is_searched(tmp_path: Path) -> None:
    put(tmp_path, "memories/about_alice.md", "# Drinks\n\nJasmine tea.\n\n茉莉花茶。\n".encode())
    put(tmp_path, "diary/2026-11-29.md", "## 晚上\n\n我泡了茉莉花茶。 I made jasmine tea.".encode())
    put(
        tmp_path,
        "stream/archive/2026-11-28.md",
        b"## 2026-11-28 09:00:00 +08:00\n\njasmine \xe8\x8c\x89\xe8\x8e\x89\n",
    )
    put(tmp_path, NOW, "Earlier, jasmine.茉莉\n\n".encode() + block(0, "I smell jasmine. 茉莉香。"))
    stream = SelfStream(tmp_path)
    for query in ("jasmine", "茉莉"):
        hits = stream.search(query, 10)
        assert {hit.key for hit in hits} == {
            "memory.about_alice",
            "diary.2026-11-29",
            "stream.2026-11-28",
            "stream.2026-11-30",
            "stream.now",
        }
    (alice,) = stream.search("alice drinks 花茶", 1)
    assert (alice.key, alice.heading, alice.text) == ("memory.about_alice", "Drinks", "茉莉花茶。")


def test_the_newest_of_equal_passages_comes_first(tmp_path: Path) -> None:
    put(tmp_path, NOW, block(0, "I saw rain, one.") + block(5, "I saw rain, two."))
    put(tmp_path, "stream/archive/2026-11-28.md", b"## 2026-11-28 09:00:00 +08:00\n\nI saw rain.\n")
    found = texts([Passage("", hit.text) for hit in SelfStream(tmp_path).search("rain", 2)])
    assert found == ["I saw rain, two.", "I saw rain, one."]


@pytest.mark.parametrize(("changed", "first"), [(10**9, "stream"), (2 * 10**9, "memory")])
def test_a_memory_is_as_new_as_its_last_change(tmp_path: Path, changed: int, first: str) -> None:
    put(tmp_path, NOW, block(0, "I saw 雨."))
    os.utime(put(tmp_path, "memories/weather.md", b"I like \xe9\x9b\xa8."), (0, changed))
    assert SelfStream(tmp_path).search("雨", 1)[0].key.startswith(first)


def test_a_query_for_nothing_finds_nothing(tmp_path: Path) -> None:
    put(tmp_path, NOW, ENGLISH)
    stream = SelfStream(tmp_path)
    assert stream.search("", 5) == stream.search("…", 5) == stream.search("Alice", 0) == []


# --- recollection --------------------------------------------------------------------------------


def keys(stream: SelfStream, query: str, limit: int = 10) -> set[str]:
    return {snippet.key for snippet in stream.recollect(query, limit)}


def test_memories_and_diary_are_recollected_the_stream_is_not(tmp_path: Path) -> None:
    put(tmp_path, "memories/about_alice.md", "# Drinks\n\nJasmine tea.\n\n茉莉花茶。\n".encode())
    put(tmp_path, "diary/2026-11-29.md", "## 晚上\n\n我泡了茉莉花茶。 I made jasmine tea.".encode())
    put(tmp_path, "diary/draft.md", "jasmine 茉莉".encode())
    put(tmp_path, "stream/archive/2026-11-28.md", "jasmine 茉莉".encode())
    put(tmp_path, NOW, block(0, "I smell jasmine. 茉莉香。"))
    stream = SelfStream(tmp_path)
    for query in ("jasmine", "茉莉"):
        assert keys(stream, query) == {"memory.about_alice", "diary.2026-11-29"}
    (alice,) = stream.recollect("alice drinks 花茶", 1)
    assert (alice.key, alice.heading, alice.text) == ("memory.about_alice", "Drinks", "茉莉花茶。")


def test_a_self_without_memories_recollects_nothing_until_there_are_some(tmp_path: Path) -> None:
    stream = SelfStream(tmp_path)
    assert stream.recollect("tea 茶", 5) == []
    put(tmp_path, "memories/drinks.md", "I like tea 茶.".encode())
    stream.refresh(["memories/drinks.md"])
    assert keys(stream, "tea") == keys(stream, "茶") == {"memory.drinks"}


@pytest.mark.parametrize("pages", [None, ["memories/小雨.md"]], ids=["all", "named"])
def test_a_hand_edit_is_noticed_at_the_next_refresh(tmp_path: Path, pages: list[str] | None) -> None:
    path = put(tmp_path, "memories/小雨.md", "小雨喜欢茶。".encode())
    stream = SelfStream(tmp_path)
    assert keys(stream, "小雨喜欢茶") == {"memory.小雨"}
    path.write_text("小雨现在爱喝咖啡 coffee。", "utf-8")
    assert stream.recollect("coffee", 5) == []
    stream.refresh(pages)
    assert [s.text for s in stream.recollect("咖啡", 5)] == ["小雨现在爱喝咖啡 coffee。"]
    assert stream.recollect("茶", 5) == []


@pytest.mark.parametrize("pages", [None, ["diary/2026-11-29.md"]], ids=["all", "named"])
def test_a_deleted_page_is_recollected_no_more(tmp_path: Path, pages: list[str] | None) -> None:
    path = put(tmp_path, "diary/2026-11-29.md", "I made tea 茶.".encode())
    put(tmp_path, "memories/drinks.md", "I like tea 茶.".encode())
    stream = SelfStream(tmp_path)
    assert len(stream.recollect("tea", 5)) == 2
    path.unlink()
    stream.refresh(pages)
    assert keys(stream, "tea") == keys(stream, "茶") == {"memory.drinks"}


def test_only_the_named_pages_are_looked_at(tmp_path: Path) -> None:
    stream = SelfStream(tmp_path)
    stream.refresh()
    names = ["memories/a.md", "diary/2026-11-29.md", "memories/deep/b.md", "memories/.c.md", "memories/d.txt"]
    names += ["diary/draft.md", NOW, "state.md"]
    for name in ("memories/unnamed.md", *names):
        put(tmp_path, name, f"tea in {name}".encode())
    stream.refresh([*names, "../out.md", "memories/gone.md", ""])
    assert keys(stream, "tea") == {"memory.a", "diary.2026-11-29"}
    stream.refresh()
    assert keys(stream, "tea") == {"memory.a", "memory.unnamed", "diary.2026-11-29"}


def test_a_page_that_did_not_change_is_read_once(tmp_path: Path) -> None:
    path = put(tmp_path, "memories/a.md", b"old tea")
    os.utime(path, ns=(0, 10**18))
    stream = SelfStream(tmp_path)
    stream.refresh()
    path.write_bytes(b"new tea")
    os.utime(path, ns=(0, 10**18))  # as if never saved
    stream.refresh()
    assert [s.text for s in stream.recollect("tea", 5)] == ["old tea"]


def test_beyond_the_bound_the_newest_pages_are_kept(tmp_path: Path) -> None:
    for day in ("2026-11-27", "2026-11-28", "2026-11-29"):
        put(tmp_path, f"diary/{day}.md", f"tea of {day}".encode())
    os.utime(put(tmp_path, "memories/new.md", "茶 tea".encode()), (0, 4 * 10**9))
    os.utime(put(tmp_path, "memories/large.md", b"tea " * 100), (0, 5 * 10**9))
    stream = SelfStream(tmp_path, recollected_bytes=45)
    assert keys(stream, "tea") == {"memory.new", "diary.2026-11-29", "diary.2026-11-28"}
    os.utime(put(tmp_path, "memories/newer.md", b"tea " * 4), (0, 6 * 10**9))
    stream.refresh(["memories/newer.md"])
    assert keys(stream, "tea") == {"memory.newer", "memory.new", "diary.2026-11-29"}
    (tmp_path / "memories" / "newer.md").unlink()
    stream.refresh()
    assert "diary.2026-11-28" in keys(stream, "tea")
    assert "memory.large" in {hit.key for hit in stream.search("tea", 10)}


def test_of_equal_memories_the_one_that_changed_last_comes_first(tmp_path: Path) -> None:
    for age, name in enumerate(["c", "a", "b"]):
        path = put(tmp_path, f"memories/{name}.md", f"tea 茶 {name}".encode())
        os.utime(path, ns=(0, 10**18 - age * 10**9))
    assert [hit.key[-1] for hit in SelfStream(tmp_path).recollect("tea", 5)] == ["c", "a", "b"]


def test_pages_that_cannot_be_read_are_passed_over_and_tried_again(tmp_path: Path) -> None:
    put(tmp_path, "secret.md", b"tea")
    root = tmp_path / "self"
    put(root, "diary/2026-11-29.md", b"tea")
    put(root, "memories/mine.md", b"bad \xff\0 tea")
    (root / "memories" / "theirs.md").symlink_to(tmp_path / "secret.md")
    (root / "memories" / "linked.md").symlink_to(root / "diary" / "2026-11-29.md")
    (root / "memories" / "folder.md").mkdir()
    stream = SelfStream(root)
    stream.refresh()
    stream.refresh(["memories/theirs.md", "memories/folder.md"])
    assert keys(stream, "bad") == {"memory.mine"}
    assert "memory.theirs" not in keys(stream, "tea")
    (root / "memories" / "folder.md").rmdir()
    put(root, "memories/folder.md", b"tea at last")
    stream.refresh()
    assert "memory.folder" in keys(stream, "last")


def test_a_folder_that_leads_out_is_not_recollected(tmp_path: Path) -> None:
    put(tmp_path, "theirs/secret.md", b"tea")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "memories").symlink_to(tmp_path / "theirs")
    stream = SelfStream(tmp_path / "self")
    assert stream.recollect("tea", 5) == stream.search("tea", 5) == []
    assert stream.memories() == []


def test_a_name_that_is_no_text_does_not_reach_a_prompt_as_it_is(tmp_path: Path) -> None:
    try:
        put(tmp_path, os.fsdecode(b"memories/odd_\xff.md"), b"tea")
    except OSError:
        pytest.skip("this file system takes only names that are text")
    stream = SelfStream(tmp_path)
    assert keys(stream, "tea") == {hit.key for hit in stream.search("tea", 1)} == {"memory.odd_\ufffd"}


# --- foreign saves -------------------------------------------------------------------------------


def test_every_save_changes_the_fingerprint(tmp_path: Path) -> None:
    stream = SelfStream(tmp_path)
    assert stream.fingerprint(NOW) is None
    path = put(tmp_path, NOW, ENGLISH)
    seen = {stream.fingerprint(NOW)}
    PageFiles(tmp_path).append(NOW, CHINESE)
    seen.add(stream.fingerprint(NOW))
    put(tmp_path, "stream/edited", ENGLISH + CHINESE).rename(path)
    seen.add(stream.fingerprint(NOW))
    assert len(seen) == 3


def test_blocks_that_a_stale_save_has_dropped_are_named(tmp_path: Path) -> None:
    stream = SelfStream(tmp_path)
    blocks = [ENGLISH, CHINESE, JAPANESE]
    assert stream.missing(blocks) == [0, 1, 2]
    put(tmp_path, NOW, b"mine\n\n" + ENGLISH + JAPANESE)
    assert stream.missing(blocks) == [1]
    put(tmp_path, NOW, ENGLISH + CHINESE.replace("雨".encode(), b"?") + JAPANESE)
    assert stream.missing(blocks) == [1]


def test_of_equal_blocks_as_many_as_are_gone_are_named(tmp_path: Path) -> None:
    put(tmp_path, NOW, ENGLISH + CHINESE)
    assert SelfStream(tmp_path).missing([ENGLISH, CHINESE, ENGLISH]) == [2]


def test_an_editor_that_only_changes_line_ends_drops_nothing(tmp_path: Path) -> None:
    stream = SelfStream(tmp_path)
    put(tmp_path, NOW, (ENGLISH + CHINESE).replace(b"\n", b"\r\n").rstrip() + b"\r\n")
    assert stream.missing([ENGLISH, CHINESE]) == []
