"""What of a page is news: what nothing else says already."""

from __future__ import annotations

import pytest

from kernel_gamma.context.novelty import Known, sentences, without

MILL = "I know that Alice keeps bees on the roof of the old mill."
ZH = "小雨在老磨坊的屋顶上养蜂。"


@pytest.mark.parametrize(
    ("known", "sentence", "says"),
    [
        (MILL, "Alice keeps bees on the roof of the old mill.", True),
        (MILL, "- **2026-11-30 10:30** I recalled again that Alice keeps bees on the roof.", True),
        (MILL, "Bob keeps bees on the roof of the old mill.", False),
        (MILL, "Alice keeps 12 bees on the roof.", False),
        (MILL, "Alice keeps no bees on the roof.", False),
        ("Alice doesn't keep bees on the roof.", "Alice keep bees on the roof.", False),
        (MILL, "Alice keeps bees on the roof of the old mill, and goats below.", False),
        (MILL, "I recalled that.", False),
        ("", "Alice keeps bees.", False),
        (ZH, "我想起来了：小雨在老磨坊的屋顶上养蜂。", True),
        (ZH, "小雨不在老磨坊的屋顶上养蜂。", False),
        (ZH, "小梅在老磨坊的屋顶上养蜂。", False),
    ],
)
def test_a_sentence_is_known_when_another_says_all_of_it(known: str, sentence: str, says: bool) -> None:
    assert Known([known]).says(sentence) is says


def test_sentences_are_those_of_both_languages_without_headings() -> None:
    page = "# Mill 磨坊\n\nI go there. It is old!\n\n- 我常去那里。它很旧。\n\nVersion 2.5 stays one."
    found = [sentence.strip() for sentence in sentences(page)]
    assert found == ["I go there.", "It is old!", "- 我常去那里。", "它很旧。", "Version 2.5 stays one."]


def test_a_page_loses_only_the_sentences_that_are_unwanted() -> None:
    page = "# Mill\n\nI go there. It is old. I like it.\n\n- 它很旧。\n\n1. I know it. I miss it.\n\n> x = 1"
    gone = [s for s in sentences(page) if s.strip() in ("It is old.", "- 它很旧。", "1. I know it.")]
    left = without(page, gone)
    assert left == "# Mill\n\nI go there. I like it.\n\n1. I miss it.\n\n> x = 1"


def test_nothing_unwanted_changes_nothing() -> None:
    page = "# Mill\n\n  - I go there. 我常去。\n\nI like it."
    assert without(page, []) == page
