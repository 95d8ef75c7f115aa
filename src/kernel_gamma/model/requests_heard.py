"""The few simple requests a mind without a language model understands, in English and Chinese. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["Heard", "asks_time", "greets", "heard"]

_START = r"(?:^|(?<=[.!?,;:…]\s)|(?<=\n))[ \t]*(?:(?:please|and|then|also|could you|can you|would you)[ ,]+)*"
_START_ZH = r"(?:^|(?<=[。！？，；,.!?\s]))\s*(?:(?:请你?|麻烦你?|帮我|帮忙|你要?|也|再|能不能|可以)\s*)*"

_SPAN = r"(?P<count>\d{1,6}|an?|half an|one|two|three|five|ten) (?P<unit>second|minute|hour|day)s?"
_SPAN_ZH = (
    r"(?P<count>\d{1,6}|[一二两三四五六七八九]?十?[一二三四五六七八九]?|半)\s*个?"
    r"(?P<unit>秒|分钟|小时|钟头|天)钟?(?:之?后|以后)"
)
_UNITS = {
    "second": 1, "minute": 60, "hour": 3600, "day": 86400,
    "秒": 1, "分钟": 60, "小时": 3600, "钟头": 3600, "天": 86400,
}  # fmt: skip
_COUNTS = {"a": 1, "an": 1, "half an": 0.5, "one": 1, "two": 2, "three": 3, "five": 5, "ten": 10, "半": 0.5}
_DIGITS = "零一二三四五六七八九"

Kind = Literal["diary", "remember", "recall", "remind"]

_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "remind",
        re.compile(
            _START + rf"remind me in {_SPAN}(?: to\b| that\b| about\b|\s*[:,])?\s*(?P<text>\S.*)",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "remind",
        re.compile(
            _START + rf"remind me (?:to|that|about) (?P<text>\S[^\n]*?),? in {_SPAN}[.!]?(?=\s|$)",
            re.IGNORECASE,
        ),
    ),
    (
        "remind",
        re.compile(
            _START_ZH + rf"(?:在|过)?{_SPAN_ZH}[，,]?(?:请|你|再)*提醒(?:我|一下)*[:：,，]?\s*(?P<text>\S.*)",
            re.DOTALL,
        ),
    ),
    (
        "recall",
        re.compile(
            _START + r"(?:what do you (?:know|remember) (?:about|of)|do you (?:still )?remember"
            r"|what did (?:i|we) (?:say|tell you) about|tell me what you (?:know|remember) about)"
            r"\s+(?P<text>[^?\n]+)\??",
            re.IGNORECASE,
        ),
    ),
    (
        "recall",
        re.compile(_START_ZH + r"你?还?(?:记得|知道)\s*(?P<text>[^?？\n]+?)\s*(?:吗|么|嘛)[?？]?"),
    ),
    (
        "recall",
        re.compile(
            r"(?:关于|对于?)\s*(?P<text>[^?？\n，,]+?)[，,]?\s*你(?:还|都)?(?:知道|记得|了解)(?:些|点)?(?:什么|多少)"
        ),
    ),
    ("recall", re.compile(_START_ZH + r"(?:回忆|回想)(?:一下)?[:：,，]?\s*(?P<text>[^?？\n]+)")),
    (
        "diary",
        re.compile(
            _START
            + r"(?:write|note|put)(?: (?:it |this )?down| this| it)?,? (?:in(?:to)?|to) (?:your|the) diary"
            r"(?:,? that\b|\s*[:,])?\s*(?P<text>\S.*)",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "diary",
        re.compile(
            _START
            + r"write (?:a|your) diary(?: entry)?(?:,? (?:that|about|saying)\b|\s*[:,])?\s*(?P<text>\S.*)",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "diary",
        re.compile(
            _START_ZH
            + r"(?:在|往|到)?(?:你的|你)?日记(?:本)?(?:里|中|上)?\s*(?:写|记)(?:下来?|上|道|一下|一笔)?"
            r"\s*[:：,，]?\s*(?P<text>\S.*)",
            re.DOTALL,
        ),
    ),
    (
        "diary",
        re.compile(
            _START_ZH
            + r"(?:把(?P<first>[^\n]+?))?(?:写|记)(?:一?篇|一?则|个|进|到|入|在)?(?:你的)?日记(?:本)?"
            r"(?:里|中|上)?"
            r"\s*[:：,，]?\s*(?P<text>.*)",
            re.DOTALL,
        ),
    ),
    (
        "remember",
        re.compile(
            _START + r"(?:remember|keep in mind|don'?t forget)(?: (?:about|for me))?"
            r"(?:,? that\b|\s*[:,])?\s*(?P<text>\S.*)",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "remember",
        re.compile(
            _START_ZH + r"(?:记住|记着|记一下|记下来?|别忘了|不要忘记)\s*[:：,，]?\s*(?P<text>\S.*)",
            re.DOTALL,
        ),
    ),
)
_GREETS = re.compile(
    r"\s*(?:(?:hi|hello|hey|good (?:morning|afternoon|evening)|greetings)\b"
    r"|你好|您好|嗨|哈喽|早上好|早安|晚上好|下午好|大家好)",
    re.IGNORECASE,
)
_ASKS_TIME = re.compile(
    r"what(?:'s| is)? (?:the )?time|what time is it|几点|什么时间|现在.{0,4}时间", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Heard:
    """A request found in words."""

    kind: Kind
    text: str
    """What to write, remember or be reminded of, whole; or what to look for."""
    after_sec: float = 0.0
    """When to be reminded, counted from the words."""


def heard(text: str) -> Heard | None:
    """The first request in an event's own words; None when there is none."""
    found = [
        (match.start(), -len(match[0]), Heard(kind, kept, _span(match)))
        for kind, pattern in _PATTERNS
        if (match := pattern.search(text)) and (kept := _kept(match))
    ]
    return min(found, key=lambda item: item[:2])[2] if found else None


def greets(text: str) -> bool:
    return _GREETS.match(text) is not None


def asks_time(text: str) -> bool:
    return _ASKS_TIME.search(text) is not None


def _span(match: re.Match[str]) -> float:
    groups = match.groupdict()
    if "count" not in groups:
        return 0.0
    return _count(groups["count"].casefold()) * _UNITS[groups["unit"].casefold()]


def _count(text: str) -> float:
    if text in _COUNTS:
        return _COUNTS[text]
    if text.isascii() and text.isdigit():
        return int(text)
    tens, ten, ones = text.replace("两", "二").rpartition("十")
    return (_DIGITS.index(tens or "一") * 10 if ten else 0) + _DIGITS.index(ones or "零")


def _kept(match: re.Match[str]) -> str:
    groups = match.groupdict()
    return (groups["text"] or "").strip() or (groups.get("first") or "").strip()
