"""Finding the past again in any language; ranking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.contracts.ports import Snippet
from kernel_gamma.self_stream.search import Piece, Search, instant, paragraphs, sections, terms


def found(query: str, *texts: str, limit: int = 10) -> list[str]:
    search = Search(query, limit)
    for when, text in enumerate(texts):
        search.add(Piece(Snippet("stream.2026-11-30", "", text), when))
    return [snippet.text for snippet in search.best()]


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("Alice's TEA", ["alice", "s", "tea"]),
        ("今天天气", ["今天", "天天", "天气"]),
        ("雨", ["雨"]),
        ("用Python写", ["用", "python", "写"]),
        ("ＡＢＣ　ｶﾀｶﾅ", ["abc", "カタ", "タカ", "カナ"]),
        ("🎉 party", ["🎉", "party"]),
        ("tea tea 茶茶茶", ["tea", "茶茶"]),
        ("…!?", []),
        ("", []),
    ],
)
def test_what_a_query_asks_for(query: str, asked: list[str]) -> None:
    assert terms(query) == asked


def test_a_very_long_query_is_sampled_evenly() -> None:
    asked = terms(" ".join(f"word{number}" for number in range(1000)))
    assert 32 <= len(asked) <= 64 and asked[-1] > "word9"


MEMORIES = (
    "小雨喜欢喝茉莉花茶，住在杭州。",
    "Alice drinks green tea in Dublin every morning.",
    "田中さんはコーヒーが好きです。",
    "민수는 고양이를 키웁니다.",
    "明天下雨 🎉 we celebrate Ｐｙｔｈｏｎ at 10:30",
)


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("茶", 0),
        ("杭州", 0),
        ("小雨喜欢什么茶", 0),
        ("茉莉花", 0),
        ("GREEN Tea", 1),
        ("ｄｕｂｌｉｎ", 1),
        ("コーヒー", 2),
        ("ｺｰﾋｰ", 2),
        ("好", 2),
        ("고양이", 3),
        ("고", 3),
        ("🎉", 4),
        ("python", 4),
        ("下雨", 4),
    ],
)
def test_memories_are_found_in_their_language(query: str, number: int) -> None:
    assert found(query, *MEMORIES)[0] == MEMORIES[number]


def test_words_match_whole_only() -> None:
    assert found("tea", "the team met", "a teapot", "I had tea") == ["I had tea"]
    assert found("tea", "我爱tea和茶") == ["我爱tea和茶"]


def test_nothing_is_found_where_nothing_matches() -> None:
    assert found("汽车 car", *MEMORIES) == []


def test_rare_words_weigh_more_than_common_ones() -> None:
    texts = ["the the rain", "the tea", "the sun", "the Himalaya", "the end"]
    assert found("the himalaya tour", *texts)[0] == "the Himalaya"
    assert found("himalaya end the", *texts)[:2] == ["the end", "the Himalaya"]


def test_equal_matches_come_newest_first() -> None:
    assert found("茶 tea", "old tea 茶", "tea 茶 again", "tea 茶 new", limit=2) == [
        "tea 茶 new",
        "tea 茶 again",
    ]


def test_the_same_text_is_found_once() -> None:
    assert found("tea", "I had tea", "I had tea") == ["I had tea"]


def test_the_topic_of_a_page_counts_as_part_of_its_paragraphs() -> None:
    search = Search("Alice birthday", 5)
    search.add(Piece(Snippet("memory.about_alice", "", "Her birthday is in May."), 0, "about alice"))
    search.add(Piece(Snippet("memory.about_bob", "", "His birthday is in June."), 1, "about bob"))
    assert [snippet.key for snippet in search.best()] == ["memory.about_alice", "memory.about_bob"]


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=6), st.integers(-1, 3))
def test_any_query_over_any_texts_keeps_its_limit(query: str, texts: list[str], limit: int) -> None:
    search = Search(query, limit)
    if search.can_match:
        for when, text in enumerate(texts):
            search.add(Piece(Snippet("k", "", text), when))
        assert len(search.best()) <= limit


@given(st.text(st.sampled_from("雨天茶tea 고양🎉"), min_size=1, max_size=12))
def test_every_text_is_found_by_its_own_words(text: str) -> None:
    assert bool(terms(text)) == bool(found(text, text, "unrelated"))


def test_sections_and_paragraphs_of_a_page() -> None:
    page = "intro\n\n# 心情\n\n好。\n\n  \n还行。\n## Empty\n\n# End #1\nbye"
    assert list(sections(page)) == [
        ("", "intro"),
        ("心情", "好。\n\n  \n还行。"),
        ("End #1", "bye"),
    ]
    assert list(paragraphs(sections(page)))[1:3] == [("心情", "好。"), ("心情", "还行。")]


def test_instants() -> None:
    assert instant("2026-11-30 08:00:00 +08:00") == instant("2026-11-30 00:00:00 +00:00") > 0
    assert instant("2026-13-99 10:00:00 +08:00") == instant("") == instant("now") == 0.0
