"""What comes to mind: found by rare words first, replaced and forgotten page by page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.contracts.ports import Snippet
from kernel_gamma.self_stream.index import Index
from kernel_gamma.self_stream.search import Piece, Search


def pieces(*texts: str, context: str = "") -> list[Piece]:
    return [Piece(Snippet("memory.x", "", text), 0.0, context) for text in texts]


def found(index: Index, query: str, limit: int = 10) -> list[str]:
    return [snippet.text for snippet in index.best(query, limit)]


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
        ("小雨喜欢什么茶？", 0),
        ("茶", 0),
        ("杭州", 0),
        ("Where does ALICE live?", 1),
        ("ｺｰﾋｰ", 2),
        ("고양이", 3),
        ("🎉", 4),
        ("python", 4),
    ],
)
def test_memories_come_back_in_their_language(query: str, number: int) -> None:
    index = Index()
    index.put("memories/x.md", pieces(*MEMORIES))
    assert found(index, query)[0] == MEMORIES[number]


@pytest.mark.parametrize("query", ["", "…!?", "汽车 car", "teapo", "州杭"])
def test_nothing_comes_back_where_nothing_matches(query: str) -> None:
    index = Index()
    index.put("memories/x.md", pieces(*MEMORIES, "a teapot"))
    assert found(index, query) == []
    assert Index().best("tea", 3) == index.best("tea", 0) == index.best("tea", -1) == []


def test_rare_words_weigh_more_than_common_ones() -> None:
    index = Index()
    index.put("memories/x.md", pieces("the the rain", "the tea", "the sun", "the Himalaya", "the end"))
    assert found(index, "himalaya end the")[:2] == ["the end", "the Himalaya"]
    assert found(index, "the himalaya tour", 1) == ["the Himalaya"]


def test_what_was_put_last_comes_first_of_equals_and_no_text_comes_twice() -> None:
    index = Index()
    index.put("memories/a.md", pieces("old tea 茶", "tea 茶"))
    index.put("memories/b.md", pieces("tea 茶"))
    index.put("memories/a.md", pieces("new tea 茶", "tea 茶"))
    assert found(index, "tea") == found(index, "茶") == ["tea 茶", "new tea 茶"]


def test_the_topic_of_a_page_counts_as_part_of_its_pieces() -> None:
    index = Index()
    index.put("memories/about_bob.md", pieces("His birthday is in June.", context="about bob"))
    index.put("memories/about_alice.md", pieces("Her birthday is in May.", context="about alice"))
    assert found(index, "Bob's birthday")[0] == "His birthday is in June."


def test_a_dropped_page_leaves_nothing_behind() -> None:
    index, fresh = Index(), Index()
    for _ in range(3):
        index.put("memories/a.md", pieces("tea 茶花 🎉", "rain"))
        index.put("memories/b.md", pieces("tea 茶花"))
    index.drop("memories/a.md")
    index.drop("memories/unknown.md")
    fresh.put("memories/b.md", pieces("tea 茶花"))
    assert found(index, "tea rain 🎉 茶花") == ["tea 茶花"]
    assert set(index._rows) == set(fresh._rows) and len(index._pieces) == 1


def test_a_rare_word_is_found_however_many_common_ones_stand_around_it() -> None:
    index = Index()
    index.put(
        "diary/2026-11-29.md", pieces("I saw the Himalaya", *(f"I saw the sea {n}" for n in range(3000)))
    )
    assert found(index, "i saw the himalaya", 1) == ["I saw the Himalaya"]
    assert found(index, "sea", 1) == ["I saw the sea 2999"]


TEXTS = st.text(st.sampled_from("雨天茶tea o 고양🎉_.\n"), max_size=12)


@given(TEXTS, st.lists(TEXTS, max_size=6))
def test_it_finds_what_a_search_over_the_same_pieces_finds(query: str, texts: list[str]) -> None:
    index, search = Index(), Search(query, 10)
    index.put("memories/x.md", pieces(*texts))
    for piece in pieces(*texts):
        search.add(piece)
    assert set(found(index, query)) == {snippet.text for snippet in search.best()}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(TEXTS, max_size=3)), max_size=8), TEXTS)
def test_pages_that_came_and_went_change_nothing(puts: list[tuple[str, list[str]]], query: str) -> None:
    index, fresh = Index(), Index()
    for page, texts in puts:
        index.put(page, pieces(*texts))
    last = {page: number for number, (page, _) in enumerate(puts)}
    for number, (page, texts) in enumerate(puts):
        if last[page] == number:
            fresh.put(page, pieces(*texts))
    assert index.best(query, 10) == fresh.best(query, 10)
