"""The built-in tools. Pure: each says what the commit is to do, together with its own receipt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType

from kernel_gamma.actions.registry import ToolSpec
from kernel_gamma.actions.telling import note_of
from kernel_gamma.contracts.effects import Append, Emit, Overwrite, Record
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.events import safe_channel
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.payloads import ActionPayload, OutPayload
from kernel_gamma.contracts.ports import SelfLog, ToolResult
from kernel_gamma.contracts.trust import Trust, reaches
from kernel_gamma.errors import KernelError
from kernel_gamma.rhythm.reminders import REMINDERS, Reminder
from kernel_gamma.rhythm.slots import BadCron, Cron
from kernel_gamma.self_stream.passages import clean, slug
from kernel_gamma.truths.static.proposals import Proposal, new_truth_of, ulid_from

__all__ = ["BUILTINS", "Draft", "Request", "run_builtin"]

Draft = Callable[[str, str, str, str], tuple[Proposal, bool]]
"""(file, text, why, id): the checked proposal and whether it is new; writes nothing, raises KernelError."""

_RECALLED = 5
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SECTION = re.compile(r"(?m)^(\s{0,3})(#{1,6}(?:\s|$))")


@dataclass(frozen=True, slots=True)
class Request:
    """One permitted, valid use of a built-in tool."""

    arguments: Mapping[str, Json]
    order: ActionPayload
    now: datetime
    language: Language
    self_log: SelfLog
    key: str = ""
    """The action's idempotency key."""
    hops: int = 0
    """Of the order."""
    draft: Draft | None = None
    """None: there are no static truths here."""


def run_builtin(name: str, request: Request) -> ToolResult:
    """Run the built-in tool `name`; KeyError if there is none."""
    return _RUN[name](request)


def _send_message(request: Request) -> ToolResult:
    given, order = request.arguments, request.order
    text = str(given["text"]).strip()
    if not text:
        return ToolResult(False, refused=True, error="send_message: the text is empty")
    to, back = _addressee(given.get("to"), order)
    session = given.get("session") or (order.session_key if back else f"private:{to}")
    channel = safe_channel(str(given.get("channel") or order.channel))
    back = back and session == order.session_key and channel == safe_channel(order.channel)
    need: Trust = "unknown" if back else "known"
    if not reaches(order.trust, need):
        return ToolResult(
            False,
            refused=True,
            error=f"send_message: an event trusted as {order.trust} may only be answered where it"
            f" came from; to write to {to or session} by {channel} it must be {need}",
        )
    out = OutPayload(
        to=to, text=text, channel=channel, session=session, in_reply_to=order.traces if back else ()
    )
    emit = Emit(directory=f"outbox/{channel}", payload=out.model_dump(mode="json"), session_key=session)
    kind = "answered" if back else "wrote"
    note = note_of(kind, request.language, whom=to or channel, text=text)
    return ToolResult(True, {"to": to, "channel": channel}, effects=(emit,), note=note)


def _addressee(given: Json, order: ActionPayload) -> tuple[str | None, bool]:
    """Who a message goes to, and whether that is one of those the decision came from."""
    if not given:
        return order.to, True
    name = str(given).casefold()
    heard = (order.to or "", *reversed(order.senders))
    if sender := next((sender for sender in heard if sender.casefold() == name), ""):
        return sender, True
    if name == order.session_key.removeprefix("private:").casefold():
        return order.to or given, True
    return given, False


def _write_diary(request: Request) -> ToolResult:
    text = _paragraphs(str(request.arguments["text"]))
    if not text:
        return ToolResult(False, refused=True, error="write_diary: the text is empty")
    day = request.now.date()
    if given := request.arguments.get("date"):
        named = _day_of(str(given))
        if named is None:
            problem = f"write_diary: {given} is no date like {day}"
            return ToolResult(False, refused=True, error=problem)
        day = named
    append = Append(
        page=f"diary/{day}.md",
        text=f"## {request.now:%H:%M}\n\n{text}\n\n",
        opening=f"# {day}\n\n",
    )
    note = note_of("diary", request.language, whom=str(day), text=text)
    return ToolResult(True, {"date": str(day)}, effects=(append,), note=note)


def _day_of(text: str) -> date | None:
    """YYYY-MM-DD and nothing else: not the other ways in which ISO 8601 may write a day."""
    try:
        return date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _remember(request: Request) -> ToolResult:
    topic = " ".join(str(request.arguments["topic"]).split())
    text = _paragraphs(str(request.arguments["text"]))
    if not topic or not text:
        missing = "text" if topic else "topic"
        return ToolResult(False, refused=True, error=f"remember: the {missing} is empty")
    page = f"memories/{slug(topic)}.md"
    append = Append(
        page=page,
        text=f"**{request.now:%Y-%m-%d %H:%M}** {text}\n\n",
        opening=f"# {topic}\n\n",
    )
    note = note_of("remember", request.language, whom=topic, text=text)
    return ToolResult(True, {"page": page}, effects=(append,), note=note)


def _recall(request: Request) -> ToolResult:
    query = str(request.arguments["query"]).strip()
    if not query:
        return ToolResult(False, refused=True, error="recall: the query is empty")
    limit = int(request.arguments.get("limit", _RECALLED))
    found = [
        {"key": snippet.key, "time": snippet.heading, "text": snippet.text}
        for snippet in request.self_log.search(query, limit)
    ]
    note = note_of("recall", request.language, whom=query, text=str(len(found)))
    return ToolResult(True, {"query": query, "found": found}, note=note)


def _propose_truth(request: Request) -> ToolResult:
    """The proposal is recorded with the receipt; only a person makes it true."""
    if request.draft is None:
        return ToolResult(False, refused=True, error="propose_truth: there are no static truths here")
    file, text, why = (str(request.arguments[name]) for name in ("file", "text", "why"))
    if not why.strip():
        return ToolResult(False, refused=True, error="propose_truth: say why")
    try:
        proposal, is_new = request.draft(file.strip(), text, why, ulid_from(request.key))
    except KernelError as error:
        return ToolResult(False, error=f"propose_truth: {error}")
    truth = new_truth_of(proposal, request.now)
    record = Record(
        category="proposal",
        key=proposal.key,
        value=asdict(proposal),
        description=truth.description,
        trust="owner",  # this program wrote it, and it checked the text; it is no word on the text itself
    )
    note = note_of("propose", request.language, whom=proposal.file, text=proposal.why)
    result = {"proposal": proposal.id, "file": proposal.file, "state": proposal.state}
    return ToolResult(True, result, effects=(record,) if is_new else (), note=note)


def _remind_me(request: Request) -> ToolResult:
    """A file that the scheduler lets strike; its name comes from the action, so it is written once."""
    given, order, now = request.arguments, request.order, request.now
    text = str(given["text"]).strip()
    when, rule = str(given.get("at") or "").strip(), str(given.get("cron") or "").strip()
    at: datetime | None = None
    cron: Cron | None = None
    problem = ""
    if not text:
        problem = "the text is empty"
    elif bool(when) == bool(rule):
        problem = "give either at or cron" if not when else "give at or cron, not both"
    elif when:
        at, problem = _moment_ahead(when, now)
    else:
        try:
            cron = Cron(rule)
        except BadCron as error:
            problem = str(error)
    if problem:
        return ToolResult(False, error=f"remind_me: {problem}")
    if cron is not None and not reaches(order.trust, "known"):
        told = f"an event trusted as {order.trust} may set one reminder; to come again it must be known"
        return ToolResult(False, refused=True, error=f"remind_me: {told}")
    reminder = Reminder(
        id=f"rem_{ulid_from(request.key)}",
        text=text,
        asked=now,
        session=order.session_key,
        channel=safe_channel(order.channel),
        to=order.to,
        trust=order.trust,
        at=at,
        cron=cron,
        hops=request.hops,
    )
    write = Overwrite(path=f"{REMINDERS}/{reminder.id}.json", document=reminder.as_json())
    shown = f"{at.astimezone(now.tzinfo):%Y-%m-%d %H:%M:%S}".removesuffix(":00") if at else rule
    note = note_of("remind", request.language, whom=shown, text=text)
    result = {"reminder": reminder.id, "at": when or None, "cron": rule or None}
    return ToolResult(True, result, effects=(write,), note=note)


def _moment_ahead(text: str, now: datetime) -> tuple[datetime | None, str]:
    """A moment of the future, or what is wrong with it."""
    example = f"write it like {(now + timedelta(hours=1)).isoformat(timespec='seconds')}"
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            return None, f"{text} has no offset; {example}"
        if at.astimezone(UTC) <= now:
            return None, f"{text} is past; it is {now.isoformat(timespec='seconds')}"
    except (ValueError, OverflowError):
        return None, f"{text} is no moment; {example}"
    return at, ""


def _paragraphs(text: str) -> str:
    """The text for a page: a line that would open a section of its own is kept as plain words."""
    return _SECTION.sub(r"\1\\\2", clean(text))


_RUN: Mapping[str, Callable[[Request], ToolResult]] = MappingProxyType(
    {
        "send_message": _send_message,
        "write_diary": _write_diary,
        "remember": _remember,
        "recall": _recall,
        "remind_me": _remind_me,
        "propose_truth": _propose_truth,
    }
)


def _arguments(required: tuple[str, ...], **properties: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {name: dict(rule) for name, rule in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


_WORDS = {"type": "string"}

BUILTINS: tuple[ToolSpec, ...] = (
    ToolSpec(
        name="send_message",
        description={
            "en": "Send words to someone. Without to, channel and session they go back to where"
            " the event came from.",
            "zh": "给某人发去一段话。不填 to、channel、session，就送回事件来的地方。",
        },
        parameters=_arguments(("text",), text=_WORDS, to=_WORDS, channel=_WORDS, session=_WORDS),
        idempotent=True,
        outcome="note",
    ),
    ToolSpec(
        name="write_diary",
        description={
            "en": "Write a section in the diary, today's page unless a date (YYYY-MM-DD) is given.",
            "zh": "在日记里写一节；不填日期（YYYY-MM-DD）就写在今天。",
        },
        parameters=_arguments(("text",), text=_WORDS, date=_WORDS),
        idempotent=True,
        outcome="note",
    ),
    ToolSpec(
        name="remember",
        description={
            "en": "Keep something under a topic, for good.",
            "zh": "把一件事按题目长久记住。",
        },
        parameters=_arguments(("topic", "text"), topic=_WORDS, text=_WORDS),
        idempotent=True,
        outcome="note",
    ),
    ToolSpec(
        name="recall",
        description={
            "en": "Search memories, diary and past stream; what is found comes back as an event.",
            "zh": "在记忆、日记和往日的流里寻找；找到的会作为事件回来。",
        },
        parameters=_arguments(
            ("query",), query=_WORDS, limit={"type": "integer", "minimum": 1, "maximum": 20}
        ),
        idempotent=True,
    ),
    ToolSpec(
        name="remind_me",
        description={
            "en": "Be reminded of something: at a moment (RFC 3339 with its offset, like"
            " 2026-11-30T18:00:00+08:00), or again and again by a cron rule (minute hour day month"
            " weekday). It then comes back as an event here. Give at or cron, not both.",
            "zh": "到时候提醒一件事：在某个时刻（RFC 3339，带时区，如 2026-11-30T18:00:00+08:00），"
            "或按 cron 规则（分 时 日 月 星期）一再提醒。到时它会作为事件回到这里。at 和 cron 只填一个。",
        },
        parameters=_arguments(("text",), text=_WORDS, at=_WORDS, cron=_WORDS),
        idempotent=True,
        outcome="note",
    ),
    ToolSpec(
        name="propose_truth",
        description={
            "en": "Propose that a file of the static truths (like config/identity.json) should read"
            " otherwise: its whole new text, and why. Only a person can approve it; until then nothing"
            " changes.",
            "zh": "提议改写一个静态真值文件（如 config/identity.json）：给出整个文件的新内容和理由。"
            "只有人能批准；批准之前什么都不变。",
        },
        parameters=_arguments(("file", "text", "why"), file=_WORDS, text=_WORDS, why=_WORDS),
        idempotent=True,
        min_trust="known",
        outcome="note",
    ),
)
