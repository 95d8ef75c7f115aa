from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes import FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import SettingsError, TruthError
from kernel_gamma.truths.database import MIGRATIONS, Database
from kernel_gamma.truths.store import open_truths

OPEN_AND_WRITE = """
import sys
from pathlib import Path
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.store import open_truths
print("ready", flush=True)
sys.stdin.readline()
store = open_truths(Path(sys.argv[1]), SystemClock("UTC"))
store.upsert(NewTruth(key=f"incident.{sys.argv[2]}.x", value="opened"))
print("ok")
"""


def pragma(path: Path, name: str) -> object:
    db = sqlite3.connect(path)
    try:
        return db.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        db.close()


def test_a_new_file_has_the_newest_schema_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    Database.open(path).close()
    assert pragma(path, "user_version") == len(MIGRATIONS)
    assert pragma(path, "journal_mode") == "wal"
    Database.open(path).close()
    assert pragma(path, "integrity_check") == "ok"


def test_a_file_of_a_newer_version_is_refused_with_a_word_on_how_to_mend_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    Database.open(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(SettingsError, match=r"memory\.db: version: written by a newer .*upgrade, or restore"):
        Database.open(path)
    assert pragma(path, "user_version") == len(MIGRATIONS) + 1


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_a_file_of_an_older_version_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    path = tmp_path / "memory.db"
    db = sqlite3.connect(path, isolation_level=None)
    for _, migrate in MIGRATIONS[:version]:
        migrate(db)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    store = open_truths(path, FakeClock())
    store.upsert(NewTruth(key="incident.x", value="disk"))
    assert store.search(Search(query="disk")).total == 1
    store.close()
    assert pragma(path, "user_version") == len(MIGRATIONS)


def test_a_migration_that_failed_halfway_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE feedback (x)")  # in the way of the first schema, after some of its tables
    with pytest.raises(TruthError, match=r"memory\.db: table feedback already exists"):
        Database.open(path)
    assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("feedback",)]
    assert pragma(path, "user_version") == 0
    db.execute("DROP TABLE feedback")
    db.close()
    Database.open(path).close()


def test_an_index_made_with_other_terms_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    store = open_truths(path, FakeClock())
    store.upsert_many([NewTruth(key=f"incident.n{n}", value="disk 磁盘") for n in range(5)])
    with store.database.write() as connection:
        connection.run("set_meta", "index version", "0")
        connection.run("clear_words")
    assert store.search(Search(query="disk")).total == 0
    store.close()
    store = open_truths(path, FakeClock())
    assert store.search(Search(query="磁盘")).total == 5
    store.close()


def test_a_write_that_fails_is_undone_whole_and_the_next_one_goes_through(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "memory.db")
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        connection.run("set_meta", "a", "1")
        raise ZeroDivisionError
    with database.read() as connection:
        assert connection.one("get_meta", "a") is None
    with database.write() as connection:
        connection.run("set_meta", "a", "2")
    with database.read() as connection:
        assert connection.one("get_meta", "a") == ("2",)
    database.close()


def test_a_reader_sees_one_state_for_as_long_as_it_looks(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "memory.db")
    with database.read() as reader:
        assert reader.one("get_meta", "a") is None
        with database.write() as writer:
            writer.run("set_meta", "a", "1")
        assert reader.one("get_meta", "a") is None
    with database.read() as reader:
        assert reader.one("get_meta", "a") == ("1",)
    database.close()


def test_processes_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    waiting = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_WRITE, str(path), f"p{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(6)
    ]
    for process in waiting:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in waiting:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60) for process in waiting]
    assert [out for out, _ in said] == ["ok\n"] * 6, said
    store = open_truths(path, FakeClock())
    assert store.categories() == {"incident": 6}
    assert store.verify().ok
    store.close()
