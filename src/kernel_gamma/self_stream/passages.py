"""What a passage is: rendered, split, taken from a reply, checked. Pure: no I/O, no clock.

A stream page is a row of blocks `## 2026-11-30 10:30:05 +08:00`, empty line, text, empty line.
Only that exact heading starts a passage, so no text inside a block may look like one.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from kernel_gamma.contracts.ports import Passage
from kernel_gamma.words import SIGNS, WORD

__all__ = [
    "HEADING",
    "ParsedReply",
    "check_passage",
    "check_state",
    "clean",
    "heading",
    "parse_reply",
    "render",
    "slug",
    "split",
]

HEADING = re.compile(
    r"^## ([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{2}:[0-9]{2})[ \t]*$",
    re.MULTILINE,
)
"""A time heading on a line of its own; group 1 is the time as written."""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
_HIGH_HEADING = re.compile(r"^ {0,3}#{1,2}(?=[ \t]|$)")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_GAP = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A model's Markdown, taken apart."""

    passage: str
    state: str | None
    """The whole new state page; None when the reply holds none."""
    problem: str | None = None
    """One sentence, fit to show to the model: why its `state` block cannot be used."""


def clean(text: str) -> str:
    """`text` as it may stand in a page: `\\n` line ends, valid UTF-8, no control characters,
    no blanks at line ends, at most one empty line in a row, stripped."""
    if not text.replace("\n", " ").isprintable():  # rare: most texts need none of this
        if _SURROGATE.search(text):
            # Halves that belong together make their character; a lone half becomes U+FFFD.
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = _UNPRINTABLE.sub("", _LINE_ENDS.sub("\n", text))
    return _GAP.sub("\n\n", "\n".join(line.rstrip() for line in text.split("\n"))).strip()


def heading(moment: datetime) -> str:
    """The time as a heading writes it, `2026-11-30 10:30:05 +08:00`; `moment` must be aware."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"a passage needs a time with an offset, not {moment.isoformat()}")
    minutes = int(offset.total_seconds() / 60)
    sign, minutes = ("-", -minutes) if minutes < 0 else ("+", minutes)
    written = moment.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    return f"{written} {sign}{minutes // 60:02d}:{minutes % 60:02d}"


def render(moment: datetime, text: str) -> str:
    """The block of one passage, ready to append; split() makes exactly one passage of it."""
    body = _within_one_block(clean(text))
    return f"## {heading(moment)}\n\n{body}\n\n" if body else f"## {heading(moment)}\n\n"


def split(text: str) -> list[Passage]:
    """The passages of a stream page in order; text above the first heading has an empty one."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    starts = list(_headings(text))
    above = text[: starts[0].start()].strip() if starts else text.strip()
    passages = [Passage("", above)] if above else []
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for start, end in zip(starts, ends, strict=False):
        passages.append(Passage(start[1], text[start.end() : end].strip()))
    return passages


def _headings(text: str) -> Iterator[re.Match[str]]:
    """What HEADING.finditer gives, sooner: that would try every character of the page."""
    at = text.find("## ")
    while at >= 0:
        if match := HEADING.match(text, at):
            yield match
        at = text.find("## ", at + 1)


def _within_one_block(text: str) -> str:
    """Demote headings that could end the block, close a code fence that is left open."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if not fence:
            fence = mark[1] if mark else ""
            line = _HIGH_HEADING.sub("###", line, count=1) if line.lstrip()[:1] == "#" else line
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
        elif HEADING.match(line):
            line = "#" + line
        lines.append(line)
    return "\n".join([*lines, fence] if fence else lines)


# --- a model's reply -----------------------------------------------------------------------------

_STATE_OPENS = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*state(?:\.md)?[ \t]*$", re.I | re.MULTILINE)
_WRAP_OPENS = re.compile(r"(`{3,}|~{3,})[ \t]*(markdown|md)?[ \t]*\n", re.I)


def parse_reply(markdown: str) -> ParsedReply:
    """Take the final `state` block and one wrapping ```markdown fence off a reply."""
    text = clean(markdown)
    opened = list(_STATE_OPENS.finditer(text)) if "```" in text or "~~~" in text else []
    if not opened:
        return ParsedReply(_unwrap(text), None)
    start = opened[-1]
    before = text[: start.start()].rstrip()
    closed = _closing(start[1]).search(text, start.end())
    if closed is None:
        return ParsedReply(_unwrap(before), None, _say("state_open", (before, text)))
    wrapped = _WRAP_OPENS.match(before)
    rest = text[closed.end() :].strip()
    if rest and not (wrapped and _closing(wrapped[1]).fullmatch(rest)):
        return ParsedReply(_unwrap(before), None, _say("state_not_last", (before, text)))
    if len(opened) > 1:
        return ParsedReply(_unwrap(before), None, _say("state_twice", (before, text)))
    return ParsedReply(_unwrap(before), text[start.end() : closed.start()].strip())


def _closing(fence: str) -> re.Pattern[str]:
    return re.compile(rf"^ {{0,3}}{fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE)


def _unwrap(text: str) -> str:
    """Without the fence a model put around its whole answer, also where it forgot to close it."""
    opened = _WRAP_OPENS.match(text)
    if opened is None:
        return text
    inner = text[opened.end() :]
    fences = list(_FENCE.finditer(inner))
    last = fences[-1] if fences and fences[-1].end() == len(inner) else None
    closes = last is not None and _closing(opened[1]).fullmatch(last[0]) is not None
    if opened[2] is None and not (closes and len(fences) == 1):
        return text  # a passage that merely begins with a code block
    if last is not None and closes and len(fences) % 2:
        inner = inner[: last.start()]
    return inner.strip()


# --- is it a passage? ----------------------------------------------------------------------------

LONGEST_TEXT = 100_000
"""Characters of a passage or a state page; more is a model that cannot stop."""

_PROBLEMS = {
    "long": (
        "{what} is far too long; say it in a few paragraphs.",
        "{what}太长了；请用几段话说完。",
    ),
    "empty": (
        "{what} is empty; tell in your own words what happened.",
        "{what}是空的；请用自己的话写下发生了什么。",
    ),
    "json": (
        "{what} holds JSON; only prose may stand there, so say it in sentences.",
        "{what}里有 JSON；这里只能写文字，请用句子来说。",
    ),
    "voice": (
        '{what} is not in the first person; write it as "I".',
        "{what}没有用第一人称；请以“我”来写。",
    ),
    "tag": (
        "{what} repeats the fence tag “{words}” of the prompt; leave such tags out.",
        "{what}重复了提示里的围栏标签“{words}”；请不要写出这类标签。",
    ),
    "quote": (
        "{what} repeats the instructions word for word (“{words}”); use your own words.",
        "{what}逐字重复了说明（“{words}”）；请用自己的话来写。",
    ),
    "state_open": (
        "The fenced `state` block is not closed; end it with a closing fence.",
        "`state` 围栏块没有结束；请用结束围栏收尾。",
    ),
    "state_not_last": (
        "Text follows the fenced `state` block; that block must be the very last thing.",
        "`state` 围栏块后面还有文字；它必须放在最后。",
    ),
    "state_twice": (
        "There is more than one fenced `state` block; write one, with the whole page.",
        "`state` 围栏块不止一个；请只写一个，包含整页内容。",
    ),
}
_PASSAGE = ("The passage", "这段文字")
_STATE = ("The state page", "状态页")

_JSON_FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[ \t]*json", re.I | re.MULTILINE)
_OBJECT = re.compile(r'\{\s*"')
_DECODER = json.JSONDecoder()
_OBJECTS_TRIED = 200
_ASCII = r"[A-Za-z0-9_]"
_FIRST_PERSON = re.compile(
    rf"我|(?<!{_ASCII})(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|ME|MY|i(?=['’ ]))(?!{_ASCII})"
)
_TAG = re.compile(r"</?(event|passage|recalled)(?![A-Za-z0-9_-])", re.I)


def check_passage(text: str, *, prompt_sources: Sequence[str], event_texts: Sequence[str]) -> str | None:
    """None when `text` may join the stream, else one sentence naming the problem.

    The sentence is in the language of the text and fit to show to the model. Refused: emptiness,
    JSON, no first person, 12 words (20 CJK characters) in a row from a prompt, fence tags; what
    also stands in `event_texts` is never a quotation of the prompt.
    """
    return _check(text, _PASSAGE, prompt_sources, event_texts)


def check_state(text: str, *, prompt_sources: Sequence[str], event_texts: Sequence[str]) -> str | None:
    """The same check for a whole new state page."""
    return _check(text, _STATE, prompt_sources, event_texts)


def _check(text: str, what: tuple[str, str], sources: Sequence[str], events: Sequence[str]) -> str | None:
    problem, words = _problem(text, sources, events)
    if problem is None:
        return None
    return _say(problem, (text, *events, *sources), what=what, words=words)


def _problem(text: str, sources: Sequence[str], events: Sequence[str]) -> tuple[str | None, str]:
    if not any(map(str.isalnum, text)):
        return "empty", ""
    if len(text) > LONGEST_TEXT:
        return "long", ""
    if _holds_json(text):
        return "json", ""
    if _FIRST_PERSON.search(text) is None:
        return "voice", ""
    for tag in _TAG.finditer(text):
        if not any(tag[0] in event for event in events):
            return "tag", tag[1].lower()
    words = _quotation(text, tuple(sources), events)
    return ("quote", words) if words else (None, "")


def _say(problem: str, samples: Iterable[str], *, what: tuple[str, str] = _PASSAGE, words: str = "") -> str:
    sample = next((text for text in samples if any(map(str.isalpha, text))), "")
    signs = len(_SIGN.findall(sample))
    chinese = signs * 3 > len(sample) - signs  # a Chinese character says about as much as 3 letters
    return _PROBLEMS[problem][chinese].format(what=what[chinese], words=words)


def _holds_json(text: str) -> bool:
    if "{" not in text and "json" not in text.lower():
        return False
    if _JSON_FENCE.search(text):
        return True
    for tried, start in enumerate(_OBJECT.finditer(text)):
        if tried >= _OBJECTS_TRIED:
            break
        try:
            _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        return True
    return False


# --- does it quote the prompt? -------------------------------------------------------------------
# A run is the shortest row of tokens that weighs 12 words or 20 CJK characters, or a mixture. Two
# texts share that much exactly when they share a run. Runs are kept as hashes, to be small; a text
# is first probed at every 8th token only, because a run has at least 12: it holds a whole probe.

_TOKENS = re.compile(rf"([{SIGNS}]+)|({WORD}+(?:['’-]{WORD}+)*)")
_ASCII_TOKEN = re.compile("[a-z0-9]+(?:['-][a-z0-9]+)*")
_SIGN = re.compile(f"[{SIGNS}]")
_WORD_WEIGHT, _SIGN_WEIGHT, _RUN_WEIGHT = 5, 3, 60
_PROBE_LENGTH, _PROBE_STEP = 5, 8


def _quotation(text: str, sources: tuple[str, ...], events: Sequence[str]) -> str:
    """The first words that `text` repeats from a source and from no event; else empty."""
    probes, runs = _prompt_index(sources)
    tokens = _tokens(text)
    free: frozenset[int] | None = None
    for probe in range(0, len(tokens) - _PROBE_LENGTH + 1, _PROBE_STEP):
        if hash(tuple(tokens[probe : probe + _PROBE_LENGTH])) not in probes:
            continue
        for start in range(max(0, probe - _PROBE_STEP + 1), probe + 1):
            run = _run(tokens, start)
            if not run or hash(run) not in runs:
                continue
            if free is None:
                free = frozenset[int]().union(*(_runs_of(event) for event in events))
            if hash(run) not in free:
                return _joined(run[:8])
    return ""


@lru_cache(maxsize=8)
def _prompt_index(sources: tuple[str, ...]) -> tuple[frozenset[int], frozenset[int]]:
    probes = frozenset[int]().union(*(_probes_of(source) for source in sources))
    return probes, frozenset[int]().union(*(_runs_of(source) for source in sources))


def _probes_of(text: str) -> Iterator[int]:
    tokens = _tokens(text)
    for start in range(len(tokens) - _PROBE_LENGTH + 1):
        yield hash(tuple(tokens[start : start + _PROBE_LENGTH]))


def _runs_of(text: str) -> Iterator[int]:
    tokens = _tokens(text)
    for start in range(len(tokens)):
        if run := _run(tokens, start):
            yield hash(run)


def _tokens(text: str) -> list[str]:
    """Words and single CJK characters in order, lower case."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    tokens: list[str] = []
    for signs, word in _TOKENS.findall(text.lower()):
        tokens.extend(signs or (word,))
    return tokens


def _run(tokens: list[str], start: int) -> tuple[str, ...]:
    """The run that begins at `start`; empty when the text ends first."""
    weight = 0
    for end in range(start, len(tokens)):
        weight += _SIGN_WEIGHT if _SIGN.match(tokens[end]) else _WORD_WEIGHT
        if weight >= _RUN_WEIGHT:
            return tuple(tokens[start : end + 1])
    return ()


def _joined(tokens: Sequence[str]) -> str:
    """The tokens as one reads them: no blank between two CJK characters."""
    shown = ""
    for before, token in zip(("", *tokens), tokens, strict=False):
        close = not before or (_SIGN.match(before) and _SIGN.match(token))
        shown += token if close else f" {token}"
    return shown


# --- the name of a memory page -------------------------------------------------------------------

_SLUG_BYTES = 80
_NARROW = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x3000: 0x20}


def slug(topic: str) -> str:
    """`topic` as a file name without `.md`: letters of any language and digits, joined by `_`.

    Lower case, at most 80 bytes, never empty. Topics that differ in more than case and
    punctuation have different slugs: where something else is dropped or cut, a hash says what.
    """
    topic = unicodedata.normalize("NFC", clean(topic).translate(_NARROW)).lower()
    kept, lossy = "", False
    for char in topic:
        kind = unicodedata.category(char)[0]
        if kind in "LN" or (kind == "M" and kept and kept[-1] != "_"):
            kept += char
        else:
            lossy = lossy or kind not in "PZC"
            kept += "_" if kept and kept[-1] != "_" else ""
    kept = kept.strip("_")
    if kept and not lossy and len(kept.encode()) <= _SLUG_BYTES:
        return kept
    mark = hashlib.sha256(" ".join(topic.split()).encode()).hexdigest()[:8]
    room = kept.encode()[: _SLUG_BYTES - len(mark) - 1].decode("utf-8", "ignore").strip("_")
    return f"{room or 'topic'}_{mark}"
