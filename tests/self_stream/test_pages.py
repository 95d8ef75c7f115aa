"""Writing pages: once, whole, and never over what a person wrote."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.self_stream import PageFiles

NOW = "stream/now.md"
ENGLISH = b"## 2026-11-30 10:30:05 +08:00\n\nI replied to Alice.\n\n"
CHINESE = "## 2026-11-30 10:31:00 +08:00\n\n我给小雨回了信。\n\n".encode()
BLOCKS = pytest.mark.parametrize("block", [ENGLISH, CHINESE], ids=["en", "zh"])


class Killed(BaseException):
    """Stands for the death of the process at a step."""


class Steps:
    """Records the steps; dies or calls at the chosen one, the first `times` times."""

    def __init__(self, at: str = "", then: Callable[[], object] | None = None, *, times: int = 1) -> None:
        self.seen: list[str] = []
        self._at = at
        self._then = then
        self._times = times

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if name == self._at and self.seen.count(name) <= self._times:
            if self._then is None:
                raise Killed
            self._then()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond `size` come out short, then fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(root: Path, page: str, data: bytes) -> Path:
    path = root / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def history(root: Path) -> dict[str, bytes]:
    kept = root / ".history"
    return {str(path.relative_to(kept)): path.read_bytes() for path in kept.rglob("*") if path.is_file()}


# --- append --------------------------------------------------------------------------------------


@BLOCKS
def test_a_missing_page_and_its_folders_are_made_with_the_opening_first(tmp_path: Path, block: bytes) -> None:
    opening = "# 早些时候 Earlier".encode()
    pages = PageFiles(tmp_path / "self")
    expected = pages.next_offset(NOW, opening=opening)
    offset = pages.append(NOW, block, opening=opening)
    data = (tmp_path / "self" / NOW).read_bytes()
    assert data == opening + b"\n\n" + block
    assert data[offset:] == block and offset == expected


def test_the_opening_is_written_once(tmp_path: Path) -> None:
    pages = PageFiles(tmp_path)
    pages.append(NOW, ENGLISH, opening=b"# Now\n\n")
    pages.append(NOW, CHINESE, opening=b"# Now\n\n")
    assert (tmp_path / NOW).read_bytes() == b"# Now\n\n" + ENGLISH + CHINESE


def test_an_empty_page_is_opened_like_a_missing_one(tmp_path: Path) -> None:
    put(tmp_path, NOW, b"")
    PageFiles(tmp_path).append(NOW, ENGLISH, opening=b"# Now\n\n")
    assert (tmp_path / NOW).read_bytes() == b"# Now\n\n" + ENGLISH


@pytest.mark.parametrize(
    ("stands", "gap"),
    [
        (b"", b""),
        (ENGLISH, b""),
        (b"I wrote half a li", b"\n\n"),
        ("我写了半".encode()[:-1], b"\n\n"),
        (b"a whole line\n", b"\n"),
        (b"\n", b"\n"),
        (b"windows\r\n\r\n", b""),
        (b"windows\r\n", b"\n"),
    ],
)
def test_a_half_line_at_the_end_is_completed_first(tmp_path: Path, stands: bytes, gap: bytes) -> None:
    path = put(tmp_path, NOW, stands)
    pages = PageFiles(tmp_path)
    expected = pages.next_offset(NOW)
    assert pages.append(NOW, CHINESE) == expected == len(stands + gap)
    assert path.read_bytes() == stands + gap + CHINESE


@pytest.mark.parametrize("stands", [b"", ENGLISH, b"I was", b"\0\0"])
@pytest.mark.parametrize("nuls", [1, 3, 70_000])
def test_nuls_of_a_power_cut_are_cut_first(tmp_path: Path, stands: bytes, nuls: int) -> None:
    path = put(tmp_path, NOW, stands + b"\0" * nuls)
    pages = PageFiles(tmp_path)
    expected = pages.next_offset(NOW)
    assert pages.append(NOW, CHINESE) == expected
    bare = stands.rstrip(b"\0")
    assert path.read_bytes() == bare + (b"\n\n" if bare == b"I was" else b"") + CHINESE


def test_equal_texts_may_be_appended_again(tmp_path: Path) -> None:
    pages = PageFiles(tmp_path)
    assert [pages.append(NOW, ENGLISH) for _ in range(3)] == [0, len(ENGLISH), 2 * len(ENGLISH)]


def test_the_steps_of_an_append_are_told(tmp_path: Path) -> None:
    whole, halves = Steps(), Steps()
    PageFiles(tmp_path, whole).append(NOW, ENGLISH)
    PageFiles(tmp_path, halves, split_writes=True).append(NOW, CHINESE)
    assert whole.seen == ["apply.append.before", "apply.append.after"]
    assert halves.seen == ["apply.append.before", "apply.append.half", "apply.append.after"]
    assert (tmp_path / NOW).read_bytes() == ENGLISH + CHINESE


@BLOCKS
@pytest.mark.parametrize("step", ["before", "half", "after"])
@pytest.mark.parametrize("stands", [None, b"", b"I was", CHINESE + ENGLISH, b"C#"])
@pytest.mark.parametrize("opening", [b"", b"# Now\n\n"])
def test_dead_at_any_step_and_done_again_stands_once(
    tmp_path: Path, block: bytes, step: str, stands: bytes | None, opening: bytes
) -> None:
    for root in (tmp_path / "killed", tmp_path / "quiet"):
        if stands is not None:
            put(root, NOW, stands)
    occurrence = (stands or b"").count(block) + 1
    dying = PageFiles(tmp_path / "killed", Steps(f"apply.append.{step}"), split_writes=True)
    with pytest.raises(Killed):
        dying.append(NOW, block, opening=opening)
    pages = PageFiles(tmp_path / "killed")
    offset = pages.append(NOW, block, opening=opening, redo=True, occurrence=occurrence)
    PageFiles(tmp_path / "quiet").append(NOW, block, opening=opening)
    data = (tmp_path / "killed" / NOW).read_bytes()
    assert data == (tmp_path / "quiet" / NOW).read_bytes()
    assert data[offset : offset + len(block)] == block


blocks = st.sampled_from([ENGLISH, CHINESE, b"- x\n\n- x\n\n- x\n\n"]) | st.binary(max_size=40).map(
    lambda data: b"- " + data.replace(b"\0", b"?")
)


@given(
    stands=st.sampled_from([b"", b"I was", b"a line\n", ENGLISH, b"crlf\r\n\r\n", b"x\n\n"]),
    block=blocks,
    opening=st.sampled_from([b"", b"# Now", "# 现在\n\n".encode()]),
    nuls=st.integers(0, 2),
)
def test_a_block_cut_at_every_length_is_redone_to_one_copy(
    stands: bytes, block: bytes, opening: bytes, nuls: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pages = PageFiles(root)
        path = put(root, NOW, stands)
        before = stands.count(block)
        pages.append(NOW, block, opening=opening)
        whole = path.read_bytes()
        for cut in range(len(stands), len(whole)):
            path.write_bytes(whole[:cut] + b"\0" * nuls)
            occurrence = before + 1
            offset = pages.append(NOW, block, opening=opening, redo=True, occurrence=occurrence)
            again = path.read_bytes()
            assert again[offset : offset + len(block)] == block
            assert again == whole, cut
            assert pages.append(NOW, block, redo=True, occurrence=occurrence) == offset
            assert path.read_bytes() == whole


def test_a_redo_counts_equal_texts(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, ENGLISH + CHINESE + ENGLISH)
    pages = PageFiles(tmp_path)
    assert pages.append(NOW, ENGLISH, redo=True, occurrence=1) == 0
    assert pages.append(NOW, ENGLISH, redo=True, occurrence=2) == len(ENGLISH + CHINESE)
    third = pages.append(NOW, ENGLISH, redo=True, occurrence=3)
    assert path.read_bytes() == ENGLISH + CHINESE + ENGLISH + ENGLISH
    assert third == len(ENGLISH + CHINESE + ENGLISH)


def test_a_redo_does_not_cut_what_only_ends_like_the_block(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, b"I like C#")
    PageFiles(tmp_path).append(NOW, ENGLISH, redo=True)
    assert path.read_bytes() == b"I like C#\n\n" + ENGLISH


def test_a_first_append_never_cuts_a_persons_unfinished_line(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, CHINESE + b"## 2026")
    PageFiles(tmp_path).append(NOW, ENGLISH)
    assert path.read_bytes() == CHINESE + b"## 2026\n\n" + ENGLISH


def test_a_save_by_rename_during_the_append_keeps_both(tmp_path: Path) -> None:
    """The editor read the page before our write and saves after it."""
    path = put(tmp_path, NOW, CHINESE)

    def save() -> None:
        edited = put(tmp_path, "stream/.edited", CHINESE + "我改了一句。\n\n".encode())
        edited.rename(path)

    steps = Steps("apply.append.half", save)
    offset = PageFiles(tmp_path, steps, split_writes=True).append(NOW, ENGLISH)
    data = path.read_bytes()
    assert data == CHINESE + "我改了一句。\n\n".encode() + ENGLISH
    assert data[offset:] == ENGLISH


def test_a_save_that_already_holds_our_text_does_not_double_it(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, ENGLISH)
    saved = ENGLISH + CHINESE + ENGLISH

    def save() -> None:
        put(tmp_path, "stream/.edited", saved).rename(path)

    steps = Steps("apply.append.half", save)
    offset = PageFiles(tmp_path, steps, split_writes=True).append(NOW, ENGLISH)
    assert path.read_bytes() == saved
    assert offset == len(ENGLISH + CHINESE)


def test_a_page_deleted_during_the_append_is_made_again(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, CHINESE)
    steps = Steps("apply.append.half", path.unlink)
    assert PageFiles(tmp_path, steps, split_writes=True).append(NOW, ENGLISH) == 0
    assert path.read_bytes() == ENGLISH


def test_a_page_that_is_renamed_without_end_is_an_error_not_a_hang(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, b"")

    def save() -> None:
        put(tmp_path, "stream/.edited", b"").rename(path)

    steps = Steps("apply.append.half", save, times=1000)
    with pytest.raises(OSError, match="again and again"):
        PageFiles(tmp_path, steps, split_writes=True).append(NOW, ENGLISH)


def test_a_full_disk_leaves_the_page_as_it_was_and_names_it(tmp_path: Path) -> None:
    path = put(tmp_path, NOW, CHINESE)
    pages = PageFiles(tmp_path)
    with file_size_limit(len(CHINESE) + 10), pytest.raises(OSError, match=r"now\.md") as raised:
        pages.append(NOW, ENGLISH)
    assert raised.value.errno == errno.EFBIG
    assert path.read_bytes() == CHINESE
    pages.append(NOW, ENGLISH, redo=True)
    assert path.read_bytes() == CHINESE + ENGLISH


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    put(tmp_path, "stream", b"a file where a folder should be")
    with pytest.raises(OSError, match="stream"):
        PageFiles(tmp_path).append(NOW, ENGLISH)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_page_is_named(tmp_path: Path) -> None:
    put(tmp_path, NOW, CHINESE).chmod(0o400)
    with pytest.raises(PermissionError, match=r"now\.md"):
        PageFiles(tmp_path).append(NOW, ENGLISH)


def test_links_that_lead_out_are_never_written(tmp_path: Path) -> None:
    secret = put(tmp_path, "secret.md", b"theirs")
    root = tmp_path / "self"
    (root / "stream").mkdir(parents=True)
    (root / NOW).symlink_to(secret)
    (root / "diary").symlink_to(tmp_path)
    pages = PageFiles(root)
    for page in (NOW, "diary/secret.md"):
        for write in (
            lambda page=page: pages.append(page, ENGLISH),
            lambda page=page: pages.next_offset(page),
            lambda page=page: pages.replace(page, ENGLISH, expect=sha(b"theirs"), history="h"),
        ):
            with pytest.raises(OSError, match="leads out") as raised:
                write()
            assert raised.value.errno == errno.ELOOP
    assert secret.read_bytes() == b"theirs"


def test_names_outside_are_refused(tmp_path: Path) -> None:
    pages = PageFiles(tmp_path)
    with pytest.raises(ValueError, match="no page"):
        pages.append("../now.md", ENGLISH)
    with pytest.raises(ValueError, match="kept page"):
        pages.replace("state.md", b"new", expect=None, history="../../x")


def test_a_long_page_is_searched_whole(tmp_path: Path) -> None:
    filling = b"## 2026-11-30 10:30:05 +08:00\n\nI replied to Bob.\n\n" * 30_000
    path = put(tmp_path, NOW, CHINESE + filling + ENGLISH + filling)
    pages = PageFiles(tmp_path)
    size = path.stat().st_size
    assert pages.append(NOW, CHINESE, redo=True) == 0
    assert pages.append(NOW, ENGLISH, redo=True) == len(CHINESE + filling)
    assert path.stat().st_size == size


writings = st.lists(
    st.tuples(
        st.sampled_from(["ours", "append", "edit", "save", "crash"]),
        st.text(st.sampled_from("ab我\n# "), max_size=8),
        st.integers(0, 60),
    ),
    max_size=12,
)


@given(writings)
def test_nothing_a_person_writes_between_ours_is_lost(
    moves: list[tuple[str, str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = put(root, NOW, b"")
        pages, ours, marks = PageFiles(root), [], []
        for number, (move, text, place) in enumerate(moves):
            theirs = f"<{number}{text}>".replace("\n", "")
            block = f"## 2026-11-30 10:30:{number:02d} +08:00\n\n我说 {text}\n\n".encode()
            if move == "ours":
                pages.append(NOW, block)
                ours.append(block)
            elif move == "crash":
                dying = PageFiles(root, Steps("apply.append.half"), split_writes=True)
                with pytest.raises(Killed):
                    dying.append(NOW, block)
                pages.append(NOW, block, redo=True)
                ours.append(block)
            else:
                page = path.read_bytes().decode()
                lines = page.split("\n\n")
                where = len(lines) if move == "append" else place % (len(lines) + 1)
                edited = "\n\n".join([*lines[:where], theirs, *lines[where:]]).encode()
                marks.append(theirs.encode())
                if move == "append":
                    with path.open("ab") as file:
                        file.write(theirs.encode())
                elif move == "edit":
                    path.write_bytes(edited)
                else:
                    put(root, "stream/.edited", edited).rename(path)
        data = path.read_bytes()
        for mark in marks:
            assert mark in data
        for block in ours:
            assert data.count(block.split(b"\n\n", 1)[0]) == 1


# --- replace -------------------------------------------------------------------------------------

OLD = "# 心情\n\n我很平静。\n".encode()
NEW = "# Mood\n\nI am glad. 我很高兴。\n".encode()
PERSON = "# 我改的\n\nMine.\n".encode()
STEPS = ["apply.replace.kept", "apply.replace.written", "apply.replace.renamed"]


def test_the_expected_page_is_replaced_and_the_old_one_kept(tmp_path: Path) -> None:
    path = put(tmp_path, "state.md", OLD)
    steps = Steps()
    assert PageFiles(tmp_path, steps).replace("state.md", NEW, expect=sha(OLD), history="s/1.md")
    assert path.read_bytes() == NEW
    assert history(tmp_path) == {"s/1.md": OLD}
    assert steps.seen == STEPS
    assert [entry.name for entry in tmp_path.iterdir()].count(".state.md.tmp") == 0


def test_a_new_page_is_made_where_none_was(tmp_path: Path) -> None:
    pages = PageFiles(tmp_path / "self")
    assert pages.replace("memories/小雨.md", NEW, expect=None, history="1.md")
    assert (tmp_path / "self/memories/小雨.md").read_bytes() == NEW
    assert history(tmp_path / "self") == {}


def test_an_empty_page_is_damaged_and_counts_as_none_but_is_kept_aside(tmp_path: Path) -> None:
    path = put(tmp_path, "state.md", b"")
    assert PageFiles(tmp_path).replace("state.md", NEW, expect=None, history="1.md")
    assert path.read_bytes() == NEW
    assert history(tmp_path) == {"1.md": b""}


@pytest.mark.parametrize("expect", [None, sha(OLD)])
def test_a_persons_page_stays_and_ours_is_kept(tmp_path: Path, expect: str | None) -> None:
    path = put(tmp_path, "state.md", PERSON)
    pages = PageFiles(tmp_path)
    for _ in range(2):
        assert not pages.replace("state.md", NEW, expect=expect, history="1.md")
        assert path.read_bytes() == PERSON
        assert history(tmp_path) == {"1.md.ours": NEW}


def test_a_page_a_person_deleted_stays_deleted(tmp_path: Path) -> None:
    tmp_path.joinpath("memories").mkdir()
    assert not PageFiles(tmp_path).replace("memories/a.md", NEW, expect=sha(OLD), history="1.md")
    assert list((tmp_path / "memories").iterdir()) == []
    assert history(tmp_path) == {"1.md.ours": NEW}


@pytest.mark.parametrize("stands", [OLD, b"", None])
@pytest.mark.parametrize("step", STEPS)
def test_dead_at_any_step_and_done_again_is_replaced(tmp_path: Path, stands: bytes | None, step: str) -> None:
    if stands is not None:
        put(tmp_path, "state.md", stands)
    expect = sha(stands) if stands else None
    with pytest.raises(Killed):
        PageFiles(tmp_path, Steps(step)).replace("state.md", NEW, expect=expect, history="1.md")
    pages = PageFiles(tmp_path)
    for _ in range(2):
        assert pages.replace("state.md", NEW, expect=expect, history="1.md")
        assert (tmp_path / "state.md").read_bytes() == NEW
        assert history(tmp_path) == ({} if stands is None else {"1.md": stands})
    assert not (tmp_path / ".state.md.tmp").exists()


@pytest.mark.parametrize("stands", [OLD, None])
@pytest.mark.parametrize("step", STEPS[:2])
@pytest.mark.parametrize("by_rename", [True, False])
def test_a_save_between_our_steps_wins(
    tmp_path: Path, stands: bytes | None, step: str, by_rename: bool
) -> None:
    path = tmp_path / "state.md"
    if stands is not None:
        path.write_bytes(stands)

    def save() -> None:
        if by_rename:
            put(tmp_path, "edited", PERSON).rename(path)
        else:
            path.write_bytes(PERSON)

    pages = PageFiles(tmp_path, Steps(step, save))
    expect = sha(stands) if stands else None
    assert not pages.replace("state.md", NEW, expect=expect, history="1.md")
    assert path.read_bytes() == PERSON
    assert history(tmp_path)["1.md.ours"] == NEW
    assert PERSON not in [text for name, text in history(tmp_path).items() if name == "1.md"]
    assert not (tmp_path / ".state.md.tmp").exists()


def test_a_replace_redone_after_a_later_one_changes_nothing(tmp_path: Path) -> None:
    path = put(tmp_path, "state.md", OLD)
    pages = PageFiles(tmp_path)
    newer = NEW + b"And calm.\n"
    assert pages.replace("state.md", NEW, expect=sha(OLD), history="1.md")
    assert pages.replace("state.md", newer, expect=sha(NEW), history="2.md")
    assert pages.replace("state.md", NEW, expect=sha(OLD), history="1.md")
    assert path.read_bytes() == newer
    assert history(tmp_path) == {"1.md": OLD, "2.md": NEW}


def test_a_kept_page_is_never_overwritten(tmp_path: Path) -> None:
    put(tmp_path, "state.md", OLD)
    put(tmp_path, ".history/1.md", b"another old page")
    assert PageFiles(tmp_path).replace("state.md", NEW, expect=sha(OLD), history="1.md")
    assert history(tmp_path) == {"1.md": b"another old page", "1.md.1": OLD}


def test_an_editor_that_holds_the_old_page_open_writes_into_the_kept_one(tmp_path: Path) -> None:
    path = put(tmp_path, "state.md", OLD)
    with path.open("ab") as editor:
        assert PageFiles(tmp_path).replace("state.md", NEW, expect=sha(OLD), history="1.md")
        editor.write("迟到的一句。\n".encode())
    assert path.read_bytes() == NEW
    assert history(tmp_path) == {"1.md": OLD + "迟到的一句。\n".encode()}


def test_a_full_disk_leaves_the_old_page_and_names_the_file(tmp_path: Path) -> None:
    path = put(tmp_path, "state.md", OLD)
    pages = PageFiles(tmp_path)
    with file_size_limit(5), pytest.raises(OSError, match=r"state\.md"):
        pages.replace("state.md", NEW, expect=sha(OLD), history="1.md")
    assert path.read_bytes() == OLD
    assert pages.replace("state.md", NEW, expect=sha(OLD), history="1.md")
    assert path.read_bytes() == NEW
