"""A file that is no readable store any more: StoreDamaged, on opening it or from the call, never silence."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.fakes import FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import StoreDamaged
from kernel_gamma.truths.store import open_truths


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "memory.db"
    store = open_truths(found, FakeClock())
    store.upsert_many(
        [NewTruth(key=f"incident.n{n}", value=f"disk 磁盘 w{n} " + "text " * (n % 60)) for n in range(2000)]
    )
    store.close()
    assert not found.with_name("memory.db-wal").exists()
    return found


def use_everything(path: Path) -> None:
    store = open_truths(path, FakeClock())
    try:
        assert len({truth.key for truth in store.each()}) == 2000
        for n in range(0, 2000, 7):
            assert store.search(Search(query=f"w{n}")).total == 1
            assert store.get(f"incident.n{n}") is not None
        assert store.search(Search(query="disk", fold=False)).total == 2000
        assert store.categories() == {"incident": 2000}
        if not (report := store.verify()).ok:
            raise StoreDamaged(report.reason)
        store.upsert(NewTruth(key="incident.n0", value="again"))
    finally:
        store.close()


def test_a_whole_file_has_everything(path: Path) -> None:
    use_everything(path)


@pytest.mark.parametrize("head", [b"x" * 100, b"\0" * 100, b"SQLite format 4\0", b"{}"])
def test_a_garbage_header_is_damage(path: Path, head: bytes) -> None:
    with path.open("r+b") as file:
        file.write(head)
    with pytest.raises(StoreDamaged, match=r"memory\.db"):
        use_everything(path)


def test_a_file_that_is_none_of_ours_is_damage_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_text("dear diary, " * 200)
    with pytest.raises(StoreDamaged):
        open_truths(path, FakeClock())
    assert path.read_text() == "dear diary, " * 200


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_file_that_was_cut_short_is_damage(path: Path, share: float) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(int(size * share))
    with pytest.raises(StoreDamaged):
        use_everything(path)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fill", [b"\xff", b"\0", None])
def test_garbage_in_the_middle_is_damage(path: Path, seed: int, fill: bytes | None) -> None:
    chance = random.Random(seed)
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        for page in chance.sample(range(1, pages), max(3, pages // 3)):
            file.seek(page * 4096)
            file.write(fill * 4096 if fill else chance.randbytes(4096))
    with pytest.raises(StoreDamaged):
        use_everything(path)


def test_a_value_that_is_no_json_any_more_is_damage_for_every_call_that_reads_it(path: Path) -> None:
    store = open_truths(path, FakeClock())
    with store.database.write() as connection:
        connection.db.execute("UPDATE truths SET value = CAST(x'ff22' AS TEXT) WHERE key = 'incident.n5'")
        connection.db.execute("UPDATE truths SET value = '{' WHERE key = 'incident.n6'")
    for key in ("incident.n5", "incident.n6"):
        with pytest.raises(StoreDamaged):
            store.get(key)
        with pytest.raises(StoreDamaged):
            store.upsert(NewTruth(key=key, value=1))
    for query in ("w5", "w6"):
        with pytest.raises(StoreDamaged):
            store.search(Search(query=query))
    assert store.get("incident.n7") is not None
    store.close()
