from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from typing import Any

import pytest
from tests.fakes import FakeClock
from typer.testing import CliRunner

from kernel_gamma.cli import app
from kernel_gamma.truths.store import open_truths


def put(shell: Any, key: str, value: Any, *options: str) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value)
    done = shell("truths", "put", key, "-", "--json", *options, stdin=text)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def asked(shell: Any, *args: str) -> Any:
    done = shell("truths", *args, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def keys(found: dict[str, Any]) -> list[str]:
    return [result["key"] for result in found["results"]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A home with a few truths: read it, change nothing."""
    from tests.cli.conftest import make_shell

    shell = make_shell(tmp_path_factory.mktemp("filled"))
    lines = [
        {"key": "incident.loop.a", "value": {"cause": "a retry without a pause"}, "description": "启动死循环",
         "timestamp": "2026-09-11T08:00:00+08:00"},
        {"key": "error.disk.full", "value": 'alpha said "disk full" OR nothing',
         "timestamp": "2026-09-12T08:00:00"},
        {"key": "error.cipan", "value": "磁盘空间不足"},
        {"key": "metrics.cpu.load", "value": "load 3.5 on alpha"},
        *({"key": f"inspection.daily.2026100{n}T080000Z", "timestamp": f"2026-10-0{n}T08:00:00",
           "value": f"inspection {n} of the boiler: all is well"} for n in range(1, 6)),
    ]  # fmt: skip
    done = shell("truths", "import", "-", stdin="\n".join(json.dumps(line) for line in lines))
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "9 added, 0 were there\n"
    return shell


# put, get, versions, unlock


def test_json_is_kept_as_what_it_says_and_anything_else_as_text(kgamma: Any) -> None:
    assert put(kgamma, "spec.a", {"port": 9120})["value"] == {"port": 9120}
    assert put(kgamma, "spec.b", "磁盘满了\n第二行\n")["value"] == "磁盘满了\n第二行"
    assert put(kgamma, "spec.c", "{nope")["value"] == "{nope"
    assert put(kgamma, "spec.d", "NaN")["value"] == "NaN"
    assert put(kgamma, "spec.e", "\ufeff[1]")["value"] == [1]
    assert put(kgamma, "spec.f", "")["value"] == ""
    assert asked(kgamma, "get", "spec.a")["value"] == {"port": 9120}
    assert asked(kgamma, "categories")["categories"] == [{"category": "spec", "count": 6}]


def test_a_file_is_put_and_printed(kgamma: Any) -> None:
    file = kgamma.home / "规格.json"
    file.write_text('{"端口": 9120}', encoding="utf-8")
    done = kgamma("truths", "put", "spec.http", str(file), "--description", "where it listens", "--lock")
    assert done.stdout == "spec.http stands at version 1, locked\n"
    shown = kgamma("truths", "get", "spec.http").stdout.splitlines()
    assert re.fullmatch(r"spec\.http  version 1, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+00:00, locked", shown[0])
    assert shown[1:3] == ["where it listens", ""]
    assert json.loads("\n".join(shown[3:])) == {"端口": 9120}


def test_what_cannot_be_put_is_told(kgamma: Any) -> None:
    (broken := kgamma.home / "broken.json").write_text("{nope")
    done = kgamma("truths", "put", "spec.x", str(broken))
    assert done.exit_code == 1
    assert f"{broken}: is no JSON" in done.stderr
    done = kgamma("truths", "put", "spec.x", "-", stdin=b"\xff\xfe")
    assert done.exit_code == 1
    assert "is not UTF-8 (byte 0)" in done.stderr
    done = kgamma("truths", "put", "spec.x", str(kgamma.home / "nowhere"))
    assert done.exit_code == 1
    assert "nowhere" in done.stderr
    done = kgamma("truths", "put", "diary.today", "-", stdin="it rained")
    assert done.exit_code == 1
    assert "diary" in done.stderr
    done = kgamma("truths", "put", "spec.x", "-", stdin="x" * 1_100_000)
    assert done.exit_code == 1
    assert "larger than 1048576 bytes" in done.stderr
    for key in ("a b", "search", "", "a..b", "事.x", "x" * 201):
        assert kgamma("truths", "put", key, "-", stdin="1").exit_code == 2
    assert asked(kgamma, "categories") == {"total": 0, "categories": []}


def test_versions_grow_and_the_description_stays_unless_given(kgamma: Any) -> None:
    put(kgamma, "decision.tea", "green", "--description", "what we drink")
    put(kgamma, "decision.tea", "black")
    put(kgamma, "decision.tea", "绿茶", "--description", "")
    found = asked(kgamma, "versions", "decision.tea")
    assert [(v["version"], v["value"], v["description"]) for v in found] == [
        (1, "green", "what we drink"), (2, "black", "what we drink"), (3, "绿茶", ""),
    ]  # fmt: skip
    assert all(v["trust"] == "owner" for v in found)
    assert [v["prev_sha256"] for v in found[1:]] == [v["sha256"] for v in found[:2]]
    assert asked(kgamma, "get", "decision.tea", "--version", "2")["value"] == "black"
    done = kgamma("truths", "get", "decision.tea", "--version", "9")
    assert done.exit_code == 1
    assert "decision.tea has no version 9; the newest is 3" in done.stderr
    table = kgamma("truths", "versions", "decision.tea").stdout.splitlines()
    assert len(table) == 4
    assert found[2]["sha256"][:12] in table[3]


def test_a_locked_truth_is_written_again_only_after_unlock(kgamma: Any) -> None:
    put(kgamma, "brand.name", "γ", "--lock")
    done = kgamma("truths", "put", "brand.name", "-", stdin="δ")
    assert done.exit_code == 1
    assert "kgamma truths unlock brand.name" in done.stderr
    assert kgamma("truths", "unlock", "brand.name").stdout == "brand.name may be written again\n"
    assert put(kgamma, "brand.name", "δ")["version"] == 2


@pytest.mark.parametrize("command", ["get", "versions", "unlock"])
def test_a_key_nobody_knows(kgamma: Any, command: str) -> None:
    done = kgamma("truths", command, "no.such")
    assert done.exit_code == 1
    assert "there is no truth no.such" in done.stderr


# search


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("disk full", "error.disk.full"),
        ('"disk full" OR', "error.disk.full"),
        ("(disk* NEAR full) AND NOT ^x:y", "error.disk.full"),
        ("死循环", "incident.loop.a"),
        ("启动 死循环", "incident.loop.a"),
        ("pause", "incident.loop.a"),
    ],
)
def test_words_of_both_languages_and_signs_are_searched_for(filled: Any, query: str, key: str) -> None:
    assert keys(asked(filled, "search", query))[0] == key


def test_a_query_that_begins_with_a_dash_stands_after_two(filled: Any) -> None:
    home = ["--home", str(filled.home)]
    done = CliRunner().invoke(app, ["truths", "search", *home, "--json", "--", "-死循环"])
    assert done.exit_code == 0, done.stderr
    assert keys(json.loads(done.stdout))[0] == "incident.loop.a"
    assert filled("truths", "search", "-死循环").exit_code == 2


def test_a_hit_shows_key_local_time_similarity_and_excerpt(filled: Any) -> None:
    done = filled("truths", "search", "死循环")
    head, *excerpt = done.stdout.splitlines()
    assert re.fullmatch(r"incident\.loop\.a  2026-09-11 00:00:00 \+00:00  [01]\.\d\d", head)
    assert any("启动死循环" in line for line in excerpt)
    assert all(line.startswith("    ") for line in excerpt)
    assert "1 shown, 1 match" in done.stderr


def test_times_follow_the_zone_of_the_mind(filled: Any) -> None:
    shown = filled("truths", "search", "死循环", KGAMMA_CLOCK__ZONE="Asia/Shanghai").stdout
    assert "2026-09-11 08:00:00 +08:00" in shown


def test_near_duplicates_are_one_hit_unless_asked(filled: Any) -> None:
    (one,) = asked(filled, "search", "boiler")["results"]
    assert (one["count"], one["first"][:10], one["last"][:10]) == (5, "2026-10-01", "2026-10-05")
    head = filled("truths", "search", "boiler").stdout.splitlines()[0]
    assert head.endswith("×5 2026-10-01 08:00:00 +00:00 … 2026-10-05 08:00:00 +00:00")
    assert len(asked(filled, "search", "boiler", "--no-fold")["results"]) == 5


def test_categories_times_and_limits_narrow_a_search(filled: Any) -> None:
    def found(*options: str) -> set[str]:
        return set(keys(asked(filled, "search", "--no-fold", *options)))

    assert found("--category", "incident") == {"incident.loop.a"}
    assert found("--category", "incident", "--category", "error.disk.") == {
        "incident.loop.a", "error.disk.full",
    }  # fmt: skip
    assert found("--until", "2026-09-12") == {"incident.loop.a", "error.disk.full"}
    assert found("--until", "2026-09-12T07:59") == {"incident.loop.a"}
    assert found("--since", "2026-10-04", "--until", "2026-10-05T09:00+00:00") == {
        "inspection.daily.20261004T080000Z", "inspection.daily.20261005T080000Z",
    }  # fmt: skip
    assert "metrics.cpu.load" not in found("--since", "30min")
    assert found("--since", "1h", "--category", "metrics") == {"metrics.cpu.load"}
    assert found("--until", "3h", "--category", "metrics") == set()
    assert len(found("--limit", "3")) == 3


def test_a_floor_and_a_budget(filled: Any) -> None:
    assert asked(filled, "search", "boiler pressure unheard", "--min-similarity", "0.99")["results"] == []
    found = asked(
        filled, "search", "alpha", "--category", "error", "--category", "metrics", "--budget", "400"
    )
    assert sum(result["tokens"] for result in found["results"]) <= 400
    assert asked(filled, "search", "disk", "--task-type", "ops_debug")["returned"] >= 1


def test_nothing_found_is_no_failure(filled: Any) -> None:
    done = filled("truths", "search", "zzyzx")
    assert (done.exit_code, done.stdout) == (0, "nothing was found\n")
    assert asked(filled, "search", "zzyzx")["total"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "soon"), "--since soon: is no time"),
        (("--until", "2026-13-01"), "--until 2026-13-01: is no time"),
        (("--category", "a b"), "--category a b"),
        (("--task-type", "cooking"), "--task-type cooking: there are ops_debug, dev_deploy"),
        (("--min-similarity", "2"), "--min-similarity"),
        (("--limit", "0"), "--limit"),
        (("--budget", "none"), "--budget"),
    ],
)
def test_a_wrong_option_of_search_ends_with_2(filled: Any, options: tuple[str, ...], said: str) -> None:
    done = filled("truths", "search", "x", *options)
    assert done.exit_code == 2
    assert said in done.stderr


def test_an_escape_sequence_of_a_stranger_does_not_run(kgamma: Any) -> None:
    put(kgamma, "task.evil", "hello \x1b[31mred")
    for args in (("search", "hello"), ("get", "task.evil"), ("recent",), ("versions", "task.evil")):
        assert "\x1b" not in kgamma("truths", *args).stdout


# recent, categories


def test_the_newest_and_what_comes_only_when_asked_for(filled: Any) -> None:
    newest = [truth["key"] for truth in asked(filled, "recent", "--limit", "3")]
    assert "metrics.cpu.load" not in newest
    assert len(newest) == 3
    (load,) = asked(filled, "recent", "--category", "metrics")
    assert load["key"] == "metrics.cpu.load"
    lines = filled("truths", "recent", "--category", "inspection").stdout.splitlines()
    assert ["20261005T080000Z" in lines[1], len(lines)] == [True, 6]
    assert "nothing is stored under garden" in filled("truths", "recent", "--category", "garden").stdout


def test_categories_are_counted(filled: Any) -> None:
    lines = filled("truths", "categories").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["category", "truths"],
        ["inspection", "5"],
        ["error", "2"],
    ]


def test_a_home_without_any_truth(kgamma: Any) -> None:
    assert kgamma("truths", "categories").stdout == "nothing is stored yet\n"
    assert kgamma("truths", "recent").stdout == "nothing is stored yet\n"
    assert kgamma("truths", "search", "x").stdout == "nothing was found\n"
    assert kgamma("truths", "prune").stdout == "nothing is due\n"


@pytest.mark.parametrize("args", [("verify",), ("backup", "copy.db"), ("export", "-")])
def test_there_is_nothing_to_verify_or_copy_before_the_first_truth(
    kgamma: Any, args: tuple[str, ...]
) -> None:
    done = kgamma("truths", *args)
    assert done.exit_code == 1
    assert "memory.db: there is no such file" in done.stderr
    assert not (kgamma.data / "memory.db").exists()


# feedback


def test_feedback_is_kept(kgamma: Any) -> None:
    put(kgamma, "error.x", "disk full")
    done = kgamma("truths", "feedback", "error.x", "--query", "磁盘", "--irrelevant")
    assert done.stdout == "error.x is irrelevant for that: noted\n"
    assert asked(kgamma, "feedback", "error.x", "--query", "disk", "--relevant")["relevant"] is True
    with closing(sqlite3.connect(kgamma.data / "memory.db")) as db:
        assert db.execute("SELECT key, query, relevant, by FROM feedback ORDER BY relevant").fetchall() == [
            ("error.x", "磁盘", 0, "owner"), ("error.x", "disk", 1, "owner"),
        ]  # fmt: skip
    assert kgamma("truths", "feedback", "error.x", "--query", "disk").exit_code == 2
    assert kgamma("truths", "feedback", "error.x", "--query", " ", "--relevant").exit_code == 2
    assert kgamma("truths", "feedback", "error.x", "--relevant").exit_code == 2
    assert kgamma("truths", "feedback", "no.such", "--query", "x", "--relevant").exit_code == 1


def test_words_of_a_query_need_no_quotes(filled: Any) -> None:
    assert asked(filled, "search", "disk", "full") == asked(filled, "search", "disk full")
    assert asked(filled, "search", "启动", "死循环", "--limit", "3") == asked(
        filled, "search", "启动 死循环", "--limit", "3"
    )
    assert keys(asked(filled, "search", "--category", "error", "disk", "full")) == ["error.disk.full"]


def test_a_terminal_shows_the_words_that_were_found_in_bold(filled: Any) -> None:
    shown = filled("truths", "search", "disks", "磁盘", FORCE_COLOR="1", TERM="xterm").stdout
    assert "\x1b[1mdisk\x1b[0m full" in shown
    assert "\x1b[1m磁盘\x1b[0m空间不足" in shown
    assert "\x1b" not in filled("truths", "search", "disks", "磁盘").stdout


def test_a_search_says_which_category_its_words_were_taken_for(filled: Any) -> None:
    done = filled("truths", "search", "errors")
    assert "the query names error" in done.stderr
    assert set(keys(asked(filled, "search", "错误"))) == {"error.cipan", "error.disk.full"}
    assert asked(filled, "search", "disk", "errors")["categories"] == ["error"]


# verify, prune, reindex


def test_verify_says_that_the_chain_holds_or_which_record_breaks_it(kgamma: Any) -> None:
    for n in range(3):
        put(kgamma, f"incident.n{n}", n)
    assert kgamma("truths", "verify").stdout == "the chain holds: 3 links\n"
    assert asked(kgamma, "verify")["links"] == 3
    with closing(sqlite3.connect(kgamma.data / "memory.db")) as db, db:
        db.execute("UPDATE truths SET value = '7' WHERE key = 'incident.n1'")
    done = kgamma("truths", "verify")
    assert done.exit_code == 1
    assert "breaks at link 2, incident.n1" in done.stderr
    done = kgamma("truths", "verify", "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["ok"], told["broken_key"], told["broken_link"]) == (False, "incident.n1", 2)


def test_verify_tells_how_many_records_were_forgotten(kgamma: Any) -> None:
    for n in range(3):
        put(kgamma, f"incident.n{n}", n)
    store = open_truths(kgamma.data / "memory.db", FakeClock())
    store.delete(["incident.n1"], by="alice", why="asked to")
    store.close()
    done = kgamma("truths", "verify")
    assert done.exit_code == 0
    assert done.stdout.startswith("the chain holds: 4 links, 1 of forgotten records")
    assert asked(kgamma, "verify")["forgotten"] == 1
    (stone,) = asked(kgamma, "recent", "--category", "tombstone")
    assert stone["description"] == "incident.n1 was forgotten"
    assert "1 of forgotten records" in kgamma("truths", "backup", str(kgamma.home / "copy.db")).stdout


def test_prune_deletes_what_the_homes_own_retention_does_not_keep(kgamma: Any) -> None:
    (kgamma.home / "config/retention.yaml").write_text("classes:\n  - {prefixes: [garden.], keep: 2 days}\n")
    old = {"key": "garden.old", "value": 1, "timestamp": "2026-01-01T00:00:00Z"}
    assert kgamma("truths", "import", "-", stdin=json.dumps(old)).exit_code == 0
    put(kgamma, "garden.new", 1)
    assert kgamma("truths", "prune", "--dry-run").stdout.split() == ["prefix", "would", "go", "garden.", "1"]
    assert asked(kgamma, "prune") == {"dry_run": False, "deleted": {"garden": 1}}
    assert kgamma("truths", "prune").stdout == "nothing is due\n"
    assert [truth["key"] for truth in asked(kgamma, "recent")] == ["garden.new"]


def test_a_wrong_retention_file_names_itself(kgamma: Any) -> None:
    file = kgamma.home / "config/retention.yaml"
    file.write_text("classes:\n  - {prefixes: [a.], keep: sometimes}\n")
    done = kgamma("truths", "recent")
    assert done.exit_code == 1
    assert (
        f"{file}: classes[0].keep: is no time to keep a record: sometimes (write forever, or" in done.stderr
    )


def test_reindex_finds_everything_again(kgamma: Any) -> None:
    put(kgamma, "error.a", "磁盘满了")
    put(kgamma, "error.b", "memory is low")
    assert kgamma("truths", "reindex").stdout == "indexed anew: 2 truths\n"
    assert keys(asked(kgamma, "search", "磁盘")) == ["error.a"]


# backup, export, import


def test_a_backup_is_a_checked_copy(kgamma: Any) -> None:
    put(kgamma, "incident.a", "x")
    copy = kgamma.home / "copy.db"
    done = kgamma("truths", "backup", str(copy))
    assert done.stdout == f"{copy}: 1 truth; the chain holds: 1 link\n"
    done = kgamma("truths", "backup", str(copy))
    assert done.exit_code == 1
    assert f"{copy}: is there already; name another file" in done.stderr
    done = kgamma("truths", "backup", str(kgamma.home / "no/copy.db"))
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr


def test_an_export_moves_a_memory_to_another_home(kgamma: Any, tmp_path: Any) -> None:
    from tests.cli.conftest import make_shell

    put(kgamma, "decision.tea", "绿茶")
    put(kgamma, "decision.tea", "black", "--lock")
    file = tmp_path / "truths.jsonl"
    assert kgamma("truths", "export", str(file), "--versions").stdout == f"{file}: 1 truth\n"
    assert "name another file" in kgamma("truths", "export", str(file)).stderr
    other = make_shell(tmp_path / "other")
    assert other("truths", "import", str(file)).stdout == "1 added, 0 were there\n"
    assert asked(other, "import", str(file))["same"] == 1
    assert [v["value"] for v in asked(other, "versions", "decision.tea")] == ["绿茶", "black"]
    assert asked(other, "get", "decision.tea")["locked"] is True
    printed = kgamma("truths", "export", "-").stdout
    assert json.loads(printed)["value"] == "black"


def test_bad_lines_and_conflicts_of_an_import_are_told_and_the_rest_is_in(kgamma: Any) -> None:
    put(kgamma, "spec.a", 1)
    lines = '{"key": "spec.a", "value": 2}\n{nope\n{"key": "spec.b", "value": 3}\n'
    done = kgamma("truths", "import", "-", stdin=lines)
    assert done.exit_code == 1
    assert done.stdout == "1 added, 0 were there\n"
    assert "-, line 1: spec.a stands with another content" in done.stderr
    assert "-, line 2: is no JSON" in done.stderr
    done = kgamma("truths", "import", "-", "--json", stdin=lines)
    told = json.loads(done.stdout)
    assert (told["added"], told["same"], told["conflicts"]) == (0, 1, [{"line": 1, "key": "spec.a"}])
    assert told["bad"][0]["line"] == 2


def test_a_reader_of_the_pipe_that_leaves_early_is_no_traceback(kgamma: Any) -> None:
    lines = "\n".join(json.dumps({"key": f"task.n{n}", "value": "x" * 500}) for n in range(600))
    assert kgamma("truths", "import", "-", stdin=lines).exit_code == 0
    command = subprocess.list2cmdline(kgamma.command("truths", "export", "-"))
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1"],
        env=kgamma.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["key"] == "task.n0"
    assert "Traceback" not in done.stderr


# beside a daemon


def test_truths_are_put_and_found_while_the_mind_runs(awake: Any) -> None:
    put(awake, "decision.tea", "绿茶")
    assert keys(asked(awake, "search", "绿茶"))[0] == "decision.tea"


def test_a_damaged_memory_is_told(kgamma: Any) -> None:
    kgamma.data.mkdir(parents=True, exist_ok=True)
    (kgamma.data / "memory.db").write_bytes(b"no database at all, no database at all" * 100)
    done = kgamma("truths", "recent")
    assert done.exit_code == 1
    assert "memory.db" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_memory_of_a_newer_version_is_not_touched(kgamma: Any) -> None:
    put(kgamma, "spec.a", 1)
    with closing(sqlite3.connect(kgamma.data / "memory.db")) as db:
        db.execute("PRAGMA user_version = 999")
    done = kgamma("truths", "get", "spec.a")
    assert done.exit_code == 1
    assert "written by a newer kernel-gamma" in done.stderr


def test_reindex_reads_the_pages_anew(kgamma: Any) -> None:
    page = kgamma.data / "self/memories/小明.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("小明喜欢龙井茶。\n", encoding="utf-8")
    assert kgamma("truths", "reindex").stdout == "indexed anew: 1 truth\n"
    found = json.loads(kgamma("truths", "search", "龙井", "--json").stdout)["results"]
    assert [one["value"]["page"] for one in found] == ["memories/小明.md"]
    page.unlink()
    kgamma("truths", "reindex")
    assert json.loads(kgamma("truths", "search", "龙井", "--json").stdout)["results"] == []
