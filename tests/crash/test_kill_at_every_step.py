"""SIGKILL at every named step, a second one during the recovery, and the page that tells of it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.accounting import PLACES, Account, read_ledger, read_log, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import Script, expect, furnish, read_presses
from tests.scripted_server import ScriptedServer

from kernel_gamma.bus.steps import STEPS

PAGE = Path(__file__).parents[2] / "docs/crash-matrix.md"

FULL_ONLY = ("checkpoint.synced",)
IN_FULL_TOO = (
    "accept.recorded",
    "accept.renamed",
    "deliver.marked",
    "commit.before",
    "commit.recorded",
    "apply.append.half",
    "apply.emit.before",
    "apply.move.before",
    "commit.applied",
)


@dataclass(frozen=True)
class Case:
    """One life of a mind: killed once or twice, then left alone."""

    step: str
    n: int
    durability: str = "process"
    again: bool = False
    """Killed at the same step a second time, while it recovers."""
    short: bool = False
    """With a now.md so short that passages move to the archive all day long."""

    def __str__(self) -> str:
        return f"{self.step}:{self.n}-{self.durability}{'-again' * self.again}{'-short' * self.short}"


@dataclass(frozen=True)
class Story:
    """What came of a case."""

    case: Case
    kills: int
    at_kill: Counter[str]
    """Place → dropped files, right after the first kill."""
    unapplied: int
    """Commits that were in the ledger and not known to be on disk."""
    in_flight: int
    redone: int
    """Commits the restart carried out again."""
    told: int
    dead: int
    replies: int
    presses: int


MOVING = tuple(step for step in STEPS if step.startswith("apply.rotate."))
WHILE_MOVING = ("apply.append.before", "apply.append.half", "apply.append.after", "records.flushed")
ALL_DAY = ("deliver.marked", "commit.before", "commit.recorded", "commit.applied")
CASES = [
    *(Case(step, n) for step in STEPS if step not in (*FULL_ONLY, *MOVING) for n in (1, 2, 3)),
    *(Case(step, 20) for step in ALL_DAY),
    *(Case(step, 2, again=True) for step in STEPS if step not in (*FULL_ONLY, *MOVING)),
    *(Case(step, n, short=True) for step in MOVING for n in (1, 2, 3)),
    *(Case(step, 2, again=True, short=True) for step in (*MOVING, *WHILE_MOVING)),
    *(Case(step, 2, "full", short=True) for step in MOVING),
    *(Case(step, 20, short=True) for step in ALL_DAY),
    *(Case(step, n, "full") for step in FULL_ONLY for n in (1, 2, 3)),
    *(Case(step, 2, "full") for step in IN_FULL_TOO),
]
SHORT_BYTES = 1300
AT_MOST = {"apply.replace.kept": 2, "apply.replace.written": 2, "apply.replace.renamed": 2}
"""How often a step is reached at all in this small day, where that is less than three times."""


def live_through(case: Case, folder: Path, nursery: Nursery) -> Story:
    """One case from the first drop to the last check."""
    home = make_home(folder)
    furnish(home)
    dropper = Dropper(home)
    script = Script(dropper)
    script.drop(0)
    with ScriptedServer(script) as server:
        environ = {
            "OPENAI_BASE_URL": server.base_url,
            "CRASH_TOOL_FILE": str(home / "presses.txt"),
            "KGAMMA_BUS__DURABILITY": case.durability,
        }
        if case.short:
            environ["KGAMMA_STREAM__MAX_BYTES"] = str(SHORT_BYTES)
        deadly = {**environ, "KGAMMA_DEBUG__ENABLED": "true"}
        code = nursery.once(home, {**deadly, "KGAMMA_DEBUG__KILL_AT": f"{case.step}:{case.n}"})
        kills = int(code == -signal.SIGKILL)
        assert kills or code == 0, (home / "output.txt").read_text()
        script.drop_all()
        at_kill = where_files_are(dropper.data, dropper.files)
        unapplied = read_ledger(dropper.data, "SELECT count(*) FROM commits WHERE applied = 0")
        in_flight = read_ledger(dropper.data, "SELECT count(*) FROM deliveries WHERE status = 'running'")
        if case.again:
            code = nursery.once(home, {**deadly, "KGAMMA_DEBUG__KILL_AT": case.step})
            kills += code == -signal.SIGKILL
            where_files_are(dropper.data, dropper.files)
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    account = Account(dropper.data, dropper.files)
    presses = read_presses(home / "presses.txt")
    expect(account, presses)
    if case.short:
        assert len((dropper.data / "self/stream/now.md").read_bytes()) <= SHORT_BYTES
    return Story(
        case=case,
        kills=kills,
        at_kill=at_kill,
        unapplied=unapplied[0][0] if unapplied else 0,
        in_flight=in_flight[0][0] if in_flight else 0,
        redone=sum(
            line["commits"]
            for line in read_log(dropper.data, "commits of the last run were carried out again")
        ),
        told=len(account.told),
        dead=len(account.dead),
        replies=len(account.replies),
        presses=sum(map(len, presses.values())),
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kill_loses_nothing_and_doubles_nothing(case: Case, tmp_path: Path, nursery: Nursery) -> None:
    story = live_through(case, tmp_path, nursery)
    reached = case.n <= AT_MOST.get(case.step, 3) or case.n > 3
    assert bool(story.kills) is reached, "the step was never reached" if reached else "reached after all"


def test_the_page_of_steps_is_the_table_of_steps(tmp_path: Path, nursery: Nursery) -> None:
    """KGAMMA_WRITE_DOCS=1 lives through every case and writes the page anew, numbers included."""
    if os.environ.get("KGAMMA_WRITE_DOCS") == "1":
        stories = [live_through(case, tmp_path / str(number), nursery) for number, case in enumerate(CASES)]
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(render(stories), encoding="utf-8")
    assert PAGE.exists(), f"{PAGE} is missing; run this test once with KGAMMA_WRITE_DOCS=1"
    page = PAGE.read_text(encoding="utf-8")
    assert list_of_steps() in page, f"{PAGE} lists other steps; run this test once with KGAMMA_WRITE_DOCS=1"


# ---- the page


def list_of_steps() -> str:
    """The part of the page that must follow the code."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in STEPS.items()]
    return "\n".join(["| step | what is true at that moment |", "|---|---|", *rows, ""])


INTRODUCTION = """\
# Killed at every step

A mind may be killed at any instruction. `tests/crash/` does it at every named moment: a real daemon
with real files ends itself with SIGKILL at the step, a second process recovers and runs until it is idle,
and then everything is counted from outside: each dropped file in exactly one place and unchanged, each
event told in exactly one passage, each decision in exactly one message, a tool that may not be repeated run
at most once, nothing half-written, nothing open in the ledger.

This page is written by `KGAMMA_WRITE_DOCS=1 pytest tests/crash/test_kill_at_every_step.py`; the numbers
differ a little from run to run, the last four columns hardly. To die at a step by hand, set
`debug.enabled: true` and `debug.kill_at: <step>[:n]`.

## The steps

"""

TABLE = """
## What happened

One row is one life: a small day of 17 dropped files (messages of several people in English and Chinese, a
CloudEvent and its duplicate, an array, two files that can never be accepted, outside tools of both kinds, two
new state pages, an answer that is usable only at the second attempt and one that never is).

- **kill**: the step and the how-many-th time it was reached; *again*: killed at the same step a second time,
  during the recovery; *full*: with `bus.durability: full`, else `process`; *short*: with a now.md of
  1300 bytes, so that passages move to the archive all day long; *not reached*: the day ended before.
- **at the kill**: dropped files pending / taken / done / in dead_letter; then commits not marked as applied,
  and deliveries in flight.
- **redone**: commits the restart carried out again.
- **told**, **set aside**, **answered**, **pressed**: at the end, events told in the stream (each once), files
  in dead_letter, messages in outbox (each once), and runs of outside tools.

| kill | at the kill | unapplied | in flight | redone | told | set aside | answered | pressed |
|---|---|---|---|---|---|---|---|---|
"""


def render(stories: list[Story]) -> str:
    return INTRODUCTION + list_of_steps() + TABLE + "".join(map(_row, stories))


def _row(story: Story) -> str:
    case = story.case
    marks = [
        *(["again"] if story.kills > 1 else []),
        *(["short"] if case.short else []),
        *(["full"] if case.durability == "full" else []),
        *([] if story.kills else ["not reached"]),
    ]
    kill = f"`{case.step}:{case.n}`{''.join(f' {mark}' for mark in marks)}"
    places = " / ".join(str(story.at_kill[place]) for place in PLACES)
    cells = [kill, places, story.unapplied, story.in_flight, story.redone]
    cells += [story.told, story.dead, story.replies, story.presses]
    return f"| {' | '.join(map(str, cells))} |\n"
