from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.truths.ranking import (
    MOST_STRENGTH,
    NEIGHBOURS,
    judged,
    neighbour_share,
    raised,
    rank,
    rarity,
    strength,
)

SHARE = st.floats(0, 1)


def order(rows: dict[int, int], weights: list[float], *, around: bool) -> list[tuple[int, float]]:
    lengths = dict.fromkeys(rows, 5)
    found = rank(rows, lengths, weights, around=around, mean_length=5.0)
    return [(one.place, round(one.score, 6)) for one in found]


def test_a_rarer_term_weighs_more_and_none_weighs_less_than_nothing() -> None:
    weights = [rarity(1000, holding) for holding in (0, 1, 10, 500, 1000, 5000)]
    assert weights == sorted(weights, reverse=True)
    assert all(weight > 0 for weight in weights)


def test_the_row_with_more_of_the_query_comes_first() -> None:
    assert order({10: 0b01, 900: 0b11, 500: 0b10}, [1.0, 2.0], around=False) == [
        (900, 1.0),
        (500, round(2 / 3, 6)),
        (10, round(1 / 3, 6)),
    ]


def test_of_equals_the_later_place_comes_first() -> None:
    assert [place for place, _ in order({1: 1, 30: 1, 20: 1}, [1.0], around=False)] == [30, 20, 1]


@pytest.mark.parametrize(("step", "discount"), NEIGHBOURS)
def test_in_a_question_a_neighbour_lends_what_it_holds_at_a_discount(step: int, discount: float) -> None:
    found = dict(order({100: 0b01, 100 + step: 0b10}, [1.0, 1.0], around=True))
    assert found[100] == pytest.approx((1 + discount) / 2)


def test_in_a_question_a_row_without_a_word_may_stand_between_two_that_have_one() -> None:
    found = dict(order({100: 0b01, 102: 0b10}, [1.0, 1.0], around=True))
    assert found[101] == pytest.approx((0.6 + 0.4) / 2)


def test_in_a_search_for_words_no_neighbour_counts() -> None:
    assert order({100: 0b01, 101: 0b10}, [1.0, 1.0], around=False) == [(101, 0.5), (100, 0.5)]


def test_no_neighbour_counts_twice_for_one_term() -> None:
    found = dict(order({99: 0b10, 100: 0b01, 101: 0b10, 98: 0b10}, [1.0, 1.0], around=True))
    assert found[100] == pytest.approx((1 + 0.6) / 2)


def test_a_text_that_says_all_terms_once_at_mean_length_is_one() -> None:
    assert strength({"a": 1, "b": 1}, [("a", 3.0), ("b", 1.0)], length=10, mean_length=10) == (
        1.0,
        pytest.approx(1.0),
    )


def test_saying_it_more_often_is_stronger_and_in_much_other_text_weaker_to_a_bound() -> None:
    terms = [("a", 1.0)]
    often = [strength({"a": n}, terms, length=10, mean_length=10)[1] for n in (0, 1, 2, 5, 1000)]
    assert often == sorted(often)
    assert often[-1] < MOST_STRENGTH + 1e-9
    lengths = [strength({"a": 1}, terms, length=n, mean_length=10)[1] for n in (1, 10, 30, 100, 100_000)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] > 0.85  # a long report that says all the words is still found by a least of 0.6


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50)),
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0.01, 20)), max_size=5),
    st.floats(0, 10_000),
    st.floats(0, 1000),
)
def test_strength_never_exceeds_its_share_by_more_than_its_bound(
    counts: dict[str, int], terms: list[tuple[str, float]], length: float, mean: float
) -> None:
    held, strong = strength(counts, terms, length=length, mean_length=mean)
    assert 0 <= held <= 1 + 1e-9
    assert 0 <= strong <= held * MOST_STRENGTH + 1e-9


@given(SHARE, SHARE)
def test_raising_keeps_the_order_and_a_share_a_share(one: float, other: float) -> None:
    assert one - 1e-9 <= raised(one) <= 1
    assert (raised(one) <= raised(other)) or one > other
    assert raised(2.0) == 3.0


@given(SHARE)
def test_judgements_lift_lower_and_cancel_each_other(score: float) -> None:
    assert judged(score, 0, 0) == judged(score, 2, 2) == score
    assert judged(score, 1, 0) >= score - 1e-9
    assert judged(score, 0, 1) == score / 2


def test_neighbours_count_whole_among_short_rows_and_less_among_paragraphs() -> None:
    assert neighbour_share(0) == neighbour_share(20) == 1
    assert neighbour_share(200) == pytest.approx(0.25)
