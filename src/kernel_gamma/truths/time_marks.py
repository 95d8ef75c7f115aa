"""Single time expressions in a query, English and Chinese. Pure.

Each rule is a pattern and a reader. All repetitions in the patterns are bounded, so the cost is linear.
Chinese characters are no word characters here (re.ASCII): `\\b` stands between 在 and a month's name.
"""

from __future__ import annotations

import re

from kernel_gamma.truths.local_days import Calendar, Mark
from kernel_gamma.truths.time_readers import (
    Reader,
    read_ago,
    read_chinese_date,
    read_clock,
    read_clock_range,
    read_day,
    read_day_first,
    read_last,
    read_named_date,
    read_numeric_date,
    read_part_of_day,
    read_period,
    read_stamp,
    read_this_part,
    read_weekday,
    read_year,
    read_year_word,
)

__all__ = ["find_marks"]

_MOST_MARKS = 32

_S, _s = r"\s{1,4}", r"\s{0,4}"
_N = (
    r"(?P<n>[0-9]{1,6}(?:\.[0-9]{1,2})?|half(?: an?)?|(?:a )?couple(?: of)?|(?:a )?few|several|an?|one|two"
    "|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
)
_U = (
    "(?P<u>seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|fortnights?|weeks?|wks?|months?|quarters?|years?|yrs?"
    "|(?<=[0-9 ])[smhdwy])"
)
_MONTH = (
    "(?P<mo>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    "|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_D = "(?P<d>3[01]|[12][0-9]|0?[1-9])"
_Y = "(?P<y>(?:19|20)[0-9]{2})"
_YEAR_TAIL = (
    rf"(?:{_s},?{_s}(?:of{_S})?{_Y}(?![A-Za-z0-9_:])|{_s},?{_s}(?:of{_S})?(?P<yw>this|last|next){_S}year\b)"
)
_APART = r"(?<![A-Za-z0-9_.:/-])"
_AFTER = r"(?![A-Za-z0-9_]|[-/.:][0-9])"
_AM = r"[ap](?:m\b|\.m\.?)"
_H = "[01]?[0-9]|2[0-4]"
_WEEKDAY = "(?P<w>(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_UNIT_WORDS = (
    "ms|s|sec|[kKmMgG]?[bB]|bytes?|tokens?|rows?|lines?|chars?|words?|requests?|retries|steps?|px|users?"
)
_UNIT_WORDS += "|files?|events?|messages?|records?|items?|attempts?|times|milliseconds?|seconds?"

_ENGLISH: tuple[tuple[str, Reader], ...] = (
    (
        rf"{_APART}(?P<y>[0-9]{{4}})-(?P<mo>[0-9]{{2}})-(?P<d>[0-9]{{2}})T(?P<h>[0-9]{{2}}):(?P<mi>[0-9]{{2}})"
        rf"(?::[0-9]{{2}}(?:[.,][0-9]{{1,9}})?)?(?P<z>Z|[+-][0-9]{{2}}:?[0-9]{{2}})?(?![A-Za-z0-9_])",
        read_stamp,
    ),
    (
        rf"{_APART}(?P<y>[0-9]{{4}})(?P<mo>[0-9]{{2}})(?P<d>[0-9]{{2}})T(?P<h>[0-9]{{2}})(?P<mi>[0-9]{{2}})"
        r"(?:[0-9]{2})?(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})?(?![A-Za-z0-9_.-])",
        read_stamp,
    ),
    (
        rf"{_APART}{_Y}(?P<sep>[-/.])(?P<mo>[0-9]{{1,2}})(?P=sep)(?P<d>[0-9]{{1,2}}){_AFTER}",
        read_numeric_date,
    ),
    (rf"{_APART}{_Y}[-/](?P<mo>0[1-9]|1[0-2]){_AFTER}", read_numeric_date),
    (rf"{_APART}{_Y}(?P<mo>0[1-9]|1[0-2])(?P<d>0[1-9]|[12][0-9]|3[01]){_AFTER}", read_numeric_date),
    (rf"{_APART}(?P<a>[0-9]{{1,2}})(?P<sep>[-/.])(?P<b>[0-9]{{1,2}})(?P=sep){_Y}{_AFTER}", read_day_first),
    (rf"\b(?:last|past|previous|latest|recent|preceding){_S}{_N}{_s}-?{_U}\b", read_last),
    (
        rf"\b(?:this{_S})?past{_S}(?P<u>minute|hour|day|week|fortnight|month|quarter|year)\b|\blast{_S}(?P<u2>hour)\b"
        rf"|\b(?:in|over|during|within){_S}the{_S}last{_S}(?P<u3>minute|day)\b",
        read_last,
    ),
    (rf"{_APART}\b{_N}{_s}{_U}{_S}(?:ago|back)\b", read_ago),
    (r"\b(?:the )?(?P<d>day (?:before yesterday|after tomorrow))\b", read_day),
    (r"\b(?P<d>yesterday|today|tomorrow)\b", read_day),
    (rf"\b(?:this{_S}(?P<p>morning|noon|afternoon|evening))\b", read_this_part),
    (rf"\blast{_S}(?P<p>night|evening)\b", read_this_part),
    (r"\bto(?P<p>night)\b", read_this_part),
    (rf"\bthe{_S}(?P<u>week|month|year){_S}before{_S}(?P<q>last)\b", read_period),
    (
        rf"\b(?:the{_S})?(?P<q>this|last|previous|next){_S}(?P<u>weekend|week|month|quarter|year)\b(?!-|{_S}of\b)",
        read_period,
    ),
    (
        rf"\b{_MONTH}\.?{_S}(?:the{_S})?{_D}(?:st|nd|rd|th)?(?:{_s}[-–]{_s}(?P<d2>[0-9]{{1,2}}))?"
        rf"(?![A-Za-z0-9_:]){_YEAR_TAIL}?",
        read_named_date,
    ),
    (rf"{_APART}{_D}(?:st|nd|rd|th)?[\s-]{{1,3}}(?:of{_S})?{_MONTH}\b\.?{_YEAR_TAIL}?", read_named_date),
    (rf"\b{_MONTH}\b\.?{_YEAR_TAIL}", read_named_date),
    (
        rf"\b(?P<q>in|since|before|after|during|until|till|early|late|mid|last|this|next|from|through|to|between|and)"
        rf"{_S}{_MONTH}\b(?!{_S}(?-i:[A-Z][a-z]))",
        read_named_date,
    ),
    (
        rf"\b(?<!every )(?<!each )(?:(?P<q>last|this|next|past|previous|coming){_S})?{_WEEKDAY}\b",
        read_weekday,
    ),
    (
        rf"\b(?P<q>last|this|next|on|since|before|after|until){_S}"
        r"(?-i:(?P<w>Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun))\b",
        read_weekday,
    ),
    (rf"\b(?:from|between){_S}{_Y}{_S}(?:to|and|until|through){_S}(?P<y2>(?:19|20)[0-9]{{2}})\b", read_year),
    (
        rf"\b(?:in|since|before|after|during|until|till|through|year){_S}(?:the{_S}year{_S})?{_Y}"
        rf"(?![A-Za-z0-9_%]|[.,:-][0-9]|{_S}(?:{_UNIT_WORDS})\b)",
        read_year,
    ),
    (
        rf"{_APART}(?P<h>{_H})(?::(?P<m>[0-5][0-9]))?{_s}(?P<a>{_AM})?{_s}(?:to|and|until|till|[-–—~]){_s}"
        rf"(?P<h2>{_H})(?::(?P<m2>[0-5][0-9]))?{_s}(?P<b>{_AM})?(?![A-Za-z0-9_:])",
        read_clock_range,
    ),
    (
        rf"{_APART}(?:(?P<h>{_H}):(?P<m>[0-5][0-9])(?::[0-5][0-9](?:[.,][0-9]{{1,9}})?)?(?:{_s}(?P<a>{_AM}))?"
        rf"|(?P<h3>1[0-2]|0?[1-9]){_s}(?P<a3>{_AM})|(?P<word>noon|midnight))(?![A-Za-z0-9_:])",
        read_clock,
    ),
    (r"\b(?P<p>early morning|morning|afternoon|evening|night)\b", read_part_of_day),
)  # fmt: skip

_CN = "(?P<n>[0-9]{1,6}(?:\\.[0-9]{1,2})?|好几|[半几数]|[零〇一二两三四五六七八九十百]{1,6})"
_CU = (
    "(?P<u>秒钟?|分钟|个?小时|个?钟头|天|日(?![志程常期报记])|个?星期|个?礼拜|周(?![期年边])|个?月|个?季度|年(?![级轮])"
    "|hours?|days?|min|[hd](?![A-Za-z]))"
)
_PART_ZH = "(?P<p{0}>凌晨|清晨|早晨|早上|上午|中午|下午|午后|傍晚|晚上|晚间|夜里|夜间|深夜|半夜)"
_NO_ZH = "(?<![0-9零〇一二两三四五六七八九十百几数半第每各.])"
_ZH_DAY = "[0-9]{1,2}|二十[一二三四五六七八九]?|三十一?|十[一二三四五六七八九]?|初?[一二三四五六七八九]|初十"
_ZH_H = "2[0-4]|1[0-9]|0?[0-9]|二十[一二三四]?|十[一二三四五六七八九]?|[零〇一二两三四五六七八九]"
_ZH_M = (
    "(?:(?P<m{0}>半|一刻|三刻|[0-5]?[0-9](?=分)|[0-5][0-9]|[二三四五]?十[一二三四五六七八九]?"
    "|零[一二三四五六七八九])分?)?"
)
_POINT = "(?:点钟?|时)(?![间候段代刻常区长序])"

_CHINESE: tuple[tuple[str, Reader], ...] = (
    (
        rf"(?:最近|过去|(?<![附接靠邻])近|这|(?<![目以之])前|以往)的?{_s}{_CN}{_s}{_CU}(?:以来|以内|之内|内|来|里|间|中(?![断文国心间]))?",
        read_last,
    ),
    (rf"{_NO_ZH}{_CN}{_s}{_CU}(?:以内|之内|内|以来)", read_last),
    (rf"{_NO_ZH}{_CN}{_s}{_CU}(?:以前|之前|前)(?![端台言后面提])", read_ago),
    (
        rf"{_NO_ZH}(?:(?P<y>[0-9]{{4}}|[零〇一二三四五六七八九]{{4}})年|(?P<yw>今年|去年|大前年|前年|明年)的?)?{_s}"
        rf"(?<![个零〇一二两三四五六七八九十百几数半第])(?P<mo>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九正]){_s}月份?"
        rf"(?:{_s}(?:(?P<d>{_ZH_DAY})(?:日(?!志)|号|(?<=[0-9])(?![0-9.次个条%点:时份]))(?:{_s}[到至~-]{_s}(?P<d2>[0-9]{{1,2}})[日号])?|(?P<x>上旬|中旬|下旬|初|底|末)))?"
        r"(?![天兔花饼亮])",
        read_chinese_date,
    ),
    (rf"(?<![晚早网线以马路基成样版])(?P<q>上上|上|这|本|下)个?月(?P<d>{_ZH_DAY})[日号]", read_chinese_date),
    (r"(?<![0-9])(?P<y>(?:19|20)[0-9]{2}|[一二][零〇九][零〇一二三四五六七八九]{2})年", read_year),
    (r"(?<![目以之])(?P<d>大前天|前天)(?![气空线津然使才])", read_day),
    (r"(?P<d>昨天|昨日|今天|今日|明天|明日|(?<![然以之随最])后天)(?!性)", read_day),
    (r"(?P<d>昨|今|明|(?<![目以之])前(?=晚))(?P<p>晚|夜|早|晨)[上间里]?", read_day),
    (
        r"(?:(?<![晚早网线以])(?P<q>上上|上|这|本|下下|下)个?|(?<![每各一二两三四五六七八九十几半0-9单双逢圆]))"
        r"(?:周|星期|礼拜)(?P<w>[一二三四五六](?![共直起些个次样般定致切条十百千年月])|日(?![志程常期报均记活本])"
        r"|天(?![气天])|末)",
        read_weekday,
    ),
    (
        r"(?:(?<![晚早网线以马路])(?P<q>上上|上|这|下下|下|(?<![基成样版文脚副剧课])本)一?个?)"
        r"(?P<u>周(?![期边围刊报长会])|星期|礼拜|月(?![亮球饼台])|季度)",
        read_period,
    ),
    (r"今年|(?<!过)去年|大前年|(?<![目以之])前年(?!轻)|明年|上年|本年(?!度)", read_year_word),
    (
        rf"{_NO_ZH}(?P<h>{_ZH_H}){_POINT}{_ZH_M.format('')}{_s}(?:到|至|[-–—~～])\s{{0,4}}{_PART_ZH.format(2)}?"
        rf"(?P<h2>{_ZH_H}){_POINT}{_ZH_M.format(2)}",
        read_clock_range,
    ),
    (
        rf"{_NO_ZH}(?P<h>{_ZH_H}){_POINT}(?P<sure>整|(?=半|[0-9二三四五十零]{{1,3}}分))?{_ZH_M.format('')}",
        read_clock,
    ),
    (_PART_ZH.format(""), read_part_of_day),
)  # fmt: skip


def _compiled(rules: tuple[tuple[str, Reader], ...]) -> tuple[tuple[re.Pattern[str], Reader], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE | re.ASCII), reader) for pattern, reader in rules)


_ENGLISH_RULES = _compiled(_ENGLISH)
_CHINESE_RULES = _compiled(_CHINESE)


def find_marks(text: str, calendar: Calendar) -> list[Mark]:
    """All expressions in `text`, in order, none over another: of two the rule named first wins."""
    found: list[Mark] = []
    for pattern, reader in _ENGLISH_RULES if text.isascii() else _CHINESE_RULES + _ENGLISH_RULES:
        for match in pattern.finditer(text):
            if len(found) >= _MOST_MARKS or any(
                mark.at < match.end() and match.start() < mark.to for mark in found
            ):
                continue
            try:
                mark = reader(match, calendar)
            except (ValueError, OverflowError, KeyError):  # the 31st of April, a million years ago
                continue
            if mark:
                found.append(mark)
    return sorted(found, key=lambda mark: mark.at)
