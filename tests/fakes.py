"""Small second implementations of the ports: all in memory, all deterministic, nothing patched."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, Literal

from kernel_gamma.assembly import read_task_types
from kernel_gamma.configuration import Home
from kernel_gamma.context.assembler import Assembler, AssemblerPorts
from kernel_gamma.contracts.context import Assembled, Drift, Profile, Request, Section
from kernel_gamma.contracts.effects import (
    Append,
    Batch,
    Claim,
    Delivery,
    Effect,
    Emit,
    MovePrefix,
    Outcome,
    Overwrite,
    PassageRef,
    Replace,
)
from kernel_gamma.contracts.envelope import Envelope, Json
from kernel_gamma.contracts.payloads import Action, ActionPayload
from kernel_gamma.contracts.ports import (
    OutcomeUnknown,
    Page,
    Passage,
    PassagePlace,
    Reply,
    Role,
    Snippet,
    ToolResult,
    Turn,
    Usage,
)
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.contracts.truths import Finding, Search, Truth
from kernel_gamma.nodes.base import NodePorts
from kernel_gamma.self_stream.stream import rotation_for
from kernel_gamma.settings import Settings

ZONE = timezone(timedelta(hours=8), "CST")
START = datetime(2026, 11, 30, 10, 30, 5, tzinfo=ZONE)
TASK_TYPES = read_task_types(Home(Path(__file__).parents[1]))
PROMPTS = Path(__file__).parents[1] / "prompts"


class FakeClock:
    """Stands still until `advance` is called."""

    def __init__(self, start: datetime = START) -> None:
        self.moment = start
        self.elapsed = 0.0

    @property
    def zone(self) -> tzinfo:
        return self.moment.tzinfo or UTC

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.elapsed

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
        self.elapsed += seconds


class FakeIds:
    """`<prefix>_000001`, `<prefix>_000002`, … over all prefixes together."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count:06d}"


class MemoryJournal:
    """Keeps results by (batch id, step). `intents` holds steps begun without a result."""

    def __init__(self) -> None:
        self.results: dict[tuple[str, str], Json] = {}
        self.intents: set[tuple[str, str]] = set()
        self.ran: list[tuple[str, str, str]] = []
        """(batch id, step, kind) of every real run."""

    async def once(
        self,
        batch: Batch,
        step: str,
        run: Callable[[], Awaitable[Json]],
        *,
        kind: Literal["model", "tool"],
        again: bool = False,
    ) -> Json:
        key = (batch.id, step)
        if key in self.results:
            return json.loads(self.results[key])
        if key in self.intents and kind == "tool" and not again:
            raise OutcomeUnknown(step)
        self.intents.add(key)
        self.ran.append((batch.id, step, kind))
        result = await run()
        self.results[key] = json.dumps(result)
        return json.loads(self.results[key])

    async def kept(self, batch: Batch, step: str) -> Json:
        if (batch.id, step) in self.results:
            return json.loads(self.results[batch.id, step])
        if (batch.id, step) in self.intents:
            raise OutcomeUnknown(step)
        return None


@dataclass(frozen=True)
class Call:
    """One call a ScriptedModel was asked for."""

    role: Role
    turns: tuple[Turn, ...]
    agent: str
    trace_id: str
    schema: Mapping[str, Json] | None
    for_people: bool
    rule: str = ""

    @property
    def last(self) -> str:
        return self.turns[-1].text


class ScriptedModel:
    """Answers with what it was given, in order; an exception among the answers is raised."""

    def __init__(self, *answers: str | Reply | Exception, roles: Iterable[Role] = ()) -> None:
        self.answers = list(answers)
        self.roles = set(roles)
        self.calls: list[Call] = []
        self.counted: list[str] = []

    async def complete(
        self,
        role: Role,
        turns: Sequence[Turn],
        *,
        agent: str,
        trace_id: str,
        schema: Mapping[str, Json] | None = None,
        for_people: bool = True,
        rule: str = "",
    ) -> Reply:
        self.calls.append(Call(role, tuple(turns), agent, trace_id, schema, for_people, rule))
        if not self.answers:
            raise AssertionError(f"call {len(self.calls)} was not scripted")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Reply) else reply(answer)

    def has_role(self, role: Role) -> bool:
        return role in self.roles

    def count_tokens(self, role: Role, text: str) -> int:
        """A word, a Chinese character or a mark of punctuation is one token."""
        self.counted.append(text)
        return len(re.findall(r"[\u4e00-\u9fff]|[A-Za-z0-9_]+|[^\sA-Za-z0-9_\u4e00-\u9fff]", text))

    def window(self, role: Role) -> int:
        return 128_000


def reply(text: str, finish_reason: str = "stop") -> Reply:
    """A model's answer that cost 100 + 20 tokens."""
    usage = Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=60, cost=0.001)
    return Reply(text, finish_reason, "scripted", usage, 0.5)


class MemorySelfLog:
    """Pool A as a dict of pages; `take` carries out the appends and replacements of an Outcome."""

    def __init__(self, pages: Mapping[str, str] | None = None) -> None:
        self.pages = dict(pages or {})
        self.places: dict[str, PassagePlace] = {}
        self.found: list[Snippet] = []
        """What `search` and `recollect` answer, whatever is asked."""
        self.asked: list[str] = []

    def tail(self, max_bytes: int) -> list[Passage]:
        kept: list[Passage] = []
        size = 0
        for passage in reversed(self._passages()):
            size += len(passage.heading.encode()) + len(passage.text.encode()) + 8
            if size > max_bytes:
                break
            kept.append(passage)
        return kept[::-1]

    def passage(self, place: PassagePlace) -> Passage | None:
        text = self.pages.get(place.page, "").encode()[place.offset : place.offset + place.length]
        if hashlib.sha256(text).hexdigest() != place.sha256:
            return None
        return _split(text.decode())[-1]

    def state(self) -> Page:
        return self.page("state.md")

    def page(self, name: str) -> Page:
        text = self.pages.get(name)
        digest = None if text is None else hashlib.sha256(text.encode()).hexdigest()
        return Page(name, text or "", digest)

    def memories(self) -> list[str]:
        names = [name for name in self.pages if name.startswith("memories/")]
        return [name.removeprefix("memories/").removesuffix(".md") for name in names]

    def archive_dates(self) -> list[str]:
        found = [name for name in self.pages if name.startswith("stream/archive/")]
        return sorted(name.removeprefix("stream/archive/").removesuffix(".md") for name in found)

    def moving(self, keep_from: str) -> MovePrefix | None:
        rotation = rotation_for(Settings().stream, FakeClock(), None)
        return rotation.before(self.pages.get("stream/now.md", "").encode(), keep_from)

    def search(self, query: str, limit: int) -> list[Snippet]:
        self.asked.append(query)
        return self.found[:limit]

    def recollect(self, query: str, limit: int) -> list[Snippet]:
        return self.search(query, limit)

    def take(self, outcome: Outcome) -> None:
        """What a commit would do to Pool A."""
        for effect in outcome.effects:
            if isinstance(effect, Append):
                self.append(effect)
            elif isinstance(effect, Replace):
                self.pages[effect.page] = effect.text
            elif isinstance(effect, MovePrefix):
                self.move(effect)

    def move(self, effect: MovePrefix) -> None:
        data = self.pages[effect.page].encode()
        for archived in effect.archives:
            pieces = b"".join(data[start:end] for start, end in archived.ranges)
            self.pages[archived.page] = self.pages.get(archived.page, "") + pieces.decode()
        self.pages[effect.page] = effect.opening + data[effect.length :].decode()

    def append(self, effect: Append) -> None:
        before = self.pages.get(effect.page)
        before = effect.opening if before is None else before
        if effect.passage is not None:
            data = effect.text.encode()
            self.places[effect.passage.passage_id] = PassagePlace(
                passage_id=effect.passage.passage_id,
                page=effect.page,
                offset=len(before.encode()),
                length=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                heading=_split(effect.text)[-1].heading,
            )
        self.pages[effect.page] = before + effect.text

    def tell(self, passage_id: str, text: str, page: str = "stream/now.md") -> None:
        """Put a passage on a page as if it had been committed."""
        ref = PassageRef(passage_id, "experience")
        written = f"## 2026-11-30 10:30:05 +08:00\n\n{text}\n\n"
        self.append(Append(page=page, text=written, passage=ref))

    def _passages(self) -> list[Passage]:
        return _split(self.pages.get("stream/now.md", ""))


def _split(text: str) -> list[Passage]:
    pieces = re.split(r"(?m)^## (.*)$", text)
    found = [Passage("", pieces[0].strip())] if pieces[0].strip() else []
    pairs = zip(pieces[1::2], pieces[2::2], strict=True)
    return found + [Passage(heading.strip(), body.strip()) for heading, body in pairs]


class MemoryPrompts:
    """Prompts from a dict of name → text, the same in both languages."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)

    def text(self, name: str, language: Literal["en", "zh"], **values: str) -> str:
        text = self.texts[name]
        for key, value in values.items():
            text = text.replace("{" + key + "}", value)
        return text

    def sources(self, language: Literal["en", "zh"]) -> Sequence[str]:
        return tuple(self.texts.values())


class ScriptedTools:
    """A ToolHost that answers from a dict of tool → result; an unnamed tool succeeds."""

    def __init__(self, results: Mapping[str, ToolResult] | None = None) -> None:
        self.results = dict(results or {})
        self.ran: list[Action] = []
        self.offered: list[dict[str, Json]] = []

    async def run(
        self,
        action: Action,
        order: ActionPayload,
        *,
        batch: Batch,
        trace_id: str,
        now: datetime,
        late: bool = False,
    ) -> ToolResult:
        if late:
            return ToolResult(ok=False, refused=True, expired=True)
        self.ran.append(action)
        return self.results.get(action.tool, ToolResult(ok=True, perceive=False, note="I did it."))

    def catalogue(self, trust: Trust, language: str) -> list[dict[str, Json]]:
        return self.offered


class FixedStatic:
    """The StaticTruths port over sections that stand in memory."""

    def __init__(self, *sections: Section) -> None:
        self.held = list(sections)
        self.drifted: list[Drift] = []

    def sections(
        self, profile: Profile, *, named: Sequence[str] = (), operators: Sequence[str] = ()
    ) -> Sequence[Section]:
        loaded = {*(f"truth.{name}" for name in named), *(["operators"] if operators else [])}
        in_profile = [s for s in self.held if s.forced and (s.lean or profile == "full")]
        return [*in_profile, *(s for s in self.held if not s.forced and s.name in loaded)]

    def operators_in(self, text: str) -> Sequence[str]:
        return ["op"] if any(s.name == "operators" for s in self.held) and "operator" in text else []

    def truths_in(self, text: str) -> Sequence[str]:
        names = [s.name.removeprefix("truth.") for s in self.held if s.name.startswith("truth.")]
        return [name for name in names if name in text]

    def drift(self) -> Sequence[Drift]:
        return self.drifted


def section(name: str, text: str, *, lean: bool = False, forced: bool = True) -> Section:
    """A section as Channel A hands it out."""
    return Section(
        name=name,
        file=f"config/{name}.json",
        text=text,
        budget=500,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        lean=lean,
        forced=forced,
    )


PLAIN_STATIC = (section("meta_axioms", "# Axioms\n\nWhat is not known is called unknown.", lean=True),)


class NoTruths:
    """The reading side of a TruthStore that holds nothing; the real one has tests of its own."""

    def search(self, search: Search) -> Finding:
        return Finding(total=0, results=())

    def recent(self, *, limit: int, category: str | None = None) -> list[Truth]:
        return []

    def get(self, key: str, version: int | None = None) -> Truth | None:
        return None


@dataclass
class World:
    """Every fake, wired into one NodePorts: `World(settings=…).ports`."""

    settings: Settings = field(default_factory=Settings)
    clock: FakeClock = field(default_factory=FakeClock)
    ids: FakeIds = field(default_factory=FakeIds)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    model: Any = field(default_factory=ScriptedModel)
    self_log: MemorySelfLog = field(default_factory=MemorySelfLog)
    tools: Any = field(default_factory=ScriptedTools)
    prompts: Any = field(default_factory=lambda: MemoryPrompts(PLAIN_PROMPTS))
    claims: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    static: Any = field(default_factory=lambda: FixedStatic(*PLAIN_STATIC))
    truths: Any = field(default_factory=NoTruths)

    @property
    def assembler(self) -> Assembler:
        return Assembler(
            AssemblerPorts(
                static=self.static,
                truths=self.truths,
                task_types=lambda: TASK_TYPES,
                settings=self.settings.context,
                window=self.model.window,
                count=self.model.count_tokens,
            )
        )

    @property
    def ports(self) -> NodePorts:
        assembler = self.assembler

        async def assemble(request: Request) -> Assembled:
            return assembler.assemble(request)

        return NodePorts(
            clock=self.clock,
            ids=self.ids,
            journal=self.journal,
            model=self.model,
            self_log=self.self_log,
            tools=self.tools,
            prompts=self.prompts,
            settings=self.settings,
            place_of=self.self_log.places.get,
            seen=self.claims.get,
            assemble=assemble,
            kept=lambda prefix: {k: v for k, v in self.claims.items() if k.startswith(prefix)},
        )

    def take(self, outcome: Outcome) -> None:
        """Carry out what a commit would do to Pool A and to the claims."""
        self.self_log.take(outcome)
        for effect in outcome.effects:
            if isinstance(effect, Claim):
                self.claims[effect.key] = effect.value


PLAIN_PROMPTS = {
    "SOUL": "You are the self these words wake.",
    "INTERNALIZER": "Tell in the first person what the fenced events are to you.",
    "CONSOLIDATOR": "Keep what is worth knowing for good.",
    "EXTERNALIZER": "Translate what was decided. Tools:\n{tools}",
}


def envelope(**fields: Any) -> Envelope:
    """An envelope with every field given that a test does not care about."""
    given: dict[str, Any] = {
        "id": "msg_1",
        "trace_id": "trace_1",
        "timestamp": START,
        "source_node": "test",
        "session_key": "private:alice",
    }
    return Envelope.model_validate(given | fields)


def delivery(
    document: Json,
    *,
    seq: int = 1,
    queue: str = "inbox/pending",
    name: str = "",
    origin: Literal["bus", "dropped"] = "dropped",
    worn: Envelope | None = None,
    **fields: Any,
) -> Delivery:
    """A delivery of `document`; with `worn`, `document` is the payload below that envelope."""
    if worn is not None:
        document = {"envelope": worn.as_json(), "payload": document}
    return Delivery(
        seq=seq,
        queue=queue,
        name=name or f"e{seq}.json",
        origin=origin,
        document=document,
        accepted_at=START,
        envelope=worn,
        **fields,
    )


def batch(*deliveries: Delivery, id: str = "batch_1", node: str = "test") -> Batch:
    return Batch(id, node, deliveries)


def of_kind(outcome: Outcome, kind: type[Effect]) -> list[Any]:  # type: ignore[valid-type]
    """The effects of one class, in order."""
    return [effect for effect in outcome.effects if isinstance(effect, kind)]


def emits(outcome: Outcome, directory: str = "") -> list[Emit]:
    """The emits whose directory starts with `directory`."""
    return [e for e in outcome.effects if isinstance(e, Emit) and e.directory.startswith(directory)]


def acks(outcome: Outcome) -> dict[str, Json]:
    """Ack name → document."""
    found = [e for e in outcome.effects if isinstance(e, Overwrite)]
    return {e.path.removeprefix("inbox/acks/"): e.document for e in found}
