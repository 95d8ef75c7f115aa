"""Counting tokens without a network: shipped tables, loaded once, at the first count that needs them.

Tables: o200k_base and cl100k_base, checked against the hash tiktoken itself expects. A model that
tiktoken does not know is counted with o200k_base and a margin, which the usage its endpoint reports
corrects (Calibration).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from types import FunctionType
from typing import Any, Literal

import tiktoken
import tiktoken.model
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

__all__ = ["Calibration", "EncodingName", "Tokens", "encoding_for", "estimate", "without_surrogates"]

EncodingName = Literal["o200k_base", "cl100k_base"]

ESTIMATED_CHARS = 200
"""Texts up to this length do not force the tables to be loaded: they are estimated until then."""

_CACHED_COUNTS = 8192
_DIGEST_FROM_CHARS = 512
"""Longer texts are remembered by their digest, so that the cache does not hold whole pages."""

_CONSTRUCTORS: dict[EncodingName, Callable[..., dict[str, Any]]] = {
    "o200k_base": openai_public.o200k_base,
    "cl100k_base": openai_public.cl100k_base,
}

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_PIECES = re.compile(
    rf"(?P<cjk>[{_CJK}])|(?P<word>[^\W\d_{_CJK}]+)|(?P<digits>\d{{1,3}})|(?P<line>[^\S\n]*\n\s*)"
    r"|(?P<space>[^\S\n]+)|(?P<mark>(.)\7*)",
    re.DOTALL,
)
_PIECE_TOKENS = {"cjk": 0.65, "digits": 1.3, "line": 1.1, "space": 0.0, "mark": 0.9}
_WORD_TOKENS = 0.75
_LETTER_TOKENS = 0.05


def estimate(text: str) -> int:
    """Tokens of `text`, about ±10 % on prose in English and Chinese and on JSON; needs no table."""
    total = 0.0
    for piece in _PIECES.finditer(text):
        kind = piece.lastgroup or "word"
        if kind == "word":
            total += _WORD_TOKENS + _LETTER_TOKENS * (piece.end() - piece.start())
        else:
            total += _PIECE_TOKENS[kind]
    return max(round(total), 1) if text else 0


def without_surrogates(text: str) -> str:
    """`text` that UTF-8 can hold: halves that belong together are joined, lone ones become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encoding_for(model: str) -> tuple[EncodingName, bool]:
    """The table that counts for `model`, and whether its counts are exact."""
    try:
        name = tiktoken.model.encoding_name_for_model(model.rsplit("/", 1)[-1])
    except KeyError:
        return "o200k_base", False
    if name == "cl100k_base":
        return "cl100k_base", True
    return "o200k_base", name.startswith("o200k")


class Tokens:
    """Token counts. Safe to use from several threads."""

    def __init__(self) -> None:
        self._encodings: dict[EncodingName, tiktoken.Encoding] = {}
        self._loading = threading.Lock()
        self._counts: OrderedDict[tuple[EncodingName, str | bytes], int] = OrderedDict()
        self._counting = threading.Lock()

    def loaded(self, encoding: EncodingName = "o200k_base") -> bool:
        """Whether counts are exact for texts of any length by now."""
        return encoding in self._encodings

    def load(self, encoding: EncodingName = "o200k_base") -> None:
        """Load the table if it is not there yet: about half a second and 60 MB, once."""
        self._encoding(encoding)

    def encode(self, text: str, encoding: EncodingName = "o200k_base") -> list[int]:
        """The token ids of `text`; special tokens in it are ordinary text."""
        return self._encoding(encoding).encode(without_surrogates(text), disallowed_special=())

    def count(self, text: str, encoding: EncodingName = "o200k_base") -> int:
        """Number of tokens of a whole text; counts are remembered.

        Until the table is loaded a text of up to 200 characters is estimated; a longer one loads it.
        """
        if encoding not in self._encodings and len(text) <= ESTIMATED_CHARS:
            return estimate(text)
        key = (encoding, text if len(text) < _DIGEST_FROM_CHARS else _digest(text))
        with self._counting:
            known = self._counts.get(key)
            if known is not None:
                self._counts.move_to_end(key)
                return known
        count = len(self.encode(text, encoding))
        with self._counting:
            self._counts[key] = count
            while len(self._counts) > _CACHED_COUNTS:
                self._counts.popitem(last=False)
        return count

    def _encoding(self, name: EncodingName) -> tiktoken.Encoding:
        found = self._encodings.get(name)
        if found is None:
            with self._loading:
                found = self._encodings.get(name) or _build(name)
                self._encodings[name] = found
        return found


class Calibration:
    """What the counts of an unknown model must be multiplied by, learned from reported usage."""

    FIRST_RATIO = 1.1
    """Before anything was reported: rather too many than too few."""
    BOUNDS = (0.7, 2.5)
    MIN_TOKENS = 200
    """Shorter prompts say more about an endpoint's template than about its tokenizer."""
    STEP = 0.05
    """The ratio moves in steps, so that the counts of a prompt's parts do not change at every call."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._average: float | None = None
        self.ratio = 1.0 if exact else self.FIRST_RATIO

    def applied(self, count: int) -> int:
        """The corrected count."""
        return count if self._exact else round(count * self.ratio)

    def observe(self, counted: int, reported: int) -> None:
        """Learn from one call: `counted` by the table alone, `reported` by the endpoint."""
        if self._exact or counted < self.MIN_TOKENS or reported <= 0:
            return
        low, high = self.BOUNDS
        seen = min(max(reported / counted, low), high)
        self._average = seen if self._average is None else 0.8 * self._average + 0.2 * seen
        if abs(self._average - self.ratio) >= self.STEP:
            self.ratio = round(self._average / self.STEP) * self.STEP


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


@lru_cache
def _build(name: EncodingName) -> tiktoken.Encoding:
    """tiktoken's own definition of `name` (pattern, special tokens), over the shipped table.

    It never changes once made, so all minds of a process share it.

    The constructor would download the table. A copy of it in which only that one call is replaced
    by `read_table` stays right when a later tiktoken changes a pattern, and hands us its hash.
    """
    constructor = _CONSTRUCTORS[name]

    def read_table(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        return _read_table(name, expected_hash)

    replaced = {**constructor.__globals__, "load_tiktoken_bpe": read_table}
    offline = FunctionType(constructor.__code__, replaced)
    encoding = tiktoken.Encoding(**offline())
    # The compiled core has its own copy; encoding never asks for this one, which costs 25 MB.
    encoding._mergeable_ranks = {}
    return encoding


def _read_table(name: EncodingName, expected_hash: str | None) -> dict[bytes, int]:
    packed = files("kernel_gamma.model").joinpath("tables", f"{name}.tiktoken.gz").read_bytes()
    table = gzip.decompress(packed)
    if expected_hash and hashlib.sha256(table).hexdigest() != expected_hash:
        raise ValueError(
            f"the shipped token table {name} is damaged or not the one this tiktoken expects;"
            " install kernel-gamma again"
        )
    pairs = (line.split() for line in table.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}
