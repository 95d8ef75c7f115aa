"""F09 cron and restart: a daily rule at seven, and a mind that is away at awkward times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rhythm.lives import life, state, triggers, until

from kernel_gamma.contracts.truths import Search

RULES = """
rules:
  - {name: seven, cron: "0 7 * * *", grace: 1 hour, text: {en: "Seven.", zh: "七点。"}}
"""
FIRST, SECOND = "20261130T230000Z", "20261201T230000Z"


async def _lives(home: Path, *starts: str) -> list[str]:
    """One short life from each start; what has struck at the end."""
    struck: list[str] = []
    for start in starts:
        async with life(home, start, rules=RULES) as (mind, _):
            await until(lambda mind=mind: "seven" in state(mind))
            await mind.drained()
            struck = triggers(mind, "seven")
    return struck


@pytest.mark.parametrize(
    "starts",
    [
        ("06:59:59.5", "07:00:05", "07:00:05"),
        ("06:59:50", "07:00:20"),
        ("06:59:50", "07:00:20", "14:00:00"),
        ("06:59:50", "07:59:00"),
    ],
)
async def test_F09_one_firing_per_slot_whenever_it_is_restarted(
    tmp_path: Path, starts: tuple[str, ...]
) -> None:
    assert await _lives(tmp_path, *(f"2026-12-01T{start}+08:00" for start in starts)) == [FIRST]


async def test_F09_a_slot_past_its_grace_is_skipped_and_that_is_written_down(tmp_path: Path) -> None:
    assert await _lives(tmp_path, "2026-12-01T06:59:50+08:00", "2026-12-01T14:00:00+08:00") == []
    async with life(tmp_path, "2026-12-01T14:00:05+08:00", rules=RULES) as (mind, _):
        assert state(mind)["seven"]["skipped"] == 1
        assert state(mind)["seven"]["last_skipped"] == FIRST
        found = mind.keeping.store.search(Search(query="seven skipped")).results
        told = [one.truth.value for one in found]
        assert any(FIRST in json.dumps(value) for value in told)


async def test_F09_a_lost_ledger_and_a_lost_state_repeat_nothing(tmp_path: Path) -> None:
    await _lives(tmp_path, "2026-12-01T06:59:50+08:00", "2026-12-01T07:00:10+08:00")
    for path in [*(tmp_path / "data/kernel").glob("ledger.db*"), tmp_path / "data/kernel/rhythm/state.json"]:
        path.unlink()
    assert await _lives(tmp_path, "2026-12-01T07:00:30+08:00") == [FIRST]
