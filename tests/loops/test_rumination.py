"""A passage that says again what others said, and the worries it leaves in state.md."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.fakes import START

from kernel_gamma.contracts.ports import Passage
from kernel_gamma.loops.rumination import (
    alike,
    note,
    repeated,
    same_worry,
    with_worries,
    worry,
    worry_lines,
)
from kernel_gamma.self_stream.passages import check_passage, heading
from kernel_gamma.settings import LoopSettings

RULES = LoopSettings()
WORRY = {
    "en": (
        "It is ten, and I still do not know whether Bob has forgiven me. I should have called him on Monday.",
        "Eleven. I still do not know whether Bob has forgiven me; I should have called him on Monday.",
        "At 12:00 once more: I do not know whether Bob has forgiven me, I should have called him Monday.",
    ),
    "zh": (
        "十点了，我还是不知道小林有没有原谅我。星期一我本来应该给他打电话的。",
        "十一点。我还是不知道小林有没有原谅我，星期一我本来应该给他打电话的，我心里很乱。",
        "又到整点，我还是不知道小林有没有原谅我。星期一我应该给他打电话的。",
    ),
}
NEWS = {
    "en": "The parcel from Lisbon has come, and I am glad: the tiles Alice promised me are in it, all whole.",
    "zh": "里斯本的包裹到了，我很高兴：爱丽丝答应给我的瓷砖都在里面，一块也没碎。",
}


def last(*texts: str, hours_ago: float = 1.0) -> list[Passage]:
    return [Passage(heading(START - timedelta(hours=hours_ago)), text) for text in texts]


@pytest.mark.parametrize("language", WORRY)
def test_the_third_time_the_same_is_said_it_is_repeated(language: str) -> None:
    one, two, three = WORRY[language]
    assert alike(one, two) and alike(two, three) and alike(one, three)
    assert repeated(three, last(one, NEWS[language], two), START, RULES)
    assert not repeated(two, last(one), START, RULES)
    assert not repeated(NEWS[language], last(one, two, three), START, RULES)


@pytest.mark.parametrize("language", WORRY)
def test_what_was_said_long_ago_does_not_count(language: str) -> None:
    one, two, three = WORRY[language]
    assert not repeated(three, last(one, two, hours_ago=7), START, RULES)
    assert not repeated(three, last(one, two), START, LoopSettings(rumination_hours=0))


@pytest.mark.parametrize(
    ("language", "decision"),
    [("en", "I decide to write to Bob: “Sorry.”"), ("zh", "我决定写信给小林：“对不起。”")],
)
def test_who_decides_does_not_ruminate(language: str, decision: str) -> None:
    one, two, three = WORRY[language]
    assert not repeated(f"{three} {decision}", last(one, two), START, RULES)


@pytest.mark.parametrize("chime", ["The clock strikes, I listen.", "钟响了，我听着。"])
def test_a_short_passage_may_be_said_every_hour(chime: str) -> None:
    assert not repeated(chime, last(chime, chime, chime), START, RULES)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_notes_may_join_the_stream(language: str) -> None:
    one = WORRY[language][0]
    for again in (False, True):
        text = note(one, language, again=again)  # type: ignore[arg-type]
        assert check_passage(text, prompt_sources=(), event_texts=()) is None
    assert note(one, language, again=False).count(one[:20]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_worry_comes_back_to_itself_and_no_other(language: str) -> None:
    one, two, _ = WORRY[language]
    claim = worry(None, one, session="s", language=language, now=START, rules=RULES)  # type: ignore[arg-type]
    kept = {claim.key: claim.value}
    found = same_worry(two, kept)
    assert found == claim.value
    assert same_worry(NEWS[language], kept) is None
    later = START + timedelta(hours=2)
    again = worry(found, two, session="s", language=language, now=later, rules=RULES)  # type: ignore[arg-type]
    assert again.key == claim.key and again.value["count"] == 2
    assert again.value["until"] == claim.value["until"] + 7200
    assert same_worry(two, {again.key: {**again.value, "closed": True}}) is None


PAGES = {
    "en": "## mood\n\nI am calm.\n\n## open worries\n\nI worry about the rent.\n\n## doing now\n\nI read.\n",
    "zh": "## 心情\n\n我很平静。\n\n## 放不下的事\n\n我担心房租。\n\n## 正在做的事\n\n我在读书。\n",
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_worry_has_one_line_in_its_section_and_leaves_it_again(language: str) -> None:
    claim = worry(None, WORRY[language][0], session="s", language=language, now=START, rules=RULES)  # type: ignore[arg-type]
    page = with_worries(PAGES[language], [claim.value])
    assert worry_lines(page) == [claim.value["line"]]
    above, _, below = page.partition(claim.value["line"])
    assert ("rent" in above or "房租" in above) and ("I read" in below or "我在读书" in below)
    assert with_worries(page, [claim.value]) == page
    assert with_worries(page, []) == PAGES[language]
    assert with_worries(page, [{**claim.value, "closed": True}]) == PAGES[language]


@pytest.mark.parametrize(
    "page", ["", "I am calm.\n", "## open worries\n", "## mood\n\nfine\n\n## open worries\n\n"]
)
def test_any_page_takes_a_worry(page: str) -> None:
    claim = worry(None, WORRY["en"][0], session="s", language="en", now=START, rules=RULES)
    made = with_worries(page, [claim.value])
    assert worry_lines(made) == [claim.value["line"]]
    assert made.count("## open worries") == 1 and made.endswith("\n")
    assert with_worries(with_worries(made, []), [claim.value]) == made
