"""Channel A, task types and the assembler of one home, built from what is open already.

The daemon, the command line and the gateway have theirs from here, so that what one of them shows is what
another one sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import structlog

from kernel_gamma.configuration import Home, defaults_dir, read_yaml
from kernel_gamma.context.assembler import Assembler, AssemblerPorts
from kernel_gamma.context.own_parts import OwnParts
from kernel_gamma.context.signs import loop_signs
from kernel_gamma.context.task_types import TASK_TYPES_FILE, TaskTypes, load_task_types
from kernel_gamma.contracts.context import Assembled, Request, TaskRequest
from kernel_gamma.contracts.language import Language, language_of
from kernel_gamma.contracts.ports import Clock, Role, SelfLog, TruthStore
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.errors import TruthError
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.prompts import Prompts
from kernel_gamma.settings import Settings
from kernel_gamma.truths.static.changes import Changes, Proposal
from kernel_gamma.truths.static.channel import StaticChannel, Tell

__all__ = ["Assembly", "Counting", "read_task_types"]


log = structlog.get_logger(__name__)


class Counting:
    """How a home counts tokens, and how much its model can take."""

    def __init__(self, count: Callable[[Role, str], int], window: Callable[[Role], int]) -> None:
        """Both as of ports.Model: by the tokenizer and the window of a role."""
        self.count = count
        self.window = window


class Assembly:
    """The assembler of one home with what it reads."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        store: TruthStore,
        self_log: SelfLog,
        clock: Clock,
        counting: Counting,
        *,
        tell: Tell,
        breaker: Callable[[], str] = lambda: "closed",
    ) -> None:
        """`breaker`: the state of the worst one. Raises SettingsError for what is wrong in config/."""
        self._settings = settings
        self._store = store
        self._self_log = self_log
        self._clock = clock
        self._counting = counting
        self._breaker = breaker
        self._prompts = Prompts(home.prompts_dir)
        self.task_types = read_task_types(home)
        self._tokens = Tokens()
        self.static = StaticChannel(
            home.root, settings.static.paths, store, clock, count=self._tokens.count, tell=tell
        )
        self.changes = Changes(home.root, settings.static.paths, store, clock, count=self._exactly)
        self.assembler = Assembler(
            AssemblerPorts(
                static=self.static,
                truths=store,
                task_types=lambda: self.task_types,
                settings=settings.context,
                window=counting.window,
                count=counting.count,
                signs=self.signs,
            )
        )

    def signs(self, now: datetime) -> Sequence[str]:
        """What speaks for an emergency at this moment."""
        open_ = ["a breaker of the model is open"] if self._breaker() == "open" else []
        return [*open_, *loop_signs(self._store, now)]

    def draft(self, file: str, text: str, why: str, proposal_id: str) -> tuple[Proposal, bool]:
        """What the mind proposes itself, checked; see Changes.draft."""
        by = f"the mind {self._settings.mind}"[:100]
        return self.changes.draft(file, text, why=why, by=by, proposal_id=proposal_id)

    def asked(self, asked: TaskRequest) -> tuple[Assembled, str | None]:
        """What would be sent for a task that nobody of this mind asks for, and the key of its account.

        The key is None when the store cannot take it. Raises TooLarge; ValueError for a task type or an agent
        that nobody knows.
        """
        assembled = self.assembler.assemble(self.request_for(asked))
        audit = assembled.audit
        who = audit["agent"] or "asked by hand"
        account = NewTruth(
            category="assembly",
            value=dict(audit),
            description=f"{who}: {audit['task_type']}, {audit['total_tokens']} tokens",
            trust="owner",
        )
        try:
            return assembled, self._store.upsert(account).key
        except TruthError as error:
            log.warning("the account of an assembly was not kept", error=str(error))
            return assembled, None

    def request_for(self, asked: TaskRequest) -> Request:
        """The mind's own past, the time and the task. `agent`: as if that one asked; it brings its
        instructions. Raises ValueError for one that has none."""
        settings, task, agent = self._settings, asked.task, asked.agent
        own = OwnParts(self._prompts, self._self_log, self._count, settings.internalizer, settings.context)
        spoken: Language = language_of(task) if settings.language == "auto" else settings.language
        now = self._clock.now()
        instructions = [own.instructions(_prompt_of(agent), spoken)] if agent else []
        return Request(
            task=task,
            now=now,
            language=spoken,
            agent=agent,
            task_type=asked.task_type,
            budget=asked.budget,
            parts=[
                own.persona(spoken),
                *instructions,
                own.state(self._self_log.state(), spoken),
                own.stream(spoken),
                own.memory(own.recollected(task), spoken),
                own.now(now, spoken),
                own.task(task, spoken),
            ],
        )

    def _exactly(self, text: str) -> int:
        """A budget that a change must keep is no estimate, however short the text."""
        return len(self._tokens.encode(text))

    def _count(self, text: str) -> int:
        return self._counting.count("quality", text)


def read_task_types(home: Home) -> TaskTypes:
    """config/task_types.yaml; the shipped ones where a home was laid out before there was one.

    Raises SettingsError.
    """
    path = home.root / TASK_TYPES_FILE
    if not path.exists() and not path.is_symlink():
        path = defaults_dir() / TASK_TYPES_FILE
    return load_task_types(read_yaml(path), str(path))


_PROMPTS: Mapping[str, str] = {"internalizer": "INTERNALIZER"}


def _prompt_of(agent: str) -> str:
    found = _PROMPTS.get(agent)
    if found is None:
        raise ValueError(f"agent {agent!r} is not one that can be asked for: {', '.join(_PROMPTS)}")
    return found
