"""now.md keeps to its limit: what leaves it stands in the archive of its own day, once, as it was."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.contracts.effects import MovePrefix
from kernel_gamma.contracts.ports import PassagePlace
from kernel_gamma.self_stream import PageFiles, SelfStream
from kernel_gamma.self_stream.page_io import digest
from kernel_gamma.self_stream.passages import render, split
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.self_stream.rotation import Rotation, blocks, is_bridge

NOW = "stream/now.md"
CST = timezone(timedelta(hours=8))
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=CST)
WORDS = {"en": "I met Alice at the mill.", "zh": "我在磨坊遇见了小雨。"}


class Killed(BaseException):
    """Stands for the death of the process at a step."""


class Steps:
    """Records the steps; dies or calls at the chosen one, once."""

    def __init__(self, at: str = "", then: Callable[[], object] | None = None) -> None:
        self.seen: list[str] = []
        self._at = at
        self._then = then

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if name == self._at and self.seen.count(name) == 1:
            if self._then is None:
                raise Killed
            self._then()


def rotation(now: datetime = NOON, **settings: int) -> Rotation:
    chosen = {"max_bytes": 1000, "keep_bytes": 250, "keep_passages": 2, **settings}
    return Rotation(page=NOW, day_ends_at=timedelta(hours=2), now=lambda: now, **chosen)


def told(number: int, text: str = WORDS["en"], *, begin: datetime = NOON) -> bytes:
    return render(begin + timedelta(minutes=number), f"{text} ({number})").encode()


def earlier(turn: Rotation, data: bytes) -> MovePrefix | None:
    return turn.of_earlier_days(data, turn.day(turn.now()))


def put(root: Path, page: str, data: bytes) -> Path:
    path = root / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def archived(root: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted((root / "stream/archive").glob("*.md"))}


def now_md(root: Path) -> bytes:
    return (root / NOW).read_bytes()


def everything(move: MovePrefix | None) -> MovePrefix:
    assert move is not None
    return move


def move_all(root: Path) -> None:
    data = now_md(root)
    if (move := rotation(max_bytes=1, keep_bytes=0).room_for(data, 1)) is not None:
        assert PageFiles(root).move_prefix(move)


def append(root: Path, data: bytes, pages: PageFiles | None = None, *, redo: bool = False) -> None:
    """As a commit does it: room first."""
    pages = pages or PageFiles(root, rotation=rotation())
    if (move := pages.room_for(NOW, len(data))) is not None:
        pages.move_prefix(move)
    pages.append(NOW, data, redo=redo)


# --- what leaves ---------------------------------------------------------------------------------


def test_every_byte_belongs_to_a_passage_save_those_of_the_bridge() -> None:
    bridge = "_Earlier today, 2026-11-30, until 11:00, I lived what now stands in my archive; here I go on._"
    data = f"{bridge}\n\nA person's line.\n\n".encode() + told(1) + told(2, WORDS["zh"])
    found = blocks(data)
    assert b"".join(data[b.start : b.end] for b in found) == data[len(bridge) + 2 :]
    assert [b.heading for b in found] == ["", "2026-11-30 12:01:00 +08:00", "2026-11-30 12:02:00 +08:00"]


def test_nothing_leaves_while_all_fits() -> None:
    data = told(1) * 3
    assert rotation().room_for(data, 1000 - len(data)) is None
    assert rotation().room_for(data, 1001 - len(data)) is not None


@pytest.mark.parametrize("language", WORDS)
def test_for_room_the_oldest_leave_and_a_first_person_line_stands_for_them(
    tmp_path: Path, language: str
) -> None:
    page = b"".join(told(n, WORDS[language]) for n in range(20))
    put(tmp_path, NOW, page)
    move = everything(rotation().room_for(page, 300))
    assert PageFiles(tmp_path).move_prefix(move)
    bridge, *rest = split(now_md(tmp_path).decode())
    assert is_bridge(bridge.text) and bridge.text.startswith(
        {"en": "_Earlier today, 2026-11-30, until 12:", "zh": "_今天早些时候，2026-11-30，到 12:"}[language]
    )
    assert len(now_md(tmp_path)) - len(move.opening.encode()) <= 250
    assert (
        archived(tmp_path)["2026-11-30"]
        + b"".join(told(20 - n, WORDS[language]) for n in range(len(rest), 0, -1))
        == page
    )


def test_a_bridge_is_replaced_not_stacked(tmp_path: Path) -> None:
    for number in range(60):
        append(tmp_path, told(number))
        assert len(now_md(tmp_path)) <= 1000
    bridges = [p for p in split(now_md(tmp_path).decode()) if is_bridge(p.text)]
    assert len(bridges) == 1 and "_Earlier" not in archived(tmp_path)["2026-11-30"].decode()
    assert archived(tmp_path)["2026-11-30"] + now_md(tmp_path).split(b"\n\n", 1)[1] == b"".join(
        told(n) for n in range(60)
    )


def test_one_passage_larger_than_the_limit_stands_alone_and_leaves_with_the_next(tmp_path: Path) -> None:
    large = told(1, "I " + "remember " * 200)
    for block in (told(0), large):
        append(tmp_path, block)
    assert now_md(tmp_path).endswith(large) and len(blocks(now_md(tmp_path))) == 1
    append(tmp_path, told(2))
    assert archived(tmp_path)["2026-11-30"] == told(0) + large and len(now_md(tmp_path)) < 1000


def test_each_passage_goes_to_its_own_local_date_also_where_a_clock_stepped_back(tmp_path: Path) -> None:
    tokyo = datetime(2026, 12, 1, 0, 30, tzinfo=timezone(timedelta(hours=9)))
    begins = [datetime(2026, 11, 29, 23, 59, tzinfo=CST), datetime(2026, 11, 30, 0, 1, tzinfo=CST), tokyo]
    parts = [told(0, begin=begin) for begin in (*begins, begins[0])]
    put(tmp_path, NOW, b"".join(parts))
    move_all(tmp_path)
    assert archived(tmp_path) == {
        "2026-11-29": parts[0] + parts[3],
        "2026-11-30": parts[1],
        "2026-12-01": parts[2],
    }


def test_at_the_days_end_earlier_days_leave_and_the_last_thoughts_stay() -> None:
    yesterday = [told(n, begin=NOON - timedelta(days=1)) for n in range(5)]
    after_midnight = told(0, begin=NOON.replace(hour=1))  # the mind's day ends at two
    data = b"".join([*yesterday, after_midnight])
    late = rotation(NOON.replace(hour=1, minute=30))
    assert earlier(late, data) is None
    two = everything(earlier(rotation(NOON.replace(hour=2)), data))
    assert two.length == len(data) - len(after_midnight + yesterday[-1])
    one = everything(earlier(rotation(NOON.replace(hour=2), keep_bytes=120), data))
    assert one.length == len(data) - len(after_midnight)
    today = told(3)
    left = earlier(rotation(NOON + timedelta(hours=2)), b"".join([yesterday[0], today, today]))
    assert everything(left).length == len(yesterday[0])
    assert earlier(rotation(), b"A person's line.\n\n" + today * 3) is None


def test_what_stands_before_a_heading_leaves_for_the_consolidator() -> None:
    data = told(1) + told(2) + told(3)
    move = everything(rotation().before(data, "2026-11-30 12:02:00 +08:00"))
    assert move.length == len(told(1)) and move.sha256 == digest(told(1))
    assert rotation().before(data, "2026-11-30 12:01:00 +08:00") is None
    assert rotation().before(data, "2026-11-30 12:09:00 +08:00") is None
    assert rotation().before(data, "") is None


def test_a_persons_text_without_a_time_goes_with_what_follows_it(tmp_path: Path) -> None:
    day = datetime(2026, 11, 28, 9, 0, tzinfo=CST)
    put(tmp_path, NOW, b"# My stream\n\n" + told(0, begin=day))
    move_all(tmp_path)
    assert archived(tmp_path) == {"2026-11-28": b"# My stream\n\n" + told(0, begin=day)}


# --- moving --------------------------------------------------------------------------------------

STEPS = [f"apply.rotate.{name}" for name in ("before", "half", "archived", "written", "renamed")]


def test_the_steps_of_a_rotation_are_told(tmp_path: Path) -> None:
    put(tmp_path, NOW, told(1) + told(2))
    steps = Steps()
    move = everything(rotation().before(now_md(tmp_path), "2026-11-30 12:02:00 +08:00"))
    assert PageFiles(tmp_path, steps, split_writes=True).move_prefix(move)
    assert steps.seen == STEPS


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stands", [b"", told(-9), b"I was"])
def test_dead_at_any_step_and_done_again_moves_each_passage_once(
    tmp_path: Path, step: str, stands: bytes
) -> None:
    page = b"".join(told(n, WORDS["zh" if n % 2 else "en"]) for n in range(8))
    put(tmp_path, NOW, page)
    put(tmp_path, "stream/archive/2026-11-30.md", stands)
    move = everything(rotation().room_for(page, 500))
    with pytest.raises(Killed):
        PageFiles(tmp_path, Steps(step), split_writes=True).move_prefix(move)
    for _ in range(2):
        PageFiles(tmp_path).move_prefix(move)
    gap = b"\n\n" if stands == b"I was" else b""
    assert archived(tmp_path)["2026-11-30"] == stands + gap + page[: move.length]
    assert now_md(tmp_path) == move.opening.encode() + page[move.length :]


def test_a_page_that_begins_otherwise_by_then_is_left_alone(tmp_path: Path) -> None:
    move = everything(rotation().before(told(1) + told(2), "2026-11-30 12:02:00 +08:00"))
    for page in (told(1)[:-9], b"x" + told(1) + told(2), b""):
        put(tmp_path, NOW, page)
        assert not PageFiles(tmp_path).move_prefix(move)
        assert now_md(tmp_path) == page and not archived(tmp_path)


def test_what_was_appended_meanwhile_stays(tmp_path: Path) -> None:
    move = everything(rotation().before(told(1) + told(2), "2026-11-30 12:02:00 +08:00"))
    put(tmp_path, NOW, told(1) + told(2) + told(3))
    assert PageFiles(tmp_path).move_prefix(move)
    assert now_md(tmp_path) == move.opening.encode() + told(2) + told(3)


@pytest.mark.parametrize("step", ["apply.rotate.archived", "apply.rotate.written"])
@pytest.mark.parametrize("how", ["rename", "in place"])
def test_a_save_while_passages_move_stays_and_they_move_once_all_the_same(
    tmp_path: Path, step: str, how: str
) -> None:
    path = put(tmp_path, NOW, told(1) + told(2))
    saved = told(1).replace(b"Alice", b"Bob") + told(2)

    def save() -> None:
        if how == "rename":
            put(tmp_path, "stream/.edited", saved).rename(path)
        else:
            path.write_bytes(saved)

    move = everything(rotation().before(now_md(tmp_path), "2026-11-30 12:02:00 +08:00"))
    assert not PageFiles(tmp_path, Steps(step, save)).move_prefix(move)
    assert now_md(tmp_path) == saved
    move_all(tmp_path)
    both = archived(tmp_path)["2026-11-30"]
    assert [both.count(words) for words in (b"Alice at", b"Bob at", b"(2)")] == [2, 1, 1]
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_stale_save_that_brings_moved_passages_back_doubles_none_in_the_archive(tmp_path: Path) -> None:
    stale = told(1) + told(2)
    put(tmp_path, NOW, stale)
    move_all(tmp_path)
    put(tmp_path, NOW, stale.replace(b"\n", b"\r\n") + told(3))
    move_all(tmp_path)
    assert archived(tmp_path)["2026-11-30"] == told(1) + told(2) + told(3)


def test_equal_passages_are_kept_as_often_as_they_stand(tmp_path: Path) -> None:
    put(tmp_path, NOW, told(1) + told(1) + told(2))
    move_all(tmp_path)
    assert archived(tmp_path)["2026-11-30"] == told(1) + told(1) + told(2)


def test_a_redone_append_finds_its_passage_in_the_archive(tmp_path: Path) -> None:
    pages = PageFiles(tmp_path, rotation=rotation())
    for _ in range(2):
        pages.append(NOW, told(1))
    pages.append(NOW, told(2))
    assert pages.move_prefix(everything(rotation().before(now_md(tmp_path), "2026-11-30 12:02:00 +08:00")))
    before = now_md(tmp_path)
    for occurrence in (1, 2):
        pages.append(NOW, told(1), redo=True, occurrence=occurrence)
    pages.append(NOW, told(2), redo=True)
    assert now_md(tmp_path) == before
    pages.append(NOW, told(1), redo=True, occurrence=3)
    assert now_md(tmp_path) == before + told(1)


def test_a_link_that_leads_out_of_the_archive_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "self"
    put(root, NOW, told(1) + told(2))
    secret = put(tmp_path, "secret.md", b"theirs")
    (root / "stream/archive").mkdir()
    (root / "stream/archive/2026-11-30.md").symlink_to(secret)
    with pytest.raises(OSError, match="leads out"):
        move_all(root)
    assert secret.read_bytes() == b"theirs" and now_md(root) == told(1) + told(2)


# --- who reads -----------------------------------------------------------------------------------


def test_a_moved_passage_is_found_by_its_place_by_search_and_by_the_index(tmp_path: Path) -> None:
    pages, stream = PageFiles(tmp_path), SelfStream(tmp_path)
    offset = pages.append(NOW, told(1, WORDS["zh"]))
    pages.append(NOW, told(2))
    place = PassagePlace("p", NOW, offset, len(told(1, WORDS["zh"])), str(digest(told(1, WORDS["zh"]))),
                         "2026-11-30 12:01:00 +08:00")  # fmt: skip
    past = PastFiles(tmp_path, CST)
    before = [entry.key for entry in past.entries(NOW)]
    assert stream.missing([told(1, WORDS["zh"]), told(2)]) == []
    pages.move_prefix(everything(rotation().before(now_md(tmp_path), "2026-11-30 12:02:00 +08:00")))
    found = stream.passage(place)
    assert found is not None and WORDS["zh"] in found.text
    assert stream.missing([told(1, WORDS["zh"]), told(2)]) == []
    assert [hit.heading for hit in stream.search("磨坊", 5)] == [place.heading]
    after = [entry.key for page in ("stream/archive/2026-11-30.md", NOW) for entry in past.entries(page)]
    assert before == after
    assert not stream.search("archive", 5), "the bridge is no memory"


def test_a_passage_in_both_pages_while_it_moves_is_found_once(tmp_path: Path) -> None:
    put(tmp_path, NOW, told(1) + told(2))
    put(tmp_path, "stream/archive/2026-11-30.md", told(1))
    assert len(SelfStream(tmp_path).search("mill", 9)) == 2


# --- everything together -------------------------------------------------------------------------

deeds = st.lists(
    st.tuples(
        st.sampled_from(["tell", "tell", "tell", "kill", "line", "edit", "stale", "day", "end"]),
        st.integers(0, 40),
        st.sampled_from(STEPS),
    ),
    max_size=30,
)


@given(deeds)
def test_passages_rotations_kills_and_hands_lose_and_double_nothing(
    moves: list[tuple[str, int, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = put(root, NOW, b"")
        marks: list[bytes] = []
        told_so_far: list[tuple[bytes, bytes]] = []
        moment, stale = NOON, (b"", 0)
        for number, (deed, place, step) in enumerate(moves):
            moment += timedelta(hours=9 if deed == "day" else 0, minutes=1)
            mark = f"<{number}>".encode()
            block = render(moment, f"I 我 {mark.decode()} {'word ' * place}").encode()
            turn = rotation(moment)
            if deed in ("tell", "kill"):
                steps = Steps(step if deed == "kill" else "")
                told_so_far.append((mark, block))
                try:
                    append(root, block, PageFiles(root, steps, split_writes=True, rotation=turn))
                except Killed:
                    append(root, block, PageFiles(root, rotation=turn), redo=True)
                if len(block) + 250 < 1000:
                    assert len(now_md(root)) <= 1000 or any(m in now_md(root) for m in marks)
            elif deed == "line":
                marks.append(mark)
                with path.open("ab") as file:
                    file.write(mark)
            elif deed == "edit":
                marks.append(mark)
                lines = now_md(root).split(b"\n\n")
                where = place % (len(lines) + 1)
                put(root, "stream/.edited", b"\n\n".join([*lines[:where], mark, *lines[where:]])).rename(path)
            elif deed == "stale" and not marks:
                path.write_bytes(stale[0] + b"".join(b for _, b in told_so_far[stale[1] :]))
            elif deed == "day" and (move := earlier(turn, now_md(root))) is not None:
                PageFiles(root).move_prefix(move)
            if not marks:
                stale = stale if deed == "stale" else (now_md(root), len(told_so_far))
        move_all(root)
        whole = b"".join(archived(root).values())
        for mark, _ in told_so_far:
            assert whole.count(mark) == 1
        for mark in marks:
            assert mark in whole
        headings = [p.heading for data in archived(root).values() for p in split(data.decode()) if p.heading]
        assert len(set(headings)) == len(headings)
        assert all(h[:10] == day for day, data in archived(root).items()
                   for h in (p.heading for p in split(data.decode())) if h)  # fmt: skip
        assert all(is_bridge(p.text) for p in split(now_md(root).decode()))
        assert not [name for name in os.listdir(root / "stream") if name.endswith(".tmp")]


def test_times_of_other_zones_are_of_the_minds_own_day() -> None:
    utc = datetime(2026, 11, 29, 17, 30, tzinfo=UTC)  # 01:30 of the 30th in Shanghai: still the 29th
    data = told(0, begin=utc) + told(1) * 3
    assert everything(earlier(rotation(keep_passages=0), data)).length == len(told(0, begin=utc))
