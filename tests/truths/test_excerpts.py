"""Flattened values, excerpts and snippets: bounded, made of the text alone, no word or sign cut."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from kernel_gamma.truths.excerpts import cut_snippets, excerpt, marks, searchable_text

WORDS = st.lists(
    st.sampled_from(
        ["alpha", "beta.", "gamma,", "E1234", "天气", "很好。", "3.14", "\n", "\n\n", "é́x", "👨‍👩‍👧", "ok!"]
    ),
    max_size=200,
).map(" ".join)
TERM = st.text(st.characters(), max_size=8) | st.sampled_from(["alpha", "天气", "e1234"])
ANY = st.text(st.characters(), max_size=400) | WORDS


def test_a_value_becomes_lines_under_its_names() -> None:
    value = {
        "text": "disk full",
        "host": {"name": "web-01", "up": False},
        "tries": [1, 2],
        "原因": "磁盘",
        "none": None,
    }
    assert searchable_text("about it", value).split("\n") == [
        "about it", "disk full", "host.name: web-01", "host.up: false",
        "tries: 1", "tries: 2", "原因: 磁盘", "none: null",
    ]  # fmt: skip
    assert searchable_text("", "plain\ntext") == "plain\ntext"
    assert searchable_text("", {}) == ""


def test_a_value_of_any_size_and_depth_is_bounded() -> None:
    deep: object = "end"
    for _ in range(20_000):
        deep = {"down": [deep]}
    assert "end" in searchable_text("", deep)
    assert len(searchable_text("天" * 10, ["天气" * 1000] * 1000).encode()) <= 200_000
    assert searchable_text("", 10**5000).startswith("0x")


def test_an_excerpt_is_cut_around_the_querys_rarest_words() -> None:
    filler = "The system was quiet and nothing of note was seen. " * 30
    text = filler + "Disk sda1 failed with error E1234 at node web-01. " + filler
    found = excerpt(text, ["failed", "system"], 200)
    assert "Disk sda1 failed with error E1234 at node web-01." in found
    assert len(found) <= 200


def test_an_excerpt_finds_chinese_words_and_inflected_english_ones() -> None:
    filler = "今天一切正常，没有什么可说的。" * 30
    found = excerpt(filler + "昨天上海的天气很糟，航班延误三小时。" + filler, ["天气"], 60)
    assert "昨天上海的天气很糟，航班延误三小时。" in found
    text = "Nothing here. " * 40 + "They deployed it twice. " + "Nothing here. " * 40
    assert "They deployed it twice." in excerpt(text, ["deploy"], 60)


def test_among_equals_the_sentence_with_numbers_wins() -> None:
    text = "the disk is bad. " * 5 + "the disk is at 97 of 100. " + "the disk is bad. " * 5
    assert excerpt(text, ["disk"], 30) == "the disk is at 97 of 100."


def test_a_short_text_is_its_own_excerpt_and_no_word_fits_a_tiny_one() -> None:
    assert excerpt(" short ", ["x"], 100) == "short"
    assert excerpt("unbreakable " * 3, ["x"], 5) == ""
    assert excerpt("text", [], 0) == ""


def test_a_paragraph_border_is_where_snippets_part() -> None:
    one, two = "first words here. " * 5, "second words there. " * 5
    assert cut_snippets(f"{one}\n\n{two}", 20) == [one.strip(), two.strip()]


def test_chinese_without_spaces_is_cut_at_its_punctuation() -> None:
    snippets = cut_snippets("今天天气很好，我们去公园散步。" * 40, 30)
    assert len(snippets) > 5
    assert all(snippet[-1] in "，。" for snippet in snippets)
    assert all(len(re.findall(r"[一-龥]", snippet)) <= 51 for snippet in snippets)


@given(ANY, st.lists(TERM, max_size=4), st.integers(-1, 300))
@example("a\u0301" * 300, ["a"], 50)
@example("\ud83d\udc4d" * 100, [], 7)
@example("1," * 300, ["1"], 50)
def test_an_excerpt_fits_and_is_made_of_pieces_of_the_text_in_order(
    text: str, terms: list[str], most: int
) -> None:
    found = excerpt(text, terms, most)
    assert len(found) <= max(0, most) or found == text.strip() == ""
    if " … " in text:
        return
    place = 0
    for piece in found.split(" … "):
        at = text.find(piece, place)
        assert at >= 0
        place = at + len(piece)


@given(WORDS, st.integers(5, 100))
def test_an_excerpt_holds_whole_words_only(text: str, most: int) -> None:
    words = set(re.findall(r"[A-Za-z0-9.]+", text))
    assert set(re.findall(r"[A-Za-z0-9.]+", excerpt(text, ["beta"], most))) <= words
    assert excerpt(text, [], most).count("👨‍👩‍👧") == excerpt(text, [], most).count("👨")


@given(ANY, st.integers(1, 40))
@example("\ud800\x00" * 50, 3)
@example("…" * 500, 3)
@example("a\u0301" * 500, 1)
def test_snippets_hold_all_of_the_text_and_none_is_empty(text: str, most: int) -> None:
    snippets = cut_snippets(text, most)
    assert "".join("".join(snippets).split()) == "".join(text.split())
    assert (
        " ".join(snippets).split() == text.split()
        or not text.isascii()
        or any(mark in text for mark in ",;:|")
    )
    assert all(snippet.strip() for snippet in snippets)


@given(WORDS, st.integers(3, 40))
def test_snippets_keep_to_their_measure(text: str, most: int) -> None:
    for snippet in cut_snippets(text, most):
        signs = len(re.findall(r"[一-龥]", snippet))
        words = len(re.findall(r"[^\W_一-龥]+", snippet))
        assert words + signs / 1.7 <= most or len(snippet.split()) == 1


def marked(text: str, *words: str) -> list[str]:
    return [text[start:end] for start, end in marks(text, words)]


def test_the_words_of_a_query_are_marked_in_any_form_and_language() -> None:
    assert marked("The DISKs are full: 磁盘空间不足", "disk", "full", "磁盘", "盘空") == [
        "DISKs",
        "full",
        "磁盘空",
    ]
    assert marked("Ｄisk ﬁle ǅ disk", "disk") == ["Ｄisk", "disk"]
    assert marked("a diskette", "disk") == []
    assert marked("", "disk") == marked("disk") == []


@given(st.text(), st.lists(st.text(min_size=1, max_size=4), max_size=4))
def test_marks_lie_within_the_text_in_order_and_apart(text: str, words: list[str]) -> None:
    places = [0, *(place for pair in marks(text, words) for place in pair), len(text)]
    assert places == sorted(places)
    assert all(start < end for start, end in marks(text, words))
