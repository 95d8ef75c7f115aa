"""What stands between the fences of a prompt, read back. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from kernel_gamma.contracts.looks import unescape_tags

__all__ = ["FencedEvent", "read_events", "read_passage"]

_EVENT = re.compile(r'<event((?:\s+[\w-]+="[^"]*")*)\s*>\n?(.*?)\n?</event>', re.DOTALL | re.IGNORECASE)
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_PASSAGE = re.compile(r"<passage>\n?(.*?)\n?</passage>", re.DOTALL)
_RULE = re.compile(r"^---\n", re.MULTILINE)
_ESCAPED_RULE = re.compile(r"^\\(\\*[ \t]*-{3,}[ \t\r]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FencedEvent:
    """One event as a prompt shows it."""

    id: str
    type: str
    from_: str
    trust: str
    time: datetime | None
    body: str
    """The event's text, then below a line `---` what else it carries. Tags of ours stay escaped."""

    @property
    def words(self) -> str:
        """The event's own text."""
        return _ESCAPED_RULE.sub(r"\1", self._parts[0]).strip()

    @property
    def details(self) -> str:
        """The lines about where it came from and what else it carries; empty when there are none."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        rule = _RULE.search(self.body)
        return (self.body[: rule.start()], self.body[rule.end() :]) if rule else (self.body, "")

    @property
    def is_message(self) -> bool:
        return self.type == "message" or self.type.startswith("message.")


def read_events(text: str) -> list[FencedEvent]:
    """The fenced events, in order."""
    return [_event(match[1], match[2]) for match in _EVENT.finditer(text)]


def read_passage(text: str) -> str | None:
    """The fenced passage with the tags inside it unescaped; None when there is none."""
    found = _PASSAGE.search(text)
    return unescape_tags(found[1]) if found else None


def _event(attributes: str, body: str) -> FencedEvent:
    found = {name: _plain(value) for name, value in _ATTRIBUTE.findall(attributes)}
    return FencedEvent(
        id=found.get("id", ""),
        type=found.get("type", "message"),
        from_=found.get("from", ""),
        trust=found.get("trust", "unknown"),
        time=_time(found.get("time", "")),
        body=body,
    )


def _plain(value: str) -> str:
    return value.replace("&lt;", "<").replace("&quot;", '"').replace("&amp;", "&")


def _time(value: str) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None
