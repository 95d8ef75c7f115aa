"""Reminders strike once, on time or late, whatever is killed, lost or set."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.rhythm.lives import life, until

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.mind import Mind
from kernel_gamma.rhythm.reminders import due_slot, read_reminders, struck_slots

NO_RULES = "rules: []\n"
NOON = datetime(2026, 12, 4, 12, 0, tzinfo=UTC)


def written(**given: Any) -> dict[str, Json]:
    return {
        "text": "the oven",
        "at": "2026-12-01T09:00:10+08:00",
        "asked": "2026-12-01T08:00:00+08:00",
        "session": "private:alice",
        "channel": "qq",
        "to": "alice",
        "trust": "known",
    } | given


def put(home: Path, name: str, document: dict[str, Json]) -> Path:
    path = home / f"data/kernel/rhythm/reminders/{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def struck(mind: Mind, name: str) -> list[str]:
    found = (mind.data / "rhythm/triggers").rglob(f"reminder_*_{name}.json")
    return sorted(path.name.split("_")[1] for path in found)


def told(mind: Mind) -> list[dict[str, Any]]:
    files = (mind.data / "pipeline/message_queue").rglob("msg_*.json")
    payloads = [json.loads(path.read_bytes())["payload"] for path in files]
    return [event for one in payloads for event in one["events"] if event["type"] == "rhythm.reminder"]


def done(mind: Mind, name: str) -> bool:
    return bool(list((mind.data / "rhythm/reminders/done").rglob(f"{name}.json")))


async def test_a_reminder_is_perceived_in_the_session_it_was_asked_in_and_leaves(tmp_path: Path) -> None:
    path = put(tmp_path, "rem_1", written())
    async with life(tmp_path, "2026-12-01T09:00:09.5+08:00", rules=NO_RULES) as (mind, model):
        await until(lambda: done(mind, "rem_1"))
        await mind.drained()
        (event,) = told(mind)
        assert model.calls > 0
    assert not path.exists()
    assert struck(mind, "rem_1") == ["20261201T010010Z"]
    assert event["text"] == "Reminder (set 2026-12-01 08:00): the oven"
    assert (event["session"], event["from"], event["channel"]) == ("private:alice", "alice", "qq")
    assert event["trust"] == "known"
    assert replies(mind) == [event["text"]]


async def test_one_missed_while_the_mind_was_away_strikes_once_late(tmp_path: Path) -> None:
    put(tmp_path, "rem_1", written(text="关火"))
    for start in ("2026-12-09T09:00:00+08:00", "2026-12-09T10:00:00+08:00"):
        async with life(tmp_path, start, rules=NO_RULES) as (mind, _):
            await until(lambda mind=mind: done(mind, "rem_1"))
            await mind.drained()
    assert struck(mind, "rem_1") == ["20261201T010010Z"]
    (event,) = told(mind)
    assert event["text"] == "提醒（2026-12-01 08:00 定下，应在 2026-12-01 09:00，来晚了）：关火"
    assert event["data"]["late_sec"] == 8 * 86400 - 10


async def test_a_lost_ledger_a_lost_state_and_a_file_that_came_back_repeat_nothing(tmp_path: Path) -> None:
    put(tmp_path, "rem_1", written())
    async with life(tmp_path, "2026-12-01T09:01:00+08:00", rules=NO_RULES) as (mind, _):
        await until(lambda: done(mind, "rem_1"))
        await mind.drained()
    for path in [*mind.data.glob("ledger.db*"), mind.data / "rhythm/state.json"]:
        path.unlink(missing_ok=True)
    put(tmp_path, "rem_1", written())
    async with life(tmp_path, "2026-12-01T09:02:00+08:00", rules=NO_RULES) as (mind, _):
        path = mind.data / "rhythm/reminders/rem_1.json"
        await until(lambda: not path.exists())
        await mind.drained()
    assert struck(mind, "rem_1") == ["20261201T010010Z"]


async def test_one_by_cron_strikes_at_each_slot_and_stays(tmp_path: Path) -> None:
    path = put(tmp_path, "rem_9", written(at=None, cron="0 9 * * *"))
    for start in (
        "2026-12-01T09:00:00.5",
        "2026-12-01T09:00:20",
        "2026-12-02T08:00:00",
        "2026-12-05T10:00:00",
    ):
        async with life(tmp_path, f"{start}+08:00", rules=NO_RULES) as (mind, _):
            await until((mind.data / "rhythm/state.json").exists)
            await mind.drained()
    # three were missed in the last absence: the newest of them is told
    assert struck(mind, "rem_9") == ["20261201T010000Z", "20261205T010000Z"]
    assert path.exists()


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        ("Please remind me in 4 seconds to look at the oven.", "look at the oven."),
        ("四秒后提醒我看烤箱", "看烤箱"),
    ],
)
async def test_what_a_person_asks_for_comes_in_seconds_and_not_a_minute_late(
    tmp_path: Path, said: str, answered: str
) -> None:
    """The scheduler, which has nothing due, hears of the file that the dispatcher's commit wrote."""
    async with life(tmp_path, "2026-12-01T09:00:00+08:00", rules=NO_RULES) as (mind, _):
        began = mind.clock.now()
        words = {"text": said, "from": "alice", "channel": "qq"}
        (mind.data / "inbox/pending/a.json").write_text(json.dumps(words), encoding="utf-8")
        finished = mind.data / "rhythm/reminders/done"
        await until(lambda: list(finished.rglob("rem_*.json")))
        took = mind.clock.now() - began
        await mind.drained()
        (event,) = told(mind)
    assert timedelta(seconds=3) < took < timedelta(seconds=30)
    assert event["session"] == "private:alice" and event["text"].endswith(answered)
    assert any(text.startswith(("Reminder", "提醒")) for text in replies(mind))


def replies(mind: Mind) -> list[str]:
    found = (mind.data / "outbox/qq").rglob("out_*.json")
    return [json.loads(path.read_bytes())["payload"]["text"] for path in found]


def test_years_of_missed_slots_are_one() -> None:
    (one,) = read_reminders({"rem_1": written(at=None, cron="* * * * *", asked="2016-01-01T00:00:00Z")})
    assert due_slot(one, None, NOON, UTC) == NOON
    (year,) = read_reminders({"rem_1": written(at=None, cron="0 0 1 1 *", asked="2016-01-01T00:00:00Z")})
    assert due_slot(year, None, NOON, UTC) == datetime(2026, 1, 1, tzinfo=UTC)
    assert due_slot(year, NOON - timedelta(1), NOON, UTC) is None


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        written(text=""),
        written(at=None),
        written(cron="0 9 * * *"),
        written(at="2026-12-01T09:00:00"),
        written(at=None, cron="nonsense"),
    ],
)
def test_what_is_no_reminder_is_left_alone(document: Json) -> None:
    assert read_reminders({"rem_1": document}) == []
    assert read_reminders({"../rem": written(), "a b": written(), "_": written()}) == []


def test_one_set_for_soon_carries_the_count_on_and_one_for_later_does_not() -> None:
    (soon,) = read_reminders({"a": written(hops=3)})
    assert soon.at is not None
    assert soon.hops_at(soon.asked + timedelta(minutes=5)) == 4
    assert soon.hops_at(soon.asked + timedelta(days=1)) == 0


def test_the_newest_slot_of_each_reminder_is_read_from_names() -> None:
    names = [
        "reminder_20261201T010000Z_rem_1.json",
        "reminder_20261202T010000Z_rem_1.json",
        "hourly_20261203T010000Z.json",
        "reminder_x_rem_2.json",
    ]
    assert struck_slots(names) == {"rem_1": datetime(2026, 12, 2, 1, tzinfo=UTC)}
