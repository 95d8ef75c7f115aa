"""Near-duplicates: records that differ only in times and numbers count as one. Pure.

A text is masked (times, addresses, ids and numbers become placeholders) and compared by its exact mask; only
a mask not seen before is compared further, with rapidfuzz, and only against masks that hold the same words in
the same order. Numbers that name a thing (`web-01`, an IP address) are words: two hosts are no two cases of
one thing. So two records that say different words never fold, however long they are and however
little they differ ("up" and "down"), and the cost of a record does not grow with their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rapidfuzz import fuzz

__all__ = ["FoldItem", "Folder", "Group", "fold", "mask", "names_joined"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RATIO = 97.0
"""Without masks every threshold is fragile; with masks and equal words this one only weighs punctuation and
how many numbers stand in a row."""
_SHORT = 40
"""Masked characters: a shorter text folds by its exact mask alone."""
_LONG = 4000
"""Masked characters: a longer text folds by its exact mask alone, a ratio would cost too much."""
_MOST_COMPARED = 16
"""Masks with the same words that a new one is compared with, the newest ones."""

_FACT_FAMILIES = ("memory", "diary", "stream")
"""The mind's own past: its numbers are facts, a birthday is no noise."""

# Each pattern begins with one set of characters: the search then skips all others, which is what makes ten
# thousand texts cheap. What must stand before that character is looked at after it.
_RUN = r"(?<![0-9][0-9])"
_CLOCK = "[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
_ZONE = "(?: ?(?:Z|[+-][0-9]{2}:?[0-9]{2}))?(?![A-Za-z0-9])"
_DATE = "[0-9]{3}[-/.][0-9]{1,2}[-/.][0-9]{1,2}"
_CHINESE_CLOCK = "[0-9]{1,2}[点时:：][0-9]{1,2}(?:分|:[0-9]{2})?(?:[0-9]{1,2}秒)?"
_STAMP = (
    rf"{_DATE}[T ,_]{{1,2}}{_CLOCK}{_ZONE}|[0-9]{{7}}T[0-9]{{6}}Z?"
    rf"|[0-9]{{3}}年[0-9]{{1,2}}月[0-9]{{1,2}}[日号] ?{_CHINESE_CLOCK}"
)
"""A date with a time of day: when something was written, in any kind of record."""
_STAMPS = re.compile(rf"[0-9]{_RUN}(?:{_STAMP})")
_TIMES = re.compile(
    rf"[0-9]{_RUN}(?:{_STAMP}|{_DATE}(?![0-9])|[0-9]{{1,3}}年[0-9]{{1,2}}月(?:[0-9]{{1,2}}[日号])?"
    r"|[0-9]?月[0-9]{1,2}[日号]|[0-9]?[点时][0-9]{1,2}分|"
    r"(?<![\w:].)[0-9]?:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?![\w:]))"
)
_SYSLOG = re.compile(
    r"[JFMASOND](?:an|eb|ar|pr|ay|un|ul|ug|ep|ct|ov|ec) {1,2}[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2}\b"
)
_IPV4 = re.compile(
    r"[0-9](?<![0-9.][0-9])[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5})?(?:/[0-9]{1,2})?(?!\.?[0-9])"
)
_IPV6 = re.compile(r"[0-9A-Fa-f](?<![\w:].)[0-9A-Fa-f]{0,3}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_IDS = re.compile(
    r"[0-9A-HJKMNP-TV-Za-f](?<![A-Za-z0-9].)(?:"
    r"(?<=[0-9A-Fa-f])[0-9A-Fa-f]{7}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    r"|(?<=[0-7])[0-9A-HJKMNP-TV-Z]{25}|(?<=0)[xX][0-9A-Fa-f]+"
    r"|(?:(?<=[0-9])(?=[0-9]{0,64}[A-Fa-f])|(?<=[A-Fa-f])(?=[A-Fa-f]{0,64}[0-9]))[0-9A-Fa-f]{7,}"
    r")(?![A-Za-z0-9])"
)
_NUMBERS = re.compile(
    r"[0-9](?:(?<![A-Za-z0-9].)(?<![A-Za-z][-_].)[0-9]*(?:[.,][0-9]+)*|(?<![0-9].)[0-9]{3,})"
)
"""Digits at the end of a name are a part of it (`db1`, `web-01`, `E404`), unless there are many."""
_CODES = re.compile(
    r"[SsCcEeHh码](?:(?:(?<=[Ss])tatus|(?<=[Cc])ode|(?<=[Ee])rrno|(?<=[Ee])xit|(?<=[Ss])ignal|(?<=H)TTP)"
    r"(?:/[0-9]\.[0-9])?[\"'\s:=#(]{1,4}|(?<=码)[\s:：=是为]{0,3})[0-9]{1,5}(?![0-9])"
)
"""Their numbers stay: status 200 and status 500 are no two cases of one thing."""
_ASIDE = {ord("0") + digit: 0xE000 + digit for digit in range(10)}
_BACK = {0xE000 + digit: ord("0") + digit for digit in range(10)}
_FULL_WIDTH = {0xFF10 + digit: ord("0") + digit for digit in range(10)}
_DIGIT = re.compile("[0-9]")
_PLACEHOLDER = re.compile("<(?:t|ip|n)>")
_NAME = re.compile(r"[^\W_]+(?:[-_.][^\W_]+)*")
_NUMBERED_NAME = re.compile(r"(?<=[A-Za-z])[-_](?=[0-9]{1,3}(?![0-9A-Za-z]))")
"""`web-01`; with more digits it is a number, of a job or a block."""
_NUMBERED_SIGNS = re.compile(
    r"(主机|主機|服务器|伺服器|节点|節點|机器|機器|实例|實例)[-_#]?([0-9]{1,3})(?![0-9A-Za-z%.个個台次]|号?[0-9])"
)
"""`主机01`, but not `节点3个`: that is a count."""
_ADDRESS = re.compile(
    r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?!\.?[0-9A-Za-z])"
    r"|(?<![\w:])(?:(?:[0-9A-Fa-f]{1,4}:){1,7}|:)(?::[0-9A-Fa-f]{1,4}){1,7}(?![\w:])"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){5,7}[0-9A-Fa-f]{1,4}(?![\w:])"
)
_LETTERS = str.maketrans("0123456789.:", "ghijklmnopqr")


def names_joined(text: str) -> str:
    """The text with each name that ends in a number, and each IP address, made one word of letters.

    Only for comparing: `web-01` and `web-02`, `10.0.0.1` and `10.0.0.2` stay different then. A port is no
    part of an address. The text itself when it holds none.
    """
    if not _DIGIT.search(text):
        return text
    text = _NUMBERED_NAME.sub("x", text)
    if not text.isascii():
        text = _NUMBERED_SIGNS.sub(_as_letters, text)
    if text.count(".") > 2 or "::" in text or text.count(":") > 4:
        text = _ADDRESS.sub(_as_letters, text)
    return text


def mask(text: str, *, numbers: bool = True) -> str:
    """The text without what changes from case to case: `<t>` for times, `<ip>`, `<n>` for numbers and ids.

    `numbers=False` takes out only dates with a time of day.
    """
    if not text.isascii():
        text = text.translate(_FULL_WIDTH)
    if not _DIGIT.search(text):
        return text
    if not numbers:
        return _STAMPS.sub("<t>", _SYSLOG.sub("<t>", text))
    text = _IDS.sub("<n>", text)
    if ":" in text:
        text = _SYSLOG.sub("<t>", text)
    if text.count(".") > 2:
        text = _IPV4.sub("<ip>", text)
    text = _TIMES.sub("<t>", text)
    if text.count(":") > 3 or "::" in text:
        text = _IPV6.sub("<ip>", text)
    kept = _CODES.sub(_set_aside, text)
    text = _NUMBERS.sub("<n>", kept)
    return text if kept is text else text.translate(_BACK)


@dataclass(frozen=True, slots=True)
class FoldItem:
    """One record to fold."""

    text: str
    at: datetime
    """Aware."""
    family: str = ""
    """Category and key prefix; its first dotted part decides whether numbers are facts."""


@dataclass(slots=True)
class Group:
    """Records that count as one."""

    first: datetime
    last: datetime
    members: list[int] = field(default_factory=list)
    """Their places in the input; the first one stands for all."""

    @property
    def representative(self) -> int:
        """The place of the record that stands for all."""
        return self.members[0]

    @property
    def count(self) -> int:
        """How many records they are."""
        return len(self.members)


class Folder:
    """Folds records as they come: the first of a kind opens a group, the others join it."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        """In the order in which their first records came."""
        self._by_mask: dict[tuple[bool, str, str], int] = {}
        self._by_words: dict[tuple[bool, tuple[str, ...]], list[tuple[str, int]]] = {}
        self._taken = 0

    def add(self, text: str, at: datetime, family: str = "") -> tuple[int, bool]:
        """Take a record in; returns its group's place in `groups` and whether it opened it. `at` is aware."""
        number = self._find(text, family)
        opened = number == len(self.groups)
        if opened:
            self.groups.append(Group(at, at))
        group = self.groups[number]
        group.members.append(self._taken)
        self._taken += 1
        # through the offset: two wall times of one zone do not compare in the hour that is told twice
        if at - _EPOCH < group.first - _EPOCH:
            group.first = at
        if at - _EPOCH > group.last - _EPOCH:
            group.last = at
        return number, opened

    def _find(self, text: str, family: str) -> int:
        numbers = family.split(".", 1)[0] not in _FACT_FAMILIES
        if numbers:
            text = names_joined(text)
        masked = mask(text, numbers=numbers)
        short = len(masked) < _SHORT
        # a short text whose numbers are gone says little: elsewhere the same words may mean another thing
        key = (numbers, family if short and masked != text else "", masked)
        number = self._by_mask.get(key)
        if number is None:
            number = len(self.groups) if short or len(masked) > _LONG else self._alike(masked, numbers)
            self._by_mask[key] = number
        return number

    def _alike(self, masked: str, numbers: bool) -> int:
        words = tuple(_NAME.findall(_PLACEHOLDER.sub(" ", masked)))
        known = self._by_words.setdefault((numbers, words), [])
        for other, number in known[-_MOST_COMPARED:]:
            if fuzz.ratio(masked, other, score_cutoff=_RATIO):
                return number
        known.append((masked, len(self.groups)))
        return len(self.groups)


def fold(items: Iterable[FoldItem]) -> list[Group]:
    """The groups of all items, in input order of their first records."""
    folder = Folder()
    for item in items:
        folder.add(item.text, item.at, item.family)
    return folder.groups


def _as_letters(match: re.Match[str]) -> str:
    return match[0].lower().translate(_LETTERS)


def _set_aside(match: re.Match[str]) -> str:
    return match[0].translate(_ASIDE)
