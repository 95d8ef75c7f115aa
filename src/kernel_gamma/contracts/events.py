"""A dropped document → the events a mind perceives. Four forms, told apart by their keys:

 plain         everything else; `text` or `type` (or an attachment) is there
 envelope      `envelope` and `payload`: what the mind writes itself, or a program that knows its form
 CloudEvents   `specversion`: 1.0 structured JSON; (source, id) is a dedupe key
 AMP           `header` and `payload`: AuroraBot's event

Who is believed: trust never comes from the document, only from names looked up in the settings. A
dropped envelope cannot raise itself either: its `hops` are honoured (they only restrain), its
`source_type` only as `message`, `system` or `rhythm`; to claim `action` or `reflection`, the mind's own
doings, makes it `system`. Nor may anything dropped speak as the mind itself: a type that begins `action.`
or `page.` becomes `external.…`, and a sender called `self` or like the mind is `unknown`. A file the bus
wrote (`inherited` is given) is taken at its word.

In plain and enveloped documents a known key of a wrong type is Poison; in the `data` of CloudEvents and
AMP such a key is the producer's own business and stays in the event's data. Whatever has no field of its
own stays there; where two levels name the same key, the outer one gets an underscore before its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

from pydantic import ValidationError

from kernel_gamma.contracts.envelope import SOURCE_TYPES, Envelope, Json, SourceType, is_id
from kernel_gamma.contracts.event_keys import (
    ATTACHMENT_FOLDER,
    Keys,
    joined,
    object_of,
    read_moment,
    whole,
    word_of,
)
from kernel_gamma.contracts.json_text import json_kind
from kernel_gamma.contracts.looks import look
from kernel_gamma.contracts.payloads import Attachment, Event
from kernel_gamma.contracts.trust import Trust, least
from kernel_gamma.errors import Poison

__all__ = [
    "ATTACHMENT_FOLDER",
    "ParsedEvent",
    "from_outside",
    "read_events",
    "safe_channel",
    "session_of",
    "trust_lookup",
]

DEFAULT_CHANNEL: Final = "console"

_CHANNEL_BYTES = 100
_UNSAFE_IN_CHANNEL = re.compile(r"[^\w.-]+")
_SELF = "self"
_NOBODY = "unknown"
_OWN_TYPES = ("action.", "page.")
"""What only the mind itself can tell: what became of its actions and of its pages."""
_ALLOWED_TO_CLAIM = frozenset({"message", "system", "rhythm"})
_ENVELOPE_KEYS = frozenset(Envelope.model_fields)

_Model = TypeVar("_Model", Event, Envelope)


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """One event and what its form said beside it."""

    event: Event
    dedupe_key: str | None = None
    """CloudEvents only: names the pair (source, id) and nothing else."""
    envelope: Envelope | None = None
    """Form envelope only, with defaults filled in and its claims cut to what is allowed."""
    ttl_sec: int | None = None
    """Seconds from acceptance until it expires; None = never."""
    hops: int = 0
    source_type: SourceType = "message"
    own_name: bool = False
    """Somebody else wrote it under a name of the mind's own; its sender is `unknown` therefore."""


@dataclass(slots=True, kw_only=True)
class _Draft:
    """What one document says, before ids, time and trust are settled."""

    given_id: str | None
    type: str
    text: str
    sender: str | None
    source: str | None = None
    """The system that speaks for the sender: CloudEvents source, AMP app, source_node."""
    session: str
    channel: str | None
    time: Json
    data: dict[str, Json]
    attachments: tuple[Attachment, ...]
    ttl_sec: int | None = None
    dedupe_key: str | None = None
    envelope: dict[str, Json] | None = field(default=None)


def read_events(
    document: Json,
    *,
    accepted_at: datetime,
    new_id: Callable[[str], str],
    trust_of: Callable[[Sequence[str]], Trust],
    inherited: Trust | None = None,
    mind: str = _SELF,
    own_names: Collection[str] = (),
) -> tuple[ParsedEvent, ...]:
    """The events of one document, in its order; an array is accepted or refused whole.

    `new_id(prefix)` makes ids. `trust_of` is asked with every name the event goes by (trust_lookup).
    `inherited` is given for files the bus wrote: their trust is already known and wins. `mind` is the
    mind's name, `own_names` are others it goes by. Raises Poison that names the key; in an array also the
    element.
    """
    if isinstance(document, list) and not document:
        raise Poison("an empty array holds no event", kind="not_an_object")
    elements = document if isinstance(document, list) else [document]
    events = []
    for index, element in enumerate(elements):
        try:
            given = draft = _draft(element)
            if inherited is None:
                draft = _from_outside(draft, mind, own_names)
            one = _finish(draft, accepted_at, new_id, trust_of, inherited)
            events.append(replace(one, own_name=True) if given.sender != draft.sender else one)
        except Poison as poison:
            if isinstance(document, list):
                raise Poison(f"element {index}: {poison}", kind=poison.kind) from None
            raise
    return tuple(events)


def session_of(document: Json, mind: str = _SELF, own_names: Collection[str] = ()) -> str:
    """The session key of the first event of a document; empty when it has none. Never raises."""
    first = document[0] if isinstance(document, list) and document else document
    try:
        return _from_outside(_draft(first), mind, own_names).session
    except Poison:
        return ""


def from_outside(event: Event, mind: str) -> Event:
    """The event as it may be told when somebody else wrote the file it stands in."""
    type_, sender, session = _disowned(event.type, event.from_, event.session, mind)
    return event.model_copy(update={"type": type_, "from_": sender, "session": session})


def trust_lookup(
    owner: Collection[str], known: Collection[str], web: Collection[str]
) -> Callable[[Sequence[str]], Trust]:
    """How far a set of names is believed: the least of all that are listed, else `unknown`.

    So a stranger who calls himself like the owner, on a channel that is only `known`, is no owner. Names
    of `web` match in any case (they can only lower), the others to the letter.
    """
    levels: dict[str, Trust] = {**dict.fromkeys(owner, "owner"), **dict.fromkeys(known, "known")}
    distrusted = frozenset(name.strip().casefold() for name in web)

    def lookup(names: Sequence[str]) -> Trust:
        if any(name.strip().casefold() in distrusted for name in names):
            return "web"
        listed = [levels[name] for name in names if name in levels]
        return least(listed) if listed else "unknown"

    return lookup


def safe_channel(name: str) -> str:
    """`name` as the name of a folder in outbox/: word characters of any script, `.`, `-`, `_`."""
    safe = _UNSAFE_IN_CHANNEL.sub("_", name.strip()).strip(".-")
    safe = safe.encode(errors="ignore")[:_CHANNEL_BYTES].decode(errors="ignore")
    if not safe.strip("_"):
        return DEFAULT_CHANNEL
    return "_done" if safe.lower() == "done" else safe


# What each form says


def _draft(document: Json) -> _Draft:
    if not isinstance(document, dict):
        raise Poison(f"must be an object, is {json_kind(document)}", kind="not_an_object")
    if "specversion" in document:
        return _cloud_event(document)
    speaks_plainly = document.get("text") is not None or document.get("type") is not None
    if "envelope" in document and ("payload" in document or not speaks_plainly):
        return _enveloped(document)
    if isinstance(document.get("header"), dict) and "payload" in document:
        return _amp(document)
    return _plain(document)


def _plain(document: Mapping[str, Json]) -> _Draft:
    keys = Keys(document)
    attachments = keys.attachments()
    if not attachments and all(document.get(key) is None for key in ("text", "type")):
        raise Poison("needs `text` or `type`", kind="no_content")
    type_ = keys.word("type") or "message"
    sender = keys.word("from")
    return _Draft(
        given_id=keys.word("id"),
        type=type_,
        text=keys.text("text") or "",
        sender=sender,
        session=keys.word("session", "session_key") or _default_session(type_, sender),
        channel=keys.word("channel"),
        time=keys.take("time") or keys.moment("timestamp"),
        ttl_sec=whole("ttl_sec", keys.take("ttl_sec")),
        data=keys.rest(unfold="data"),
        attachments=attachments,
    )


def _enveloped(document: Mapping[str, Json]) -> _Draft:
    outer = Keys(document)
    envelope = object_of("envelope", outer.take("envelope"))
    payload = object_of("payload", outer.take("payload"))
    keys = Keys(payload, "payload.")
    attachments = keys.attachments()
    kind = envelope.get("source_type") or "message"
    words = any(payload.get(key) is not None for key in ("text", "type"))
    if not payload or (kind == "message" and not words and not attachments):
        raise Poison("payload: needs `text` or `type`", kind="no_content")
    source = word_of("envelope.source_node", envelope.get("source_node"))
    type_ = keys.word("type") or _type_of_kind(kind, payload.get("rule"))
    said = keys.word("from")
    sender = said or (None if kind == "message" and _is_message(type_) else source)
    session = word_of("envelope.session_key", envelope.get("session_key"))
    inner_session = keys.word("session", "session_key")
    return _Draft(
        given_id=word_of("envelope.id", envelope.get("id")),
        type=type_,
        text=keys.text("text") or "",
        sender=sender,
        source=source,
        session=session or inner_session or _default_session(type_, said if kind == "message" else None),
        channel=keys.word("channel"),
        time=keys.take("time"),
        data=joined(keys.rest(unfold="data"), outer.left),
        attachments=attachments,
        envelope=envelope,
    )


def _cloud_event(document: Mapping[str, Json]) -> _Draft:
    outer = Keys(document)
    version = outer.word("specversion")
    if version != "1.0":
        raise Poison(f"specversion: must be 1.0, is {version}", kind="bad_key")
    given_id, source, type_ = (_required(outer, key) for key in ("id", "source", "type"))
    time, body = outer.take("time"), outer.take("data")
    keys = Keys(body if isinstance(body, dict) else {}, "data.", lenient=True)
    if body is not None and not isinstance(body, dict | str):
        keys.left["data"] = body
    text = body if isinstance(body, str) else keys.text("text")
    sender = keys.word("from") or source
    return _Draft(
        given_id=given_id,
        type=type_,
        text=text or "",
        sender=sender,
        source=source,
        session=keys.word("session", "session_key") or f"private:{sender}",
        channel=keys.word("channel"),
        time=time,
        attachments=keys.attachments(),
        data=joined(keys.left, {"source": source, **outer.left}),
        dedupe_key=json.dumps([source, given_id]),
    )


def _required(keys: Keys, key: str) -> str:
    value = keys.text(key)
    if value is None or not value.strip():
        raise Poison(f"{key}: is missing", kind="bad_key")
    return value


def _amp(document: Mapping[str, Json]) -> _Draft:
    outer = Keys(document)
    header = Keys(object_of("header", outer.take("header")), "header.")
    payload = Keys(object_of("payload", outer.take("payload")), "payload.")
    body = payload.take("data")
    keys = Keys(body if isinstance(body, dict) else {}, "payload.data.", lenient=True)
    if body is not None and not isinstance(body, dict):
        keys.left["data"] = body
    origin = Keys(object_of("header.source", header.take("source") or {}), "header.source.")
    app = origin.word("app")
    type_ = payload.word("type") or "message"
    sender = keys.word("user_id") or app
    summary = payload.text("summary")
    text = keys.text("text")
    if text and summary and summary != text:
        keys.left.setdefault("summary", summary)
    return _Draft(
        given_id=header.word("message_id"),
        type="message" if type_ == "message.received" else type_,
        text=text or summary or "",
        sender=sender,
        source=app,
        session=_amp_session(keys, payload) or _default_session(type_, sender),
        channel=keys.word("channel") or app,
        time=keys.take("time") or payload.take("time"),
        attachments=keys.attachments(),
        data=joined(joined(joined(keys.left, payload.left), header.left | origin.left), outer.left),
    )


def _amp_session(keys: Keys, payload: Keys) -> str | None:
    """A group is known by its group id; its session_id (kept in data) may be a bare number."""
    group = keys.left.get("group_id")
    if keys.left.get("is_group") is True and isinstance(group, str | int) and group != "":
        return f"group:{group}"
    return payload.word("session_id") or keys.word("session")


def _type_of_kind(kind: Json, rule: Json) -> str:
    """The type of an enveloped payload that names none: triggers say only their rule."""
    if kind == "rhythm" and isinstance(rule, str) and rule:
        return f"rhythm.{rule}"
    return kind if isinstance(kind, str) else "message"


def _default_session(type_: str, sender: str | None) -> str:
    if sender:
        return f"private:{sender}"
    if type_.startswith("rhythm."):
        return "rhythm:" + type_.removeprefix("rhythm.")
    return "private:unknown" if _is_message(type_) else "system"


def _is_message(type_: str) -> bool:
    return type_ == "message" or type_.startswith("message.")


# From draft to event


def _from_outside(draft: _Draft, mind: str, own_names: Collection[str]) -> _Draft:
    type_, sender, session = _disowned(draft.type, draft.sender or "", draft.session, mind, own_names)
    return replace(draft, type=type_, sender=sender or None, session=session)


def _disowned(
    type_: str, sender: str, session: str, mind: str, own_names: Collection[str] = ()
) -> tuple[str, str, str]:
    """The three without what only the mind itself may say; invisible characters hide nothing."""
    if look(type_).startswith(_OWN_TYPES):
        type_ = f"external.{type_}"
    if sender and look(sender) in (_SELF, look(mind), *map(look, own_names)):
        session = f"private:{_NOBODY}" if session == f"private:{sender}" else session
        sender = _NOBODY
    return type_, sender, session


def _finish(
    draft: _Draft,
    accepted_at: datetime,
    new_id: Callable[[str], str],
    trust_of: Callable[[Sequence[str]], Trust],
    inherited: Trust | None,
) -> ParsedEvent:
    data = draft.data
    given = draft.given_id
    id_ = given if given is not None and is_id(given) else new_id("evt")
    if given is not None and id_ != given:
        data = joined(data, {"id": given})
    time = read_moment("time", draft.time, accepted_at)
    envelope = None
    if draft.envelope is not None:
        filled = _filled(draft, accepted_at, new_id, bus_wrote_it=inherited is not None)
        filled["id"] = id_
        envelope = _validated(Envelope, filled, "envelope.")
        time = time or envelope.timestamp
    trace_id = envelope.trace_id if envelope else new_id("trace")
    fields: dict[str, Json] = {
        "id": id_,
        "type": draft.type,
        "text": draft.text,
        "from": draft.sender or _NOBODY,
        "session": draft.session,
        "channel": safe_channel(draft.channel) if draft.channel else DEFAULT_CHANNEL,
        "time": time or accepted_at,
        "data": data,
        "attachments": draft.attachments,
        "trust": inherited or trust_of(_names(draft)),
        "trace_id": trace_id,
    }
    event = _validated(Event, fields, "")
    if envelope is not None:
        return ParsedEvent(event, None, envelope, envelope.ttl_sec, envelope.hops, envelope.source_type)
    kind: SourceType = "message" if event.is_message else "system"
    return ParsedEvent(event, draft.dedupe_key, None, draft.ttl_sec, 0, kind)


def _names(draft: _Draft) -> tuple[str, ...]:
    """Every name the event goes by; a channel counts as given and as the folder it becomes."""
    names = [draft.sender, draft.source, draft.channel]
    if draft.channel:
        names.append(safe_channel(draft.channel))
    return tuple(dict.fromkeys(name for name in names if name))


def _filled(
    draft: _Draft,
    accepted_at: datetime,
    new_id: Callable[[str], str],
    *,
    bus_wrote_it: bool,
) -> dict[str, Json]:
    """The envelope's fields, defaults left out; what it lacks or claims wrongly is Poison."""
    given = draft.envelope or {}
    for key in ("id", "timestamp", "source_node"):
        if given.get(key) is None:
            raise Poison(f"envelope.{key}: is missing", kind="bad_envelope")
    fields = {key: value for key, value in given.items() if key in _ENVELOPE_KEYS and value is not None}
    fields["source_node"] = draft.source
    fields["session_key"] = draft.session
    fields["timestamp"] = read_moment("envelope.timestamp", given["timestamp"], accepted_at)
    for key in ("ttl_sec", "hops"):
        if key in fields:
            fields[key] = whole(f"envelope.{key}", fields[key])
    trace, parent = (word_of(f"envelope.{key}", given.get(key)) for key in ("trace_id", "parent_id"))
    fields["trace_id"] = trace if is_id(trace) else new_id("trace")
    fields["parent_id"] = parent if is_id(parent) else None
    kind = fields.get("source_type", "message")
    if kind not in SOURCE_TYPES:
        allowed = ", ".join(SOURCE_TYPES)
        raise Poison(f"envelope.source_type: must be one of {allowed}", kind="bad_envelope")
    fields["source_type"] = kind if bus_wrote_it or kind in _ALLOWED_TO_CLAIM else "system"
    return fields


def _validated(model: type[_Model], fields: dict[str, Json], where: str) -> _Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = where + ".".join(str(part) for part in first["loc"])
        kind = "bad_envelope" if where else "bad_key"
        raise Poison(f"{key}: {first['msg']}", kind=kind) from None
