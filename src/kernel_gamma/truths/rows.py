"""Between rows of memory.db and values: times, ids, JSON, what a record is found by. Pure."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.packed_text import packed, unpacked
from kernel_gamma.contracts.truths import SELF_CATEGORIES, Truth, category_of
from kernel_gamma.errors import BadTruth, StoreDamaged
from kernel_gamma.truths.excerpts import searchable_text
from kernel_gamma.truths.folding import names_joined

__all__ = [
    "FIRST_MICROS",
    "LAST_MICROS",
    "SPAN",
    "decode_value",
    "encode_value",
    "fold_key",
    "foldable",
    "found_by",
    "micros",
    "moment",
    "packed_value",
    "row_id",
    "truth_of",
    "who_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = 62_135_596_800_000
"""Milliseconds from the year 1 to 1970: ids of any date are positive."""
FIRST_MICROS = -_FIRST_MS * 1000
LAST_MICROS = 253_402_300_800_000_000 - 1
"""From the first to the last microsecond of the calendar, in UTC."""
SPAN = 12
"""Bits of an id below its millisecond: as many index rows may begin in one."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_DEEPEST = 200
"""A value nested deeper could be written and then, from deeper in the stack, not be read."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|[\]}]')

_WHO_FIELDS = frozenset(
    ("from", "speaker", "author", "user", "sender", "source", "service", "component", "host", "node")
)
_SPEAKER = re.compile(r"([^\W\d_][^\n:：]{0,40}?)[:：]\s")
_SPEAKER_CHARS = 42
_CODES = frozenset(("status", "code", "errno", "exit", "signal", "http"))
"""The number after them is kept: status 200 and status 500 are no two cases of one thing."""
_CODE_CHARS = 5
_DIGEST_CHARS = 8
_DIGEST = re.compile(r"(?=[a-f]*\d)[0-9a-f]{8,}")
_NUMBERED = re.compile("[0-9a-f]*[0-9][0-9a-f]*")
_TIMELIKE = re.compile(r"\d{8}T\d{6}Z?|[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{16,}|\d{8,}")


def micros(when: datetime) -> int:
    """Microseconds since 1970 of an aware moment."""
    since = when - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment(at: int, zone: tzinfo) -> datetime:
    """The moment of so many microseconds since 1970, in a zone; in UTC where the zone's calendar ends."""
    found = _EPOCH + timedelta(microseconds=at)
    try:
        return found.astimezone(zone)
    except OverflowError:  # the first hours of the year 1, the last of 9999
        return found


def row_id(at: int) -> int:
    """The first id of the millisecond in which `at` (microseconds since 1970) lies: ids are in time order."""
    return (at // 1000 + _FIRST_MS) << SPAN


def encode_value(value: Json, most_bytes: int) -> str:
    """Compact JSON. Raises BadTruth for what JSON cannot hold, what is nested too deep or too large."""
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: kept as its escape
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise BadTruth("the value is nested too deep") from error
    except (ValueError, TypeError) as error:
        raise BadTruth(f"the value is no JSON: {error}") from error
    if text.count("[") + text.count("{") > _DEEPEST and _depth(text) > _DEEPEST:
        raise BadTruth("the value is nested too deep")
    if len(text) > most_bytes or (not text.isascii() and len(text.encode()) > most_bytes):
        raise BadTruth(f"the value is larger than {most_bytes} bytes (gateway.max_bytes)")
    return text


def packed_value(key: str, text: str) -> str | bytes:
    """An encoded value as its row holds it: long accounts, of which there is one for every prompt, packed.

    Records of the chain never are: who verifies it reads the column as it stands.
    """
    return packed(text) if category_of(key) in _ACCOUNTS else text


def decode_value(key: str, text: str | bytes) -> Json:
    """The value a row holds. Raises StoreDamaged for what nobody wrote."""
    try:
        value: Json = json.loads(unpacked(text))
    except ValueError as error:
        raise StoreDamaged(f"{key}: its value in memory.db is no JSON: {error}") from error
    return value


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        if match[1]:
            depth += 1
            deepest = max(deepest, depth)
        elif match[0][0] != '"':
            depth -= 1
    return deepest


_ACCOUNTS = frozenset({"assembly"})
_ACCOUNT_FIELDS = ("agent", "trace_id", "task_type", "task")
"""By these an account of a prompt is found; its hundreds of hashes and excerpts are no words to look for."""


def found_by(key: str, description: str, value: Json) -> str:
    """The text by which a record is found: its description, its value, and the words of its key.

    Of the mind's own past: what its page says there, and a memory's topic. Of an account of a prompt: whose
    it was, in which trace, and what it was about.
    """
    if category_of(key) in SELF_CATEGORIES and isinstance(value, dict):
        return _told(category_of(key), value)
    if category_of(key) in _ACCOUNTS and isinstance(value, dict):
        value = {name: value[name] for name in _ACCOUNT_FIELDS if name in value}
    text = searchable_text(description, value)
    folder, dot, last = key.rpartition(".")
    above, _, stamp = folder.rpartition(".")
    named = _named(above if _TIMELIKE.fullmatch(stamp) else folder)  # of few folders, not of every second
    if dot and not _TIMELIKE.fullmatch(last):
        named = f"{named} {last}".strip()
    return f"{text}\n{named}" if named else text


def foldable(key: str, text: str) -> str:
    """What `found_by` gave, as it is compared with other records: what only numbers a key is taken out, and
    a number that names a host is a part of its name."""
    if category_of(key) in SELF_CATEGORIES:
        return text
    last = key.rpartition(".")[2]
    if text.endswith(last) and _NUMBERED.search(last):
        text = text.removesuffix(last) + _NUMBERED.sub("", last)
    if text.isascii() and "-" not in text and "_" not in text and text.count(".") < 3 and text.count(":") < 2:
        return text  # neither a numbered name nor an address can be written so
    return names_joined(text)


@lru_cache(maxsize=4096)
def _named(folder: str) -> str:
    return " ".join(part for part in folder.split(".")[1:] if not _TIMELIKE.fullmatch(part))


def _told(category: str, value: dict[str, Json]) -> str:
    heading, text = str(value.get("heading", "")), str(value.get("text", ""))
    if category == "stream":  # its heading is its time, which the record has
        return text
    topic = str(value.get("page", "")).removeprefix("memories/").removesuffix(".md").replace("_", " ")
    lines = (heading, text, topic if category == "memory" else "")
    return "\n".join(line for line in lines if line)


def who_of(value: Json) -> str:
    """Who speaks in a record: a field that says so, or a text that begins with `Name: `."""
    if isinstance(value, dict):
        if not _WHO_FIELDS.isdisjoint(value):
            said = [text for name, text in value.items() if name in _WHO_FIELDS and isinstance(text, str)]
            if said:
                return "\n".join(said)
        value = value.get("text")
    if not isinstance(value, str):
        return ""
    start = value[:_SPEAKER_CHARS]
    if (":" in start or "：" in start) and (match := _SPEAKER.match(value)) and len(match[1].split()) <= 3:
        return match[1]
    return ""


def fold_key(terms: str, family: str) -> int:
    """A number (56 bits) that records of one family share when they differ only in times and numbers.

    `terms`: the index terms of the record, joined by spaces. Made for every record that is written, so it
    is coarser and quicker than the folding of results: numbers and digests are taken out, codes are not.
    """
    if category_of(family) not in SELF_CATEGORIES:  # in the mind's own past a number is a fact
        terms = _steady(terms)
    return int.from_bytes(blake2b(f"{family}\0{terms}".encode(), digest_size=7).digest(), "big")


def _steady(terms: str) -> str:
    """The terms between spaces, without those that change from case to case."""
    if not terms:
        return "  "
    kept = [""]
    before = ""
    for term in terms.split(" "):
        first = term[:1]
        # few terms begin with a digit, or could be a digest: the pattern is for those
        if first.isdecimal():
            stays = len(term) <= _CODE_CHARS and term.isdecimal() and before in _CODES
        else:
            stays = len(term) < _DIGEST_CHARS or first not in "abcdef" or not _DIGEST.fullmatch(term)
        if stays:
            kept.append(term)
        before = term
    return " ".join([*kept, ""])


def truth_of(row: tuple[Any, ...], zone: tzinfo) -> Truth:
    """A row of the queries that join the chain, as a value. Raises StoreDamaged for what nobody wrote."""
    _, key, _, description, value, at, written, version, locked, trust, level, _, _, _, sha256, before = row
    return Truth(
        key=key,
        value=decode_value(key, value),
        category=category_of(key),
        description=description,
        timestamp=moment(at, zone),
        version=version,
        locked=bool(locked),
        sha256=sha256.hex() if sha256 else None,
        prev_sha256=before.hex() if before else None,
        trust=trust,
        level=level,
        written_at=moment(written, zone),
    )
