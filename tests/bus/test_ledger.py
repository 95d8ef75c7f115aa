"""The memory of the bus: migrations, the fence, damage, and that every statement works and uses an index."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest

from kernel_gamma.bus.ledger import MIGRATIONS, Ledger, LedgerDamaged
from kernel_gamma.errors import Fenced, SettingsError, Stop


def test_each_start_takes_the_mind_over_from_the_last(tmp_path: Path) -> None:
    old, new = (Ledger.open(tmp_path / "ledger.db") for _ in range(2))
    assert old.take_over() == 1
    assert new.take_over() == 2
    with pytest.raises(Fenced), old.transaction(full=False):
        old.run("set_meta", "key", "written by the wrong one")
    assert new.one("get_meta", "key") is None
    old.close()
    new.close()


def test_a_transaction_that_raises_leaves_nothing_and_the_next_works(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(ValueError), ledger.transaction(full=True):
        ledger.run("set_meta", "key", "x")
        raise ValueError
    with ledger.transaction(full=False):
        assert ledger.one("get_meta", "key") is None
    ledger.close()


def test_the_error_of_a_full_ledger_is_not_hidden_by_its_rollback(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger._db.execute("PRAGMA max_page_count = 60")
    with pytest.raises(sqlite3.OperationalError, match="full"), ledger.transaction(full=False):
        ledger.run("set_meta", "key", "x" * 1_000_000)
    ledger._db.execute("PRAGMA max_page_count = 100000")
    with ledger.transaction(full=False):
        ledger.run("set_meta", "key", "x")
    assert ledger.one("get_meta", "key") == ("x",)
    ledger.close()


def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(SettingsError, match="newer"):
        Ledger.open(path)


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_F16_a_file_that_is_no_database_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match=r"ledger\.db"):
        Ledger.open(path)


def test_a_ledger_that_cannot_be_opened_now_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(Stop, match="start again"):
        Ledger.open(tmp_path / "ledger.db")


def test_opening_again_repeats_no_migration(tmp_path: Path) -> None:
    for _ in range(2):
        ledger = Ledger.open(tmp_path / "ledger.db")
        with ledger.transaction(full=False):
            ledger.run("set_meta", "key", "kept")
        ledger.close()
    ledger = Ledger.open(tmp_path / "ledger.db", read_only=True)
    assert ledger.one("get_meta", "key") == ("kept",)
    ledger.close()


def test_every_statement_has_a_sentence_and_can_be_prepared(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    text = (files("kernel_gamma.bus") / "ledger.sql").read_text()
    names = [line.removeprefix("-- name: ") for line in text.splitlines() if line.startswith("-- name: ")]
    assert len(names) == len(set(names)) > 20
    for block in text.split("-- name: ")[1:]:
        name, comment = block.splitlines()[:2]
        assert comment.startswith("-- ") and comment.rstrip().endswith("."), name
        sql = ledger._sql[name]
        ledger._db.execute(f"EXPLAIN {sql}", nothing_for(sql))
    ledger.close()


def nothing_for(sql: str) -> list[None]:
    """As many values as the statement takes."""
    marks = re.findall(r"\?(\d*)", sql)
    return [None] * max([len([m for m in marks if not m]), *(int(m) for m in marks if m)])


SEARCHES = [
    "open_deliveries",
    "standing_file",
    "still_open",
    "any_dead",
    "commit_of_batch",
    "passage",
    "claim",
]


@pytest.mark.parametrize("name", SEARCHES)
def test_what_is_asked_for_every_event_reads_no_whole_table(tmp_path: Path, name: str) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    sql = ledger._sql[name]
    plan = ledger._db.execute(f"EXPLAIN QUERY PLAN {sql}", nothing_for(sql)).fetchall()
    assert not [row for row in plan if row[3].startswith("SCAN")], plan
    ledger.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_ledger_that_is_not_at_its_path_any_more_is_not_written(tmp_path: Path, how: str) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    ledger.take_over()
    path.rename(tmp_path / "elsewhere.db")
    if how == "replaced":
        Ledger.open(path).close()
    with pytest.raises(Fenced, match=how), ledger.transaction(full=False):
        ledger.run("set_meta", "key", "x")
    ledger.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    found = tmp_path / "disk"
    found.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(found)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield found
    subprocess.run(["umount", "-l", found], check=True)


def _fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def _forbid(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


@pytest.mark.parametrize("change", [_fill, _forbid])
@pytest.mark.parametrize("closed", [True, False])
def test_it_is_read_where_nothing_can_be_written(
    disk: Path, change: Callable[[Path], None], closed: bool
) -> None:
    """Closed in order it has one file; left by a killed process it has three."""
    life = disk.parent / "life"
    life.mkdir()
    ledger = Ledger.open(life / "ledger.db")
    with ledger.transaction(full=False):
        ledger.run("set_meta", "key", "value")
    if closed:
        ledger.close()
    for file in life.iterdir():
        shutil.copy(file, disk)
    if not closed:
        ledger.close()
    change(disk)
    looked_at = Ledger.open(disk / "ledger.db", read_only=True)
    assert looked_at.one("get_meta", "key") == ("value",)
    looked_at.close()
