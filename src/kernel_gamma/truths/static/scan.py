"""Secrets in a text, by their shape: line and kind, never the secret itself. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Secret", "find_secrets"]

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----")),
    ("an API key", re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?:[A-Za-z]+[-_])*[A-Za-z0-9_-]{16,}")),
    ("an access token", re.compile(r"(?<![A-Za-z0-9])(?:gh[oprsu]_|github_pat_|glpat-|hf_|npm_)\w{16,}")),
    ("an access token", re.compile(r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("an access key", re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|LTAI|AKID)[A-Za-z0-9]{12,}")),
    ("an API key", re.compile(r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}")),
    (
        "a signed token",
        re.compile(r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    ),
    ("a bearer token", re.compile(r"\bBearer\s+(?!<|\$|\{)[A-Za-z0-9._~+/-]{12,}", re.IGNORECASE)),
    (
        "a password in an address",
        re.compile(
            r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{1,200}:(?![<$*{]|\.\.\.)[^\s/@]{1,200}@"
        ),
    ),
)

_NAMED = re.compile(
    r"(?P<name>pass(?:word|wd|phrase)|pwd|secret|token|credential"
    r"|(?:api|access|private|auth)[ _-]?key|密码|口令|密钥|令牌)s?[\"'`]?"
    r"\s*(?P<sign>[:=：]|是|为)\s*(?P<quote>[\"'`]?)"
    r"(?P<value>[^\s\"'`,;，；。{}\[\]]+)(?=(?P<rest>[^\n]{0,200}))",
    re.IGNORECASE,
)
_STAND_INS = re.compile(
    r"(?i:[<$*{%].*|x{3,}|\.{3,}|…|env[:.].*|none|null|true|false|unset|changeme|example.*)"
    r"|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
)
"""What stands where a secret would: <yours>, $NAME, NAME_OF_A_VARIABLE."""

_RUN = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
_FEWEST_BITS = 4.0
"""Of entropy in each character: random base64 of 24 characters has about 4.3, words and paths less."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Where something that looks like a secret stands."""

    line: int
    """From 1."""
    kind: str
    """`an API key`, `a password`: as it stands in a sentence."""


def find_secrets(text: str) -> list[Secret]:
    """What looks like a secret, one finding a line at most, in order."""
    found: list[Secret] = []
    for number, line in enumerate(text.splitlines(), 1):
        kind = next(_kinds(line), None)
        if kind is not None:
            found.append(Secret(number, kind))
    return found


def _kinds(line: str) -> Iterator[str]:
    for kind, shape in _SHAPES:
        if shape.search(line):
            yield kind
    for match in _NAMED.finditer(line):
        if _is_value(match):
            yield f"a value for `{match['name'].lower()}`"
    for match in _RUN.finditer(line):
        if _is_random(match[0]):
            yield "a random-looking string"


def _is_value(match: re.Match[str]) -> bool:
    """A value is one word; `token: a piece of a word` is a sentence."""
    value, rest = match["value"], match["rest"]
    if len(value) < 4 or not value.isascii() or _STAND_INS.fullmatch(value):
        return False
    if match["quote"]:
        return rest.startswith(match["quote"])
    alone = not rest.strip(" \t\"'`,;，；。}])")
    return alone or match["sign"] == "=" or _mixed(value)


def _mixed(value: str) -> bool:
    """Letters, digits and more of them than a word has."""
    return len(value) >= 8 and bool(re.search(r"[A-Za-z]", value)) and bool(re.search(r"[0-9]", value))


def _is_random(run: str) -> bool:
    """Upper case, lower case and digits without the order of words; hashes in hexadecimal are none."""
    run = run.strip("=-_/+")
    if len(run) < 24 or not all(re.search(kind, run) for kind in ("[a-z]", "[A-Z]", "[0-9]")):
        return False
    if run.count("/") + run.count("-") > len(run) // 6:
        return False
    kinds = ["aA0-"[1 if c.isupper() else 0 if c.islower() else 2 if c.isdigit() else 3] for c in run]
    if sum(one != other for one, other in pairwise(kinds)) < len(run) // 4:
        return False
    counts = Counter(run)
    bits = -sum(count / len(run) * math.log2(count / len(run)) for count in counts.values())
    return bits >= _FEWEST_BITS
