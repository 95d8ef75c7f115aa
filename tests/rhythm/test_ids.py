from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from kernel_gamma.contracts.envelope import is_id
from kernel_gamma.rhythm.ids import FixedIds, UlidIds

SHAPE = re.compile(r"msg_[0-9A-HJKMNP-TV-Z]{26}")


class StoppedClock:
    """Tells the moment it was set to."""

    zone: tzinfo = UTC

    def __init__(self, moment: datetime = datetime(2026, 11, 30, 10, 30, tzinfo=UTC)) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return 0.0


def test_an_id_is_a_prefix_and_a_ulid() -> None:
    made = UlidIds(StoppedClock()).new("msg")
    assert SHAPE.fullmatch(made)
    assert is_id(made)


def test_the_first_letters_tell_the_millisecond() -> None:
    # the example of the ULID specification: 1469918176385 is 01ARYZ6S41
    moment = datetime.fromtimestamp(1469918176.385, UTC)
    assert UlidIds(StoppedClock(moment)).new("msg")[4:14] == "01ARYZ6S41"


def test_ids_of_one_millisecond_differ_and_sort() -> None:
    ids = UlidIds(StoppedClock())
    made = [ids.new("msg") for _ in range(5000)]
    assert made == sorted(set(made))


def test_ids_still_sort_when_the_clock_steps_back() -> None:
    clock = StoppedClock()
    ids = UlidIds(clock)
    made = [ids.new("msg")]
    for step in (-3600, 0.001, -1, 7200, -7200):
        clock.moment += timedelta(seconds=step)
        made += [ids.new("msg"), ids.new("msg")]
    assert made == sorted(set(made))


def test_later_ids_sort_after_those_of_an_earlier_process() -> None:
    clock = StoppedClock()
    earlier = UlidIds(clock).new("msg")
    clock.moment += timedelta(milliseconds=1)
    assert UlidIds(clock).new("msg") > earlier


def test_two_processes_in_one_millisecond_make_different_ids() -> None:
    clock = StoppedClock()
    assert len({UlidIds(clock).new("msg") for _ in range(200)}) == 200


def test_threads_get_ids_of_their_own() -> None:
    ids = UlidIds(StoppedClock())
    made: list[list[str]] = [[] for _ in range(4)]

    def work(mine: list[str]) -> None:
        mine.extend(ids.new("msg") for _ in range(2000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id_ for mine in made for id_ in mine}) == 8000
    assert all(mine == sorted(mine) for mine in made)


@pytest.mark.parametrize("moment", [datetime(1960, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)])
def test_a_strange_clock_still_makes_ids(moment: datetime) -> None:
    ids = UlidIds(StoppedClock(moment))
    made = [ids.new("msg") for _ in range(3)]
    assert all(SHAPE.fullmatch(id_) for id_ in made)
    assert made == sorted(set(made))


def test_fixed_ids_count() -> None:
    ids = FixedIds()
    assert ids.new("msg") == "msg_" + "0" * 25 + "1"
    assert ids.new("evt") == "evt_" + "0" * 25 + "2"
