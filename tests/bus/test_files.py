"""The few things done to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.bus.files import (
    Unreadable,
    free_name,
    list_names,
    move,
    overwrite,
    read_regular,
    sync_tree,
    write_whole,
)


def raw(path: Path) -> bytes:
    return os.fsencode(path)


def test_a_whole_file_is_read_with_what_tells_it_from_another(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_bytes(b"hello")
    data, sign = read_regular(raw(path), 5)
    assert data == b"hello"
    path.write_bytes(b"jello")
    os.utime(path, ns=(1, 1))
    assert read_regular(raw(path), 5)[1] != sign


@pytest.mark.parametrize("kind", ["too_large", "symlink", "not_a_file"])
def test_what_is_not_read_says_why(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "e.json"
    if kind == "too_large":
        path.write_bytes(b"123456")
    elif kind == "symlink":
        path.symlink_to("/etc/passwd")
    else:
        path.mkdir()
    with pytest.raises(Unreadable) as caught:
        read_regular(raw(path), 5)
    assert caught.value.kind == kind
    with pytest.raises(FileNotFoundError):
        read_regular(raw(tmp_path / "none"), 5)


def test_a_write_makes_its_directory_leaves_nothing_beside_and_replaces_whole(tmp_path: Path) -> None:
    directory = tmp_path / "a/b"
    for text in (b"first, longer", b"second"):
        write_whole(raw(directory), b"x" * 250 + b".json", text)
    (only,) = directory.iterdir()
    assert only.read_bytes() == b"second"


def test_a_link_planted_at_the_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / ".e.json.tmp").symlink_to(target)
    with pytest.raises(OSError):
        write_whole(raw(tmp_path), b"e.json", b"x")
    assert target.read_text() == "kept"


def test_a_move_may_be_repeated(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "deep/er/b"
    source.write_text("x")
    assert move(raw(source), raw(target)) is True
    assert move(raw(source), raw(target)) is False
    assert target.read_text() == "x"


def test_a_taken_name_gets_the_number_before_its_ending(tmp_path: Path) -> None:
    assert free_name(raw(tmp_path), b"e.json", 7, set()) == b"e.json"
    assert free_name(raw(tmp_path), b"e.json", 7, {b"e.json"}) == b"e.7.json"
    (tmp_path / "e.json").touch()
    (tmp_path / "e.7.json").touch()
    assert free_name(raw(tmp_path), b"e.json", 7, set()) == b"e.7.2.json"


@given(st.binary(min_size=1, max_size=255), st.integers(1, 10**12))
def test_a_free_name_always_fits(name: bytes, seq: int) -> None:
    name = name.replace(b"/", b"_").replace(b"\0", b"_")
    chosen = free_name(b"/nonexistent", name, seq, {name})
    assert chosen != name
    assert len(chosen) <= 255


def test_overwriting_in_place_shortens_and_needs_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(b"a long one")
    overwrite(raw(path), b"short")
    assert path.read_bytes() == b"short"
    with pytest.raises(FileNotFoundError):
        overwrite(raw(tmp_path / "none"), b"x")


def test_listing_what_is_not_there_is_empty(tmp_path: Path) -> None:
    assert list(list_names(raw(tmp_path / "none"))) == []
    (tmp_path / "file").touch()
    assert list(list_names(raw(tmp_path / "file"))) == []
    assert list(list_names(raw(tmp_path))) == [b"file"]
    sync_tree(raw(tmp_path))
