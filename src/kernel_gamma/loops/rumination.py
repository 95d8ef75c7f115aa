"""Does a passage say again what the last ones said? And the worries that come of it, in state.md. Pure.

Passages are compared by their pieces: three letters of words, two signs of scripts without spaces, numbers
and times left out. A passage that decides something is never a rumination: to act is one of the ways out of
it; nor is a very short one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from kernel_gamma.contracts.effects import Claim
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.ports import Passage
from kernel_gamma.loops.circuits import WORRIES
from kernel_gamma.loops.keys import digest
from kernel_gamma.loops.own_words import is_sign, tokens, weight
from kernel_gamma.settings import LoopSettings
from kernel_gamma.truths.folding import mask

__all__ = [
    "LAST_BYTES",
    "alike",
    "decides",
    "note",
    "repeated",
    "same_worry",
    "with_worries",
    "worry",
    "worry_lines",
]

LAST_BYTES = 16_000
"""Of the stream's end, where one is looked for that says the same."""
_ALIKE = 0.6
"""Share of the pieces two passages have in common."""
_SHORT = 50
"""Less than ten words, or seventeen Chinese signs, is no rumination."""
_OTHERS = 2
"""So many that say the same stand already: this would be the third."""
_LAST = 16
_KEPT_CHARS = 2000
_LINE_CHARS = 60
_AFTERWARDS = 24 * 7
"""Hours for which a worry is remembered past its time, so that its line can be taken off."""

_DECIDES = re.compile(r"(?i)\bI(?:['’]ve| have)?(?: now)? decided?\b|我(?:已经)?决定")
_NOTES: Mapping[Language, tuple[str, str]] = {
    "en": (
        "I am at the same thought again: “{text}”. Either I act on it, or I put it off to a date, "
        "or I let it go.",
        "I am at the same thought again, and I leave it where it is.",
    ),
    "zh": (
        "我又回到同一个念头：“{text}”。要么去做，要么定一个日子，要么放下。",
        "我又回到同一个念头，先放着。",
    ),
}
_LINES: Mapping[Language, str] = {
    "en": "- I keep coming back to “{text}” (since {since}).",
    "zh": "- 我总是想起“{text}”（{since} 起）。",
}
_OUR_LINE = re.compile(
    r"- (?:I keep coming back to “.*” \(since [0-9 :-]{16}\)\.|我总是想起“.*”（[0-9 :-]{16} 起）。)"
)
_SECTIONS: Mapping[Language, str] = {"en": "## open worries", "zh": "## 放不下的事"}
_SECTION = re.compile(r"(?im)^#{1,6}[ \t]*(?:(?:my )?open worries|放不下的事)[ \t]*:?[ \t]*$")
_HEADING = re.compile(r"(?m)^#{1,6}[ \t]")


def decides(passage: str) -> bool:
    """Whether it decides something, in the words in which decisions are made."""
    return _DECIDES.search(passage) is not None


def alike(one: str, other: str) -> bool:
    """Whether two passages say the same, more or less."""
    mine, theirs = _pieces(one), _pieces(other)
    if not mine or not theirs:
        return False
    return 2 * len(mine & theirs) / (len(mine) + len(theirs)) >= _ALIKE


def _pieces(text: str) -> frozenset[str]:
    found: set[str] = set()
    before = ""
    for token in tokens(mask(text).replace("<t>", " ").replace("<n>", " ")):
        if is_sign(token):
            found.add(before + token)
            before = token
        else:
            before = ""
            padded = f" {token} "
            found.update(padded[at : at + 3] for at in range(len(padded) - 2))
    return frozenset(found)


def repeated(passage: str, last: Sequence[Passage], now: datetime, rules: LoopSettings) -> bool:
    """Whether `passage` would say the same for the third time within the hours of the setting."""
    if not rules.rumination_hours or decides(passage) or weight(tokens(passage)) < _SHORT:
        return False
    since = now - timedelta(hours=rules.rumination_hours)
    recent = [one.text for one in last[-_LAST:] if _is_after(one.heading, since)]
    return sum(alike(passage, text) for text in recent) >= _OTHERS


def _is_after(heading: str, since: datetime) -> bool:
    try:
        return datetime.fromisoformat(heading) >= since
    except (ValueError, TypeError):
        return False


def same_worry(passage: str, kept: Mapping[str, Mapping[str, Json]]) -> Mapping[str, Json] | None:
    """The open worry that `passage` is about."""
    if decides(passage) or weight(tokens(passage)) < _SHORT:
        return None
    return next((one for one in kept.values() if not one.get("closed") and alike(passage, one["text"])), None)


def worry(
    before: Mapping[str, Json] | None,
    passage: str,
    *,
    session: str,
    language: Language,
    now: datetime,
    rules: LoopSettings,
) -> Claim:
    """A worry that is new, or (`before`) has come back."""
    until = now.timestamp() + rules.worry_hours * 3600
    value: dict[str, Json]
    if before is not None:
        value = {**before, "count": int(before["count"]) + 1, "until": until}
    else:
        text = passage[:_KEPT_CHARS]
        key = WORRIES + digest(text)
        line = _LINES[language].format(text=_excerpt(text), since=f"{now:%Y-%m-%d %H:%M}")
        value = {
            "key": key, "text": text, "line": line, "language": language, "session": session,
            "since": now.timestamp(), "until": until, "count": 1,
        }  # fmt: skip
    return Claim(key=str(value["key"]), value=value, hours=rules.worry_hours + _AFTERWARDS, renew=True)


def note(passage: str, language: Language, *, again: bool) -> str:
    """What stands in the stream in place of the third passage, and (`again`) of all further ones."""
    return _NOTES[language][again].format(text=_excerpt(passage))


def _excerpt(text: str) -> str:
    line = " ".join(text.replace("“", "‘").replace("”", "’").split())
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1].rstrip() + "…"


def worry_lines(page: str) -> list[str]:
    """The lines of a state page that stand for a worry, as they were put there."""
    return [line for line in page.splitlines() if _OUR_LINE.fullmatch(line.strip())]


def with_worries(page: str, worries: Iterable[Mapping[str, Json]]) -> str:
    """The state page with a line for each open worry and for no other."""
    wanted = [one for one in worries if not one.get("closed")]
    lines = [str(one["line"]) for one in wanted]
    ours = worry_lines(page)
    if sorted(line.strip() for line in ours) == sorted(lines):
        return page
    left = "\n".join(line for line in page.splitlines() if line not in ours)
    kept = re.sub(r"\n{3,}", "\n\n", left).strip("\n")
    if not lines:
        return f"{kept}\n"
    section = _SECTION.search(kept)
    if section is None:
        heading = _SECTIONS["zh" if wanted[0]["language"] == "zh" else "en"]
        return "\n".join(_parts(kept, heading, *lines)) + "\n"
    following = _HEADING.search(kept, section.end())
    end = following.start() if following else len(kept)
    head, tail = kept[:end].rstrip("\n"), kept[end:]
    gap = "" if kept[section.end() : end].strip() == "" else "\n"
    return f"{head}\n{gap or chr(10)}" + "\n".join(lines) + (f"\n\n{tail}" if tail else "") + "\n"


def _parts(kept: str, heading: str, *lines: str) -> Iterator[str]:
    if kept:
        yield kept
        yield ""
    yield heading
    yield ""
    yield from lines
