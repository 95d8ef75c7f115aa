"""What a matched time expression means: one reader for each kind of rule in time_marks. Pure.

A reader returns None, or raises ValueError, OverflowError or KeyError, for what only looks like a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone

from kernel_gamma.truths.local_days import Calendar, Mark, in_part, one_day

__all__ = [
    "Reader",
    "read_ago",
    "read_chinese_date",
    "read_clock",
    "read_clock_range",
    "read_day",
    "read_day_first",
    "read_last",
    "read_named_date",
    "read_numeric_date",
    "read_part_of_day",
    "read_period",
    "read_stamp",
    "read_this_part",
    "read_weekday",
    "read_year",
    "read_year_of",
    "read_year_word",
]

_FEW = 5.0
"""What "a few" and 几 are taken for."""
_HALF_HOUR = timedelta(minutes=30)

Reader = Callable[[re.Match[str], Calendar], Mark | None]

_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
    "正": 1,
    "初": 0,
}
_WORDS: Mapping[str, float] = {
    "one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "seven": 7.0, "eight": 8.0,
    "nine": 9.0, "ten": 10.0, "eleven": 11.0, "twelve": 12.0,
} | {"a": 1.0, "an": 1.0, "半": 0.5, "几": _FEW, "数": _FEW, "好几": _FEW}  # fmt: skip


def _number(text: str) -> float:
    text = text.lower().strip()
    if text[0].isdigit():
        return float(text)
    if text.startswith("half"):
        return 0.5
    if "couple" in text:
        return 2.0
    if "few" in text or text == "several":
        return _FEW
    return _WORDS[text] if text in _WORDS else float(_chinese(text))


def _chinese(text: str) -> int:
    """A Chinese numeral up to 999, or digits one after the other (二零二六). Raises ValueError otherwise."""
    if text.isdecimal():
        return int(text)
    if "十" not in text and "百" not in text:
        return int("".join(str(_DIGITS[sign]) for sign in text))
    total, digit = 0, 0
    for place, sign in enumerate(text):
        if sign in "十百":
            total += (digit or int(place == 0)) * (10 if sign == "十" else 100)
            digit = 0
        else:
            digit = _DIGITS[sign]
    return total + digit


_UNITS = (
    ("秒", "second"), ("分", "minute"), ("小时", "hour"), ("钟", "hour"), ("天", "day"), ("日", "day"),
    ("周", "week"), ("星期", "week"), ("礼拜", "week"), ("月", "month"), ("季", "quarter"), ("年", "year"),
    ("mo", "month"), ("s", "second"), ("m", "minute"), ("h", "hour"), ("d", "day"),
    ("fortnight", "fortnight"),
    ("w", "week"), ("q", "quarter"), ("y", "year"),
)  # fmt: skip
_SECONDS = {
    "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800, "fortnight": 1_209_600,
    "month": 30 * 86_400, "quarter": 91 * 86_400, "year": 365 * 86_400,
}  # fmt: skip


def _unit(text: str) -> str:
    text = text.lower()
    return next(
        unit
        for written, unit in _UNITS
        if text.startswith(written) or (written in text and not written.isascii())
    )


def _is_year(count: float, unit: str) -> bool:
    return unit == "year" and count >= 1000  # 2022年之前


def read_last(match: re.Match[str], calendar: Calendar) -> Mark | None:
    """So much time until now, this very instant included."""
    groups = match.groupdict()
    count = _number(groups["n"]) if groups.get("n") else 1.0
    unit = _unit(groups["u"] or groups.get("u2") or groups.get("u3") or "")
    if _is_year(count, unit):
        return None
    if unit in ("month", "quarter", "year") and count == int(count):
        months = int(count) * {"month": 1, "quarter": 3, "year": 12}[unit]
        first, until = calendar.month(calendar.today.year, calendar.today.month - months)
        day = min(first + timedelta(days=calendar.today.day - 1), until - timedelta(days=1))
        start = calendar.at(day, calendar.now.hour * 60 + calendar.now.minute)
    else:
        start = calendar.before(timedelta(seconds=count * _SECONDS[unit]))
    return Mark(*match.span(), span=(start, calendar.now + timedelta(microseconds=1)), kind="span")


def read_ago(match: re.Match[str], calendar: Calendar) -> Mark | None:
    """A window around so long ago: a day, an hour, a week, 30 days, a year, for minutes ten."""
    count, unit = _number(match["n"]), _unit(match["u"])
    if _is_year(count, unit):
        return None
    if unit in ("second", "minute", "hour"):
        moment = calendar.before(timedelta(seconds=count * _SECONDS[unit]))
        around = _HALF_HOUR if unit == "hour" else timedelta(minutes=5)
        return Mark(*match.span(), span=(moment - around, moment + around), kind="span")
    if unit == "year" and count == int(count):
        return Mark(*match.span(), days=calendar.period("year", -int(count)))
    if unit == "month" and count == int(count):
        first, until = calendar.month(calendar.today.year, calendar.today.month - int(count))
        day = min(first + timedelta(days=calendar.today.day - 1), until - timedelta(days=1))
    else:
        day = calendar.today - timedelta(days=round(count * _SECONDS[unit] / 86_400))
    around_days = {"day": 0, "week": 3, "fortnight": 3}.get(unit, 15)
    days = day - timedelta(days=around_days), day + timedelta(days=around_days + 1)
    return Mark(*match.span(), days=days)


_DAY_WORDS = {
    "yesterday": -1, "today": 0, "tomorrow": 1, "大前天": -3, "前天": -2, "昨天": -1, "昨日": -1,
    "今天": 0, "今日": 0,
    "明天": 1, "明日": 1, "后天": 2, "昨": -1, "今": 0, "明": 1, "前": -2,
}  # fmt: skip
_PARTS = {
    "early morning": (0, 6), "morning": (4, 12), "afternoon": (12, 18), "noon": (11, 14), "evening": (17, 24),
    "凌晨": (0, 6), "晨": (4, 12), "早": (4, 12), "上午": (4, 12),
    "中午": (11, 14), "下午": (12, 18), "午后": (12, 18),
    "傍晚": (16, 20), "半夜": (22, 30), "深夜": (22, 30), "night": (18, 30), "晚": (18, 30), "夜": (18, 30),
}  # fmt: skip


def _part(text: str) -> tuple[int, int]:
    text = text.lower()
    first, until = next(hours for name, hours in _PARTS.items() if name in text)
    return first * 60, until * 60


def read_day(match: re.Match[str], calendar: Calendar) -> Mark | None:
    word = match["d"].lower()
    step = (-2 if "before" in word else 2) if "day" in word and " " in word else _DAY_WORDS[word]
    part = match.groupdict().get("p")
    days = one_day(calendar.today + timedelta(days=step))
    return Mark(
        *match.span(), days=days, minutes=_part(part) if part else None, kind="daypart" if part else "days"
    )


def read_this_part(match: re.Match[str], calendar: Calendar) -> Mark | None:
    step = -1 if match[0].lower().startswith("last") else 0
    minutes = _part(match["p"])
    return Mark(
        *match.span(), days=one_day(calendar.today + timedelta(days=step)), minutes=minutes, kind="daypart"
    )


def read_part_of_day(match: re.Match[str], calendar: Calendar) -> Mark | None:
    return Mark(*match.span(), minutes=_part(match["p"]), kind="part")


_STEPS = {
    "last": -1,
    "previous": -1,
    "past": -1,
    "next": 1,
    "coming": 1,
    "上上": -2,
    "上": -1,
    "下": 1,
    "下下": 2,
}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def read_weekday(match: re.Match[str], calendar: Calendar) -> Mark | None:
    """Alone: the last one that has begun. "last": the last one before today."""
    name, quality = match["w"].lower(), (match["q"] or "").lower()
    if name.isascii():
        number = _WEEKDAYS.index(name[:3])
        back = (calendar.today.weekday() - number) % 7
        step = _STEPS.get(quality, 0)
        day = calendar.today - timedelta(days=(back or 7) if step < 0 else back - 7 if step > 0 else back)
        return Mark(
            match.start("w") if not step else match.start(), match.end(), days=one_day(day), kind="weekday"
        )
    if name == "末":
        return Mark(*match.span(), days=calendar.period("weekend", _STEPS.get(quality, 0)))
    number = "一二三四五六日".find(name) if name != "天" else 6
    if quality:
        monday = calendar.period("week", _STEPS.get(quality, 0))[0]
        return Mark(*match.span(), days=one_day(monday + timedelta(days=number)), kind="weekday")
    back = (calendar.today.weekday() - number) % 7
    return Mark(*match.span(), days=one_day(calendar.today - timedelta(days=back)), kind="weekday")


def read_period(match: re.Match[str], calendar: Calendar) -> Mark | None:
    quality, unit = match["q"].lower(), match["u"].lower()
    unit = unit if unit == "weekend" else _unit(unit)
    step = -2 if "before" in match[0].lower() else _STEPS.get(quality, 0)
    return Mark(*match.span(), days=calendar.period(unit, step), kind="week" if unit == "week" else "days")


_YEAR_WORDS = {
    "今年": 0,
    "本年": 0,
    "去年": -1,
    "上年": -1,
    "前年": -2,
    "大前年": -3,
    "明年": 1,
    "this": 0,
    "last": -1,
    "next": 1,
}


def read_year_word(match: re.Match[str], calendar: Calendar) -> Mark | None:
    return Mark(*match.span(), days=calendar.period("year", _YEAR_WORDS[match[0]]))


def read_year(match: re.Match[str], calendar: Calendar) -> Mark | None:
    year = _chinese(match["y"])
    last = _chinese(match.groupdict().get("y2") or match["y"])
    if not 1900 <= year <= last <= calendar.today.year + 10:
        return None
    return Mark(match.start("y"), match.end(), days=(date(year, 1, 1), date(last + 1, 1, 1)))


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def read_year_of(match: re.Match[str], calendar: Calendar) -> int | None:
    groups = match.groupdict()
    if groups.get("y"):
        return _chinese(groups["y"])
    word = groups.get("yw")
    return calendar.today.year + _YEAR_WORDS[word.lower()] if word else None


def read_named_date(match: re.Match[str], calendar: Calendar) -> Mark | None:
    """A month's name with a day, a year, or a word before it that makes it a month."""
    name, groups = match["mo"], match.groupdict()
    year = read_year_of(match, calendar)
    day = int(groups.get("d") or 0)
    if not name[0].isupper() and year is None and (not day or len(name) < 4 or name.lower() == "march"):
        return None
    month = _MONTHS.index(name[:3].lower()) + 1
    quality = (groups.get("q") or "").lower()
    at = match.start() if quality in _STEPS or quality == "this" or "q" not in groups else match.start("mo")
    days = calendar.resolve((month, day), year)
    if quality in ("last", "next") and year is None:
        days = calendar.resolve((month, 0), _other_year(calendar, month, quality))
    if groups.get("d2"):
        days = days[0], days[0].replace(day=int(groups["d2"])) + timedelta(days=1)
    return Mark(at, match.end(), days=days, free=None if year or quality in _STEPS else (month, day))


def _other_year(calendar: Calendar, month: int, quality: str) -> int:
    if quality == "next":
        return calendar.today.year + (month <= calendar.today.month)
    return calendar.today.year - (month >= calendar.today.month)


def read_numeric_date(match: re.Match[str], calendar: Calendar) -> Mark | None:
    year, month = int(match["y"]), int(match["mo"])
    day = match.groupdict().get("d")
    return Mark(
        *match.span(), days=one_day(date(year, month, int(day))) if day else calendar.month(year, month)
    )


def read_day_first(match: re.Match[str], calendar: Calendar) -> Mark | None:
    """11/09/2026 may be two days and is left alone; 25/12/2026, 12/25/2026 and 11.09.2026 are one."""
    first, second, year = int(match["a"]), int(match["b"]), int(match["y"])
    if match["sep"] != "." and first <= 12 and second <= 12 and first != second:
        return None
    day, month = (second, first) if second > 12 else (first, second)
    return Mark(*match.span(), days=one_day(date(year, month, day)))


def read_stamp(match: re.Match[str], calendar: Calendar) -> Mark | None:
    day = date(int(match["y"]), int(match["mo"]), int(match["d"]))
    minutes, zone = int(match["h"]) * 60 + int(match["mi"]), match["z"]
    if not zone:
        return Mark(*match.span(), days=one_day(day), minutes=(minutes, minutes), kind="dayclock")
    offset = timedelta()
    if zone.upper() != "Z":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * (-1 if zone[0] == "-" else 1)
    there = datetime.combine(day, time(), timezone(offset)) + timedelta(minutes=minutes)
    moment = there.astimezone(calendar.now.tzinfo)
    return Mark(*match.span(), span=(moment - _HALF_HOUR, moment + _HALF_HOUR), kind="span")


_THIRDS = {"初": (0, 10), "上旬": (0, 10), "中旬": (10, 20), "下旬": (20, 31), "底": (20, 31), "末": (20, 31)}


def read_chinese_date(match: re.Match[str], calendar: Calendar) -> Mark | None:
    groups = match.groupdict()
    year = read_year_of(match, calendar)
    day = _chinese(groups["d"]) if groups["d"] else 0
    if groups.get("q"):
        first = calendar.period("month", _STEPS.get(groups["q"], 0))[0]
        return Mark(*match.span(), days=one_day(first.replace(day=day)))
    month = _chinese(groups["mo"])
    days = calendar.resolve((month, day), year)
    if groups.get("x"):
        skipped, kept = _THIRDS[groups["x"]]
        days = days[0] + timedelta(days=skipped), min(days[0] + timedelta(days=kept), days[1])
    if groups.get("d2"):
        days = days[0], days[0].replace(day=int(groups["d2"])) + timedelta(days=1)
    return Mark(*match.span(), days=days, free=None if year is not None or groups.get("x") else (month, day))


def _minutes(hour: str, minute: str | None, half: str | None) -> tuple[int, bool]:
    """Minutes from midnight, and whether the half of the day is open."""
    quarters = {"半": 30, "一刻": 15, "三刻": 45}
    hours = _chinese(hour)
    minutes = quarters.get(minute, 0) or _chinese(minute) if minute else 0
    if hours > 24 or minutes > 59:
        raise ValueError("no time of day")
    if half:
        hours = hours % 12 + (12 if half[0] in "pP" else 0)
    return hours * 60 + minutes, not half and hours <= 12


def read_clock(match: re.Match[str], calendar: Calendar) -> Mark | None:
    groups = match.groupdict()
    if word := groups.get("word"):
        moment = 720 if word.lower() == "noon" else 0
        return Mark(*match.span(), minutes=(moment, moment), kind="weak")
    moment, vague = _minutes(
        groups.get("h") or groups["h3"], groups.get("m"), groups.get("a") or groups.get("a3")
    )
    clear = groups.get("a") or groups.get("a3") or groups.get("sure")
    return Mark(*match.span(), minutes=(moment, moment), kind="clock" if clear else "weak", vague=vague)


def read_clock_range(match: re.Match[str], calendar: Calendar) -> Mark | None:
    groups = match.groupdict()
    first, vague = _minutes(match["h"], match["m"], groups.get("a"))
    last, last_vague = _minutes(match["h2"], match["m2"], groups.get("b"))
    if "b" in groups and not (groups["b"] or (match["m"] and match["m2"])):
        return None
    if part := groups.get("p2"):
        last = in_part(last, _part(part))
    elif groups.get("b") and not groups["a"] and vague:
        first = max((guess for guess in (first % 720, first % 720 + 720) if guess < last), default=first)
        vague = False
    if last <= first and not (vague and last_vague):
        last += 1440
    return Mark(*match.span(), minutes=(first, last), kind="clock", vague=vague)
