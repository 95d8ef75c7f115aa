"""The bus under load: events a second, CPU per event and drop → reply latency, beside the floor in one run.

    python benchmarks/bus.py                 # tables at 1,000 events, a few minutes
    python benchmarks/bus.py --only burst    # one part: burst | latency | full | http | flat | backlog | idle
    python benchmarks/bus.py --events 5000 --rounds 5

One session per event, debounce 0, batch 1, outcomes included. The floor is a bare loop that does the same
number of file writes, renames and one SQLite commit per hop, in the same folder. Figures of one machine
mean little: read the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mailbox
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.instant_model import InstantModel
from kernel_gamma.configuration import lay_out, load_settings
from kernel_gamma.mind import Mind

HOPS = 4
DROPPER = """
import json, os, sys, time
folder, first, count, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
start = time.perf_counter()
for i in range(first, first + count):
    if rate:
        time.sleep(max(0, start + (i - first) / rate - time.perf_counter()))
    body = json.dumps({"text": f"hello {i}", "from": f"user{i}", "session": f"s{i}", "sent": time.time()})
    with open(f"{folder}/.e{i}.tmp", "w") as f:
        f.write(body)
    os.rename(f"{folder}/.e{i}.tmp", f"{folder}/e{i}.json")
"""


@dataclass(frozen=True)
class Figures:
    """One run."""

    per_sec: float
    cpu_ms: float
    p50_ms: float
    p99_ms: float
    rss_mb: float

    def row(self, name: str) -> str:
        return (
            f"{name:<38}{self.per_sec:>10.0f}{self.cpu_ms:>12.2f}{self.p50_ms:>10.1f}"
            f"{self.p99_ms:>10.1f}{self.rss_mb:>9.0f}"
        )


HEAD = f"{'':<38}{'events/s':>10}{'CPU ms/ev':>12}{'p50 ms':>10}{'p99 ms':>10}{'RSS MB':>9}"


def environment(durability: str, **more: str) -> dict[str, str]:
    """Settings of a run."""
    return {
        "KGAMMA_BUS__DURABILITY": durability,
        "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0",
        "KGAMMA_BUDGET__TOKENS_PER_DAY": "0",
        "KGAMMA_LOG__LEVEL": "error",
        **more,
    }


async def drive(home: Path, env: dict[str, str], events: int, rate: float, first: int, http: bool) -> Figures:
    """Start a mind, drop events from another process, wait for the last reply."""
    mind = Mind(home, load_settings(home, env), env, model=None if http else InstantModel())
    await mind.start()
    running = asyncio.create_task(mind.run())
    await asyncio.sleep(0.5)
    outbox = mind.data / "outbox/console"
    cpu, begun = time.process_time(), time.perf_counter()
    arguments = [str(mind.data / "inbox/pending"), str(first), str(events), str(rate)]
    dropper = subprocess.Popen([sys.executable, "-c", DROPPER, *arguments])
    already = len(os.listdir(outbox)) if outbox.exists() else 0
    while dropper.poll() is None or not outbox.exists() or len(os.listdir(outbox)) < already + events:
        await asyncio.sleep(0.02)
    ended = time.perf_counter()
    while not mind.bus.quiet():
        await asyncio.sleep(0.01)
    cpu = time.process_time() - cpu
    waits = latencies(mind.data, first, events)
    rss = current_rss_mb()
    await mind.stop()
    await asyncio.gather(running, return_exceptions=True)
    return Figures(
        events / (ended - begun),
        1000 * cpu / events,
        statistics.median(waits),
        sorted(waits)[int(len(waits) * 0.99) - 1],
        rss,
    )


def latencies(data: Path, first: int, events: int) -> list[float]:
    """Milliseconds from the producer's stamp to the reply file's time, per event."""
    sent: dict[str, float] = {}
    for file in (data / "inbox/pending/done").rglob("*.json"):
        document = json.loads(file.read_text())
        if first <= int(document["from"].removeprefix("user")) < first + events:
            sent[document["from"]] = document["sent"]
    found = []
    for file in (data / "outbox/console").glob("out_*.json"):
        to = json.loads(file.read_text())["payload"]["to"]
        if to in sent:
            found.append(1000 * (file.stat().st_mtime - sent[to]))
    return found


def current_rss_mb() -> float:
    """Resident memory now (peak where the system does not say)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def floor(folder: Path, events: int, full: bool) -> Figures:
    """A bare loop with the same writes, renames and commits per event."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "done").mkdir(exist_ok=True)
    ledger = sqlite3.connect(folder / "ledger.db", isolation_level=None)
    ledger.execute("PRAGMA journal_mode = WAL")
    ledger.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
    ledger.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, body TEXT)")
    body = json.dumps({"text": "x" * 400})
    waits = []
    cpu, begun = time.process_time(), time.perf_counter()
    for event in range(events):
        at = time.perf_counter()
        for hop in range(HOPS):
            ledger.execute("BEGIN IMMEDIATE")
            ledger.execute("INSERT INTO t (body) VALUES (?)", (body,))
            ledger.execute("COMMIT")
            files = 2 if hop in (0, 3) else 1
            for number in range(files):
                name = f"f{event}_{hop}_{number}.json"
                with open(folder / f".{name}.tmp", "w") as f:
                    f.write(body)
                os.rename(folder / f".{name}.tmp", folder / name)
            os.rename(folder / f"f{event}_{hop}_0.json", folder / f"done/f{event}_{hop}_0.json")
        waits.append(1000 * (time.perf_counter() - at))
    took = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    ledger.close()
    return Figures(
        events / took,
        1000 * cpu / events,
        statistics.median(waits),
        sorted(waits)[int(len(waits) * 0.99) - 1],
        current_rss_mb(),
    )


def maildir(folder: Path, messages: int) -> float:
    """Messages a second through the standard library's Maildir: added and taken out, each synced."""
    box = mailbox.Maildir(folder, create=True)
    begun = time.perf_counter()
    for number in range(messages):
        key = box.add(b"Subject: x\n\n" + b"x" * 400)
        box.get_bytes(key)
        box.remove(key)
        del number
    return messages / (time.perf_counter() - begun)


def in_child(part: str, arguments: argparse.Namespace) -> None:
    """Each part in a process of its own, so that memory and caches start fresh."""
    command = [sys.executable, __file__, "--child", part, "--events", str(arguments.events)]
    command += ["--where", arguments.where] if arguments.where else []
    subprocess.run([*command, "--rounds", str(arguments.rounds)], check=True)


def new_home(where: str | None) -> Path:
    """A laid-out home in a fresh folder."""
    home = Path(tempfile.mkdtemp(prefix="kgamma-bench-", dir=where))
    lay_out(home)
    return home


def median(run: Callable[[], Figures], rounds: int) -> Figures:
    """Field by field."""
    runs = [run() for _ in range(rounds)]
    fields = zip(*[(r.per_sec, r.cpu_ms, r.p50_ms, r.p99_ms, r.rss_mb) for r in runs], strict=True)
    return Figures(*(statistics.median(f) for f in fields))


def run_pair(name: str, durability: str, a: argparse.Namespace, *, rate: float = 0, http: str = "") -> None:
    """Ours and the floor, in turn."""
    more = {"OPENAI_BASE_URL": http, "OPENAI_API_KEY": "none"} if http else {}
    ours, bare = [], []
    for _ in range(a.rounds):
        home = new_home(a.where)
        env = environment(durability, **more)
        ours.append(asyncio.run(drive(home, env, a.events, rate, 0, bool(http))))
        bare.append(floor(home / "floor", a.events, durability == "full"))
    mine, least = median_of(ours), median_of(bare)
    print(mine.row(name))
    print(least.row("  floor"))
    print(
        f"  ratios: speed {mine.per_sec / least.per_sec:.2f}, CPU {mine.cpu_ms / least.cpu_ms:.1f} x,"
        f" p99 {mine.p99_ms / least.p99_ms:.1f} x the floor's"
    )


def median_of(runs: list[Figures]) -> Figures:
    """Field by field."""
    return median(iter(runs).__next__, len(runs))


def part_burst(a: argparse.Namespace) -> None:
    print(HEAD)
    run_pair("full speed, durability process", "process", a)


def part_latency(a: argparse.Namespace) -> None:
    a.events = min(a.events, 300)
    run_pair("50 events/s, durability process", "process", a, rate=50)


def part_full(a: argparse.Namespace) -> None:
    run_pair("full speed, durability full", "full", a)
    rates = [maildir(Path(tempfile.mkdtemp(dir=a.where)) / "box", 300) for _ in range(a.rounds)]
    home = new_home(a.where)
    ours = asyncio.run(drive(home, environment("full"), a.events, 0, 0, False))
    print(
        f"  Maildir {statistics.median(rates):.0f} messages/s; ours is {ours.per_sec / rates[0]:.2f} x that"
    )


def part_http(a: argparse.Namespace) -> None:
    script = Path(__file__).resolve().parent.parent / "tests/scripted_server.py"
    if not script.exists():
        print("no scripted server here: this part needs the tests/ folder")
        return
    from tests.scripted_server import ScriptedServer

    with ScriptedServer() as server:
        run_pair("full speed, scripted HTTP server", "process", a, http=server.base_url)


def part_flat(a: argparse.Namespace) -> None:
    """The same with 100,000 files in done/ and a 50 MB now.md."""
    plain = asyncio.run(drive(new_home(a.where), environment("process"), a.events, 0, 0, False))
    home = new_home(a.where)
    data = home / "data/kernel"
    done = data / f"inbox/pending/done/{time.strftime('%Y-%m-%d')}"
    done.mkdir(parents=True)
    for number in range(100_000):
        (done / f"old{number}.json").write_text('{"from":"user-1","sent":0}')
    now = data / "self/stream/now.md"
    now.parent.mkdir(parents=True)
    block = "## 2026-01-01 00:00:00 +00:00\n\nI remember an ordinary hour, and nothing of it hurts.\n\n"
    now.write_text(block * (50_000_000 // len(block)))
    laden = asyncio.run(drive(home, environment("process"), a.events, 0, 0, False))
    print(plain.row("empty mind"))
    print(laden.row("100,000 files done, 50 MB now.md"))
    print(
        f"  ratios (flat: <= 1.3): speed {plain.per_sec / laden.per_sec:.2f},"
        f" CPU {laden.cpu_ms / plain.cpu_ms:.2f}"
    )


def part_backlog(a: argparse.Namespace) -> None:
    """100,000 files wait at the start: time to the first reply, peak memory while it flows."""
    home = new_home(a.where)
    data = home / "data/kernel"
    pending = data / "inbox/pending"
    pending.mkdir(parents=True)
    for number in range(100_000):
        (pending / f"e{number}.json").write_text(
            json.dumps({"text": f"hello {number}", "from": f"u{number}"})
        )

    async def first_reply() -> float:
        begun = time.perf_counter()
        mind = Mind(home, load_settings(home, environment("process")), {}, model=InstantModel())
        await mind.start()
        running = asyncio.create_task(mind.run())
        outbox = data / "outbox/console"
        while not outbox.exists() or not os.listdir(outbox):
            await asyncio.sleep(0.01)
        took = time.perf_counter() - begun
        await asyncio.sleep(10)
        await mind.stop()
        await asyncio.gather(running, return_exceptions=True)
        return took

    took = asyncio.run(first_reply())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"backlog of 100,000: first reply after {took:.1f} s (aim 5), peak memory {peak:.0f} MB (aim 300)")


def part_idle(a: argparse.Namespace) -> None:
    """CPU and memory of a mind with nothing to do."""

    async def wait() -> tuple[float, float, int]:
        model = InstantModel()
        home = new_home(a.where)
        mind = Mind(home, load_settings(home, environment("full")), {}, model=model)
        await mind.start()
        running = asyncio.create_task(mind.run())
        await asyncio.sleep(5)
        cpu, begun = time.process_time(), time.perf_counter()
        await asyncio.sleep(30)
        share = (time.process_time() - cpu) / (time.perf_counter() - begun)
        rss = current_rss_mb()
        await mind.stop()
        await asyncio.gather(running, return_exceptions=True)
        return share, rss, model.calls

    share, rss, calls = asyncio.run(wait())
    print(f"idle: {100 * share:.2f} % CPU (aim 0.5), {rss:.0f} MB (aim 120), {calls} model calls (aim 0)")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "burst": part_burst,
    "latency": part_latency,
    "full": part_full,
    "http": part_http,
    "flat": part_flat,
    "backlog": part_backlog,
    "idle": part_idle,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(PARTS))
    parser.add_argument("--where", help="folder for the temporary homes (default: the system's)")
    parser.add_argument("--child", choices=sorted(PARTS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        PARTS[arguments.child](arguments)
        return
    for part in [arguments.only] if arguments.only else list(PARTS):
        in_child(part, arguments)


if __name__ == "__main__":
    main()
