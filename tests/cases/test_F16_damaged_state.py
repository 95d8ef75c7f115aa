"""F16 damaged state: what a crash, a full disk or an editor leaves. Real daemons, looked at from outside.

A start is degraded or refused with one clear line; what was damaged is kept; what is written next is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.crash.accounting import Account, read_ledger, read_log, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import QUICK, Daemon, Nursery, make_home
from tests.crash.workload import narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.contracts.envelope import Json

PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


class Readable(Account):
    """An account of pages that hold bad bytes."""

    def page(self, name: str) -> str:
        path = self.data / "self" / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class Life:
    """A home, its scripted model and its daemons, one after the other."""

    def __init__(self, folder: Path, nursery: Nursery, **environ: str) -> None:
        self.home = make_home(folder)
        self.dropper = Dropper(self.home)
        self.data = self.dropper.data
        self.server = ScriptedServer(self._answer)
        self._nursery = nursery
        self._environ = environ

    def _answer(self, request: ParsedRequest) -> Answer:
        if request.agent != "externalizer":
            tea = any("I like tea" in event["body"] for event in request.events)
            return Answer(narrate(request) + "\n\nI decide to remember it." * tea)
        if "I decide to remember it." not in (request.passage or ""):
            return Answer(translate(request))
        arguments = {"topic": "tea", "text": "I like it green."}
        actions = [{"tool": "remember", "arguments": arguments}]
        return Answer(json.dumps({"thought": "", "actions": actions}))

    @property
    def environ(self) -> Mapping[str, str]:
        return {"OPENAI_BASE_URL": self.server.base_url, **self._environ}

    def drop(self, text: str, **more: Json) -> None:
        """A message; its file is named after its text."""
        name = text.replace(" ", "-") + ".json"
        self.dropper.drop(name, {"text": text, "from": "alice", **more})

    def live(self, text: str) -> None:
        """One message, handled whole."""
        self.drop(text)
        self.finish()

    def finish(self) -> None:
        """Run until idle, as a start after the damage must."""
        assert self._nursery.once(self.home, self.environ) == 0, self.output

    def start(self) -> Daemon:
        return self._nursery.start(self.home, self.environ, once=False)

    @property
    def output(self) -> str:
        path = self.home / "output.txt"
        return path.read_text() if path.exists() else ""

    @property
    def account(self) -> Readable:
        return Readable(self.data, self.dropper.files)

    def event_of(self, text: str) -> str:
        return self.account.ids_of(text.replace(" ", "-") + ".json")[0]

    def page(self, name: str) -> Path:
        return self.data / "self" / name

    def expect_all_told(self) -> None:
        """No event is lost or blamed for the damage."""
        account = self.account
        assert where_files_are(self.data, self.dropper.files)["done"] == len(self.dropper.files)
        assert account.dead == {}
        for name in self.dropper.files:
            (event,) = account.ids_of(name)
            assert account.told[event] >= 1, f"{name} is told nowhere"


@contextmanager
def life(folder: Path, nursery: Nursery, **environ: str) -> Iterator[Life]:
    found = Life(folder, nursery, **environ)
    with found.server:
        yield found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def last_prompt(found: Life) -> str:
    return [r.prompt for r in found.server.requests if r.agent == "internalizer"][-1]


# Pages

BAD = b"\xff\xfe\x80 I was in the g\xe6\x9d"


@pytest.mark.parametrize(
    "damage", [b"", BAD, b"I was in the garden\n" + bytes(512)], ids=["empty", "bad", "nuls"]
)
def test_F16_a_damaged_state_page_is_read_as_far_as_it_goes_and_kept(
    nursery: Nursery, tmp_path: Path, damage: bytes
) -> None:
    with life(tmp_path, nursery) as alive:
        alive.live("hello")
        alive.page("state.md").write_bytes(damage)
        alive.live("how are you")
        assert alive.page("state.md").read_bytes() == damage, "nothing was said of it"
        assert ("I was in the g" in last_prompt(alive)) is (damage != b"")
        alive.live("renew your state")
        event = alive.event_of("renew your state")
        assert alive.page("state.md").read_text() == f"I was asked to renew my state by {event}.\n"
        kept = [p.read_bytes() for p in alive.page(".history").iterdir() if p.name.startswith("state.")]
        assert kept == [damage]
        alive.expect_all_told()


HALF = b"## 2020-11-30 10:30:05 +08:00\n\nI was in the g"


@pytest.mark.parametrize(
    "damage",
    [b"", HALF, b"\xff\xfe\x80" + HALF + b"\xe6\x9d", HALF + bytes(8192)],
    ids=["empty", "half", "bad", "nuls"],
)
def test_F16_after_damage_at_the_end_of_now_md_the_next_passages_are_whole(
    nursery: Nursery, tmp_path: Path, damage: bytes
) -> None:
    with life(tmp_path, nursery) as alive:
        alive.live("hello")
        now = alive.page("stream/now.md")
        before = now.read_bytes()
        now.write_bytes(before + damage)
        alive.live("still there")
        alive.live("good night")
        page = now.read_bytes()
        stands = before + damage.rstrip(b"\0")
        assert page.startswith(stands), "what stood there was changed"
        rows = read_ledger(
            alive.data, "SELECT offset, length, sha256 FROM passages ORDER BY commit_n, offset"
        )
        assert len(rows) >= 3
        at = len(stands)
        for offset, length, digest in rows:
            assert hashlib.sha256(page[offset : offset + length]).hexdigest() == digest
            if offset >= len(before):
                assert page[at:offset].strip(b"\n") == b"", "something else stands between"
                assert page[:offset].endswith(b"\n\n"), "a passage begins in the middle of a line"
                at = offset + length
        assert at == len(page)
        alive.expect_all_told()


def test_F16_a_passage_cut_in_half_is_told_again_and_the_half_stays(nursery: Nursery, tmp_path: Path) -> None:
    with life(tmp_path, nursery) as alive:
        alive.live("hello")
        now = alive.page("stream/now.md")
        cut = now.read_bytes().rstrip()[:-5]
        now.write_bytes(cut)
        alive.live("good night")
        page = now.read_bytes()
        assert page.startswith(cut + b"\n\n## ")
        alive.expect_all_told()


@pytest.mark.parametrize(
    "damage", [b"", b"# tea\n\n\xff\xfe\x80 Bob likes te\xe8\x8c", b"# tea\n\nBob likes te" + bytes(4096)]
)
def test_F16_a_damaged_memory_page_comes_back_as_far_as_it_goes_and_grows_whole(
    nursery: Nursery, tmp_path: Path, damage: bytes
) -> None:
    with life(tmp_path, nursery, KGAMMA_INTERNALIZER__MEMORY_TOKENS="500") as alive:
        page = alive.page("memories/tea.md")
        page.parent.mkdir(parents=True)
        page.write_bytes(damage)
        alive.page("memories/bad\udcff.md").write_bytes(damage)
        alive.live("what does Bob drink")
        assert ("Bob likes te" in last_prompt(alive)) is (damage != b"")
        alive.live("remember that I like tea")
        grown = page.read_bytes()
        assert grown.startswith(damage.rstrip(b"\0"))
        entry = grown.removeprefix(damage.rstrip(b"\0")).decode()
        assert entry.endswith("** I like it green.\n\n") and "\0" not in entry
        alive.expect_all_told()


@pytest.mark.parametrize("damage", [None, b"", b"\xff\xfe\x80{", bytes(64), b"[[[]], 1\n5\n{}\n[1, 2, 3]\n"])
def test_F16_small_files_of_the_daemon_are_made_anew(
    nursery: Nursery, tmp_path: Path, damage: bytes | None
) -> None:
    with life(tmp_path, nursery) as alive:
        alive.live("hello")
        for name in ("flights.log", "metrics/status.json", "daemon.lock", "daemon.json", ".clock"):
            path = alive.data / name
            path.unlink(missing_ok=True)
            if damage is not None:
                path.write_bytes(damage)
        alive.live("good night")
        assert json.loads((alive.data / "metrics/status.json").read_bytes())["running"] is False
        alive.account.check()


# The ledger


@pytest.mark.parametrize("how", ["gone", "empty", "half", "garbage", "nuls"])
def test_F16_a_damaged_write_ahead_log_loses_no_event(nursery: Nursery, tmp_path: Path, how: str) -> None:
    with life(tmp_path, nursery) as alive:
        alive.live("hello")
        with alive.start() as daemon:
            alive.drop("are you there")
            until(lambda: len(alive.account.replies) == 2)
            alive.drop("one more")
            daemon.signal(signal.SIGKILL)
            daemon.wait()
        _damage_log(alive.data / "ledger.db-wal", how)
        alive.live("good night")
        alive.expect_all_told()


def _damage_log(log: Path, how: str) -> None:
    whole = log.read_bytes()
    assert len(whole) > 2 * PAGE_BYTES, "nothing is in the log that could be lost"
    half = len(whole) // 2
    match how:
        case "gone":
            log.unlink()
        case "empty":
            log.write_bytes(b"")
        case "half":
            log.write_bytes(whole[:half])
        case "garbage":
            log.write_bytes(whole[:half] + b"\xde\xad" * (half // 2))
        case _:
            log.write_bytes(whole[:half] + bytes(half))


# A read-only disk


def _mount(*arguments: str | Path) -> bool:
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    found = tmp_path / "disk"
    found.mkdir()
    if os.geteuid() or not _mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", found):
        pytest.skip("no file system can be mounted here")
    yield found
    subprocess.run(["umount", "-l", found], check=True)


def _start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
    environ |= {**QUICK, "KGAMMA_MODEL__MODE": "offline"}
    command = [sys.executable, "-m", "kernel_gamma", *arguments, "--home", str(home)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _kgamma(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with _start(home, *arguments) as process:
        output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def test_F16_a_start_on_a_read_only_disk_is_refused_with_one_line_and_loses_nothing(disk: Path) -> None:
    home = make_home(disk)
    dropper = Dropper(home)
    dropper.drop("hello.json", {"text": "hello", "from": "alice"})
    assert _kgamma(home, "run", "--once").returncode == 0
    dropper.drop("again.json", {"text": "again", "from": "alice"})
    assert _mount("-o", "remount,ro", disk)
    refused = _kgamma(home, "run", "--once")
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert str(dropper.data) in line and "Read-only" in line and "writable" in line
    assert _mount("-o", "remount,rw", disk)
    assert _kgamma(home, "run", "--once").returncode == 0
    assert where_files_are(dropper.data, dropper.files)["done"] == 2
    assert not list(dropper.data.glob("ledger.db.damaged*"))


@pytest.mark.parametrize("killed", [False, True])
def test_F16_a_mind_on_a_read_only_disk_can_be_asked(disk: Path, killed: bool) -> None:
    home = make_home(disk)
    dropper = Dropper(home)
    dropper.drop("hello.json", {"text": "hello", "from": "alice"})
    with _start(home, "run") as daemon:
        try:
            until(lambda: list(dropper.data.glob("inbox/pending/done/*/hello.json")))
            daemon.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
            daemon.communicate(timeout=60)
        finally:
            daemon.kill()
    assert _mount("-o", "remount,ro", disk)
    status = _kgamma(home, "status", "--json")
    assert (status.returncode, status.stderr) == (0, "")
    assert json.loads(status.stdout)["running"] is False
    traced = _kgamma(home, "trace", "hello.json")
    assert traced.returncode == 0, traced.stderr
    assert "pipeline/message_queue" in traced.stdout


def test_F16_a_start_on_a_full_disk_waits_and_goes_on_when_there_is_room(disk: Path) -> None:
    home = make_home(disk)
    dropper = Dropper(home)
    dropper.drop("hello.json", {"text": "hello", "from": "alice"})
    assert _kgamma(home, "run", "--once").returncode == 0
    dropper.drop("again.json", {"text": "again", "from": "alice"})
    filler = _fill(disk)
    with _start(home, "run", "--once") as daemon:
        try:
            until(lambda: ": running" in _kgamma(home, "status").stdout)
            with pytest.raises(subprocess.TimeoutExpired):
                daemon.wait(1.0)
            filler.unlink()
            _, errors = daemon.communicate(timeout=60)
        finally:
            daemon.kill()
    assert daemon.returncode == 0, errors
    assert where_files_are(dropper.data, dropper.files)["done"] == 2
    assert not list(dropper.data.glob("ledger.db.damaged*"))


def _fill(folder: Path) -> Path:
    """Write a file until no byte more fits."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(65536)):
            pass
    return filler


def test_F16_a_disk_that_turns_read_only_holds_the_mind_until_it_is_writable(
    nursery: Nursery, tmp_path: Path
) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    with life(tmp_path, nursery) as alive:
        data = alive.data
        with alive.start() as daemon:
            alive.drop("hello")
            until(lambda: alive.account.replies)
            alive.drop("good night")  # may be anywhere on its way
            if not _mount("--bind", data, data):
                pytest.skip("nothing can be mounted here")
            try:
                assert _mount("-o", "remount,ro,bind", data)
                until(lambda: _kgamma_waits(data))
                assert not daemon.ended()
            finally:
                subprocess.run(["umount", "-l", data], check=True)
            until(lambda: len(alive.account.replies) == 2)
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0, alive.output
        alive.account.check()


def _kgamma_waits(data: Path) -> bool:
    lines = read_log(data, "the mind waits: the disk cannot be written")
    return any("Read-only" in line["reason"] for line in lines)
