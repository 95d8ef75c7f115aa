"""Pages as files: names, links, and finding bytes without loading the file."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.self_stream import page_io


@pytest.mark.parametrize("name", ["state.md", "stream/now.md", "memories/关于_小雨.md"])
def test_names_of_pages(name: str) -> None:
    assert page_io.page_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "state",
        "state.json",
        "/etc/x.md",
        "../x.md",
        "a/../x.md",
        "a//x.md",
        ".x.md",
        ".md",
        ".history/x.md",
        "a/.b/x.md",
        "a\0.md",
    ],
)
def test_what_cannot_name_a_page_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no page"):
        page_io.page_name(name)


def test_a_link_inside_is_followed_and_one_that_leads_out_is_not(tmp_path: Path) -> None:
    root = tmp_path / "self"
    (root / "diary").mkdir(parents=True)
    (root / "diary" / "a.md").symlink_to("../state.md")
    (root / "b.md").symlink_to("../secret.md")
    (root / "memories").symlink_to(tmp_path)
    assert page_io.locate(str(root), "diary/a.md") == str(root / "state.md")
    for name in ("b.md", "memories/secret.md"):
        with pytest.raises(OSError, match="leads out of self") as raised:
            page_io.locate(str(root), name)
        assert raised.value.errno == errno.ELOOP
        assert raised.value.filename == str(root / name)


def test_nothing_but_a_regular_file_is_opened_and_nothing_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.md")
    (tmp_path / "folder.md").mkdir()
    for name in ("fifo.md", "folder.md"):
        with pytest.raises(OSError, match="regular file"):
            page_io.read(str(tmp_path / name))


def test_a_file_that_is_missing_reads_as_none(tmp_path: Path) -> None:
    (tmp_path / "file.md").write_bytes(b"")
    assert page_io.read(str(tmp_path / "no.md")) is None
    assert page_io.read(str(tmp_path / "file.md" / "no.md")) is None
    assert page_io.read(str(tmp_path / ("long" * 100 + ".md"))) is None
    assert page_io.read(str(tmp_path / "file.md")) == b""


@given(
    st.lists(st.sampled_from([b"ab", b"aa", b"b", b"\n\n", b"a" * 50])).map(b"".join),
    st.sampled_from([b"a", b"ab", b"aab", b"\n\n", b"aaaa", b"ba\n", b""]),
    st.integers(1, 9),
)
def test_occurrences_are_found_across_chunks(hay: bytes, needle: bytes, chunk: int) -> None:
    expected, at = [], hay.find(needle) if needle else -1
    while at >= 0:
        expected.append(at)
        at = hay.find(needle, at + len(needle))
    with tempfile.TemporaryFile() as file:
        file.write(hay)
        file.flush()
        assert list(page_io.find_all(file.fileno(), needle, chunk=chunk)) == expected
