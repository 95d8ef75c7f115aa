"""What the next process learns of the batches that were in the air, on any disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness import SteppedClock

from kernel_gamma.bus.flight_log import FlightLog, InFlight
from kernel_gamma.contracts.effects import Batch, Delivery


def batch(name: str, *seqs: int) -> Batch:
    now = SteppedClock().now()
    deliveries = (
        Delivery(seq=n, queue="q", name=f"{n}.json", origin="bus", document={}, accepted_at=now) for n in seqs
    )
    return Batch(name, "node", tuple(deliveries))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FlightLog]:
    found = FlightLog(tmp_path / "flights.log")
    found.open()
    yield found
    found.close(orderly=False)


def left(tmp_path: Path) -> list[InFlight]:
    return list(FlightLog(tmp_path / "flights.log").read())


def test_what_took_off_and_did_not_land_is_left_with_what_it_waited_for(
    log: FlightLog, tmp_path: Path
) -> None:
    one, two, three = batch("one", 1, 2), batch("two", 3), batch("three", 4)
    for each in (one, two, three):
        log.takes_off(each)
    log.waits(one)
    log.waits(two)
    log.is_back(two)
    log.lands(three)
    log.waits(three)  # it is through: nothing is said of it any more
    assert left(tmp_path) == [
        InFlight("one", "node", (1, 2), waiting=True),
        InFlight("two", "node", (3,), waiting=False),
    ]


def test_after_an_orderly_end_nothing_is_left(log: FlightLog, tmp_path: Path) -> None:
    log.takes_off(batch("one", 1))
    log.close(orderly=True)
    assert left(tmp_path) == []


def test_a_line_that_is_written_in_pieces_is_whole(
    log: FlightLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: really(fd, bytes(data)[:5]))
    log.takes_off(batch("one", 1, 2, 3))
    log.takes_off(batch("two", 4))
    log.waits(batch("two", 4))
    assert left(tmp_path) == [
        InFlight("one", "node", (1, 2, 3)),
        InFlight("two", "node", (4,), waiting=True),
    ]


def test_a_full_disk_refuses_a_start_and_forgets_nothing_once_there_is_room(
    log: FlightLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes half a line and no more: what is written next does not hang on that half."""
    one, two, three = batch("one", 1), batch("two", 2), batch("three", 3)
    log.takes_off(one)
    log.takes_off(two)
    really = os.write
    room = [5]

    def nearly_full(fd: int, data: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = really(fd, bytes(data)[: room[0]])
        room[0] -= written
        return written

    with monkeypatch.context() as full:
        full.setattr(os, "write", nearly_full)
        with pytest.raises(OSError, match="No space"):
            log.takes_off(three)
        log.waits(one)  # never in the way of a handler, nor of a commit
        log.lands(two)
    log.takes_off(three)
    assert left(tmp_path) == [
        InFlight("one", "node", (1,), waiting=True),
        InFlight("three", "node", (3,)),
    ]
