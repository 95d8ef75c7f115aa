"""What the assembler saves and what it keeps: tokens, redundancy, evidence, time, against sending everything.

    python benchmarks/token_efficiency.py                              # 100 and 10,000 records, two minutes
    python benchmarks/token_efficiency.py --records 100 10000 1000000  # the whole proof; filling takes long
    python benchmarks/token_efficiency.py --check                      # a short run against the baseline
    python benchmarks/token_efficiency.py --lock NAME --reason "why"   # lock a new baseline

The history is 30 simulated days of public system logs with inspection reports, receipts, deploys, decisions
and incidents (history.py). `single` is the single channel: all static truths and all records, newest first,
up to 10,000 tokens. `dual` is what the daemon sends for the same task, its own past included. Same tokenizer.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import openai

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.history import NOW, Question, logs_folder, questions, truths
from benchmarks.redundancy import redundancy
from kernel_gamma.assembly import Assembly, Counting
from kernel_gamma.configuration import Home, lay_out
from kernel_gamma.context.single_channel import SingleChannel
from kernel_gamma.contracts.context import TaskRequest
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.self_stream.passages import render
from kernel_gamma.self_stream.stream import SelfStream
from kernel_gamma.settings import Settings
from kernel_gamma.truths.store import SqliteTruths, open_truths

BASELINE = Path(__file__).with_name("baseline.json")
SINGLE_TOKENS = 10_000
SHORT_RECORDS = 3_000
WORSE = 1.05
QUOTED_CHARACTERS = 6_000
"""Of its context that a report of the self-excitation case quotes."""
SINGLE_DAYS = 2
"""The single channel is at its cap at once; thirty days of it show nothing more."""
BATCH = 5_000
PREFILL_SEC_PER_TOKEN = 0.0001
"""About what a small GPU does; the answer itself takes as long for every prompt."""
ANSWER_SEC = 0.1
_NOW_PAGE_BYTES = 64_000
_THOUGHTS = (
    "I looked out at the yard, where the rain has turned the gravel dark.",
    "The kettle took longer than usual, and I counted the clicks of the lid.",
    "Somebody asked for the way to the harbour and thanked me twice.",
    "I thought about what I had promised, and that it can wait until evening.",
    "A long silence; I like how the house sounds when nobody speaks.",
    "I read a page of the old atlas and stayed at the map of the northern coast.",
    "我想起昨晚的对话，心里还有一点暖。",
    "窗外的猫又来了，我给它留了一点水。",
    "有人说起远方的雪，我便想象那里的路。",
    "今天的风很轻，树叶几乎不动。",
    "我答应过要记得买灯泡，现在记下来。",
    "Two messages crossed each other; I answered the older one first.",
    "The clock struck, and I noticed that I was not tired at all.",
    "I was wrong about the train, so I said so.",
    "他讲了一个笑话，我过了一会儿才笑。",
    "I put the letters into order, by date and not by size.",
)
_I_SEE = {"role": "assistant", "content": "I see."}


class Contender(Protocol):
    """One way to make a prompt."""

    name: str

    def context(self, task: str) -> str:
        """The whole text that is sent."""
        ...


class StandingClock:
    """Stands at one moment until it is moved."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    @property
    def zone(self) -> Any:
        return self.moment.tzinfo or UTC

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class World:
    """A home with a history, and both contenders over it."""

    folder: Path
    records: int
    logs: Path
    clock: StandingClock = field(default_factory=lambda: StandingClock(NOW))
    tokens: Tokens = field(default_factory=Tokens)
    fill_sec: float = 0.0

    def __post_init__(self) -> None:
        self.tokens.load()
        lay_out(self.folder)
        data = self.folder / "data/kernel"
        _live(data / "self")
        self.store: SqliteTruths = open_truths(data / "memory.db", self.clock)
        began = time.perf_counter()
        batch: list[NewTruth] = []
        for truth in truths(self.records, self.logs):
            batch.append(truth)
            if len(batch) == BATCH:
                self.store.upsert_many(batch)
                batch = []
        if batch:
            self.store.upsert_many(batch)
        self.fill_sec = time.perf_counter() - began
        self.assembly = Assembly(
            Home(self.folder),
            Settings(),
            self.store,
            SelfStream(data / "self"),
            self.clock,
            Counting(lambda role, text: self.count(text), lambda role: 128_000),
            tell=lambda category, description, value: None,
        )

    def count(self, text: str) -> int:
        return self.tokens.count(text)

    def close(self) -> None:
        self.store.close()


def _live(folder: Path) -> None:
    """A stream of 64 kB and a state page: what a mind has that lived for a month."""
    page = folder / "stream/now.md"
    page.parent.mkdir(parents=True)
    told, number = "", 0
    chance = random.Random(3)
    while len(told.encode()) < _NOW_PAGE_BYTES:
        number += 1
        at = NOW - timedelta(hours=1, minutes=7 * (300 - number))
        told += render(at, " ".join(chance.sample(_THOUGHTS, 3))) + "\n"
    page.write_text(told, encoding="utf-8")
    (folder / "state.md").write_text("## mood\n\nI am calm.\n\n## doing now\n\nI watch.\n", encoding="utf-8")


@dataclass
class Dual:
    """What the daemon sends."""

    world: World
    name: str = "dual"

    def context(self, task: str) -> str:
        assembly = self.world.assembly
        assembled = assembly.assembler.assemble(assembly.request_for(TaskRequest(task=task)))
        return "\n\n".join(turn.text for turn in assembled.turns)


@dataclass
class Single:
    """Everything, newest first."""

    world: World
    name: str = "single"

    def context(self, task: str) -> str:
        world = self.world
        channel = SingleChannel(world.assembly.static, world.store, newest=2_000)
        left = SINGLE_TOKENS - world.count(task)
        parts = channel.parts(left, world.count)
        return "\n\n".join([*(piece.text for part in parts for piece in part.pieces), task])


@dataclass(frozen=True)
class Row:
    """One contender over one history."""

    name: str
    records: int
    tokens: float
    p50: float
    p95: float
    redundancy: float
    evidence: float
    missing: tuple[str, ...]
    p50_ms: float
    p99_ms: float


def measure(world: World, contender: Contender, asked: Sequence[Question]) -> Row:
    """Every question once for its tokens, its redundancy and its evidence, and timed on the way."""
    for question in asked[:3]:
        contender.context(question.task)  # caches are warm in a daemon that lives
    counts, shares, times, missing = [], [], [], []
    needing = [question for question in asked if question.evidence]
    for question in asked:
        began = time.perf_counter()
        text = contender.context(question.task)
        times.append(1000 * (time.perf_counter() - began))
        counts.append(world.count(text))
        shares.append(redundancy(text))
        # the task itself is no evidence
        if question.evidence and not _holds(text.replace(question.task, ""), question):
            missing.append(question.task)
    times.sort()
    counts.sort()
    return Row(
        contender.name,
        world.records,
        statistics.mean(counts),
        statistics.median(counts),
        counts[int(len(counts) * 0.95)],
        statistics.mean(shares),
        1 - len(missing) / max(1, len(needing)),
        tuple(missing),
        statistics.median(times),
        times[min(len(times) - 1, int(len(times) * 0.99))],
    )


def _holds(text: str, question: Question) -> bool:
    plain = " ".join(html.unescape(text).split()).casefold()
    return all(" ".join(words.split()).casefold() in plain for words in question.evidence)


# The time to the whole answer


@contextmanager
def slow_server(count: Callable[[str], int]) -> Iterator[str]:
    """An endpoint whose first token takes as long as its prompt is; yields its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = sum(count(turn["content"]) for turn in body["messages"])
            time.sleep(prompt * PREFILL_SEC_PER_TOKEN + ANSWER_SEC)
            answer = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": "I see."},
                    }
                ],
                "usage": {"prompt_tokens": prompt, "completion_tokens": 3, "total_tokens": prompt + 3},
            }
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def answer_seconds(
    world: World, contenders: Sequence[Contender], asked: Sequence[Question]
) -> dict[str, float]:
    """Mean seconds from the task to the whole answer, assembly included, through the real SDK."""
    found = {}
    with slow_server(world.count) as base_url, openai.OpenAI(base_url=base_url, api_key="none") as client:
        for contender in contenders:
            spent = []
            for question in asked:
                began = time.perf_counter()
                text = contender.context(question.task)
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
                spent.append(time.perf_counter() - began)
            found[contender.name] = statistics.mean(spent)
    return found


# Self-excitation


def self_excitation(
    logs: Path, days: int, kind: Callable[[World], Contender] = Dual, hours: int = 24
) -> list[float]:
    """Mean tokens of each day's contexts; the mind writes a report an hour and quotes its context in it."""
    by_day = []
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), 300, logs)
        contender = kind(world)
        for day in range(days):
            counts = []
            for hour in range(hours):
                world.clock.moment = NOW + timedelta(days=day, hours=hour * 24 / hours)
                text = contender.context("Hourly report: what errors and alerts are there? 有哪些报警？")
                counts.append(world.count(text))
                report = f"Hourly report {hour}: I looked at everything.\n{text[-QUOTED_CHARACTERS:]}"
                world.store.upsert(
                    NewTruth(category="inspection", value=report, timestamp=world.clock.moment)
                )
            by_day.append(statistics.mean(counts))
        world.close()
    return by_day


# The baseline


def as_baseline(row: Row) -> dict[str, float]:
    return {
        "records": row.records,
        "tokens": round(row.tokens, 1),
        "redundancy": round(row.redundancy, 4),
        "evidence": round(row.evidence, 4),
    }


def worse_than(locked: dict[str, Any], row: Row) -> list[str]:
    """What is worse than the baseline by more than 5 %."""
    found = as_baseline(row)
    problems = []
    if found["tokens"] > locked["tokens"] * WORSE:
        problems.append(f"tokens per task {found['tokens']}, locked {locked['tokens']}")
    if found["redundancy"] > max(locked["redundancy"] * WORSE, locked["redundancy"] + 0.005):
        problems.append(f"redundancy {found['redundancy']}, locked {locked['redundancy']}")
    if found["evidence"] * WORSE < locked["evidence"]:
        problems.append(f"evidence {found['evidence']}, locked {locked['evidence']}")
    return problems


# The command


def table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| records | contender | tokens, mean | p50 | p95 | redundancy | evidence | made in, p50 | p99 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.records:,} | {row.name} | {row.tokens:,.0f} | {row.p50:,.0f} | {row.p95:,.0f} "
            f"| {row.redundancy:.1%} | {row.evidence:.1%} | {row.p50_ms:.1f} ms | {row.p99_ms:.1f} ms |"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--logs", type=Path, help="the folder of the public logs; else KGAMMA_LOGS")
    parser.add_argument("--days", type=int, default=30, help="of the self-excitation case; 0 leaves it out")
    parser.add_argument("--check", action="store_true", help="a short run against the baseline")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="the file of the baseline")
    parser.add_argument("--lock", metavar="NAME", help="lock a new baseline in this name")
    parser.add_argument("--reason", help="why the baseline changes")
    parser.add_argument("--missing", action="store_true", help="name the tasks whose evidence is not there")
    given = parser.parse_args()
    logs = logs_folder(given.logs)
    if logs is None:
        print("the public logs are not there: --logs DIR, or KGAMMA_LOGS (see docs/token-efficiency.md)")
        return 2
    if given.lock is not None and not (given.reason and given.lock.strip()):
        print("--lock needs a name and a --reason")
        return 2
    if given.check or given.lock is not None:
        return checked(logs, given.baseline, given.lock, given.reason)
    asked = questions(logs)
    rows: list[Row] = []
    answers: dict[str, float] = {}
    for records in given.records:
        with tempfile.TemporaryDirectory() as folder:
            world = World(Path(folder), records, logs)
            print(f"{records:,} records filled in {world.fill_sec:.0f} s", flush=True)
            contenders: tuple[Contender, ...] = (Single(world), Dual(world))
            rows += [measure(world, contender, asked) for contender in contenders]
            if records == given.records[-1] or records == 10_000:
                answers = answer_seconds(world, contenders, asked[:20])
            world.close()
    print("\n".join(table(rows)))
    if given.missing:
        for row in rows:
            for task in row.missing:
                print(f"  {row.name} at {row.records:,}: not there for: {task}")
    _print_goals(rows, answers)
    if given.days:
        _print_grown("dual", self_excitation(logs, given.days))
        _print_grown("single", self_excitation(logs, min(given.days, SINGLE_DAYS), Single))
    return 0


def checked(logs: Path, baseline: Path, name: str | None, reason: str | None) -> int:
    """The short run: against the baseline, or locked as the new one."""
    locked: dict[str, Any] = {}
    if name is None:
        try:
            locked = json.loads(baseline.read_text(encoding="utf-8"))["dual"]
        except (OSError, ValueError, KeyError) as error:
            print(f"{baseline} holds no baseline ({error!r}): lock one with --lock NAME --reason WHY")
            return 2
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), locked.get("records", SHORT_RECORDS), logs)
        row = measure(world, Dual(world), questions(logs))
        world.close()
    if name is not None:
        document = {"locked_by": name, "reason": reason, "dual": as_baseline(row)}
        baseline.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"locked: {document['dual']}")
        return 0
    problems = worse_than(locked, row)
    print(f"now {as_baseline(row)}, locked {locked}")
    for problem in problems:
        print(f"worse by more than 5 %: {problem}")
    return 1 if problems else 0


def _print_goals(rows: Sequence[Row], answers: dict[str, float]) -> None:
    dual = [row for row in rows if row.name == "dual"]
    single = {row.records: row for row in rows if row.name == "single"}
    last = dual[-1]
    saved = 1 - last.tokens / single[last.records].tokens
    spread = max(row.tokens for row in dual) / min(row.tokens for row in dual) - 1
    faster = 1 - answers["dual"] / answers["single"] if answers else 0.0
    for goal, found in (
        ("80 % fewer tokens", f"{saved:.0%}"),
        ("mean 1,500 to 3,000 tokens", f"{last.tokens:,.0f}"),
        ("redundancy at most 10 %", f"{last.redundancy:.1%}"),
        ("evidence at least 95 %", f"{last.evidence:.1%}"),
        ("whole answer 50 % faster", f"{faster:.0%}: {_seconds(answers)}"),
        ("made in under 40 ms at a million, p99", f"{last.p99_ms:.1f} ms at {last.records:,}"),
        ("flat within 10 %", f"{spread:.0%} between fewest and most"),
    ):  # fmt: skip
        print(f"goal: {goal}: {found}")


def _print_grown(name: str, by_day: Sequence[float]) -> None:
    first, middle, last = by_day[0], by_day[(len(by_day) - 1) // 2], by_day[-1]
    print(
        f"a report an hour that quotes its context, {name}, {len(by_day)} days: tokens of a prompt "
        f"on the first day {first:,.0f}, in the middle {middle:,.0f}, on the last {last:,.0f}, "
        f"on no day more than {max(by_day):,.0f}"
    )


def _seconds(answers: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in answers.items())


if __name__ == "__main__":
    sys.exit(main())
