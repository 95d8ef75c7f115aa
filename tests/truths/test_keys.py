from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kernel_gamma.contracts.truths import KEY, category_of, check_key
from kernel_gamma.truths.keys import generated_key, key_of_second, prefixes_of

ULID = "01J8ZQ4W0000000000000000AB"


@pytest.mark.parametrize(
    ("key", "folders"),
    [
        ("incident", ("incident",)),
        ("incident.loop", ("incident",)),
        ("incident.loop.cause", ("incident", "incident.loop")),
        ("a.b.c.d.e.f", ("a", "a.b", "a.b.c")),
        (f"incident.20260911T080000Z.{ULID}", ("incident",)),
        (f"metrics.disk.20260911T080000Z.{ULID}", ("metrics", "metrics.disk")),
        ("diary.2026-11-30.3", ("diary",)),
        ("task.20260911.x.y", ("task",)),
        ("20260911.x.y", ("20260911", "20260911.x")),
        ("a-b_c.d-e.f", ("a-b_c", "a-b_c.d-e")),
    ],
)
def test_a_key_lies_in_its_folders_and_a_time_is_no_folder(key: str, folders: tuple[str, ...]) -> None:
    assert prefixes_of(key) == folders


@pytest.mark.parametrize(
    ("at", "stamp"),
    [
        (datetime(2026, 9, 11, 8, 0, 0, tzinfo=UTC), "20260911T080000Z"),
        (datetime(2026, 9, 11, 8, 0, 0, 999_999, tzinfo=UTC), "20260911T080000Z"),
        (datetime(2026, 9, 12, 1, 0, 0, tzinfo=timezone(timedelta(hours=8))), "20260911T170000Z"),
        (datetime(1970, 1, 1, tzinfo=UTC), "19700101T000000Z"),
        (datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), "19691231T235959Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "00010101T000000Z"),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), "99991231T235959Z"),
        (datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC), "20240229T123001Z"),
    ],
)
def test_a_generated_key_has_its_time_in_utc_and_files_by_its_category(at: datetime, stamp: str) -> None:
    key = generated_key("incident.disk", at, ULID)
    assert key == f"incident.disk.{stamp}.{ULID}"
    assert KEY.match(key)
    assert check_key(key) == key
    assert category_of(key) == "incident"
    assert prefixes_of(key) == ("incident", "incident.disk")


def test_a_key_can_be_made_of_a_second_before_and_after_1970() -> None:
    assert key_of_second("a", 0, ULID) == f"a.19700101T000000Z.{ULID}"
    assert key_of_second("a", -1, ULID) == f"a.19691231T235959Z.{ULID}"
    assert key_of_second("a.b", 86_399, ULID) == f"a.b.19700101T235959Z.{ULID}"
