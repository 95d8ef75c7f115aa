"""F07 idle day: the default rhythm over a day and over three weeks in which nothing happens."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.rhythm.lives import life, state, triggers, until


async def test_F07_an_idle_day_and_21_more_cost_no_model_call(tmp_path: Path) -> None:
    for days, rate in ((1, 20_000.0), (21, 400_000.0)):
        async with life(tmp_path, f"2026-11-{days:02}T00:30:00+08:00", rate=rate) as (mind, model):
            end = mind.clock.now() + timedelta(days=days)
            await until(lambda mind=mind, end=end: mind.clock.now() >= end)
            await until(lambda mind=mind, days=days: len(triggers(mind, "hourly")) >= 24 * days)
            assert model.calls == 0
            hourly = triggers(mind, "hourly")
            assert len(set(hourly)) == len(hourly)
            assert (mind.data / "heartbeat/tick.json").is_file()
            assert state(mind)["hourly"]["idle"] == state(mind)["hourly"]["struck"]
            now_md = mind.data / "self/stream/now.md"
            assert not now_md.exists() or "hour" not in now_md.read_text()
