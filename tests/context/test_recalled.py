"""One record in a prompt: in its fence, cut until it fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import START

from kernel_gamma.context.recalled import folded_line, recalled_piece, said_by, without_key_words
from kernel_gamma.contracts.context import Piece
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.truths import Truth


def count(text: str) -> int:
    """A tokenizer of the test: a token for each three bytes."""
    return len(text.encode()) // 3 + 1


def truth_of(value: Json, description: str = "") -> Truth:
    return Truth(
        key="error.a",
        value=value,
        category="error",
        description=description,
        timestamp=START,
        version=1,
        locked=False,
        sha256=None,
        prev_sha256=None,
        trust="owner",
        written_at=START,
    )


def piece_of(said: str, most: int, line: str = "") -> Piece | None:
    return recalled_piece(truth_of(said), said, ["battery"], most=most, count=count, line=line)


@given(st.text(max_size=400), st.integers(0, 300))
def test_a_piece_fits_or_there_is_none(said: str, most: int) -> None:
    found = piece_of(said, most)
    if found is None:
        assert (
            count(f'<recalled key="error.a" trust="owner" time="{START.isoformat()}">\n{said}\n</recalled>')
            > most
        )
    else:
        assert found.tokens == count(found.text) <= most


def test_the_line_below_a_piece_is_never_cut() -> None:
    line = folded_line(7, START, START, "en")
    found = piece_of("The battery of alpha is empty. " * 200, 120, line)
    assert found is not None and f"\n{line}\n" in found.text
    assert folded_line(1, START, START, "en") == folded_line(7, None, None, "zh") == ""


@pytest.mark.parametrize(
    ("excerpt", "shown"),
    [
        ("disk full\nalpha disk", "disk full"),
        ("端口缺失 … alpha", "端口缺失"),
        ("disk full\nof alpha", "disk full\nof alpha"),
        ("alpha disk", "alpha disk"),
        ("", ""),
    ],
)
def test_the_words_of_the_key_are_not_said_twice(excerpt: str, shown: str) -> None:
    assert without_key_words(excerpt, "error.alpha.disk") == shown


def test_a_record_says_its_description_and_its_value() -> None:
    truth = truth_of({"text": "full", "host": "alpha"}, description="disk")
    assert said_by(truth) == "disk\nfull\nhost: alpha"
    assert len(said_by(truth_of("x" * 100_000))) == 20_000
