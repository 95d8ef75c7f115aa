"""How content from outside stands in a prompt: inside a fence it cannot open or close itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.looks import escape_tags
from kernel_gamma.contracts.payloads import Attachment, Event

__all__ = [
    "MAX_CHARS_PER_TOKEN",
    "Count",
    "escape",
    "escape_attribute",
    "event_fence",
    "excerpt",
    "is_image",
    "passage_fence",
    "readable",
    "recalled_fence",
]

Count = Callable[[str], int]
"""Tokens of a whole text; cheap for a text it has counted before."""

_RULE = "---"
"""Alone on its line: what stands above it are the event's own words, below it what came with them."""
_LIKE_A_RULE = re.compile(r"^\\*[ \t]*-{3,}[ \t\r]*$", re.MULTILINE)
_LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_ODD_IN_ATTRIBUTE = re.compile(r'[\x00-\x1f\x7f\x85\u2028\u2029&"<]')
_ATTRIBUTE_CHARS = 200
MAX_CHARS_PER_TOKEN = 8
"""A text with more characters than this a token is cut by characters before it is counted."""

_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "session": "session",
        "channel": "channel",
        "attachment": "attachment",
        "unseen": "a picture, named but not shown",
        "cut": "[… {left} characters are left out here; the whole is kept under the id {id} …]",
    },
    "zh": {
        "session": "会话",
        "channel": "渠道",
        "attachment": "附件",
        "unseen": "一张图片，只有名字，没有展示",
        "cut": "[……此处略去 {left} 个字符，全文保存在编号 {id} 之下……]",
    },
}


def escape(text: str) -> str:
    """Content with the `<` of our own tags, and of nothing else, made `&lt;`."""
    return escape_tags(text)


def escape_attribute(value: str) -> str:
    """An attribute's value: one line, at most 200 characters, `&`, `"` and `<` escaped."""
    if len(value) <= _ATTRIBUTE_CHARS and not _ODD_IN_ATTRIBUTE.search(value):
        return value
    line = _LINE_BREAKS.sub(" ", value)
    if len(line) > _ATTRIBUTE_CHARS:
        line = line[: _ATTRIBUTE_CHARS - 1] + "…"
    return line.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def event_fence(
    event: Event, *, max_tokens: int, count: Count, language: Language, images_shown: bool = False
) -> str:
    """One event between its tags: its text, then below a line `---` what else it carries.

    A body over `max_tokens` is shown as head, tail and a pointer. No line of the text can pass for
    the rule: a backslash is put before it.
    """
    body = _body(
        _LIKE_A_RULE.sub(r"\\\g<0>", event.text) if _RULE in event.text else event.text,
        "\n".join(_details(event, language, images_shown)),
        partial(excerpt, count=count, language=language, pointer=event.id),
        max_tokens,
        count,
    )
    attributes = (
        f'id="{escape_attribute(event.id)}" type="{escape_attribute(event.type)}"'
        f' from="{escape_attribute(event.from_)}" trust="{event.trust}"'
        f' time="{rfc3339(event.time)}"'
    )
    return f"<event {attributes}>\n{escape(body)}\n</event>"


def passage_fence(text: str) -> str:
    """The new passage for the externalizer."""
    return f"<passage>\n{escape(text)}\n</passage>"


def recalled_fence(key: str, text: str, *, trust: str, time: str) -> str:
    """Something from the mind's past; `time` as written there, may be empty."""
    attributes = (
        f'key="{escape_attribute(key)}" trust="{escape_attribute(trust)}" time="{escape_attribute(time)}"'
    )
    return f"<recalled {attributes}>\n{escape(text)}\n</recalled>"


def excerpt(text: str, *, max_tokens: int, count: Count, language: Language, pointer: str) -> str:
    """`text`, or its head and tail around a line that says how much is left out and where it is."""
    if len(text.encode(errors="replace")) <= max_tokens:
        return text  # a token is at least one byte
    keep = len(text)
    if keep > max_tokens * MAX_CHARS_PER_TOKEN:
        keep = max_tokens * MAX_CHARS_PER_TOKEN
    elif count(text) <= max_tokens:
        return text
    while True:
        head, tail = keep * 2 // 3, keep - keep * 2 // 3
        shown = text[:head] + text[len(text) - tail :]
        tokens = count(shown)
        if tokens <= max_tokens or keep <= 2:
            break
        keep = min(keep - 1, keep * max_tokens // tokens)
    cut = _WORDS[language]["cut"].format(left=len(text) - keep, id=_LINE_BREAKS.sub(" ", pointer))
    return f"{text[:head].rstrip()}\n{cut}\n{text[len(text) - tail :].lstrip()}"


def is_image(attachment: Attachment) -> bool:
    """Whether the multimodal role could look at it."""
    return attachment.media_type.startswith("image/")


def readable(value: Json, indent: int = 0) -> Iterator[str]:
    """A JSON object or array as indented lines `key: value`, without JSON's marks."""
    pad = "  " * indent
    pairs = value.items() if isinstance(value, dict) else (("-", item) for item in value)
    for key, item in pairs:
        label = f"{pad}{_LINE_BREAKS.sub(' ', str(key))}" + ("" if key == "-" else ":")
        if isinstance(item, (dict, list)):
            if item:
                yield label
                yield from readable(item, indent + 1)
            continue
        lines = _scalar(item).splitlines() or [""]
        yield f"{label} {lines[0]}".rstrip()
        for line in lines[1:]:
            yield f"{pad}  {line}"


def _body(text: str, details: str, cut: Callable[..., str], max_tokens: int, count: Count) -> str:
    """Both within `max_tokens`; when neither leaves the other room, each has half of it."""
    if not details:
        return cut(text, max_tokens=max_tokens)
    if len(text.encode(errors="replace")) + len(details.encode(errors="replace")) > max_tokens:
        half = max_tokens // 2
        for_details = min(half, _size(details, max_tokens, count))
        for_text = min(half, _size(text, max_tokens, count))
        text = cut(text, max_tokens=max_tokens - for_details)
        details = cut(details, max_tokens=max_tokens - for_text)
    return f"{text}\n\n{_RULE}\n{details}" if text else f"{_RULE}\n{details}"


def _size(text: str, most: int, count: Count) -> int:
    """Tokens of `text`; `most` without counting when it is far longer than that."""
    return most if len(text) > most * MAX_CHARS_PER_TOKEN else count(text)


def _details(event: Event, language: Language, images_shown: bool) -> Iterator[str]:
    words = _WORDS[language]
    if event.session not in (f"private:{event.from_}", "system"):
        yield f"{words['session']}: {_LINE_BREAKS.sub(' ', event.session)}"
    if event.channel != "console":
        yield f"{words['channel']}: {_LINE_BREAKS.sub(' ', event.channel)}"
    if event.data:
        yield from readable(event.data)
    for attachment in event.attachments:
        where = _LINE_BREAKS.sub(" ", attachment.path or attachment.url or "?")
        unseen = is_image(attachment) and not images_shown
        kind = words["unseen"] if unseen else attachment.media_type
        yield f"{words['attachment']}: {where} ({kind})"


def _scalar(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
