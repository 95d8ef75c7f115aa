"""Taking known keys out of a dropped object, each checked, so that what is left can be kept as data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import json_kind
from kernel_gamma.contracts.payloads import Attachment
from kernel_gamma.errors import Poison

__all__ = ["ATTACHMENT_FOLDER", "Keys", "joined", "object_of", "read_moment", "whole", "word_of"]

ATTACHMENT_FOLDER: Final = "inbox/attachments/"

_LARGEST = 1_000_000_000
"""Of ttl_sec and hops: thirty years in seconds, and safe to add to a date."""
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}")
_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
_LEAP_SECOND = re.compile(r"(?<=T\d\d:\d\d):60")


class Keys:
    """Takes known keys out of an object; what is left belongs to the event's data."""

    def __init__(self, found: Mapping[str, Json], where: str = "", *, lenient: bool = False) -> None:
        """`where` stands before a key when it is named; `lenient` leaves keys of a wrong shape in place."""
        self.left = dict(found)
        self._where = where
        self._lenient = lenient

    def take(self, key: str) -> Json:
        """The key as it is; None when absent."""
        return self.left.pop(key, None)

    def text(self, key: str) -> str | None:
        """The key as text, whitespace kept; None when absent or null."""
        value = self.left.get(key)
        if value is None or isinstance(value, str):  # nearly always
            self.left.pop(key, None)
            return value
        if self._lenient and isinstance(value, list | dict):
            return None
        del self.left[key]
        return _text(self._where + key, value)

    def word(self, *names: str) -> str | None:
        """The first of `names` that says something, stripped; all of them are taken."""
        said: str | None = None
        for name in names:
            text = self.text(name)
            if text and not said:
                said = text.strip()
        return said or None

    def moment(self, key: str) -> Json:
        """The key if it is a moment; anything else stays where it is."""
        try:
            read_moment(key, self.left.get(key), _ANY_MOMENT)
        except Poison:
            return None
        return self.take(key)

    def attachments(self) -> tuple[Attachment, ...]:
        """Files under inbox/attachments/ and addresses; anything else is Poison."""
        value = self.left.get("attachments")
        if self._lenient and not _looks_like_attachments(value):
            return ()
        self.left.pop("attachments", None)
        where = self._where + "attachments"
        if value is None:
            return ()
        if not isinstance(value, list):
            raise Poison(f"{where}: must be a list, is {json_kind(value)}", kind="bad_attachment")
        return tuple(_attachment(f"{where}[{n}]", found) for n, found in enumerate(value))

    def rest(self, *, unfold: str) -> dict[str, Json]:
        """What is left; an object under `unfold` is opened into it."""
        inner = self.left.get(unfold)
        if not isinstance(inner, dict):
            return self.left
        del self.left[unfold]
        return joined(inner, self.left)


def joined(inner: Mapping[str, Json], outer: Mapping[str, Json]) -> dict[str, Json]:
    """`inner` and `outer` as one object; an outer key that is taken gets an underscore before its name."""
    both = dict(inner)
    for key, value in outer.items():
        name = key
        while name in both:
            name = "_" + name
        both[name] = value
    return both


def _text(name: str, value: Json) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return json.dumps(value)
    raise Poison(f"{name}: must be text, is {json_kind(value)}", kind="bad_key")


def word_of(name: str, value: Json) -> str | None:
    """`value` as stripped text, None when it says nothing; a list or an object is Poison."""
    text = _text(name, value)
    return (text.strip() or None) if text is not None else None


def object_of(name: str, value: Json) -> dict[str, Json]:
    """`value` if it is an object, else Poison."""
    if not isinstance(value, dict):
        found = "is missing" if value is None else f"must be an object, is {json_kind(value)}"
        raise Poison(f"{name}: {found}", kind="bad_key")
    return value


def whole(name: str, value: Json) -> int | None:
    """A whole number of at least 0, cut at _LARGEST; `60.0` and `"60"` are one too."""
    if value is None:
        return None
    written = _text(name, value)
    try:
        number = float(written or "")
    except ValueError:
        number = -1.0
    if number.is_integer() and number >= 0:
        return int(min(number, _LARGEST))
    raise Poison(f"{name}: must be a whole number of at least 0", kind="bad_key")


def read_moment(name: str, value: Json, accepted_at: datetime) -> datetime | None:
    """RFC 3339; a time without an offset is taken in the zone of `accepted_at`."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and _MOMENT.match(value.strip()):
        written = _LEAP_SECOND.sub(":59", value.strip().upper().replace(" ", "T", 1))
        try:
            moment = datetime.fromisoformat(written)
        except ValueError:
            pass
        else:
            if 1 < moment.year < 9999:  # the outermost years cannot be moved to another zone
                return moment if moment.tzinfo else moment.replace(tzinfo=accepted_at.tzinfo)
    raise Poison(
        f"{name}: must be RFC 3339 like 2026-11-30T10:30:00+08:00, is {json.dumps(value)[:60]}",
        kind="bad_key",
    )


def _looks_like_attachments(value: Json) -> bool:
    return isinstance(value, list) and all(
        isinstance(found, dict) and ("path" in found or "url" in found) for found in value
    )


def _attachment(name: str, value: Json) -> Attachment:
    if not isinstance(value, dict):
        raise Poison(f"{name}: must be an object, is {json_kind(value)}", kind="bad_attachment")
    path, url = (word_of(f"{name}.{key}", value.get(key)) for key in ("path", "url"))
    if not path and not url:
        raise Poison(f"{name}: needs `path` or `url`", kind="bad_attachment")
    if path:
        path = _attachment_path(f"{name}.path", path)
    if url and not url.lower().startswith(("https://", "http://", "data:")):
        raise Poison(f"{name}.url: must begin with https://, http:// or data:", kind="bad_attachment")
    media_type = word_of(f"{name}.media_type", value.get("media_type"))
    return Attachment(path=path, url=url, media_type=media_type or "application/octet-stream")


def _attachment_path(name: str, path: str) -> str:
    parts = path.removeprefix("./").split("/")
    inside = "/".join(parts).startswith(ATTACHMENT_FOLDER)
    if not inside or "\\" in path or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise Poison(f"{name}: must lie under {ATTACHMENT_FOLDER}, is {path}", kind="bad_attachment")
    return "/".join(parts)
