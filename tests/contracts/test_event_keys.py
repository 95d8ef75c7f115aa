from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.contracts.event_keys import Keys, joined, object_of, read_moment, whole, word_of
from kernel_gamma.errors import Poison


def test_what_was_taken_is_no_longer_left() -> None:
    keys = Keys({"a": " x ", "b": "y", "c": None, "d": [1]})
    assert keys.word("c", "a", "b") == "x"
    assert keys.take("missing") is None
    assert keys.left == {"d": [1]}


def test_a_lenient_reader_leaves_a_key_of_a_wrong_shape_where_it_is() -> None:
    keys = Keys({"text": ["a"], "attachments": [{"title": "card"}]}, lenient=True)
    assert keys.text("text") is None
    assert keys.attachments() == ()
    assert keys.left == {"text": ["a"], "attachments": [{"title": "card"}]}


def test_a_strict_reader_names_the_key_with_its_place() -> None:
    with pytest.raises(Poison, match=r"^payload\.text: must be text, is a list$"):
        Keys({"text": ["a"]}, "payload.").text("text")


def test_joining_loses_nothing() -> None:
    assert joined({"a": 1, "_a": 2}, {"a": 3, "b": 4}) == {"a": 1, "_a": 2, "__a": 3, "b": 4}


@pytest.mark.parametrize(
    ("value", "word"), [(None, None), ("  ", None), (" 好 ", "好"), (3, "3"), (False, "false")]
)
def test_words(value: object, word: str | None) -> None:
    assert word_of("key", value) == word


@pytest.mark.parametrize(("value", "number"), [(None, None), (0, 0), (60.0, 60), ("60", 60), (10**15, 10**9)])
def test_whole_numbers(value: object, number: int | None) -> None:
    assert whole("key", value) == number


@pytest.mark.parametrize("value", [True, -1, 0.5, "", "x", float("nan"), float("inf"), 10**400])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(Poison, match=r"^key: must be a whole number"):
        whole("key", value)


def test_an_object_that_is_missing_is_told_from_one_of_a_wrong_shape() -> None:
    with pytest.raises(Poison, match=r"^key: is missing$"):
        object_of("key", None)
    with pytest.raises(Poison, match=r"^key: must be an object, is true$"):
        object_of("key", True)


def test_a_time_without_offset_follows_the_zone_and_its_summer_time() -> None:
    accepted = datetime(2026, 12, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    moment = read_moment("time", "2026-07-01T12:00:00", accepted)
    assert moment == datetime(2026, 7, 1, 10, tzinfo=UTC)
