from __future__ import annotations

from pathlib import Path

from kernel_gamma.bus.setting_aside import set_database_aside


def test_a_database_goes_aside_with_all_that_belongs_to_it_and_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "memory.db.damaged-1-wal").write_bytes(b"of an earlier time")
    for part in ("", "-wal"):
        (tmp_path / f"memory.db{part}").write_bytes(b"new" + part.encode())
    assert set_database_aside(tmp_path / "memory.db") == "memory.db.damaged-2"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "memory.db.damaged-1-wal": b"of an earlier time",
        "memory.db.damaged-2": b"new",
        "memory.db.damaged-2-wal": b"new-wal",
    }


def test_a_log_without_its_database_goes_aside_too(tmp_path: Path) -> None:
    (tmp_path / "ledger.db-wal").write_bytes(b"what was written last")
    assert set_database_aside(tmp_path / "ledger.db") == "ledger.db.damaged-1"
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db.damaged-1-wal"]
