"""Times as they are asked for and answered."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.gateway.forms import UPSERT, SearchRequest, aware, last_moment, written

SHANGHAI = ZoneInfo("Asia/Shanghai")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-09-11T23:59:59", "2026-09-11T23:59:59+08:00"),
        ("2026-09-11 23:59", "2026-09-11T23:59:00+08:00"),
        ("2026-09-11", "2026-09-11T00:00:00+08:00"),
        ("2026-09-11t00:00:00z", "2026-09-11T08:00:00+08:00"),
        ("2026-09-11T00:00:00-05:00", "2026-09-11T13:00:00+08:00"),
        ("2026-09-11T23:59:60", "2026-09-11T23:59:59+08:00"),
    ],
)
def test_a_naive_time_is_the_minds_own(text: str, meant: str) -> None:
    assert aware(text, SHANGHAI).isoformat() == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-09-11T23:59:59", "2026-09-11T23:59:59.999999+08:00"),
        ("2026-09-11T23:59:59.5", "2026-09-11T23:59:59.500000+08:00"),
        ("2026-09-11T23:59", "2026-09-11T23:59:59.999999+08:00"),
        ("2026-09-11", "2026-09-11T23:59:59.999999+08:00"),
        ("2026-09-11T10:00+08:00", "2026-09-11T10:00:59.999999+08:00"),
        ("2026-09-11T10:00:30+05:30", "2026-09-11T12:30:30.999999+08:00"),
    ],
)
def test_an_end_is_the_end_of_what_it_names(text: str, meant: str) -> None:
    assert last_moment(text, SHANGHAI).isoformat() == meant


def test_the_first_and_the_last_year_can_be_asked_for() -> None:
    assert aware("0001-01-01T00:00:00+14:00", SHANGHAI) == datetime.min.replace(tzinfo=UTC)
    assert aware("9999-12-31T23:59:59-14:00", SHANGHAI) == datetime.max.replace(tzinfo=UTC)
    assert last_moment("9999-12-31", UTC).year == 9999


def test_an_answer_has_no_seconds_in_its_offset() -> None:
    assert written(datetime(1900, 1, 1, tzinfo=SHANGHAI)).endswith("+08:05")
    assert written(datetime(2026, 9, 11, 8, tzinfo=SHANGHAI)) == "2026-09-11T08:00:00+08:00"


def test_a_whole_number_may_be_written_as_a_float() -> None:
    assert SearchRequest.model_validate({"limit": 10.0}).limit == 10
    with pytest.raises(ValueError, match="limit"):
        SearchRequest.model_validate({"limit": 10.5})


def test_one_truth_and_several_are_told_apart() -> None:
    one = {"category": "task", "value": None}
    assert type(UPSERT.validate_python(one)).__name__ == "UpsertOne"
    assert type(UPSERT.validate_python({"truths": [one]})).__name__ == "UpsertMany"
