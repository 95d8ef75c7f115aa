"""The measure of repetition: what differs only in times and numbers is the same line."""

from __future__ import annotations

import pytest
from benchmarks.redundancy import masked, redundancy


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-30T08:00:00+08:00 all is well on web", "2026-11-30 09:00:00 all is well on web"),
        ("from 10.0.0.1 port 22", "from 192.168.7.44 port 50122"),
        ("instance 7a1f9c2e-aa10-4b1c-9d11-0123456789ab gone", "instance ffff0001 gone"),
        ("session 0x14f05578bd80006 closed", "session 0x24ee0aa0 closed"),
        ("CPU  at 91 %", "cpu at 12 %"),
    ],
)
def test_times_addresses_digests_and_numbers_make_no_difference(one: str, other: str) -> None:
    assert masked(one) == masked(other)


def test_half_of_a_context_that_says_everything_twice_is_redundant() -> None:
    lines = [f"the {word} of the mill is quiet today" for word in ("wheel", "door", "roof", "cellar")]
    assert redundancy("\n".join([*lines, *lines])) == 0.5
    assert redundancy("\n".join(lines)) == 0.0


def test_tags_of_fences_and_empty_lines_are_no_lines() -> None:
    fenced = '<recalled key="a" trust="known" time="">\nI like tea\n</recalled>\n\n'
    assert redundancy(fenced + fenced) == 0.5
    assert redundancy("") == 0.0


def test_near_duplicates_count_as_well_as_equal_lines() -> None:
    report = "Hourly inspection of the boiler and of the pumps: pressure normal, temperature normal, no alarm"
    assert redundancy(f"{report}\n{report}!") == 0.5


def test_the_bare_time_above_a_passage_is_no_line() -> None:
    told = [
        f"## 2026-11-30 0{n}:15:00 +08:00\n\nI heard the {word}." for n, word in enumerate(("bell", "rain"))
    ]
    assert redundancy("\n\n".join(told)) == 0.0
