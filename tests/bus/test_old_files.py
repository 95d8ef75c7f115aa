"""Which files go when their time is over, and which never do."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.bus.keep_times import KeepTimes
from kernel_gamma.bus.old_files import OldFiles, history_page, time_in_name
from kernel_gamma.contracts.ulid import encode_ulid

NOW = datetime(2026, 11, 30, 10, tzinfo=ZoneInfo("Asia/Shanghai"))


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("{}")


def named(days: int, prefix: str = "out") -> str:
    """A name the bus gave so many days ago."""
    moment = NOW - timedelta(days=days)
    return f"{prefix}_{encode_ulid(int(moment.timestamp() * 1000), os.urandom(10))}"


def tidy(root: Path, keep: KeepTimes | None = None, *, held: frozenset[str] = frozenset()) -> dict[str, int]:
    files = OldFiles(root, keep or KeepTimes(), NOW, real_time=False, held=held)
    for _ in files.steps():
        pass
    return files.counts


def standing(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_days_of_every_queue_go_when_their_last_moment_is_over(tmp_path: Path) -> None:
    queues = ("inbox/pending", "pipeline/message_queue", "rhythm/triggers", "tools/a/receipts")
    put(tmp_path, *(f"{queue}/done/{day}/a.json" for queue in queues for day in ("2026-08-31", "2026-09-01")))
    assert tidy(tmp_path) == {"done": 4}
    assert standing(tmp_path) == {f"{queue}/done/2026-09-01/a.json" for queue in queues}
    assert not (tmp_path / "inbox/pending/done/2026-08-31").exists()


def test_what_waits_was_not_taken_or_is_no_day_of_ours_stays(tmp_path: Path) -> None:
    put(
        tmp_path,
        "inbox/pending/old.json",
        "inbox/taken/1_old.json",
        "pipeline/action_queue/act_1.json",
        "approvals/pending/act_2.json",
        f"outbox/console/{named(400)}.json",
        "inbox/pending/done/mine/a.json",
        "inbox/pending/done/2026-13-77/a.json",
        "inbox/pending/done/2020-01-01/folder/a.json",
        "self/stream/archive/2020-01-01.md",
        "self/diary/2020-01-01.md",
        "self/done/2020-01-01/a.md",
        "dead_letter/2020-01-01/poison.json",
    )
    before = standing(tmp_path)
    assert tidy(tmp_path) == {}
    assert standing(tmp_path) == before


def test_what_something_unfinished_came_from_stays(tmp_path: Path) -> None:
    put(tmp_path, "inbox/pending/done/2026-01-01/a.json", "inbox/pending/done/2026-01-01/b.json")
    held = frozenset({"inbox/pending/done/2026-01-01/b.json"})
    assert tidy(tmp_path, held=held) == {"done": 1}
    assert standing(tmp_path) == held
    assert tidy(tmp_path) == {"done": 1}


def test_taken_messages_and_old_pages_go_by_the_time_in_their_names(tmp_path: Path) -> None:
    put(
        tmp_path,
        *(f"outbox/console/done/{named(days)}.json" for days in (89, 91, 300)),
        f"self/.history/state.{named(91, 'batch')}.0.md",
        f"self/.history/state.{named(92, 'batch')}.0.md.ours",
        f"self/.history/state.{named(2, 'batch')}.0.md",
        f"self/.history/memories_tea.v2.{named(400, 'batch')}.1.md",  # the only old copy of its page
    )
    assert tidy(tmp_path) == {"outbox_done": 2, "history": 2}
    assert len(standing(tmp_path)) == 3


def test_forever_is_for_ever_and_set_aside_files_go_only_when_somebody_says_so(tmp_path: Path) -> None:
    put(tmp_path, "inbox/pending/done/2001-01-01/a.json", "dead_letter/2001-01-01/p.json")
    assert tidy(tmp_path, KeepTimes(done=None)) == {}
    assert tidy(tmp_path, KeepTimes(done=None, dead_letter=timedelta(days=30))) == {"dead_letter": 1}


def test_a_file_taken_late_stays_its_time_from_then_on(tmp_path: Path) -> None:
    name = f"outbox/console/done/{named(400)}.json"
    put(tmp_path, name)  # its status changed just now, whenever it was written
    files = OldFiles(tmp_path, KeepTimes(), datetime.now(UTC))
    assert list(files.steps()) and files.counts == {}


@pytest.mark.parametrize("real_time", [True, False])
def test_acks_go_after_a_day(tmp_path: Path, real_time: bool) -> None:
    put(tmp_path, "inbox/acks/old.json", "inbox/acks/new.json", "inbox/acks/unknown.json")
    hours = {"old.json": 25, "new.json": 23}
    for name, ago in hours.items():
        stamp = (NOW - timedelta(hours=ago)).timestamp()
        if real_time:
            os.utime(tmp_path / "inbox/acks" / name, (stamp, stamp))
    files = OldFiles(tmp_path, KeepTimes(), NOW, real_time=real_time)
    accepted = {name: (NOW - timedelta(hours=ago)).timestamp() for name, ago in hours.items()}
    if real_time:
        stamp = NOW.timestamp()
        os.utime(tmp_path / "inbox/acks/unknown.json", (stamp, stamp))
    assert files.acks(accepted.get) == 1
    assert standing(tmp_path) == {"inbox/acks/new.json", "inbox/acks/unknown.json"}


def test_times_are_read_from_ids_and_stamps() -> None:
    assert time_in_name("out_01ARZ3NDEKTSV4RRFFQ69G5FAV.json") == datetime(
        2016, 7, 30, 23, 54, 10, 259000, tzinfo=UTC
    )
    stamped = time_in_name("state.beat_memory_consolidator_20261130T220000Z.0.md")
    assert stamped == datetime(2026, 11, 30, 22, tzinfo=UTC)
    assert time_in_name("message.json") is None
    assert history_page("memories_tea.v2.batch_01ARZ3NDEKTSV4RRFFQ69G5FAV.1.md.ours") == "memories_tea.v2"
