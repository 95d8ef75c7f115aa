"""Which passages a listener hears, across rotation and edits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fakes import FakeClock

from kernel_gamma.contracts.ports import Passage
from kernel_gamma.gateway.following import follow_pages, passage_id
from kernel_gamma.self_stream import PageFiles
from kernel_gamma.self_stream.stream import SelfStream, rotation_for
from kernel_gamma.settings import StreamSettings

DAY = "2026-11-30"


def block(clock: str, text: str, day: str = DAY) -> str:
    return f"## {day} {clock} +08:00\n\n{text}\n\n"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


async def heard_after(root: Path, after: str) -> list[str]:
    """What is told at once, before the first silence."""
    texts = []
    async for told in follow_pages(SelfStream(root), after):
        if told is None:
            break
        texts.append(told.passage.text)
    return texts


def id_of(clock: str, text: str, day: str = DAY) -> str:
    return passage_id(Passage(f"{day} {clock} +08:00", text))


def test_an_id_is_a_time_and_a_hash_and_fits_into_a_header() -> None:
    assert id_of("10:30:05", "水开了").startswith("20261130T103005+0800.")
    assert id_of("10:30:05", "水开了").isascii()
    assert id_of("10:30:05", "a") != id_of("10:30:05", "b")
    assert passage_id(Passage("", "above the first heading"))


async def test_what_came_after_the_last_heard_is_told(tmp_path: Path) -> None:
    write(tmp_path, "stream/now.md", block("10:00:00", "a") + block("10:00:00", "b") + block("10:01:00", "c"))
    assert await heard_after(tmp_path, id_of("10:00:00", "a")) == ["b", "c"]
    assert await heard_after(tmp_path, id_of("10:01:00", "c")) == []


async def test_rotation_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path, "stream/archive/2026-11-28.md", block("09:00:00", "old", "2026-11-28"))
    write(
        tmp_path,
        "stream/archive/2026-11-29.md",
        block("23:00:00", "a", "2026-11-29") + block("23:30:00", "b", "2026-11-29"),
    )
    write(tmp_path, "stream/now.md", block("10:00:00", "c"))
    assert await heard_after(tmp_path, id_of("23:00:00", "a", "2026-11-29")) == ["b", "c"]


async def test_a_passage_that_was_edited_meanwhile_is_replaced_by_its_time(tmp_path: Path) -> None:
    write(tmp_path, "stream/now.md", block("10:00:00", "a, reworded") + block("10:01:00", "b"))
    assert await heard_after(tmp_path, id_of("10:00:00", "a")) == ["a, reworded", "b"]


async def test_an_id_that_is_none_tells_nothing_of_the_past(tmp_path: Path) -> None:
    write(tmp_path, "stream/now.md", block("10:00:00", "a"))
    for after in ("", "x", "20261130T103005+0800.zz", "9" * 1000):
        assert await heard_after(tmp_path, after) == []


async def test_a_mind_without_a_stream_is_waited_for(tmp_path: Path) -> None:
    heard = []
    looks = 0
    async for told in follow_pages(SelfStream(tmp_path), None):
        if told is not None:
            heard.append(told.passage.text)
            break
        if looks == 0:
            write(tmp_path, "stream/now.md", block("10:00:00", "the first"))
        looks += 1
        assert looks < 20
    assert heard == ["the first"]


async def test_a_listener_goes_on_over_a_rotation_that_takes_new_passages_with_it(tmp_path: Path) -> None:
    write(tmp_path, "stream/archive/2026-11-30.md", block("08:00:00", "long ago"))
    write(tmp_path, "stream/now.md", block("10:00:00", "a"))
    pages, heard = PageFiles(tmp_path), []
    rotation = rotation_for(StreamSettings(max_bytes=1024, keep_share=0), FakeClock(), None)
    told = follow_pages(SelfStream(tmp_path), None)
    assert await anext(told) is None
    pages.append("stream/now.md", block("10:01:00", "b").encode())
    pages.append("stream/now.md", block("10:02:00", "c").encode())
    move = rotation.room_for((tmp_path / "stream/now.md").read_bytes(), 1024)
    assert move is not None and pages.move_prefix(move)
    pages.append("stream/now.md", block("10:03:00", "d").encode())
    async with asyncio.timeout(10):
        while len(heard) < 3:
            if (one := await anext(told)) is not None:
                heard.append(one.passage.text)
    assert heard == ["b", "c", "d"]
    await told.aclose()
