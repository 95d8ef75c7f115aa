from __future__ import annotations

import io
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import START, ZONE, FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search, Truth
from kernel_gamma.errors import SettingsError, StoreDamaged
from kernel_gamma.truths.database import MIGRATIONS
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.transfer import ImportReport, backup, check_copy, export_jsonl, import_jsonl


def opened(path: Path) -> SqliteTruths:
    return open_truths(path, FakeClock())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteTruths]:
    found = opened(tmp_path / "memory.db")
    yield found
    found.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[SqliteTruths]:
    found = opened(tmp_path / "other.db")
    yield found
    found.close()


def fill(store: SqliteTruths) -> None:
    at = START - timedelta(days=3, microseconds=1)
    store.upsert_many(
        [
            NewTruth(
                key="incident.disk",
                value={"host": "alpha", "free": 0.0},
                description="磁盘满了",
                timestamp=at,
            ),
            NewTruth(
                key="incident.disk",
                value={"host": "alpha", "free": 3},
                description="磁盘又满了",
                trust="known",
            ),
            NewTruth(key="decision.tea", value="绿茶\u2028 and\nmilk", locked=True, trust="owner"),
            NewTruth(key="metrics.half", value=["\ud800", None, True, 1e300, {"a": {"b": []}}]),
        ]
    )
    store.put_own([NewTruth(key="diary.2026-11-30", value="it rained", level="L2")])


def exported(store: SqliteTruths, *, versions: bool = False) -> list[bytes]:
    out = io.BytesIO()
    count = export_jsonl(store, out, versions=versions)
    lines = out.getvalue().splitlines(keepends=True)
    assert len(lines) == count
    return lines


def take(store: SqliteTruths, *documents: Any) -> ImportReport:
    lines = [d if isinstance(d, bytes) else json.dumps(d).encode() for d in documents]
    return import_jsonl(store, lines, zone=ZONE)


def told(truth: Truth | None) -> tuple[Any, ...]:
    assert truth is not None
    return (
        truth.key, json.dumps(truth.value), truth.description, truth.timestamp, truth.version, truth.locked,
        truth.trust,
    )  # fmt: skip


# JSON Lines


def test_an_export_taken_in_elsewhere_is_the_same_and_sealed_there(
    store: SqliteTruths, other: SqliteTruths
) -> None:
    fill(store)
    report = import_jsonl(other, exported(store, versions=True), zone=ZONE)
    assert (report.added, report.bad, report.conflicts) == (3, [], [])
    for key in ("incident.disk", "decision.tea", "metrics.half"):
        assert [told(v) for v in other.versions(key)] == [told(v) for v in store.versions(key)]
    verdict = other.verify()
    assert (verdict.ok, verdict.links) == (True, 3)
    assert other.search(Search(query="磁盘")).results[0].truth.key == "incident.disk"


def test_a_store_with_a_forgotten_record_is_copied_and_exported(
    store: SqliteTruths, other: SqliteTruths, tmp_path: Path
) -> None:
    fill(store)
    store.delete(["incident.disk"], why="no longer wanted")
    checked = backup(store, tmp_path / "copy.db")
    assert (checked.links, checked.forgotten) == (4, 2)
    report = import_jsonl(other, exported(store, versions=True), zone=ZONE)
    assert (report.added, report.bad, report.conflicts) == (3, [], [])
    assert (other.verify().ok, other.verify().forgotten) == (True, 0)
    assert other.get("incident.disk") is None
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db, db:
        db.execute("DELETE FROM truths WHERE key = 'decision.tea'")
    with pytest.raises(StoreDamaged, match="breaks at link 3"):
        check_copy(tmp_path / "copy.db")


def test_without_versions_the_newest_becomes_the_first(store: SqliteTruths, other: SqliteTruths) -> None:
    fill(store)
    lines = exported(store)
    assert "versions" not in json.loads(lines[0])
    import_jsonl(other, lines, zone=ZONE)
    (only,) = other.versions("incident.disk")
    assert (only.version, only.value) == (1, {"host": "alpha", "free": 3})


def test_the_own_past_stays_out_both_ways(store: SqliteTruths, other: SqliteTruths) -> None:
    fill(store)
    assert b"it rained" not in b"".join(exported(store, versions=True))
    report = take(other, {"key": "diary.2026-11-30", "value": "forged"})
    assert (report.own_past, report.added) == (1, 0)
    assert other.get("diary.2026-11-30") is None


def test_a_second_import_changes_nothing(store: SqliteTruths, other: SqliteTruths) -> None:
    fill(store)
    for versions in (True, False):
        lines = exported(store, versions=versions)
        import_jsonl(other, lines, zone=ZONE)
        before = exported(other, versions=True)
        report = import_jsonl(other, lines, zone=ZONE)
        assert (report.added, report.same, report.conflict_count) == (0, 3, 0)
        assert exported(other, versions=True) == before


def test_an_older_state_of_a_truth_is_known_already(store: SqliteTruths, other: SqliteTruths) -> None:
    store.upsert(NewTruth(key="a.b", value=1))
    lines = exported(store)
    import_jsonl(other, lines, zone=ZONE)
    other.upsert(NewTruth(key="a.b", value=2))
    assert import_jsonl(other, lines, zone=ZONE).same == 1
    assert told(other.get("a.b"))[1] == "2"


def test_another_content_is_a_conflict_and_left_alone(store: SqliteTruths) -> None:
    fill(store)
    report = take(
        store,
        {"key": "incident.disk", "value": "nothing happened"},
        {"key": "decision.tea", "value": "coffee"},
        {"key": "new.one", "value": 1},
        {"key": "new.one", "value": 2},
        {"key": "new.one", "value": True},
    )
    assert report.added == 1
    assert report.conflicts == [(1, "incident.disk"), (2, "decision.tea"), (4, "new.one"), (5, "new.one")]
    assert told(store.get("decision.tea"))[1:2] == (json.dumps("绿茶\u2028 and\nmilk"),)
    assert told(store.get("new.one"))[1] == "1"


BAD: list[tuple[bytes, str]] = [
    (b"{nope", "is no JSON: Expecting property name"),
    (b"\xff\xfe{}", "is not UTF-8"),
    (b"[1]", "must be an object, is a list"),
    (b'"x"', "must be an object, is text"),
    (b'{"value": 1}', "needs a key"),
    (b'{"key": 7, "value": 1}', "key: must be text, is a number"),
    (b'{"key": "a b", "value": 1}', "a key is 1 to 200"),
    (b'{"key": "search", "value": 1}', "name of an endpoint"),
    (b'{"key": "a.x"}', "needs a value"),
    (b'{"key": "a.x", "value": NaN}', "is no JSON: NaN"),
    (b'{"key": "a.x", "value": 1, "description": 5}', "description: must be text"),
    (b'{"key": "a.x", "value": 1, "description": "' + b"x" * 2001 + b'"}', "longer than 2000"),
    (b'{"key": "a.x", "value": 1, "trust": "absolute"}', "trust: must be one of"),
    (b'{"key": "a.x", "value": 1, "trust": ["web"]}', "trust: must be one of"),
    (b'{"key": "a.x", "value": 1, "category": "b"}', "category: is b, but the key's is a"),
    (b'{"key": "a.x", "value": 1, "timestamp": "yesterday"}', "timestamp: is no time like"),
    (b'{"key": "a.x", "value": 1, "timestamp": 5}', "timestamp: is no time like"),
    (b'{"key": "a.x", "value": 1, "timestamp": "0001-01-01T00:00:00+14:00"}', "timestamp: no year"),
    (b'{"key": "a.x", "value": 1, "locked": "yes"}', "locked: must be true or false"),
    (b'{"key": "a.x", "value": 1, "versions": 3}', "versions: must be a list"),
    (b'{"key": "a.x", "value": 1, "versions": [{}]}', "needs a value"),
    (b'{"key": "a.x", "value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep"),
    (b'{"key": "a.x", "value": "' + b"x" * 1_100_000 + b'"}', "larger than 1048576 bytes"),
]


def test_bad_lines_are_told_by_number_and_keep_no_other_out(store: SqliteTruths) -> None:
    lines: list[bytes] = []
    for number, (bad, _) in enumerate(BAD):
        lines += [bad, b"", b'{"key": "good.n%d", "value": "\xe5\xa5\xbd"}' % number]
    report = import_jsonl(store, lines, zone=ZONE)
    assert report.added == len(BAD)
    assert sorted(line for line, _ in report.bad) == [3 * number + 1 for number in range(len(BAD))]
    by_line = dict(report.bad)
    for number, (_, said) in enumerate(BAD):
        assert said in by_line[3 * number + 1]
    assert store.categories() == {"good": len(BAD)}


def test_a_plain_list_of_keys_and_values_will_do(store: SqliteTruths) -> None:
    report = take(
        store,
        b'\xef\xbb\xbf{"key": "spec.http", "value": "port 9120"}\r\n',
        {"key": "spec.noon", "value": 1, "timestamp": "2026-09-11T12:00:00", "trust": "web"},
    )
    assert (report.added, report.bad) == (2, [])
    http, noon = store.get("spec.http"), store.get("spec.noon")
    assert http is not None and noon is not None
    assert (http.timestamp, http.trust, http.version) == (START, "unknown", 1)
    assert (noon.timestamp.isoformat(), noon.trust) == ("2026-09-11T12:00:00+08:00", "web")
    assert take(store, {"key": "spec.http", "value": "port 9120"}).same == 1


def test_many_lines(store: SqliteTruths, other: SqliteTruths) -> None:
    documents = [{"key": f"task.n{n}", "value": {"n": n, "text": f"任务 {n} is done"}} for n in range(1234)]
    assert take(store, *documents).added == 1234
    assert import_jsonl(other, exported(store), zone=ZONE).added == 1234
    assert other.verify().links == 1234


# Copies of the whole file


def test_a_backup_is_one_whole_file_while_others_write(store: SqliteTruths, tmp_path: Path) -> None:
    fill(store)
    store.upsert_many([NewTruth(key=f"spec.large{n}", value=["x" * 999] * 150) for n in range(35)])
    ended = threading.Event()

    def write() -> None:
        count = 0
        while not ended.is_set():
            count += 1
            store.upsert_many([NewTruth(category="task", value=f"{count} {n}") for n in range(20)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copies = [backup(store, tmp_path / f"备份 {n}.db") for n in range(3)]
    finally:
        ended.set()
        writer.join()
    assert sorted(path.name for path in tmp_path.iterdir() if "备份" in path.name) == [
        f"备份 {n}.db" for n in range(3)
    ]
    for n, copy in enumerate(copies):
        with closing(opened(tmp_path / f"备份 {n}.db")) as found:
            verdict = found.verify()
            assert (verdict.ok, verdict.links) == (True, copy.links)
            assert sum(found.categories().values()) == copy.truths
            # whole transactions only
            assert found.categories().get("task", 0) % 20 == 0
            assert found.search(Search(query="磁盘")).results[0].truth.key == "incident.disk"


def test_a_backup_takes_no_other_files_place(store: SqliteTruths, tmp_path: Path) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        backup(store, target)
    with pytest.raises(FileExistsError):
        backup(store, tmp_path / "memory.db")
    assert target.read_text() == "mine"


def test_a_backup_into_nowhere_leaves_nothing(store: SqliteTruths, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot be written"):
        backup(store, tmp_path / "no" / "copy.db")
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []


def test_a_broken_chain_is_not_copied_as_if_it_held(store: SqliteTruths, tmp_path: Path) -> None:
    fill(store)
    with store.database.write() as connection:
        connection.db.execute("UPDATE truths SET value = '\"forged\"' WHERE key = 'decision.tea'")
    with pytest.raises(StoreDamaged, match=r"the hash chain breaks at link 3 \(decision\.tea\)"):
        backup(store, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM chain WHERE link = 3", r"has lost link 3 \(decision\.tea\)"),
        ("DELETE FROM chain WHERE link = 1", "breaks at link 1: link 1 is missing"),
        ("DELETE FROM truths WHERE key = 'decision.tea'", "breaks at link 3: its record is missing"),
        ("DELETE FROM versions", "breaks at link 1: its record is missing"),
        ("UPDATE truths SET at = at + 1 WHERE key = 'incident.disk'", r"link 2 \(incident\.disk\)"),
        ("PRAGMA user_version = 0", "it has no schema"),
    ],
)
def test_a_copy_that_is_not_whole_is_refused(
    store: SqliteTruths, tmp_path: Path, damage: str, said: str
) -> None:
    fill(store)
    copy = tmp_path / "copy.db"
    backup(store, copy)
    with closing(sqlite3.connect(copy)) as db, db:
        db.execute(damage)
    with pytest.raises(StoreDamaged, match=said):
        check_copy(copy)


def test_a_copy_of_a_newer_version_is_refused_with_what_to_do(store: SqliteTruths, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    backup(store, copy)
    assert check_copy(copy).schema == len(MIGRATIONS)
    with closing(sqlite3.connect(copy)) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(SettingsError, match="written by a newer kernel-gamma") as caught:
        check_copy(copy)
    assert caught.value.file == str(copy)
    assert "upgrade" in caught.value.mend


def test_what_is_no_memory_at_all_is_refused(tmp_path: Path, store: SqliteTruths) -> None:
    (text := tmp_path / "text.db").write_text("hello " * 400)
    (empty := tmp_path / "empty.db").write_bytes(b"")
    backup(store, tmp_path / "copy.db")
    cut = tmp_path / "cut.db"
    cut.write_bytes((tmp_path / "copy.db").read_bytes()[:9000])
    for path in (text, empty, cut):
        with pytest.raises(StoreDamaged, match=path.name):
            check_copy(path)
    with pytest.raises(FileNotFoundError):
        check_copy(tmp_path / "nowhere.db")


def test_a_check_changes_nothing(store: SqliteTruths, tmp_path: Path) -> None:
    fill(store)
    (folder := tmp_path / "shelf").mkdir()
    backup(store, folder / "copy.db")
    before = (folder / "copy.db").read_bytes()
    check_copy(folder / "copy.db")
    assert [path.name for path in folder.iterdir()] == ["copy.db"]
    assert (folder / "copy.db").read_bytes() == before
