from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.truths.terms import (
    index_terms,
    normal,
    query_terms,
    term_counts,
    word_count,
)


def asked(query: str) -> list[str]:
    return [term.term for term in query_terms(query)]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Disks failing", ["disk", "fail"]),
        ("ＤＩＳＫ　ｆｕｌｌ １２", ["disk", "full", "12"]),
        ("天气", ["天", "气", "天气"]),
        ("雨", ["雨"]),
        ("k8s集群", ["k8s", "集", "群", "集群"]),
        ("サーバー", ["サ", "ー", "バ", "サー", "ーバ", "バー"]),
        ("서버 오류", ["서", "버", "서버", "오", "류", "오류"]),
        ("snake_case a.b-c", ["snake", "case", "a", "b", "c"]),
        ("ok 🔥🔥", ["ok", "🔥"]),
        ("ﾊﾟｿｺﾝ", ["パ", "ソ", "コ", "ン", "パソ", "ソコ", "コン"]),
        ("Straße ÉTÉ", ["strass", "été"]),
        ("!?…「」", []),
        ("", []),
        ("a\0b \ud800c", ["a", "b", "c"]),
    ],
)
def test_text_becomes_terms_in_every_script(text: str, terms: list[str]) -> None:
    assert sorted(index_terms(text)) == sorted(terms)
    assert sorted(term_counts(text)) == sorted(terms)


def test_terms_are_counted_as_often_as_they_stand_there() -> None:
    assert term_counts("disk disks 磁盘磁盘") == {"disk": 2, "磁": 2, "盘": 2, "磁盘": 2, "盘磁": 1}
    assert term_counts("disk Disk DISKS")["disk"] == 3


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("the disk of the server", ["disk", "server"]),
        ("the", ["the"]),
        ("what is it", ["what", "is", "it"]),
        ("服务器为什么崩溃", ["服务", "务器", "崩溃"]),
        ("什么", ["什么"]),
        ("的", ["的"]),
        ("了吗", ["了吗"]),
        ("天气怎么样？", ["天气"]),
        ("雨", ["雨"]),
        ("死循环 启动失败", ["死循", "循环", "启动", "动失", "失败"]),
        ("失败 失败", ["失败"]),
        ("!!! ???", []),
        ("🔥", ["🔥"]),
        ("", []),
    ],
)
def test_a_query_asks_for_what_it_means_and_for_stop_words_only_when_it_has_nothing_else(
    query: str, terms: list[str]
) -> None:
    assert asked(query) == terms


@given(st.text(max_size=60))
def test_a_query_that_quotes_a_text_asks_only_for_terms_of_that_text(text: str) -> None:
    assert set(asked(text)) <= set(index_terms(text))


@given(st.text(max_size=200))
def test_a_term_holds_nothing_an_index_could_take_for_its_own_syntax(text: str) -> None:
    for term in index_terms(text):
        assert term
        assert not re.search(r"[\s\"'*^:()\0\ud800-\udfff+{}-]", term)
        assert normal(term) == term or not term.isascii()


def test_a_very_long_query_and_a_very_long_word_are_cut() -> None:
    assert len(asked(" ".join(f"w{n}" for n in range(100_000)))) < 1000
    assert asked("f" * 10_000) == ["f" * 48]
    assert index_terms("F" * 10_000) == ["f" * 48]


def test_a_sign_counts_as_half_a_word() -> None:
    assert word_count("") == 1
    assert word_count("磁盘已满") == 3
    assert 9 <= word_count("a b c d e f g h i j " * 3) <= 11


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_words_of_ascii_text_are_runs_of_letters_and_digits(text: str) -> None:
    runs = re.findall("[a-z0-9]+", text.lower())
    terms = [index_terms(run)[0] for run in runs]
    assert index_terms(text) == list(dict.fromkeys(terms))
    assert term_counts(text) == {term: terms.count(term) for term in terms}
    # the same text among other letters is read by another path
    assert [term for term in index_terms(f"{text} é") if term != "é"] == index_terms(text)


def test_terms_stay_the_same_however_many_words_have_been_read() -> None:
    before = index_terms("failing disks 0123456789abcdef 404")
    for number in range(0, 110_000, 10):
        index_terms(" ".join(_letters(number + step) for step in range(10)))
    assert index_terms("failing disks 0123456789abcdef 404") == before


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:06d}")
