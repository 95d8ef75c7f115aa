"""The time a query asks for, in English and Chinese: "last 24 h", "昨天下午三点到五点". Pure.

No date parsing library is used: those that read both languages try every format of every locale on each text,
which costs many milliseconds a query where a whole search takes ten, and they find a date in "may I" or
"second".
What is not clearly a time is left among the search terms; a time missed costs less than a word lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from kernel_gamma.truths.local_days import Calendar, Mark, in_part
from kernel_gamma.truths.time_marks import find_marks

__all__ = ["TimeNeed", "find_times"]

_READ = 2000
"""Characters of a query in which times are looked for."""
_MOMENT_AROUND = 30
"""Minutes before and after a time of day."""

_ONE_FORM = {0xFF01 + code: 0x21 + code for code in range(94)} | {0x3000: 0x20}
_ONE_FORM |= dict(
    zip(
        map(ord, "個時鐘鍾週禮後點過這從號間現來內兩當剛幾"),
        map(ord, "个时钟钟周礼后点过这从号间现来内两当刚几"),
        strict=True,
    )
)
"""Sign for sign, so that places in the text stay."""

_GAP = re.compile(
    r"(?:[\s,，、]|的|在|\b(?:in|on|at|of|the|around|about|during|from|between)\b){0,8}",
    re.IGNORECASE | re.ASCII,
)
_TO = re.compile(r"\s{0,4}(?:to|until|till|through|up to|[-–—~到至])\s{0,4}", re.IGNORECASE)
_AND = re.compile(r"\s{0,4}(?:and|or|[、和与及])\s{0,4}", re.IGNORECASE)
_LEAD = re.compile(
    r"(?:\b(?P<since>since)|\b(?P<after>after)|\b(?P<before>before|prior to)|\b(?P<until>until|till|by|up to)"
    r"|\b(?P<between>between)|\b(?:from|in|on|at|of|during|over|within|around|about|the))\s{1,4}$"
    r"|(?:(?P<zh_since>自从|(?<!来)自)|(?P<zh_until>直到|截至|截止到?)|(?P<zh_from>从)|(?<!现)在|(?<![关对由])于)\s{0,4}$",
    re.IGNORECASE | re.ASCII,
)
_TAIL = re.compile(
    r"\s{0,4}(?:(?P<since>以来|至今|[到至](?:现在|目前|今)(?:为止)?|[之以]后|开始"
    r"|(?:onwards?|(?:to|until|till|up to) (?:now|the present)|and (?:later|after))\b)"
    r"|(?P<until>[之以]前|(?:and|or) (?:earlier|before)\b)"
    r"|(?P<bare_since>后(?![台端面续天果悔门来]))|(?P<bare_until>前(?![端台面言提缀后天者]))|(?P<from_on>起(?![火飞床来])))",
    re.IGNORECASE | re.ASCII,
)
_CLINGING = re.compile(r"(?:'s\b|’s\b|左右|前后|期间|的|里(?!程))", re.IGNORECASE | re.ASCII)
_LATEST = re.compile(
    r"\b(?:the )?(?:latest|newest|most recent(?:ly)?|recent(?:ly)?|(?:right |just |as of )?now(?!\.?\w)"
    r"|currently|at (?:the moment|present)|so far|nowadays)\b|\blast time\b"
    r"|最新|最近(?:的?一[次条个])?|到?目前(?:为止)?|现在|当前|如今|眼下|此刻|近来|近期|近日|刚才|刚刚",
    re.IGNORECASE | re.ASCII,
)
_LATEST_KEPT = re.compile(
    r"\bcurrent\b|\bthe last\b(?! (?:week|month|year|day|name|resort|mile|line|row|page|word|chapter)\b)"
    r"|上一?次|上一[条个]",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\bbetween\s{1,4}$", re.IGNORECASE)
_BEFORE_CLOCK = re.compile(
    r"(?:\b(?:at|since|after|before|until|till|by|from|around|about|between)\s{1,4}|[在从自])$", re.IGNORECASE
)
_AFTER_CLOCK = re.compile(r"\s{0,4}(?:左右|[之以][前后]|前后|以来|开始)")
_EDGES = " \t\r\n,，、;；:：的"


@dataclass(frozen=True, slots=True)
class TimeNeed:
    """What a query says about time."""

    start: datetime | None
    """Aware, inclusive; None: open."""
    end: datetime | None
    """Aware, exclusive; None: open."""
    rest: str
    """The query without its time words; the query itself when it has none."""
    latest: bool
    """It asks for what is newest."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A part of the text and the time it names."""

    at: int
    to: int
    start: datetime | None
    end: datetime | None
    mark: Mark
    moment: datetime | None = None


def find_times(query: str, now: datetime) -> TimeNeed:
    """Read the time words of a query. `now` is aware, in the mind's zone, whose days are meant.

    Never raises. Several times that overlap narrow each other, others are taken from the first to the last.
    """
    try:
        return _find(query, Calendar(now))
    except OverflowError:  # `now` lies at an end of the calendar
        return TimeNeed(None, None, query, False)


def _find(query: str, calendar: Calendar) -> TimeNeed:
    text = query[:_READ].translate(_ONE_FORM)
    stretches: list[_Stretch] = []
    for mark in _joined(text, find_marks(text, calendar), calendar):
        try:
            stretch = _stretch(mark, calendar)
        except (OverflowError, ValueError):  # the year 9999 has no next
            continue
        stretches.append(stretch)
    stretches = [_bounded(text, stretch) for stretch in _ranges(text, stretches, calendar)]
    taken = [(stretch.at, stretch.to) for stretch in stretches]
    named = tuple(taken)
    latest = False
    for match in _LATEST.finditer(text):
        if _free(match, named):
            taken.append((match.start(), _cling(text, match.end())))
            latest = True
    latest = latest or any(_free(match, named) for match in _LATEST_KEPT.finditer(text))
    start, end = _common(stretches)
    return TimeNeed(start, end, _without(query, taken), latest)


def _joined(text: str, marks: Sequence[Mark], calendar: Calendar) -> list[Mark]:
    """Marks that stand beside each other and are one time: a day and its part, a clock and its day."""
    done: list[Mark] = []
    for mark in marks:
        while done and mark.at - done[-1].to <= 24 and _GAP.fullmatch(text, done[-1].to, mark.at):
            both = _one_of(done[-1], mark)
            if not both:
                break
            done.pop()
            mark = both
        done.append(mark)
    whole: list[Mark] = []
    for mark in done:
        if mark.kind == "part" or (mark.kind == "weak" and not _led(text, mark)):
            continue
        if mark.kind in ("clock", "weak") and mark.minutes:
            mark = replace(mark, days=_last_day(mark.minutes[0], calendar))
        whole.append(mark)
    return whole


def _led(text: str, mark: Mark) -> bool:
    return bool(
        _BEFORE_CLOCK.search(text[max(0, mark.at - 12) : mark.at]) or _AFTER_CLOCK.match(text, mark.to)
    )


def _last_day(minutes: int, calendar: Calendar) -> tuple[date, date]:
    """The last day on which the clock has shown this."""
    day = calendar.today
    if calendar.at(day, minutes) > calendar.now:
        day -= timedelta(days=1)
    return day, day + timedelta(days=1)


def _one_of(first: Mark, second: Mark) -> Mark | None:
    """The one time that two marks are together, whichever comes first; None when they are two times."""
    for one, other in ((first, second), (second, first)):
        both: Mark | None = None
        if one.kind in ("days", "weekday") and one.minutes is None and _single(one) and other.days is None:
            if other.minutes is not None:
                both = replace(other, days=one.days, kind="daypart" if other.kind == "part" else "dayclock")
        elif one.kind in ("part", "daypart") and other.kind in ("clock", "weak", "dayclock"):
            if not (one.days and other.days):
                both = _within_part(one, other)
        elif one.kind == "week" and other.kind == "weekday" and one.days and other.days:
            day = one.days[0] + timedelta(days=other.days[0].weekday())
            both = replace(other, days=(day, day + timedelta(days=1)))
        elif one.kind == "days" and other.kind == "weekday" and _single(one):
            both = one
        if both:
            return replace(both, at=first.at, to=second.to)
    return None


def _single(mark: Mark) -> bool:
    return mark.days is not None and mark.days[1] - mark.days[0] == timedelta(days=1)


def _within_part(part: Mark, clock: Mark) -> Mark:
    assert part.minutes and clock.minutes
    first, last = clock.minutes
    if clock.vague:
        first, last = in_part(first, part.minutes), last if last > 720 else in_part(last, part.minutes)
    days = part.days or clock.days
    return replace(clock, minutes=(first, last), days=days, vague=False, kind="dayclock" if days else "clock")


def _stretch(mark: Mark, calendar: Calendar) -> _Stretch:
    if mark.span:
        return _Stretch(mark.at, mark.to, *mark.span, mark)
    assert mark.days
    if mark.minutes is None:
        return _Stretch(mark.at, mark.to, calendar.at(mark.days[0]), calendar.at(mark.days[1]), mark)
    first, last = mark.minutes
    while last < first:
        last += 720 if mark.vague else 1440
    start, end = calendar.at(mark.days[0], first), calendar.at(mark.days[0], last, late=True)
    if first < last:
        return _Stretch(mark.at, mark.to, start, end, mark)
    around = timedelta(minutes=_MOMENT_AROUND)
    zone = calendar.now.tzinfo
    before, after = (
        (start.astimezone(UTC) - around).astimezone(zone),
        (end.astimezone(UTC) + around).astimezone(zone),
    )
    return _Stretch(mark.at, mark.to, before, after, mark, start)


def _ranges(text: str, stretches: Sequence[_Stretch], calendar: Calendar) -> list[_Stretch]:
    """Two times with "to" or "and" between them are one stretch, from the first to the last."""
    done: list[_Stretch] = []
    for stretch in stretches:
        if done and stretch.at - done[-1].to <= 16:
            between = done[-1].to, stretch.at
            before = text[max(0, done[-1].at - 12) : done[-1].at]
            exact = bool(
                _TO.fullmatch(text, *between) or (_BETWEEN.search(before) and _AND.fullmatch(text, *between))
            )
            if exact or _AND.fullmatch(text, *between):
                done[-1] = _from_to(done[-1], stretch, exact, calendar)
                continue
        done.append(stretch)
    return done


def _from_to(first: _Stretch, last: _Stretch, exact: bool, calendar: Calendar) -> _Stretch:
    if exact:
        with suppress(ValueError, OverflowError):  # the 29th of February
            first, last = _same_year(first, last, calendar)
    starts = [first.moment if exact and first.moment else first.start, last.start]
    ends = [first.end, last.moment if exact and last.moment else last.end]
    return _Stretch(
        first.at,
        last.to,
        min(filter(None, starts), key=_instant),
        max(filter(None, ends), key=_instant),
        first.mark,
    )


def _same_year(first: _Stretch, last: _Stretch, calendar: Calendar) -> tuple[_Stretch, _Stretch]:
    """A date without a year, or a weekday without its week, goes by the other one of the range."""
    one, two = first.mark, last.mark
    if not one.days or not two.days:
        return first, last
    if one.kind == two.kind == "weekday":
        ahead = (two.days[0].weekday() - one.days[0].weekday()) % 7
        day = one.days[0] + timedelta(days=ahead)
        return first, _stretch(replace(two, days=(day, day + timedelta(days=1))), calendar)
    if two.free and not one.free:
        last = _stretch(replace(two, days=calendar.resolve(two.free, one.days[0].year)), calendar)
    elif one.free:
        days = calendar.resolve(one.free, two.days[0].year)
        if days[0] > two.days[0]:
            days = calendar.resolve(one.free, two.days[0].year - 1)
        first = _stretch(replace(one, days=days), calendar)
    return first, last


def _bounded(text: str, stretch: _Stretch) -> _Stretch:
    """The stretch with the words before and after it: "since", "before", 以来, 之前."""
    at = stretch.at
    words: set[str] = set()
    for _ in range(3):
        lead = _LEAD.search(text[max(0, at - 16) : at])
        if not lead:
            break
        at -= len(lead[0])
        words.update(name for name, found in lead.groupdict().items() if found)
    to = stretch.to
    tail = _TAIL.match(text, to)
    if tail and not (tail["from_on"] and not words & {"zh_since", "zh_from"}):
        to = tail.end()
        words.update({"tail_until"} if tail["until"] or tail["bare_until"] else {"since"})
    start, end = stretch.start, stretch.end
    if words & {"since", "zh_since"}:
        start, end = stretch.moment or start, None
    elif "after" in words:
        start, end = stretch.moment or end, None
    elif words & {"before", "tail_until"}:
        start, end = None, stretch.moment or start
    elif words & {"until", "zh_until"}:
        start, end = None, stretch.moment or end
    return replace(stretch, at=at, to=_cling(text, to), start=start, end=end)


def _cling(text: str, to: int) -> int:
    for _ in range(2):
        if match := _CLINGING.match(text, to):
            to = match.end()
    return to


def _common(stretches: Sequence[_Stretch]) -> tuple[datetime | None, datetime | None]:
    starts = [stretch.start for stretch in stretches]
    ends = [stretch.end for stretch in stretches]
    start = max((moment for moment in starts if moment), default=None, key=_instant)
    end = min((moment for moment in ends if moment), default=None, key=_instant)
    if start and end and _instant(start) >= _instant(end) and len(stretches) > 1:
        start = None if None in starts else min((moment for moment in starts if moment), key=_instant)
        end = None if None in ends else max((moment for moment in ends if moment), key=_instant)
    return start, end


def _free(match: re.Match[str], taken: Sequence[tuple[int, int]]) -> bool:
    return not any(at < match.end() and match.start() < to for at, to in taken)


def _instant(moment: datetime) -> datetime:
    return moment.astimezone(UTC)  # wall times of one zone do not compare in the hour that is told twice


def _without(query: str, taken: Sequence[tuple[int, int]]) -> str:
    if not taken:
        return query
    kept, place = [], 0
    for at, to in sorted(taken):
        kept.append(query[place:at])
        place = max(place, to)
    kept.append(query[place:])
    return " ".join(" ".join(kept).split()).strip(_EDGES)
