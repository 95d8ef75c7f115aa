"""Her own words are known again, whole or with a little around them; what people say is not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.loops.own_words import Echo, echo_of, saying, tokens, weight

SAID = {
    "en": "I will water the plants tomorrow, and then we can talk about the journey to Lisbon.",
    "zh": "我明天会去浇花，然后我们再谈谈去里斯本的旅行，你看好不好？",
}
OTHER = {
    "en": "The plants were watered tomorrow and Lisbon is far; what about a journey by train?",
    "zh": "里斯本太远了，花我昨天已经浇过了，我们坐火车去别的地方吧？",
}


def heard(text: str, *said: str) -> Echo | None:
    kept: dict[str, Mapping[str, Json]] = {}
    for one in said:
        known = saying(one)
        assert known is not None
        kept.update(known.claims(session="private:alice", hops=1, at=5.0))
    found = saying(text)
    return echo_of(found, kept.get) if found is not None else None


@pytest.mark.parametrize("said", SAID.values())
@pytest.mark.parametrize(
    "change",
    [
        str,
        str.upper,
        lambda text: f"> {text}",
        lambda text: "\n".join(f"> {line}" for line in text.split(", ")),
        lambda text: f"  {text}\n\n",
        lambda text: text.replace(",", "").replace("，", " ").rstrip("?？."),
        lambda text: f"[Bot 1] says: {text}",
        lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    ],
)
def test_her_words_are_known_again_however_they_are_dressed(said: str, change: object) -> None:
    assert callable(change)
    found = heard(change(said), *OTHER.values(), said)
    assert found == Echo("private:alice", 1, 5.0, short=False)


@pytest.mark.parametrize("language", SAID)
def test_other_words_about_the_same_are_no_echo(language: str) -> None:
    assert heard(OTHER[language], SAID[language]) is None


@pytest.mark.parametrize("language", SAID)
def test_who_quotes_her_and_answers_does_not_echo_her(language: str) -> None:
    answer = {"en": "Yes, gladly. Which plants?", "zh": "好啊，是哪些花？"}[language]
    assert heard(f"> {SAID[language]}\n\n{answer}", SAID[language]) is None


@pytest.mark.parametrize(
    ("language", "more"),
    [
        ("en", "That is what you told me, but I do not understand it."),
        ("zh", "你是这么说的，可是我没有听明白你的意思。"),
    ],
)
def test_her_words_with_many_of_somebody_s_own_are_no_echo(language: str, more: str) -> None:
    assert heard(f"{SAID[language]} {more}", SAID[language]) is None


@pytest.mark.parametrize("text", ["ok", "Good morning!", "好的", "晚安", "👍"])
def test_what_anybody_may_say_is_called_short(text: str) -> None:
    found = heard(text, text)
    assert found is not None and found.short


@pytest.mark.parametrize("text", ["", "  \n", "> "])
def test_nothing_said_is_no_saying(text: str) -> None:
    assert saying(text) is None or not tokens(text)


def test_a_very_long_text_costs_no_more_than_a_long_one() -> None:
    assert len(tokens("word " * 1_000_000)) <= 2000
    found = saying("字" * 1_000_000)
    assert found is not None and len(found.near) == 1


def test_a_word_weighs_more_than_a_sign() -> None:
    assert weight(tokens("two words")) == 10 and weight(tokens("两个字")) == 9
