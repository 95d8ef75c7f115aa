"""Pictures nobody could look at are named in the passage, so that their coming is not forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_gamma.context.fences import is_image
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.payloads import Attachment, Event

__all__ = ["tell_unseen"]

_LINES: Mapping[Language, str] = {
    "en": "I was sent a picture that I cannot look at: {name}.",
    "zh": "有人给我发来一张图片，我看不见它：{name}。",
}
_NAME_CHARS = 100


def tell_unseen(passage: str, events: Sequence[Event], language: Language) -> str:
    """`passage` with one line for every picture it does not name itself."""
    lines = [
        _LINES[language].format(name=name)
        for event in events
        for attachment in event.attachments
        if is_image(attachment) and (name := _name(attachment)) not in passage
    ]
    return "\n\n".join([passage, *lines])


def _name(attachment: Attachment) -> str:
    """The last part of the path or address, as plain words."""
    where = attachment.path or attachment.url or ""
    if where.lower().startswith("data:"):
        return attachment.media_type
    last = where.split("?")[0].rstrip("/").rsplit("/", 1)[-1]
    name = "".join(letter if letter.isprintable() and letter not in "`<>#*[]" else "_" for letter in last)
    return name[:_NAME_CHARS] or attachment.media_type
