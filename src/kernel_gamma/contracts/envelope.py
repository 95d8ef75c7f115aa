"""The standard envelope: what every JSON file inside Pool B wears (contracts, section 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

__all__ = ["ID_PATTERN", "Document", "Envelope", "Json", "SourceType", "encode_document", "is_id"]

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict of these."""

SourceType = Literal["message", "system", "rhythm", "action", "reflection"]
SOURCE_TYPES: tuple[str, ...] = get_args(SourceType)

ID_PATTERN = r"^[A-Za-z0-9_-]{1,128}$"
_ID_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")

Id = Annotated[str, Field(pattern=ID_PATTERN)]


def is_id(text: object) -> bool:
    """Whether `text` may stand as an id or trace id as it is."""
    return isinstance(text, str) and 0 < len(text) <= 128 and _ID_LETTERS.issuperset(text)


class Envelope(BaseModel):
    """Where a file of Pool B comes from. Frozen; `timestamp` is aware."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Id
    mind: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")] = "main"
    trace_id: Id
    parent_id: Id | None = None
    timestamp: AwareDatetime
    source_node: str
    source_type: SourceType = "message"
    session_key: str = "system"
    ttl_sec: Annotated[int, Field(ge=0)] | None = None
    """Seconds from acceptance until the file expires; None = never."""
    hops: Annotated[int, Field(ge=0)] = 0
    """How many times this trace has passed from action back to event."""

    def as_json(self) -> dict[str, Json]:
        """Field by field, cheap enough for every file the bus writes."""
        return {
            "id": self.id,
            "mind": self.mind,
            "trace_id": self.trace_id,
            "parent_id": self.parent_id,
            "timestamp": rfc3339(self.timestamp),
            "source_node": self.source_node,
            "source_type": self.source_type,
            "session_key": self.session_key,
            "ttl_sec": self.ttl_sec,
            "hops": self.hops,
        }


@dataclass(frozen=True, slots=True)
class Document:
    """One enveloped file: its envelope and its payload."""

    envelope: Envelope
    payload: Mapping[str, Json]

    def to_bytes(self) -> bytes:
        return encode_document({"envelope": self.envelope.as_json(), "payload": self.payload})


def rfc3339(moment: datetime) -> str:
    """RFC 3339 with offset, to the millisecond where there is a fraction."""
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def encode_document(document: Json) -> bytes:
    """UTF-8 JSON with a final newline; a lone surrogate is written as an escape, never as bad UTF-8."""
    text = json.dumps(document, ensure_ascii=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(document).encode() + b"\n"
