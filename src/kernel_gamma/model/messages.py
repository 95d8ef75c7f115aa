"""Turns → the messages of a Chat Completions call; pictures become data: URLs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.payloads import Attachment
from kernel_gamma.contracts.ports import Turn
from kernel_gamma.model.tokens import without_surrogates

__all__ = ["ReadAttachment", "messages_of"]

ReadAttachment = Callable[[str], bytes]
"""The bytes of an attachment by its path under inbox/attachments/; raises OSError."""

_MAX_PICTURE_BYTES = 20_000_000


async def messages_of(
    turns: Sequence[Turn], read_attachment: ReadAttachment | None
) -> tuple[Mapping[str, Json], ...]:
    """One message a turn. Without `read_attachment` the role cannot see: pictures are left out.

    A picture that cannot be read, or is over 20 MB, is left out too: its event names it anyway.
    """
    return tuple([await _message(turn, read_attachment) for turn in turns])


async def _message(turn: Turn, read_attachment: ReadAttachment | None) -> Mapping[str, Json]:
    text = without_surrogates(turn.text)
    if read_attachment is None or not turn.images:
        return {"role": turn.role, "content": text}
    urls = [await _url(image, read_attachment) for image in turn.images]
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls if url]
    return {"role": turn.role, "content": [{"type": "text", "text": text}, *pictures]}


async def _url(image: Attachment, read_attachment: ReadAttachment) -> str | None:
    if not image.media_type.startswith("image/"):
        return None
    if image.path is None:
        return image.url
    try:
        data = await asyncio.to_thread(read_attachment, image.path)
    except (OSError, ValueError):
        return None
    if len(data) > _MAX_PICTURE_BYTES:
        return None
    return f"data:{image.media_type};base64,{base64.b64encode(data).decode()}"
