"""When a file is settled: an adversary writes, closes, touches and lists; time is an argument."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernel_gamma.bus.intake import Arrival, Intake, IntakeRules, Refusal
from kernel_gamma.contracts.json_text import read_document

RULES = IntakeRules(
    settle_sec=1.0,
    settle_timeout_sec=10.0,
    max_bytes=1000,
    read=lambda raw: read_document(raw, max_depth=8),
    wanted=lambda directory, name: name.endswith(".json") and not name.startswith("."),
)


@pytest.fixture
def intake(tmp_path: Path) -> Intake:
    (tmp_path / "q").mkdir()
    return Intake(os.fsencode(tmp_path), "q", RULES)


def put(intake: Intake, name: str, text: str) -> Path:
    path = Path(os.fsdecode(intake.path)) / name
    path.write_text(text)
    return path


def listed(intake: Intake, clock: float = 0.0) -> int:
    return intake.admit(intake.fresh_names(), lambda: clock)


def names(found: list[Arrival | Refusal]) -> list[str]:
    return [os.fsdecode(item.name) for item in found]


def test_a_file_renamed_in_or_closed_is_taken_at_once(intake: Intake) -> None:
    put(intake, "e.json", '{"text": "x"}')
    intake.hint("e.json", closed=True)
    (found,) = intake.collect(0.0, 9)
    assert isinstance(found, Arrival)
    assert found.document == {"text": "x"}
    assert len(intake) == 0


def test_a_file_nobody_closed_is_taken_once_it_stands_still(intake: Intake) -> None:
    put(intake, "e.json", '{"text": "x"}')
    intake.hint("e.json", closed=False)
    assert intake.collect(0.0, 9) == []
    assert intake.due_at() == 1.0
    put(intake, "e.json", '{"text": "longer"}')
    assert intake.collect(1.0, 9) == []
    (found,) = intake.collect(2.0, 9)
    assert isinstance(found, Arrival) and found.document == {"text": "longer"}


def test_what_is_no_json_yet_gets_its_time_from_the_last_change_on(intake: Intake) -> None:
    put(intake, "e.json", '{"te')
    intake.hint("e.json", closed=True)
    assert intake.collect(0.0, 9) == []
    put(intake, "e.json", '{"text"')
    intake.hint("e.json", closed=True)
    assert intake.collect(9.0, 9) == []
    assert intake.collect(18.9, 9) == []
    (found,) = intake.collect(19.0, 9)
    assert isinstance(found, Refusal) and found.kind == "not_json"


def test_what_can_never_be_right_waits_only_until_it_stands_still(intake: Intake) -> None:
    put(intake, "e.json", "42")
    intake.hint("e.json", closed=True)
    assert intake.collect(0.0, 9) == []
    (found,) = intake.collect(1.0, 9)
    assert isinstance(found, Refusal) and found.kind == "not_an_object"


def test_old_files_found_by_a_listing_are_taken_at_once_in_the_order_of_their_time(intake: Intake) -> None:
    for number, name in enumerate(("c.json", "a.json", "b.json")):
        path = put(intake, name, "{}")
        os.utime(path, (1000 + number, 1000 + number))
    assert listed(intake, clock=os.stat(intake.path).st_ctime + 100) == 3
    assert names(intake.collect(0.0, 9)) == ["c.json", "a.json", "b.json"]


def test_old_rubbish_found_by_a_listing_is_refused_at_once(intake: Intake) -> None:
    path = put(intake, "e.json", "{nope")
    listed(intake, clock=path.stat().st_ctime + 100)
    (found,) = intake.collect(0.0, 9)
    assert isinstance(found, Refusal)


def test_a_fresh_file_found_by_a_listing_is_watched_first(intake: Intake) -> None:
    path = put(intake, "e.json", "{}")
    listed(intake, clock=path.stat().st_ctime)
    assert intake.collect(0.0, 9) == []
    assert names(intake.collect(1.0, 9)) == ["e.json"]


def test_a_listing_names_nothing_twice(intake: Intake) -> None:
    put(intake, "e.json", "{}")
    assert listed(intake) == 1
    assert listed(intake) == 0
    intake.collect(0.0, 9)
    assert listed(intake) == 0
    assert len(intake) == 1


def test_a_file_that_vanishes_is_forgotten(intake: Intake) -> None:
    path = put(intake, "e.json", "{}")
    intake.hint("e.json", closed=False)
    intake.collect(0.0, 9)
    path.unlink()
    assert intake.collect(5.0, 9) == []
    assert len(intake) == 0 and intake.due_at() is None


def test_unwanted_names_are_never_looked_at(intake: Intake) -> None:
    put(intake, ".e.json", "{}")
    put(intake, "e.txt", "{}")
    intake.hint(".e.json", closed=True)
    assert (listed(intake), len(intake)) == (0, 0)


def test_no_more_than_asked_for_are_read_and_the_rest_stays(intake: Intake) -> None:
    for number in range(5):
        put(intake, f"{number}.json", "{}")
        intake.hint(f"{number}.json", closed=True)
    assert names(intake.collect(0.0, 2)) == ["0.json", "1.json"]
    assert intake.queued == 3


def test_a_large_file_that_still_grows_is_not_judged_yet(intake: Intake) -> None:
    path = put(intake, "e.json", "x" * 1001)
    intake.hint("e.json", closed=False)
    assert intake.collect(0.0, 9) == []
    path.write_text("x" * 2000)
    assert intake.collect(1.0, 9) == []
    (found,) = intake.collect(2.0, 9)
    assert isinstance(found, Refusal) and found.kind == "too_large"


WHOLE = '{"text": "0123456789"}'


@given(
    st.lists(st.sampled_from(["write", "close", "hint", "list", "wait", "long wait"]), max_size=40),
    st.integers(1, len(WHOLE) - 1),
)
@hypothesis_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_however_slowly_it_is_written_it_is_taken_whole_or_refused_after_its_time(
    tmp_path_factory: pytest.TempPathFactory, moves: list[str], step: int
) -> None:
    root = tmp_path_factory.mktemp("intake")
    (root / "q").mkdir()
    intake = Intake(os.fsencode(root), "q", RULES)
    path, now, written, changed = root / "q/e.json", 0.0, 0, 0.0
    for move in [*moves, "list", "wait", "long wait", "long wait"]:
        if move == "write" and written < len(WHOLE):
            written = min(len(WHOLE), written + step)
            path.write_text(WHOLE[:written])
            os.utime(path, ns=(int(now * 1e9) + written, int(now * 1e9) + written))
            changed = now
        elif move in ("close", "hint"):
            intake.hint("e.json", closed=move == "close")
        elif move == "list":
            listed(intake, clock=0.0)
        elif "wait" in move:
            now += 12.0 if "long" in move else 0.7
        for found in intake.collect(now, 9):
            if isinstance(found, Arrival):
                assert written == len(WHOLE)
            else:
                assert now - changed >= RULES.settle_timeout_sec
            path.unlink()
            return
    assert not path.exists(), "in the end it is one or the other"
