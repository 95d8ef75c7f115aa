"""The shipped prompts: both languages alike, no fence tags, no JSON where prose is wanted."""

from __future__ import annotations

import re

import pytest
from tests.fakes import PROMPTS

from kernel_gamma.prompts import Prompts
from kernel_gamma.self_stream.passages import check_passage

NAMES = ("SOUL", "INTERNALIZER", "EXTERNALIZER", "CONSOLIDATOR")
FILES = [(name, language) for name in NAMES for language in ("en", "zh")]


def read(name: str, language: str) -> str:
    return (PROMPTS / language / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "language"), FILES)
def test_no_prompt_writes_a_fence_tag_or_an_object(name: str, language: str) -> None:
    text = read(name, language)
    assert not re.search(r"<\s*/?\s*(event|passage|recalled)", text, re.IGNORECASE)
    assert '{"' not in text


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_placeholders(name: str) -> None:
    found = [sorted(re.findall(r"\{(\w+)\}", read(name, language))) for language in ("en", "zh")]
    assert found[0] == found[1] == (["tools"] if name == "EXTERNALIZER" else [])


def test_the_strict_loader_takes_them() -> None:
    prompts = Prompts(PROMPTS)
    assert "### send_message" in prompts.text("EXTERNALIZER", "zh", tools="### send_message")
    assert len(prompts.sources("en")) == len(prompts.sources("zh")) == len(NAMES)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_internalizer_is_never_asked_for_json(language: str) -> None:
    assert "json" not in read("INTERNALIZER", language).lower()


@pytest.mark.parametrize(
    "passage",
    [
        'Alice wrote to me. I decide to reply to Alice: "Yes, at five in the park."',
        "小林问我今天几点见面。我决定回复小林：“五点，公园门口见。”",
        "## mood\n\nI am calm.\n\n## energy\n\nI am rested.\n\n## doing now\n\nI wait.",
        "## 心情\n\n我很平静。\n\n## 精力\n\n还好。\n\n## 正在做的事\n\n等小林。",
    ],
)
def test_what_the_prompts_ask_for_is_not_taken_for_a_quotation_of_them(passage: str) -> None:
    sources = [read(*pair) for pair in FILES]
    assert check_passage(passage, prompt_sources=sources, event_texts=()) is None
