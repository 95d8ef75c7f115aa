"""The four forms of an event as JSON Schema, for the OpenAPI. contracts.events.read_events decides."""

from __future__ import annotations

from typing import Any

__all__ = ["EVENT_BODY"]

# What the parser takes, as far as JSON Schema can say it: texts may be numbers, most keys may be null.
_TEXT: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_SAID: dict[str, Any] = {"type": ["string", "number", "boolean"], "pattern": r"\S"}
_MOMENT: dict[str, Any] = {"type": "string", "format": "date-time"}
_ABSENT: dict[str, Any] = {"enum": [None, False, 0, "", [], {}]}
_TIME: dict[str, Any] = {"anyOf": [_MOMENT, {"enum": [None, ""]}]}
_COUNT: dict[str, Any] = {
    "anyOf": [{"type": ["integer", "null"], "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,9}$"}]
}
_ATTACHMENT: dict[str, Any] = {
    "type": "object",
    "required": ["url"],
    "properties": {"url": {"type": "string", "pattern": "^https://[a-z0-9.-]+/"}, "media_type": _TEXT},
    "description": "A `url`, or a `path` below inbox/attachments/.",
}
_COMMON: dict[str, Any] = {
    "from": _TEXT,
    "session": _TEXT,
    "session_key": _TEXT,
    "channel": _TEXT,
    "time": _TIME,
    "attachments": {"anyOf": [{"type": "array", "items": _ATTACHMENT}, {"type": "null"}]},
}
_HAS_CONTENT: dict[str, Any] = {
    "anyOf": [
        {"required": ["text"], "properties": {"text": {"not": {"type": "null"}}}},
        {"required": ["type"], "properties": {"type": {"not": {"type": "null"}}}},
    ]
}
_PLAIN: dict[str, Any] = {
    "title": "plain",
    "type": "object",
    **_HAS_CONTENT,
    "properties": {
        "text": _TEXT,
        "type": _TEXT,
        "id": _TEXT,
        **_COMMON,
        "time": {"anyOf": [_MOMENT, _ABSENT]},
        "ttl_sec": _COUNT,
        "specversion": False,
        "envelope": False,
        "header": False,
    },
}
_ENVELOPED: dict[str, Any] = {
    "title": "envelope",
    "type": "object",
    "required": ["envelope", "payload"],
    "properties": {
        "envelope": {
            "type": "object",
            "required": ["id", "timestamp", "source_node"],
            "properties": {
                "id": {"type": ["string", "number", "boolean"]},
                "trace_id": _TEXT,
                "parent_id": _TEXT,
                "timestamp": _MOMENT,
                "source_node": _SAID,
                "source_type": {"enum": ["message", "system", "rhythm", "action", "reflection", None]},
                "session_key": _TEXT,
                "ttl_sec": _COUNT,
                "hops": _COUNT,
                "mind": {"type": ["string", "null"], "pattern": "^[a-z0-9_-]{1,64}$"},
            },
        },
        "payload": {
            "type": "object",
            **_HAS_CONTENT,
            "properties": {"text": _TEXT, "type": _TEXT, **_COMMON},
        },
        "specversion": False,
    },
}
_CLOUD_EVENT: dict[str, Any] = {
    "title": "CloudEvents 1.0",
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": _SAID,
        "source": _SAID,
        "type": _SAID,
        "time": _TIME,
        "data": {},
    },
}
_AMP: dict[str, Any] = {
    "title": "AMP",
    "type": "object",
    "required": ["header", "payload"],
    "properties": {
        "header": {
            "type": "object",
            "properties": {
                "message_id": _TEXT,
                "source": {
                    "anyOf": [
                        {"type": "object", "properties": {"app": _TEXT}},
                        _ABSENT,
                    ]
                },
            },
        },
        "payload": {
            "type": "object",
            "properties": {"type": _TEXT, "session_id": _TEXT, "summary": _TEXT, "data": {}, "time": _TIME},
        },
        "specversion": False,
        "envelope": False,
    },
}
_ONE: dict[str, Any] = {"anyOf": [_PLAIN, _ENVELOPED, _CLOUD_EVENT, _AMP]}
_ANY: dict[str, Any] = {"anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE, "minItems": 1}]}
EVENT_BODY: dict[str, Any] = {
    "required": True,
    "description": "One event in any of the four forms, or an array of them; its keys tell the form.",
    "content": {
        "application/json": {"schema": _ANY, "example": {"text": "the kettle boils", "from": "alice"}},
        "application/cloudevents+json": {"schema": _ANY},
    },
}
