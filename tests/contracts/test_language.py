from __future__ import annotations

import pytest

from kernel_gamma.contracts.language import language_of


@pytest.mark.parametrize(
    "text",
    [
        "今天天气很好",
        "好",
        "明天三点在 cafe 见面,好吗?",
        "帮我看看 Kubernetes deployment 为什么一直重启",
        "看看这个 https://example.org/a/very/long/path/that/has/many/latin/letters 怎么样",
        "写信给 someone.with.a.long.name@mail.example.org 吧",
        "这段代码怎么了\n```python\nimport everything\nprint(everything.with_long_names())\n```",
        "A 组赢了",
        "𠀀𠀁",
    ],
)
def test_chinese_carries_the_text(text: str) -> None:
    assert language_of(text) == "zh"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "How are you today?",
        "12:30 ...",
        "🙂",
        "The word for weather is 天气, and I keep forgetting it when I speak.",
        "안녕하세요",
        "Привет",
        "`天气` is the key",
    ],
)
def test_english_is_what_is_left(text: str) -> None:
    assert language_of(text) == "en"


def test_only_the_beginning_of_a_long_text_counts() -> None:
    assert language_of("你好。" * 2000 + "and then English " * 100_000) == "zh"
