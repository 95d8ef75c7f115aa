"""Which pages a folder shows, and what tells that one was saved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_gamma.self_stream.listing import MEMORIES, Mark, mark_of, pages_in


def names(root: Path) -> set[str]:
    return {name for name, _ in pages_in(os.fspath(root), MEMORIES)}


@pytest.fixture
def memories(tmp_path: Path) -> Path:
    folder = tmp_path / "self" / MEMORIES
    folder.mkdir(parents=True)
    return folder


def test_only_pages_are_listed(memories: Path) -> None:
    root = memories.parent
    (memories / "茶.md").write_text("x")
    (memories / ".draft.md").write_text("x")
    (memories / "notes.txt").write_text("x")
    (memories / "folder.md").mkdir()
    os.mkfifo(memories / "fifo.md")
    (memories / "also.md").symlink_to("茶.md")
    (memories / "gone.md").symlink_to("nothing.md")
    (root.parent / "secret.md").write_text("x")
    (memories / "out.md").symlink_to(root.parent / "secret.md")
    assert names(root) == {"茶", "also"}


def test_a_folder_that_is_none_has_no_pages(memories: Path) -> None:
    root = memories.parent
    memories.rmdir()
    assert names(root) == set()
    memories.write_text("a file")
    assert names(root) == set()
    memories.unlink()
    memories.symlink_to(root.parent)
    assert names(root) == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look anywhere")
def test_a_folder_that_may_not_be_looked_into_is_an_error(memories: Path) -> None:
    memories.chmod(0)
    with pytest.raises(PermissionError):
        names(memories.parent)
    memories.chmod(0o700)


def test_a_mark_is_that_of_the_listing_and_differs_after_a_save(memories: Path) -> None:
    root, page = os.fspath(memories.parent), memories / "tea.md"
    page.write_text("one")
    (listed,) = (mark for _, mark in pages_in(root, MEMORIES))
    assert mark_of(root, "memories/tea.md") == listed == Mark.of(page.stat())
    page.write_text("longer")
    longer = mark_of(root, "memories/tea.md")
    assert longer != listed
    (memories / "new.md").write_text("longer")
    (memories / "new.md").rename(page)
    assert mark_of(root, "memories/tea.md") != longer


def test_what_is_no_page_has_no_mark(memories: Path) -> None:
    root = os.fspath(memories.parent)
    os.mkfifo(memories / "fifo.md")
    (memories / "out.md").symlink_to("/etc/hostname")
    for name in ("fifo", "out", "missing"):
        assert mark_of(root, f"memories/{name}.md") is None
    assert mark_of(root, "memories/missing/deep.md") is None
    with pytest.raises(ValueError, match="is no page"):
        mark_of(root, "memories/../x.md")
