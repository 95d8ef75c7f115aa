from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes import START
from tests.truths.static.conftest import PLACES

from kernel_gamma.configuration import defaults_dir, lay_out
from kernel_gamma.truths.static.approvals import drift_between, files_on_disk
from kernel_gamma.truths.static.laying_out import settle_lock
from kernel_gamma.truths.static.lock import Lock, read_lock, write_lock
from kernel_gamma.truths.static.places import LOCK_FILE

IDENTITY = "config/identity.json"


def laid_out(home: Path, *, remembered: bool = False) -> list[Path]:
    return settle_lock(home, lay_out(home), defaults_dir(), PLACES, START, remembered=remembered)


def lock_of(home: Path) -> Lock:
    lock = read_lock(home)
    assert lock is not None
    assert drift_between(lock, files_on_disk(home, PLACES), PLACES) == []
    return lock


def test_a_new_home_holds_what_is_shipped_approved_as_shipped(tmp_path: Path) -> None:
    assert tmp_path / LOCK_FILE in laid_out(tmp_path)
    assert lock_of(tmp_path) == read_lock(defaults_dir())
    before = (tmp_path / LOCK_FILE).read_bytes()
    assert laid_out(tmp_path) == []
    assert (tmp_path / LOCK_FILE).read_bytes() == before


def test_files_that_were_there_before_are_approved_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "config/core/truth").mkdir(parents=True)
    (tmp_path / IDENTITY).write_text('{"did": "D", "system_id": "mine", "provenance": "mine"}')
    (tmp_path / "config/core/truth/mine.md").write_text("# mine\n")
    laid_out(tmp_path)
    by = {file: approval.approved_by for file, approval in lock_of(tmp_path).files.items()}
    assert {file for file, name in by.items() if name == "first start"} == {
        IDENTITY,
        "config/core/truth/mine.md",
    }
    assert set(by.values()) == {"first start", "kernel-gamma"}


def test_a_lost_lock_is_left_to_the_memory_store(tmp_path: Path) -> None:
    laid_out(tmp_path)
    (tmp_path / LOCK_FILE).unlink()
    assert laid_out(tmp_path, remembered=True) == []
    assert not (tmp_path / LOCK_FILE).exists()


def test_what_an_update_brings_is_approved_and_nothing_else_is_touched(tmp_path: Path) -> None:
    laid_out(tmp_path)
    page = "config/core/truth/two-pools.md"
    lock = lock_of(tmp_path)
    (tmp_path / page).unlink()
    write_lock(tmp_path, lock.with_file(page, None))
    (tmp_path / IDENTITY).write_text("{}")  # an edit nobody approved stays one
    assert laid_out(tmp_path) == [tmp_path / page]
    assert read_lock(tmp_path) == lock


@pytest.mark.parametrize("approved_by", ["alice", "kernel-gamma"])
def test_an_approval_of_a_person_is_not_written_over(tmp_path: Path, approved_by: str) -> None:
    laid_out(tmp_path)
    lock = lock_of(tmp_path)
    mine = lock.with_file(
        IDENTITY, lock.files[IDENTITY].__class__("0" * 64, approved_by, "2026-01-01T00:00:00Z")
    )
    write_lock(tmp_path, mine)
    (tmp_path / IDENTITY).unlink()
    laid_out(tmp_path)
    assert read_lock(tmp_path) == mine
