"""One data directory, alive: what it survives, what it says of itself, and whose pages are whose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness import QUICK, drop

from kernel_gamma.configuration import lay_out
from kernel_gamma.errors import Stop
from kernel_gamma.mind import Mind
from kernel_gamma.settings import Settings


def make(home: Path, **bus: Any) -> Mind:
    lay_out(home)
    settings = Settings.model_validate(
        {
            "bus": {**QUICK, **bus},
            "model": {"mode": "offline"},
            "preprocessor": {"debounce_sec": 0},
            "clock": {"zone": "Asia/Shanghai"},
        }
    )
    return Mind(home, settings, {})


@asynccontextmanager
async def alive(home: Path, **bus: Any) -> AsyncIterator[Mind]:
    mind = make(home, **bus)
    await mind.start()
    running = asyncio.create_task(mind.run())
    try:
        yield mind
    finally:
        await mind.stop()
        await running


async def say(mind: Mind, text: str, name: str = "e.json", sender: str = "alice") -> None:
    drop(mind.data, name, {"text": text, "from": sender})
    async with asyncio.timeout(20):
        assert await mind.drained() == ""


def now_md(mind: Mind) -> str:
    return (mind.data / "self/stream/now.md").read_text()


async def test_words_become_a_passage_and_an_answer_in_both_languages(tmp_path: Path) -> None:
    async with alive(tmp_path) as mind:
        await say(mind, "hello there")
        await say(mind, "记住我喜欢茶", sender="小明")
        assert "hello there" in now_md(mind) and "我喜欢茶" in now_md(mind)
        assert list((mind.data / "outbox/console").glob("out_*.json"))
        assert len(list((mind.data / "inbox/pending/done").glob("*/*"))) == 2


async def test_a_stale_save_drops_the_newest_passages_and_they_are_put_back_once(tmp_path: Path) -> None:
    async with alive(tmp_path) as mind:
        page = mind.data / "self/stream/now.md"
        await say(mind, "the first word")
        stale = page.read_text()
        await say(mind, "the second word")
        dropped = [
            block.partition("\n")[2].strip() for block in page.read_text()[len(stale) :].split("## ")[1:]
        ]
        await mind.bus.disk.checkpoint()
        page.write_text(stale + "\nA person's own line.\n")
        for _ in range(4):
            await mind.bus.settle()
            await asyncio.sleep(0.1)
        assert "A person's own line." in now_md(mind)
        assert len(dropped) == now_md(mind).count("I put this passage back") == 2
        assert [now_md(mind).count(text) for text in dropped] == [1, 1]
        page.write_text(stale)  # taken out a second time it is a person's wish
        for _ in range(3):
            await mind.bus.settle()
            await asyncio.sleep(0.1)
        assert now_md(mind) == stale


@pytest.mark.parametrize("durability", ["process", "full"])
async def test_under_load_no_passage_is_taken_for_dropped(tmp_path: Path, durability: str) -> None:
    async with alive(tmp_path, durability=durability) as mind:
        for number in range(30):
            drop(mind.data, f"{number}.json", {"text": f"word {number}.", "from": f"p{number}"})
            await mind.bus.settle()
        assert await mind.drained() == ""
        assert "put this passage back" not in now_md(mind)


async def test_while_the_page_cannot_be_written_nothing_is_put_back_twice(tmp_path: Path) -> None:
    async with alive(tmp_path) as mind:
        page = mind.data / "self/stream/now.md"
        await say(mind, "before")
        kept = page.rename(tmp_path / "kept.md")
        page.mkdir()
        drop(mind.data, "e.json", {"text": "meanwhile", "from": "alice"})
        async with asyncio.timeout(20):
            reason = await mind.drained()
        assert "now.md" in reason
        said = [mind.status()["stalled"], *(n["reason"] for n in mind.status()["nodes"].values())]
        assert any(s and "now.md" in s for s in said)
        assert not list((mind.data / "dead_letter").glob("*/*"))
        page.rmdir()
        kept.rename(page)
        async with asyncio.timeout(20):
            while await mind.drained():
                await asyncio.sleep(0.05)
        for _ in range(3):
            await mind.bus.settle()
        assert now_md(mind).count("before") == now_md(mind).count("meanwhile") >= 1
        assert "put this passage back" not in now_md(mind)


async def test_status_says_what_the_nodes_do_and_when_it_was_written(tmp_path: Path) -> None:
    async with alive(tmp_path) as mind:
        await say(mind, "hello")
        status = mind.status()
        assert set(status["nodes"]) >= {"message_preprocessor", "internalizer", "externalizer"}
        assert status["stalled"] is None and status["watcher"]["mode"] in ("inotify", "polling")
        written = json.loads((mind.data / "metrics/status.json").read_bytes())
        assert written["running"] is True
    assert json.loads((mind.data / "metrics/status.json").read_bytes())["running"] is False


async def test_the_first_line_of_a_mind_without_a_model_says_so_once(tmp_path: Path) -> None:
    for _ in range(2):
        async with alive(tmp_path) as mind:
            first = now_md(mind)
    assert first.count("## ") == 1
    assert now_md(mind) == first


async def test_F16_a_damaged_ledger_is_set_aside_and_files_still_pending_are_told(tmp_path: Path) -> None:
    mind = make(tmp_path)
    await mind.start()
    drop(mind.data, "e.json", {"text": "still here", "from": "alice"})
    await mind.bus.settle()
    await mind.stop()
    for suffix in ("-wal", "-shm"):
        (mind.data / f"ledger.db{suffix}").unlink(missing_ok=True)
    (mind.data / "ledger.db").write_bytes(b"rubbish" * 1000)
    async with alive(tmp_path) as again:
        assert await again.drained() == ""
        assert now_md(again).count("still here") >= 1
        assert (again.data / "ledger.db.damaged-1").read_bytes().startswith(b"rubbish")


@pytest.mark.parametrize("left", [None, b""])
async def test_F16_a_log_whose_ledger_is_gone_is_kept(tmp_path: Path, left: bytes | None) -> None:
    async with alive(tmp_path) as mind:
        await say(mind, "hello")
        log = (mind.data / "ledger.db-wal").read_bytes()
        assert log
    ledger = mind.data / "ledger.db"
    for _ in range(2):  # a second time they are kept beside the first
        ledger.unlink()
        if left is not None:
            ledger.write_bytes(left)
        ledger.with_name("ledger.db-wal").write_bytes(log)
        async with alive(tmp_path) as again:
            await say(again, "after it")
            assert "after it" in now_md(again)
    for number in (1, 2):
        aside = mind.data / f"ledger.db.damaged-{number}"
        assert aside.with_name(f"{aside.name}-wal").read_bytes() == log
        assert aside.exists() is (left is not None)


async def test_F16_a_ledger_cut_short_starts_or_is_set_aside_but_never_stops_the_mind(tmp_path: Path) -> None:
    async with alive(tmp_path) as mind:
        await say(mind, "hello")
    ledger = mind.data / "ledger.db"
    for size in (ledger.stat().st_size // 2, 4096, 100, 0):
        ledger.write_bytes(ledger.read_bytes()[:size])
        async with alive(tmp_path) as again:
            await say(again, f"after {size}", name=f"{size}.json")
            assert f"after {size}" in now_md(again)


@pytest.mark.parametrize(
    "damage",
    [b"", b"## 2026-11-30 10:30:05 +08:00\n\nhalf a li", b"\xff\xfe bad bytes \x80\n", b"whole\n\0\0\0\0"],
)
async def test_F16_after_damage_to_now_md_the_next_passage_is_whole(tmp_path: Path, damage: bytes) -> None:
    async with alive(tmp_path) as mind:
        await say(mind, "before")
    (mind.data / "self/stream/now.md").write_bytes(damage)
    (mind.data / "self/state.md").write_bytes(b"")
    async with alive(tmp_path) as again:
        await say(again, "after the damage")
        raw = (again.data / "self/stream/now.md").read_bytes()
        assert raw.startswith(damage.rstrip(b"\0"))
        assert b"\n\n## " in raw and "after the damage" in raw.decode(errors="replace")


async def test_a_ledger_that_cannot_be_written_stops_the_start_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "data/kernel/ledger.db").mkdir(parents=True)
    with pytest.raises(Stop, match=r"ledger\.db"):
        make(tmp_path)


async def test_two_minds_live_in_one_process(tmp_path: Path) -> None:
    async with alive(tmp_path / "a") as one, alive(tmp_path / "b") as two:
        await say(one, "for one")
        await say(two, "for two")
        assert "for two" not in now_md(one) and "for one" not in now_md(two)


def short_mind(home: Path, **settings: Any) -> Mind:
    lay_out(home)
    given = {
        "bus": QUICK,
        "model": {"mode": "offline"},
        "preprocessor": {"debounce_sec": 0},
        "clock": {"zone": "Asia/Shanghai"},
        "stream": {"max_bytes": 2000},
        **settings,
    }
    return Mind(home, Settings.model_validate(given), {})


@asynccontextmanager
async def running(mind: Mind) -> AsyncIterator[Mind]:
    await mind.start()
    task = asyncio.create_task(mind.run())
    try:
        yield mind
    finally:
        await mind.stop()
        await task


def stream_of(mind: Mind) -> str:
    archive = sorted((mind.data / "self/stream/archive").glob("*.md"))
    return "".join(page.read_text() for page in [*archive, mind.data / "self/stream/now.md"])


@pytest.mark.parametrize("durability", ["process", "full"])
async def test_now_md_keeps_to_its_limit_and_no_passage_is_taken_for_dropped(
    tmp_path: Path, durability: str
) -> None:
    sizes: list[int] = []
    async with running(short_mind(tmp_path, bus={**QUICK, "durability": durability})) as mind:
        for number in range(25):
            drop(mind.data, f"{number}.json", {"text": f"word {number}. 第{number}句", "from": f"p{number}"})
            await mind.bus.settle()
            sizes.append(len((mind.data / "self/stream/now.md").read_bytes()))
        assert await mind.drained() == ""
        await mind.bus.disk.checkpoint()
        await mind.bus.settle()
        assert max(sizes) <= 2000 and len(stream_of(mind).encode()) > 4000
        assert "put this passage back" not in stream_of(mind)
        assert all(stream_of(mind).count(f"word {n}.") >= 1 for n in range(25))
        headings = [line for line in stream_of(mind).splitlines() if line.startswith("## ")]
        told = json.loads(json.dumps(mind.self_log.search("word 3", 3)[0].text))
        assert "word 3." in told and len(headings) >= 25


async def test_a_page_that_a_person_made_too_long_is_shortened_at_the_next_look(tmp_path: Path) -> None:
    async with running(short_mind(tmp_path)) as mind:
        await say(mind, "hello")
        page = mind.data / "self/stream/now.md"
        page.write_text(page.read_text() + "\nA long line of a person.\n" * 100)
        for _ in range(50):
            await mind.bus.settle()
            if page.stat().st_size <= 2000:
                break
        assert page.stat().st_size <= 2000 and stream_of(mind).count("A long line of a person.") == 100


async def test_an_hour_after_the_days_end_earlier_days_are_archived_without_a_model(tmp_path: Path) -> None:
    day = {"zone": "Asia/Shanghai", "trial": True}
    kept = {"keep_passages": 1}
    classes = ("MessagePreprocessor", "Internalizer", "Externalizer", "CommandDispatcher")
    lay_out(tmp_path)  # without the rhythm, which tells of the hours it has missed
    (tmp_path / "config/topology.yaml").write_text(
        "nodes:\n" + "".join(f"  - {{id: {name.lower()}, class: {name}}}\n" for name in classes)
    )
    evening = short_mind(tmp_path, clock={**day, "start": "2026-11-30T23:30:00+08:00"}, stream=kept)
    async with running(evening) as mind:
        for words in ("the first", "the second", "最后一句"):
            await say(mind, words)
    for start, archived in (("02:30", 0), ("03:05", 2)):
        morning = short_mind(tmp_path, clock={**day, "start": f"2026-12-01T{start}:00+08:00"}, stream=kept)
        async with running(morning) as mind:
            await mind.bus.settle()
            pages = list((mind.data / "self/stream/archive").glob("*.md"))
            if not archived:
                assert not pages
                continue
            (page,) = pages
            assert page.name == "2026-11-30.md" and "the first" in page.read_text()
            assert now_md(mind).startswith("_") and "2026-11-30" in now_md(mind).splitlines()[0]
            assert now_md(mind).count("## ") == 1 and "the first" not in now_md(mind)
