"""Patterns and names."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.bus.folders import fitting_name, matches, prefix_for, shown, valid_pattern


@pytest.mark.parametrize(
    ("pattern", "directory", "name", "meant"),
    [
        ("inbox/pending/*.json", "inbox/pending", "e.json", True),
        ("inbox/pending/*.json", "inbox/pending", "new\nline.json", True),
        ("inbox/pending/*.json", "inbox/pending/done", "e.json", False),
        ("inbox/pending/*.json", "inbox/pending", "e.txt", False),
        ("q/msg_*.json", "q", "msg_1.json", True),
        ("q/msg_*.json", "q", "int_1.json", False),
        ("tools/*/receipts/act_*.json", "tools/mail/receipts", "act_1.json", True),
        ("tools/*/receipts/act_*.json", "tools/a/b/receipts", "act_1.json", False),
        ("a.b/*.json", "axb", "e.json", False),
    ],
)
def test_a_pattern_means_files_of_one_directory(pattern: str, directory: str, name: str, meant: bool) -> None:
    assert matches(pattern, directory, name) is meant


@pytest.mark.parametrize("pattern", ["inbox/pending/*.json", "q/msg_*.json", "outbox/*/out_*.json"])
def test_a_pattern_that_maps_to_a_subject_is_valid(pattern: str) -> None:
    assert valid_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["", "*.json", "q/**/x_*.json", "../q/*.json", "/q/*.json", "q/[ab]_*.json", "q/*.txt", "q//*.json"],
)
def test_any_other_pattern_is_not(pattern: str) -> None:
    assert not valid_pattern(pattern)


def test_the_prefix_of_an_emit_comes_from_its_pattern() -> None:
    patterns = ("outbox/*/out_*.json", "inbox/pending/*.json")
    assert prefix_for(patterns, "outbox/console") == "out"
    assert prefix_for(patterns, "inbox/pending") == "evt"
    assert prefix_for(patterns, "outbox/a/b") is None


@given(st.binary(max_size=255), st.integers(0, 10**15))
def test_a_fitting_name_is_never_too_long_and_keeps_its_ending(name: bytes, number: int) -> None:
    made = fitting_name(b"%d_" % number, name)
    assert len(made) <= 255
    assert made.endswith(name[-5:])


def test_any_name_can_be_shown() -> None:
    assert shown(os.fsdecode(b"\xff\xfe") + "字.json") == "\\xff\\xfe字.json"
