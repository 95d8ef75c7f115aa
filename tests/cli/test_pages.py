from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FakeClock

from kernel_gamma.cli.pages import Follower, last_passages
from kernel_gamma.self_stream import PageFiles
from kernel_gamma.self_stream.stream import SelfStream, rotation_for
from kernel_gamma.settings import StreamSettings


def block(minute: int, text: str) -> str:
    return f"## 2026-11-30 10:{minute:02d}:00 +08:00\n\n{text}\n\n"


def page(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_stream_shows_the_last_passages(lived: Any) -> None:
    done = lived("stream")
    assert done.exit_code == 0
    assert "hello there" in done.stdout
    assert "我每天早上喝绿茶" in done.stdout
    one = lived("stream", "-n", "1").stdout
    assert one.count("## 2") == 1
    assert done.stdout.endswith(one)
    assert lived("stream", "-n", "0").stdout == ""


def test_the_stream_as_json(lived: Any) -> None:
    (passage,) = json.loads(lived("stream", "-n", "1", "--json").stdout)
    assert set(passage) == {"heading", "text"}


def test_a_mind_that_has_not_lived_yet_has_an_empty_stream(kgamma: Any) -> None:
    done = kgamma("stream", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])


def test_passages_are_fetched_from_the_archive_when_now_has_too_few(tmp_path: Path) -> None:
    page(tmp_path, "stream/archive/2026-11-29.md", block(1, "old") + block(2, "older"))
    page(tmp_path, "stream/now.md", block(3, "new"))
    log = SelfStream(tmp_path)
    assert [p.text for p in last_passages(log, 2)] == ["older", "new"]
    assert [p.text for p in last_passages(log, 9)] == ["old", "older", "new"]


def test_many_passages_of_a_long_page_are_found(tmp_path: Path) -> None:
    page(tmp_path, "stream/now.md", "".join(block(i % 60, f"{i} " + "x" * 1000) for i in range(300)))
    found = last_passages(SelfStream(tmp_path), 250)
    assert [p.text.split()[0] for p in found] == [str(i) for i in range(50, 300)]


def settled(follower: Follower) -> list[str]:
    return [p.text for p in [*follower.fresh(), *follower.fresh()]]


def test_the_follower_tells_each_new_passage_once(tmp_path: Path) -> None:
    now = page(tmp_path, "stream/now.md", block(1, "before"))
    follower = Follower(SelfStream(tmp_path))
    assert settled(follower) == []
    now.write_text(now.read_text() + block(2, "one") + block(3, "two"))
    assert follower.waiting
    assert settled(follower) == ["one", "two"]
    assert settled(follower) == []
    assert not follower.waiting


def test_a_half_written_passage_is_told_when_it_stands_still(tmp_path: Path) -> None:
    now = page(tmp_path, "stream/now.md", block(1, "before"))
    follower = Follower(SelfStream(tmp_path))
    whole = now.read_text() + block(2, "a long thought")
    now.write_text(whole[:-12])
    assert list(follower.fresh()) == []
    now.write_text(whole)
    assert settled(follower) == ["a long thought"]


def test_a_rotation_that_only_removes_tells_nothing(tmp_path: Path) -> None:
    now = page(tmp_path, "stream/now.md", block(1, "old") + block(2, "kept"))
    follower = Follower(SelfStream(tmp_path))
    now.write_text(block(2, "kept"))
    assert settled(follower) == []
    now.write_text(block(2, "kept") + block(3, "new"))
    assert settled(follower) == ["new"]


def test_passages_that_a_rotation_has_taken_along_are_told_and_its_bridge_is_not(tmp_path: Path) -> None:
    page(tmp_path, "stream/archive/2026-11-30.md", block(0, "long ago"))
    page(tmp_path, "stream/now.md", block(1, "before"))
    stream, pages = SelfStream(tmp_path), PageFiles(tmp_path)
    follower = Follower(stream)
    rotation = rotation_for(StreamSettings(max_bytes=1024, keep_share=0), FakeClock(), None)
    pages.append("stream/now.md", block(2, "one").encode())
    move = rotation.room_for((tmp_path / "stream/now.md").read_bytes(), 1024)
    assert move is not None and pages.move_prefix(move)
    assert settled(follower) == ["one"]
    pages.append("stream/now.md", block(3, "two").encode())
    assert settled(follower) == ["two"]
    assert [p.text for p in last_passages(stream, 9)] == ["long ago", "before", "one", "two"]


def test_a_page_that_appears_later_is_followed(tmp_path: Path) -> None:
    follower = Follower(SelfStream(tmp_path))
    assert settled(follower) == []
    page(tmp_path, "stream/now.md", block(1, "first"))
    assert settled(follower) == ["first"]


def test_follow_prints_passages_as_they_come_until_ctrl_c(kgamma: Any) -> None:
    now = page(kgamma.data / "self", "stream/now.md", block(1, "before"))
    process = subprocess.Popen(
        kgamma.command("stream", "--follow", "--json"),
        env={**kgamma.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["text"] == "before"
    now.write_text(now.read_text() + block(2, "刚刚发生"))
    assert json.loads(process.stdout.readline())["text"] == "刚刚发生"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[1] == ""
    assert process.returncode == 0


def test_a_reader_that_goes_away_is_no_error(kgamma: Any) -> None:
    page(kgamma.data / "self", "stream/now.md", "".join(block(i % 60, "x" * 1000) for i in range(400)))
    process = subprocess.Popen(
        kgamma.command("stream", "-n", "400"),
        env=kgamma.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.wait(timeout=20)
    process.stderr.close()


def test_the_state_page(kgamma: Any) -> None:
    none = kgamma("state")
    assert none.exit_code == 1
    assert "no state page yet" in none.stderr
    page(kgamma.data / "self", "state.md", "我很平静。\n")
    assert kgamma("state").stdout == "我很平静。\n"
    assert json.loads(kgamma("state", "--json").stdout)["text"] == "我很平静。\n"


def test_the_diary_of_today(lived: Any) -> None:
    done = lived("diary")
    assert done.exit_code == 0
    assert "it rained" in done.stdout


def test_a_day_without_a_page_lists_the_days_that_have_one(lived: Any) -> None:
    done = lived("diary", "2020-01-01")
    assert done.exit_code == 1
    (day,) = json.loads(lived("diary", "--json").stdout)["dates"]
    assert f"no page for 2020-01-01; the days with a page: {day}" in done.stderr


@pytest.mark.parametrize("date", ["../../secret", "2026-99-99", "2026-02-30", "20261130", "０２-1-1"])
def test_a_date_that_is_none_is_a_wrong_call(lived: Any, date: str) -> None:
    done = lived("diary", date)
    assert done.exit_code == 2
    assert f"{date} is no date like 2026-11-30" in done.stderr


def test_memories_are_listed_and_read_by_name_or_topic(kgamma: Any) -> None:
    assert kgamma("memories").stdout == "there are no memory pages yet\n"
    page(kgamma.data / "self", "memories/green_tea.md", "# Green tea\n")
    assert json.loads(kgamma("memories", "--json").stdout) == ["green_tea"]
    for name in ("green_tea", "green_tea.md", "Green Tea"):
        assert kgamma("memories", name).stdout == "# Green tea\n"
    missing = kgamma("memories", "../../config/kernel")
    assert missing.exit_code == 1
    assert "the pages are: green_tea" in missing.stderr


def test_a_memory_with_a_chinese_name(lived: Any) -> None:
    assert "我每天早上喝绿茶" in lived("memories", "小明").stdout


def test_a_page_that_is_no_utf8_is_shown_as_far_as_it_goes(kgamma: Any) -> None:
    path = page(kgamma.data / "self", "state.md", "")
    path.write_bytes(b"I am \xff\x1b[31m fine\n")
    assert kgamma("state").stdout == "I am \N{REPLACEMENT CHARACTER}\\x1b[31m fine\n"


@pytest.mark.parametrize(("name", "topic"), [("alice", "Alice"), ("小雨", "小雨")])
def test_an_earlier_version_of_a_memory_is_listed_and_put_back(kgamma: Any, name: str, topic: str) -> None:
    root = kgamma.data / "self"
    versions = [f"# {topic}\n\nI know her, version {n}. 我认识她。\n".encode() for n in range(3)]
    pages, stands = PageFiles(root), None
    for number, data in enumerate(versions):
        kept = f"memories_{name}.beat_x_20261130T10000{number}.000000Z.0.md"
        assert pages.replace(f"memories/{name}.md", data, expect=stands, history=kept)
        os.utime(root / f"memories/{name}.md", (1_800_000_000 + number, 1_800_000_000 + number))
        stands = hashlib.sha256(data).hexdigest()
    listed = json.loads(kgamma("memories", topic, "--history", "--json").stdout)["history"]
    assert [one["text"].encode() for one in listed] == [versions[1], versions[0]]
    assert "version 0" in kgamma("memories", "history", topic).stdout
    assert kgamma("memories", topic, "--restore", "2").exit_code == 0
    assert (root / f"memories/{name}.md").read_bytes() == versions[0]
    assert kgamma("memories", "restore", topic, "1").exit_code == 0
    assert (root / f"memories/{name}.md").read_bytes() == versions[2], "what was replaced is kept too"
    for wrong in (("memories", topic, "--restore", "99"), ("memories", "nobody", "--restore", "1")):
        done = kgamma(*wrong)
        assert done.exit_code == 1 and "no earlier version" in done.stderr
    assert kgamma("memories", "--history").exit_code == 2
    assert "no earlier version" in kgamma("memories", "nobody", "--history").stdout
