"""The memory of one mind: damaged, set aside and filled again; what the daemon tells of itself."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest
from tests.fakes import FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search, Truth
from kernel_gamma.errors import SettingsError
from kernel_gamma.keeping import Keeping
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.settings import Settings
from kernel_gamma.truths.retention import Retention


class Home:
    """A memory.db beside the pages of a mind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "memory.db"
        self.clock = FakeClock()
        self.past = PastFiles(folder / "self", self.clock.zone)
        page = folder / "self/stream/now.md"
        page.parent.mkdir(parents=True)
        page.write_text("## 2026-11-30 08:15:00 +08:00\n\n我给小明泡了龙井茶。\n", encoding="utf-8")

    def open(self) -> Keeping:
        return Keeping(self.path, Settings(), {}, self.clock, self.past, Retention.default())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def told(keeping: Keeping, category: str) -> list[Truth]:
    return list(keeping.store.each(category))


async def test_the_pages_are_taken_in_and_found(home: Home) -> None:
    keeping = home.open()
    assert keeping.store.search(Search(query="龙井")).total == 0
    await keeping.look()
    (found,) = keeping.store.search(Search(query="龙井")).results
    assert (found.truth.category, found.truth.level) == ("stream", "L1")
    keeping.close()


@pytest.mark.parametrize("damage", ["garbage", "text", "cut"])
async def test_a_damaged_store_is_set_aside_and_the_own_past_is_filled_in_again(
    home: Home, damage: str
) -> None:
    keeping = home.open()
    await keeping.look()
    keeping.store.upsert_many(
        [NewTruth(key=f"incident.n{n}", value="p" * 500, description="lost 丢失") for n in range(300)]
    )
    keeping.close()
    if damage == "cut":
        os.truncate(home.path, 5000)
    else:
        home.path.write_bytes(os.urandom(9000) if damage == "garbage" else "不是数据库\n".encode() * 900)
    broken = home.path.read_bytes()

    keeping = home.open()
    keeping.began("1.0", 2, 77)
    await keeping.look()
    aside = home.path.with_name("memory.db.damaged-1")
    assert aside.read_bytes() == broken
    (alert,) = told(keeping, "alert")
    assert isinstance(alert.value, dict)
    assert alert.value["kept"] == aside.name
    assert "incidents" in str(alert.value["missing"]) and "pages" in str(alert.value["rebuilt"])
    assert keeping.store.search(Search(query="龙井")).results[0].truth.category == "stream"
    assert keeping.store.search(Search(query="丢失")).total == 0
    assert keeping.store.search(Search(query="damaged", categories=["alert"])).total == 1
    keeping.close()

    keeping = home.open()
    keeping.began("1.0", 3, 78)
    assert len(told(keeping, "alert")) == 1
    keeping.close()


async def test_a_second_damage_keeps_the_first(home: Home) -> None:
    for number in (1, 2):
        home.path.write_bytes(bytes([number]) * 5000)
        home.open().close()
        assert home.path.with_name(f"memory.db.damaged-{number}").read_bytes() == bytes([number]) * 5000


def test_a_store_of_a_newer_version_is_refused_and_left_alone(home: Home) -> None:
    keeping = home.open()
    keeping.close()
    db = sqlite3.connect(home.path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(SettingsError, match="newer"):
        home.open()
    assert not list(home.path.parent.glob("*.damaged*"))


def test_starts_stops_and_waits_are_told_once(home: Home) -> None:
    keeping = home.open()
    keeping.began("1.0", 1, 7)
    for _ in range(5):
        keeping.waits("speaker", "the model is down")
    assert [truth.description for truth in told(keeping, "alert")] == ["speaker waits: the model is down"]
    keeping.committed("preprocessor")
    keeping.committed("speaker")
    keeping.waits("speaker", "")
    keeping.ended("asked to stop")
    descriptions = [truth.description for truth in told(keeping, "operation")]
    assert sorted(descriptions) == ["speaker goes on", "the daemon started", "the daemon stopped"]
    keeping.waits("speaker", "停电")
    assert len(told(keeping, "alert")) == 2
    keeping.close()


async def test_only_a_mind_that_does_something_tells_its_load(home: Home) -> None:
    keeping = home.open()
    home.clock.advance(301)
    await keeping.look()
    assert told(keeping, "metrics") == []
    keeping.committed("speaker")
    await keeping.look()
    (load,) = told(keeping, "metrics")
    assert isinstance(load.value, dict) and load.value["commits"] == 1
    keeping.committed("speaker")
    await keeping.look()
    assert len(told(keeping, "metrics")) == 1
    keeping.close()


async def test_what_is_over_its_days_goes(home: Home) -> None:
    keeping = home.open()
    keeping.store.upsert(NewTruth(key="debug.old", value=1))
    keeping.store.upsert(NewTruth(key="incident.old", value=1))
    home.clock.advance(8 * 86_400)
    await keeping.look()
    assert keeping.store.get("debug.old") is None
    assert keeping.store.get("incident.old") is not None
    keeping.close()


async def test_a_closed_store_is_logged_and_the_mind_goes_on(home: Home) -> None:
    keeping = home.open()
    keeping.close()
    keeping.tell("operation", "too late", {})
    await asyncio.gather(*(keeping.look() for _ in range(3)))
    keeping.close()
