"""What fits into a prompt: budgets hold, order stays, fixed parts stay whole, nothing is said twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.context.fitting import FOR_WANT_OF_ROOM, Fitted, fit, size_of
from kernel_gamma.contracts.context import Part, Piece
from kernel_gamma.errors import TooLarge


def count(text: str) -> int:
    return len(text.split())


def piece(text: str, source: str = "s") -> Piece:
    return Piece(source=source, text=text, tokens=count(text))


def part(name: str, *texts: str, **more: object) -> Part:
    given: dict[str, object] = {"channel": "dynamic", "pieces": [piece(text) for text in texts]} | more
    return Part(name=name, **given)  # type: ignore[arg-type]


def texts(fitted: Fitted, name: str) -> list[str]:
    return [piece.text for part in fitted.parts if part.name == name for piece in part.pieces]


def test_what_fits_stands_as_it_was_handed_in() -> None:
    parts = [part("a", "one two", "three"), part("b", "four")]
    fitted = fit(parts, limit=4, count=count)
    assert [p.name for p in fitted.parts] == ["a", "b"] and fitted.tokens == 4 and not fitted.lost


def test_the_lowest_priority_is_trimmed_first_from_its_end() -> None:
    parts = [
        part("memory", "m1 m1", "m2 m2", priority=20),
        part("records", "r1 r1", "r2 r2", "r3 r3", priority=10),
    ]
    fitted = fit(parts, limit=6, count=count)
    assert texts(fitted, "memory") == ["m1 m1", "m2 m2"] and texts(fitted, "records") == ["r1 r1"]
    assert [lost.piece.text for lost in fitted.lost] == ["r3 r3", "r2 r2"]
    assert all(lost.reason.startswith(FOR_WANT_OF_ROOM) for lost in fitted.lost)


def test_a_stream_loses_its_oldest_passages() -> None:
    fitted = fit([part("stream", "old", "newer", "newest", newest_last=True)], limit=2, count=count)
    assert texts(fitted, "stream") == ["newer", "newest"]


def test_a_part_keeps_its_minimum_while_others_have_something_to_give() -> None:
    parts = [
        part("state", "s1 s1 s1 s1", priority=1, minimum=4),
        part("memory", "m1 m1", "m2 m2", priority=5),
    ]
    assert texts(fit(parts, limit=5, count=count), "state") == ["s1 s1 s1 s1"]
    assert texts(fit(parts, limit=3, count=count), "memory") == []


def test_a_part_takes_no_more_than_its_maximum_and_skips_what_is_too_large() -> None:
    fitted = fit([part("records", "a b c", "d e f g", "h", maximum=4)], limit=99, count=count)
    assert texts(fitted, "records") == ["a b c", "h"]
    assert fitted.lost[0].reason == "over the 4 tokens of records"


def test_a_stream_has_no_hole_in_it() -> None:
    parts = [part("stream", "a", "b c d e", "f g", newest_last=True, maximum=4)]
    assert texts(fit(parts, limit=99, count=count), "stream") == ["f g"]


@pytest.mark.parametrize(
    ("said", "again", "dropped"),
    [
        ("I know that Alice drinks green tea.", "i know that ALICE drinks  green tea.", True),
        ("Today: I know that Alice drinks green tea. And more.", "Alice drinks green tea", True),
        ("爱丽丝喜欢喝龙井茶，不喜欢咖啡。", "爱丽丝喜欢喝龙井茶，不喜欢咖啡", True),
        (
            "the disk of web-01 is 91 percent full since noon",
            "the disk of web-01 is 95 percent full since noon",
            False,
        ),
        ("tea", "te", False),
        ("full of tea and things", "tea", False),
    ],
)
def test_what_stands_there_already_is_not_said_again(said: str, again: str, dropped: bool) -> None:
    parts = [part("records", again), part("stream", said, channel="self")]
    fitted = fit(parts, limit=99, count=count)
    assert (texts(fitted, "records") == []) is dropped
    if dropped:
        assert fitted.lost[0].reason == "a duplicate: stream says it already"


def test_a_duplicate_is_compared_without_its_fence() -> None:
    fenced = Piece(
        source="k", text="<recalled>\nI like tea a lot\n</recalled>", tokens=6, plain="I like tea a lot"
    )
    parts = [part("state", "I like tea a lot", channel="self"), part("memory", pieces=[fenced])]
    assert texts(fit(parts, limit=99, count=count), "memory") == []


def test_what_may_not_be_trimmed_and_does_not_fit_is_refused_with_the_numbers() -> None:
    parts = [part("axioms", "a b c", fixed=True), part("records", "d", heading="# H x")]
    with pytest.raises(TooLarge, match=r"needs 3 tokens and may have 2: axioms 3"):
        fit(parts, limit=2, count=count)


_TEXT = st.text(alphabet="ab 天", min_size=1, max_size=12).filter(lambda text: bool(text.strip()))


@st.composite
def _parts(draw: st.DrawFn) -> Sequence[Part]:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5))
    return [
        Part(
            name=name,
            channel=draw(st.sampled_from(["static", "self", "dynamic", "agent"])),
            pieces=[
                Piece(source=f"{name}{index}", text=text, tokens=draw(st.integers(0, 9)))
                for index, text in enumerate(draw(st.lists(_TEXT, max_size=5)))
            ],
            heading=draw(st.sampled_from(["", "# H", "# two words"])),
            priority=draw(st.integers(0, 3)),
            minimum=draw(st.integers(0, 9)),
            maximum=draw(st.none() | st.integers(0, 20)),
            fixed=draw(st.booleans()),
            newest_last=draw(st.booleans()),
        )
        for name in names
    ]


@given(parts=_parts(), limit=st.integers(0, 80))
def test_budget_order_fixed_parts_and_duplicates_hold_for_any_parts(
    parts: Sequence[Part], limit: int
) -> None:
    fixed = sum(size_of(part, count) for part in parts if part.fixed)
    try:
        fitted = fit(parts, limit=limit, count=count)
    except TooLarge:
        assert fixed > limit
        return
    assert fitted.tokens == sum(size_of(part, count) for part in fitted.parts) <= limit
    names = [part.name for part in fitted.parts]
    assert names == [part.name for part in parts if part.name in names]
    by_name = {part.name: part for part in fitted.parts}
    lost = sorted(lost.piece.source for lost in fitted.lost)
    kept = [piece.source for part in fitted.parts for piece in part.pieces]
    assert sorted(kept + lost) == sorted(piece.source for part in parts for piece in part.pieces)
    plain = [piece.text.split() for part in fitted.parts if not part.fixed for piece in part.pieces]
    assert len({" ".join(words) for words in plain}) == len(plain)
    for part in parts:
        found = by_name.get(part.name)
        sources = [] if found is None else [piece.source for piece in found.pieces]
        assert sources == [piece.source for piece in part.pieces if piece.source in sources]
        if part.fixed:
            assert sources == [piece.source for piece in part.pieces]
        elif found is not None and part.maximum is not None:
            assert sum(piece.tokens for piece in found.pieces) <= part.maximum


@given(parts=_parts(), limit=st.integers(0, 80))
def test_fitting_again_what_fits_changes_nothing(parts: Sequence[Part], limit: int) -> None:
    try:
        fitted = fit(parts, limit=limit, count=count)
    except TooLarge:
        return
    again = fit(fitted.parts, limit=limit, count=count)
    assert list(again.parts) == list(fitted.parts) and not again.lost
