"""What is safe at which moment: B18 as the system calls tell it, B19 as kills tell it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.accounting import Account, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import QUICK, Nursery, make_home
from tests.crash.workload import narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

# B18: rename without fsync leaves an empty or NUL-filled file after a power cut

TRACED = "rename,renameat,renameat2,fsync,fdatasync,syncfs,sync,pwrite64,write"
SYNCS = ("fsync", "fdatasync", "syncfs", "sync")
WAL = "ledger.db-wal"
SHOWN_BYTES = 5000
"""More than a page of the ledger."""

_LINE = re.compile(r"^(\d+) +(.*)$")
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+)", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OPEN_FILE = re.compile(r"^\d+<([^>]*)>")


@dataclass(frozen=True)
class Call:
    """One successful system call; `begins` and `ends` are lines of the trace."""

    name: str
    arguments: str
    begins: int
    ends: int

    @property
    def is_rename(self) -> bool:
        return self.name.startswith("rename")

    @property
    def renamed(self) -> tuple[str, str]:
        """Old and new path."""
        old, new = _QUOTED.findall(self.arguments)
        return old, new

    @property
    def file(self) -> str:
        """The path behind the file descriptor."""
        match = _OPEN_FILE.match(self.arguments)
        return match[1] if match else ""


class Trace:
    """The calls of one run, in the order in which they began; paths relative to the data directory."""

    def __init__(self, text: str, data: Path) -> None:
        self.calls: list[Call] = []
        begun: dict[str, tuple[int, str]] = {}
        for number, line in enumerate(text.replace(f"{data}/", "").replace(f"<{data}>", "<.>").splitlines()):
            match = _LINE.match(line)
            assert match is not None, line
            pid, said = match.groups()
            if said.endswith("<unfinished ...>"):
                begun[pid] = number, said.removesuffix("<unfinished ...>")
                continue
            begins = number
            if (resumed := _RESUMED.match(said)) is not None:
                begins, first = begun.pop(pid)
                said = first + resumed[1]
            call = _CALL.match(said)
            if call is not None and int(call[3]) >= 0:
                self.calls.append(Call(call[1], call[2], begins, number))
        self.calls.sort(key=lambda call: call.begins)

    def renames_into(self, folder: str) -> list[Call]:
        """Files that got their visible name there."""
        return [c for c in self.calls if c.is_rename and os.path.dirname(c.renamed[1]) == folder]

    def writes(self, file: str) -> list[Call]:
        return [c for c in self.calls if c.name in ("write", "pwrite64") and c.file == file]

    def syncs_between(self, first: Call, then: Call) -> list[Call]:
        """Syncs that began after the one call and were over before the other."""
        return [c for c in self.calls if c.name in SYNCS and first.ends < c.begins and c.ends < then.begins]

    def assert_wal_is_synced_before(self, call: Call, mark: str) -> None:
        """`mark` stands in the write-ahead log, and the whole log was synced, before `call` began."""
        before = [w for w in self.writes(WAL) if w.begins < call.begins]
        assert any(mark in w.arguments for w in before), f"{mark} is in no frame of the ledger yet"
        synced = [c for c in self.syncs_between(before[-1], call) if c.file in (WAL, ".")]
        assert synced, f"{mark} appears before the commit that says so is synced"


def trace_a_run(folder: Path, dropped: Mapping[str, str], durability: str) -> Trace:
    """Drop messages (name → text), run once without a language model under strace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: the order of system calls cannot be read")
    home = make_home(folder)
    dropper = Dropper(home)
    for name, text in dropped.items():
        dropper.drop(name, {"text": text, "from": name})
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
    environ |= {**QUICK, "KGAMMA_MODEL__MODE": "offline", "KGAMMA_BUS__DURABILITY": durability}
    environ["KGAMMA_BUS__CHECKPOINT_SEC"] = "3600"  # a checkpoint of its own would sync at any moment
    record = folder / "calls.trace"
    strace = ["strace", "-f", "-y", "-s", str(SHOWN_BYTES), "-e", f"trace={TRACED}", "-o", str(record)]
    run = [sys.executable, "-m", "kernel_gamma", "run", "--once", "--home", str(home)]
    done = subprocess.run([*strace, *run], env=environ, capture_output=True, text=True, timeout=120)
    if "ptrace" in done.stderr or "PTRACE" in done.stderr:
        pytest.skip(f"strace may not look here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return Trace(record.read_text(encoding="utf-8", errors="replace"), home / "data/kernel")


def _acknowledged(trace: Trace, name: str) -> Call:
    (ack,) = [c for c in trace.renames_into("inbox/acks") if c.renamed[1].endswith(f"/{name}")]
    return ack


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """One message, `durability: full`."""
    return trace_a_run(tmp_path_factory.mktemp("full"), {"one.json": "hello"}, "full")


def test_B18_an_accepted_file_and_both_its_folders_are_synced_before_the_ack(full: Trace) -> None:
    (taken,) = full.renames_into("inbox/taken")
    synced = {c.file for c in full.syncs_between(taken, _acknowledged(full, "one.json"))}
    assert synced >= {taken.renamed[1], "inbox/taken", "inbox/pending"} or "." in synced


def test_B18_many_accepted_files_share_one_sync_of_the_file_system(tmp_path: Path) -> None:
    dropped = {f"{number}.json": f"hello {number}" for number in range(12)}
    trace = trace_a_run(tmp_path, dropped, "full")
    taken = trace.renames_into("inbox/taken")
    acks = trace.renames_into("inbox/acks")
    assert len(taken) == len(acks) == 12
    whole = [c for c in trace.syncs_between(taken[-1], acks[0]) if c.name in ("syncfs", "sync")]
    assert len(whole) == 1
    assert not [c for c in trace.calls if c.name == "fsync" and c.file.startswith("inbox/")]


@pytest.mark.parametrize(
    "folder", ["pipeline/message_queue", "pipeline/internalized", "pipeline/action_queue", "outbox/console"]
)
def test_B18_no_file_appears_before_the_commit_that_says_so_is_synced(full: Trace, folder: str) -> None:
    (appears,) = full.renames_into(folder)
    name = os.path.basename(appears.renamed[1])
    full.assert_wal_is_synced_before(appears, name.split(".")[0])


def test_B18_no_input_leaves_before_the_commit_that_says_so_is_synced(full: Trace) -> None:
    leaving = [c for c in full.calls if c.is_rename and "/done/" in c.renamed[1]]
    assert len(leaving) == 4, "the event, the message, the passage, the action"
    for call in leaving:
        full.assert_wal_is_synced_before(call, os.path.basename(call.renamed[0]))


def test_B18_no_passage_is_written_before_the_commit_that_says_so_is_synced(full: Trace) -> None:
    passages = full.writes("self/stream/now.md")
    assert len(passages) == 3, "that it has no model, what it was told, what it answered"
    for call in passages:
        heading = _QUOTED.findall(call.arguments)[0].split("\\n")[0]
        full.assert_wal_is_synced_before(call, heading)


def test_B18_commits_are_forgotten_only_after_all_they_did_is_synced(full: Trace) -> None:
    last = [c for c in full.calls if c.is_rename and "/done/" in c.renamed[1]][-1]
    (stopped,) = full.renames_into("")[-1:]
    assert stopped.renamed[1] == "flights.log"
    (whole,) = [c for c in full.syncs_between(last, stopped) if c.name in ("syncfs", "sync")]
    assert [w for w in full.writes(WAL) if w.begins > whole.ends], "and then the ledger says so"


def test_B18_with_durability_process_nothing_on_the_way_waits_for_the_disk(tmp_path: Path) -> None:
    trace = trace_a_run(tmp_path, {"one.json": "hello"}, "process")
    (taken,) = trace.renames_into("inbox/taken")
    (said,) = trace.renames_into("outbox/console")
    assert _acknowledged(trace, "one.json").ends < said.begins
    assert [c for c in trace.calls if c.name in SYNCS and c.ends < taken.begins], "the take-over is synced"
    assert trace.syncs_between(taken, said) == []


# B19: kill -9 again and again while 300 messages are under way


def _mind(request: ParsedRequest) -> Answer:
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _said(data: Path) -> int:
    return sum(1 for _ in (data / "outbox").glob("*/out_*.json"))


def _kill_amid(folder: Path, nursery: Nursery, *, messages: int, kills: int, durability: str) -> None:
    """Drop all at once; kill whenever another share has been answered; count at the end."""
    chance = random.Random(kills)
    home = make_home(folder)
    dropper = Dropper(home)
    for number in range(messages):
        person = f"person {chance.randrange(messages // 3)}"
        dropper.drop(f"m-{number:03}.json", {"text": f"message {number}", "from": person})
    with ScriptedServer(_mind) as server:
        environ = {
            "OPENAI_BASE_URL": server.base_url,
            "KGAMMA_BUS__DURABILITY": durability,
            "KGAMMA_BUS__MAX_ATTEMPTS": str(kills + 2),
        }
        for number in range(kills):
            wanted = messages * number // kills
            with nursery.start(home, environ, once=False) as daemon:
                while _said(dropper.data) <= wanted and not daemon.ended():
                    time.sleep(0.002)
                daemon.signal(signal.SIGKILL)
                assert daemon.wait() == -signal.SIGKILL, (home / "output.txt").read_text()
            where_files_are(dropper.data, dropper.files)
            assert _said(dropper.data) < messages, "killed too late to prove anything"
        assert nursery.once(home, environ) == 0, (home / "output.txt").read_text()
    _expect_each_once(Account(dropper.data, dropper.files), messages)


def _expect_each_once(account: Account, messages: int) -> None:
    account.check()
    places = where_files_are(account.data, account.dropped)
    assert places["done"] == len(account.dropped) == messages, f"set aside: {json.dumps(account.dead)}"
    ids = [account.ids_of(name)[0] for name in account.dropped]
    lost = [event for event in ids if not account.told[event] or not account.replies[f"echo {event}"]]
    repeated = [event for event in ids if account.told[event] > 1 or account.replies[f"echo {event}"] > 1]
    assert (len(lost), len(repeated)) == (0, 0)


def test_B19_four_kills_among_300_messages_lose_0_and_repeat_0(tmp_path: Path) -> None:
    with Nursery() as nursery:
        _kill_amid(tmp_path, nursery, messages=300, kills=4, durability="process")


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "full"])
def test_B19_twenty_kills_among_300_messages_lose_0_and_repeat_0(tmp_path: Path, durability: str) -> None:
    with Nursery() as nursery:
        _kill_amid(tmp_path, nursery, messages=300, kills=20, durability=durability)
