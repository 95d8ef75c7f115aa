"""What stands in the payload of each queue file (contracts, section 3)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.trust import Trust

__all__ = [
    "Action",
    "ActionPayload",
    "Attachment",
    "Event",
    "MessagePayload",
    "OutPayload",
    "PassagePayload",
]


_PEOPLE = ("private:", "group:")


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Attachment(_Value):
    """A file or address that came with an event; a path lies under inbox/attachments/."""

    path: str | None = None
    url: str | None = None
    media_type: str = "application/octet-stream"


class Event(_Value):
    """One thing that happened, as the mind will perceive it, whatever form it was dropped in."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    id: str
    type: str = "message"
    text: str = ""
    from_: Annotated[str, Field(alias="from")] = "unknown"
    session: str = "system"
    channel: str = "console"
    time: AwareDatetime
    """When it happened: the producer's time if it gave one, else acceptance."""
    data: dict[str, Json] = {}
    """Every key of the dropped object that has no field of its own."""
    attachments: tuple[Attachment, ...] = ()
    trust: Trust = "unknown"
    trace_id: str = ""

    @property
    def is_message(self) -> bool:
        """Words addressed to the mind; never folded, never refused."""
        return self.type == "message" or self.type.startswith("message.")

    @property
    def awaited(self) -> bool:
        """Somebody waits for what comes of it: words of a person, or a reminder that one asked for."""
        return self.is_message or (self.type == "rhythm.reminder" and self.session.startswith(_PEOPLE))


class MessagePayload(_Value):
    """`msg_`: events of one session and one trust level that came together."""

    events: tuple[Event, ...]
    text: str
    """All texts, one below the other."""
    count: int
    trust: Trust = "unknown"


class PassagePayload(_Value):
    """`int_`: a passage was added to the stream. No prose: the passage stays in Pool A."""

    message_ids: tuple[str, ...]
    passage_id: str
    stream_offset: int
    """Byte offset in now.md at the commit; a hint, an editor may move it."""
    length: int
    sha256: str
    state_changed: bool = False
    session_key: str
    channel: str = "console"
    traces: tuple[str, ...] = ()
    """Every trace told in the passage; the envelope's trace_id is the newest."""
    to: str | None = None
    """Who a reply goes to by default: the newest message's sender."""
    senders: tuple[str, ...] = ()
    """Everyone who brought an event that is told in the passage, the newest last; not herself."""
    trust: Trust = "unknown"


class Action(_Value):
    """One decision, ready to run."""

    id: str
    tool: str
    arguments: dict[str, Json]
    idempotency_key: str


class ActionPayload(_Value):
    """`act_`: the actions decided in one passage."""

    passage_id: str
    actions: tuple[Action, ...]
    session_key: str = "system"
    channel: str = "console"
    to: str | None = None
    senders: tuple[str, ...] = ()
    """Everyone who may be answered where the event came from, the newest last."""
    traces: tuple[str, ...] = ()
    trust: Trust = "unknown"


class OutPayload(_Value):
    """`out_`: a message for the outside world."""

    to: str | None
    text: str
    channel: str
    session: str
    in_reply_to: tuple[str, ...]
    """The traces it answers."""
