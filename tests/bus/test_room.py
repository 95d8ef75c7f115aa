"""Before anything is opened on a full disk: wait, and go on when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_gamma.bus.room import ROOM_BYTES, wait_for_room


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    found = tmp_path / "disk"
    found.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(found)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield found
    subprocess.run(["umount", "-l", found], check=True)


def fail_to_sleep(seconds: float) -> None:
    raise AssertionError("there is nothing to wait for")


def test_a_disk_with_room_keeps_nobody_waiting_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    wait_for_room(tmp_path, sleep=fail_to_sleep)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_for_another_reason_is_for_others_to_say(tmp_path: Path) -> None:
    wait_for_room(tmp_path / "nowhere", sleep=fail_to_sleep)


def test_a_full_disk_is_waited_for_in_longer_and_longer_pauses(small: Path) -> None:
    filler = small / "filler"
    free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
    filler.write_bytes(bytes(free - ROOM_BYTES // 2))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 9:
            filler.unlink()

    wait_for_room(small, sleep=sleep)
    assert pauses == [0.5, 1, 2, 4, 5, 5, 5, 5, 5]
    assert list(small.iterdir()) == []
