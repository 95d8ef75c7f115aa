"""Text to search terms, for English, Chinese, Japanese and Korean. Pure.

The same terms go into the index and into the query, and they are made here and not by the database, so
that another database finds the same. Latin words are folded (NFKC, case) and stemmed; runs of Chinese,
Japanese or Korean signs become their single signs and their overlapping pairs, because a word of one or
two signs must be found wherever a writer put it; an emoji is a term.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from operator import add

import Stemmer

from kernel_gamma.words import EMOJI, SIGNS, WORD

__all__ = [
    "MOST_QUERY_TERMS",
    "TERMS_VERSION",
    "QueryTerm",
    "index_terms",
    "normal",
    "query_terms",
    "term_counts",
    "word_count",
]

TERMS_VERSION = 1
"""Grows when the same text gives other terms: an index of another version is built anew."""

_TERM = re.compile(rf"({WORD}+)|([{SIGNS}]+)|([{EMOJI}])")
_ASCII_WORDS = bytes(
    ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256)
)
"""Of ASCII text: small letters and digits stay, all else parts words. Ten times as quick as a pattern."""
_STEMMED = re.compile("[a-z]{3,24}")
_LONGEST = 48
"""Of a longer word only its beginning is a term: nobody types more of a digest."""
_CACHED = 100_000
_SHORT = 4
_MOST_QUERY_CHARS = 4000
MOST_QUERY_TERMS = 24

_STOPPED = """
happen happened happening happens
a about above after again all also am an and any are as at be because been before being below between
both but by can could did do does doing done down during each few for from further had has have having
he her here hers him his how i if in into is it its itself just me more most my myself no nor not of off
on once only or other our ours out over own please same she should so some such tell than that the their
theirs them then there these they this those through to too under until up very was we were what when
where which while who whom whose why will with would you your yours s t d ll m re ve don didn doesn isn
wasn aren weren hasn haven hadn won wouldn couldn shouldn
"""
_STOP_WORDS = frozenset(_STOPPED.split())
_QUESTION_SIGNS = re.compile(
    "发生了什么事|发生了什么|发生什么|發生了什麼|出了什么事|有什么事|为什么|為什麼|什么时候|什么|什麼|怎么样|怎么办|怎么|怎麼|怎样|如何|哪里|哪裡|哪儿|哪个|哪些|哪|多少|是不是|有没有|是否|请问|"
    "(?:[的了吗嗎呢吧啊呀么]+)$"
)
_ALONE_DROPPED = frozenset("的了吗呢吧啊呀么是在有和与或我你他她它这那就都也还又很不被把从对向给让到个")

_stem = Stemmer.Stemmer("english", 0).stemWord


class _Stems(dict[str, str]):
    """Word -> term. What was asked for is kept, so that most words of a batch are one look-up."""

    def __missing__(self, word: str) -> str:
        if not _STEMMED.fullmatch(word):
            term = word[:_LONGEST]
            if len(word) > _SHORT:  # a log's numbers and ids never come again
                return term
        else:
            term = _stem(word)
        if len(self) >= _CACHED:
            self.clear()
        self[word] = term
        return term


_stemmed = _Stems().__getitem__


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One term a query asks for."""

    term: str
    """As it stands in the index."""
    written: str
    """As it stands in the query, folded: for cutting excerpts."""


def normal(text: str) -> str:
    """One form for what reads the same: full-width and half-width, upper and lower case."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


def index_terms(text: str) -> list[str]:
    """Every term by which `text` may be found, each once, in the order of its first place."""
    if text.isascii():
        return list(dict.fromkeys(map(_stemmed, _ascii_words(text))))
    found: dict[str, None] = {}
    for word, run, emoji in _TERM.findall(normal(text)):
        if run:
            found.update(dict.fromkeys(run))
            found.update(dict.fromkeys(map(add, run, islice(run, 1, None))))
        else:
            found[_stemmed(word) if word else emoji] = None
    return list(found)


def term_counts(text: str) -> dict[str, int]:
    """Every term of `text` with how often it stands there."""
    if text.isascii():
        return Counter(map(_stemmed, _ascii_words(text)))
    found: Counter[str] = Counter()
    for word, run, emoji in _TERM.findall(normal(text)):
        if run:
            found.update(run)
            found.update(map(add, run, islice(run, 1, None)))
        else:
            found[_stemmed(word) if word else emoji] += 1
    return found


def query_terms(query: str, *, alone: bool = True) -> list[QueryTerm]:
    """What a query asks for, each term once. Stop words and question words ask for nothing, unless the
    query holds nothing else (`alone`: they are asked for then). Of a very long query the first few thousand
    characters are read."""
    text = normal(query[:_MOST_QUERY_CHARS])
    found: dict[str, str] = {}
    plain: dict[str, str] = {}
    for word, run, emoji in _TERM.findall(text):
        if word:
            plain.setdefault(_stemmed(word), word)
            if word not in _STOP_WORDS:
                found.setdefault(_stemmed(word), word)
        elif run:
            plain.update((sign, sign) for sign in (_run_terms([run]) or run))
            found.update((sign, sign) for sign in _run_terms(_QUESTION_SIGNS.split(run)))
        else:
            found.setdefault(emoji, emoji)
    return [QueryTerm(term, written) for term, written in (found or (plain if alone else {})).items()]


def word_count(text: str) -> int:
    """The length of a text for ranking, in words; a Chinese sign counts as half a word."""
    if text.isascii():
        return len(text) // 6 + 1
    signs = sum(len(run) for _, run, _ in _TERM.findall(text))
    return (len(text) - signs) // 6 + signs // 2 + 1


def _ascii_words(text: str) -> list[str]:
    return text.encode("ascii").translate(_ASCII_WORDS).decode("ascii").split()


def _run_terms(runs: Iterable[str]) -> list[str]:
    found: list[str] = []
    for run in runs:
        if len(run) > 1:
            found.extend(map(add, run, islice(run, 1, None)))
        elif run and run not in _ALONE_DROPPED:
            found.append(run)
    return found
