"""Real inotify, real threads, real files: what the watcher tells and what it survives."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from kernel_gamma.bus.watcher import Hint, Watcher, ignored
from kernel_gamma.bus.watcher_source import Forget, ObserverSource, Reports

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
if sys.platform == "linux":
    from kernel_gamma.bus.watcher_inotify import InotifySource

INBOX = "inbox/pending"


class Watched:
    """A home with a watcher on it, and everything it was told."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.inbox = home / INBOX
        self.hints: list[Hint] = []
        self.overflows = 0
        self.fail = False
        self.watcher: Watcher

    def on_hint(self, hint: Hint) -> None:
        self.hints.append(hint)
        if self.fail:
            raise RuntimeError("the bus stumbled")

    def on_overflow(self) -> None:
        self.overflows += 1

    def drop(self, name: str | bytes, directory: str = INBOX) -> None:
        """Write elsewhere, rename in."""
        source = self.home / "draft"
        source.write_text("{}")
        os.rename(source, os.fsencode(self.home / directory) + b"/" + os.fsencode(name))

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(hint.name, hint.kind) for hint in self.hints]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)

    async def until_told(self, name: str) -> None:
        await self.until(lambda: any(hint.name == name for hint in self.hints))

    async def until_gone(self) -> None:
        await self.until(lambda: any(hint.kind == "gone_dir" for hint in self.hints))


@asynccontextmanager
async def watching(
    home: Path, *directories: str, mode: str = "auto", **options: object
) -> AsyncIterator[Watched]:
    watched = Watched(home)
    watched.inbox.mkdir(parents=True, exist_ok=True)
    options.setdefault("loop", asyncio.get_running_loop())
    watched.watcher = Watcher(
        home,
        directories or (INBOX,),
        mode=mode,
        on_hint=watched.on_hint,
        on_overflow=watched.on_overflow,
        **options,
    )
    watched.watcher.start()
    try:
        yield watched
    finally:
        watched.watcher.stop()


@pytest.mark.parametrize(
    "name",
    [
        ".hidden.json",
        ".x.json.Gx31Qa",
        "x.json.tmp",
        "x.JSON.PART",
        "x.json.filepart",
        "x.json~",
        ".x.json.swp",
        "x.swp",
    ],
)
def test_B10_temporary_names_of_other_tools_are_ignored_everywhere(name: str) -> None:
    assert ignored(name)
    assert ignored(name, queue=False)


def test_only_a_queue_insists_on_json() -> None:
    assert ignored("notes.md")
    assert not ignored("notes.md", queue=False)
    for name in ("e.json", "e.JSON", "-e.json", " e.json", "\udcff.json", "消息.json"):
        assert not ignored(name)


@on_linux
async def test_a_file_renamed_in_and_a_file_closed_are_told_apart(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        assert (watched.watcher.mode, watched.watcher.reason) == ("inotify", "")
        watched.drop("moved.json")
        (watched.inbox / "written.json").write_text("{}")
        await watched.until_told("written.json")
        assert watched.told == [("moved.json", "moved_in"), ("written.json", "closed")]
        assert watched.hints[0].directory == INBOX


@on_linux
async def test_B10_the_rename_to_the_final_name_is_the_drop(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        draft = watched.inbox / ".e.json.Gx31Qa"
        draft.write_text("{}")
        (watched.inbox / "readme.txt").write_text("no event")
        (tmp_path / "folder.json").mkdir()
        (tmp_path / "folder.json").rename(watched.inbox / "folder.json")
        draft.rename(watched.inbox / "e.json")
        await watched.until_told("e.json")
        assert watched.told == [("e.json", "moved_in")]


@on_linux
async def test_B02_our_own_moves_out_say_nothing_and_hold_up_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        (tmp_path / "done").mkdir()
        for number in range(100):
            watched.drop(f"{number}.json")
            (watched.inbox / f"{number}.json").rename(tmp_path / "done" / f"{number}.json")
        watched.drop("last.json")
        await watched.until_told("last.json")
        assert [name for name, _ in watched.told] == [f"{n}.json" for n in range(100)] + ["last.json"]


@on_linux
async def test_B03_reading_a_file_makes_no_hint(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.drop("e.json")
        await watched.until_told("e.json")
        for _ in range(3):
            (watched.inbox / "e.json").read_bytes()
        watched.drop("after.json")
        await watched.until_told("after.json")
        assert [name for name, _ in watched.told] == ["e.json", "after.json"]


@on_linux
async def test_B07_names_that_are_no_utf8_survive(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        names = [b"\xff\xfe.json", b"new\nline.json", b"-dash.json", b" space.json", b"last.json"]
        for name in names:
            watched.drop(name)
        await watched.until_told("last.json")
        assert [os.fsencode(name) for name, _ in watched.told] == names


@on_linux
async def test_B11_every_save_by_rename_is_told_for_a_page_that_is_no_queue(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    async with watching(tmp_path, "config") as watched:
        watched.drop("kernel.yaml", "config")
        await watched.until_told("kernel.yaml")
        watched.drop("kernel.yaml", "config")
        await watched.until(lambda: len(watched.hints) == 2)
        assert set(watched.told) == {("kernel.yaml", "moved_in")}


@on_linux
async def test_B04_a_failing_callback_stops_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.fail = True
        watched.drop("first.json")
        watched.drop("second.json")
        await watched.until_told("second.json")
        assert not watched.watcher.check()


@on_linux
async def test_B04_a_dead_thread_is_found_and_replaced(tmp_path: Path) -> None:
    sources: list[InotifySource] = []

    def open_source() -> InotifySource:
        sources.append(InotifySource())
        return sources[-1]

    async with watching(tmp_path, open_source=open_source) as watched:
        assert not watched.watcher.check()
        sources[0].close()
        watched.drop("unseen.json")
        assert watched.watcher.check(), "a listing is due for what was missed"
        assert len(sources) == 2
        watched.drop("seen.json")
        await watched.until_told("seen.json")
        assert ("unseen.json", "moved_in") not in watched.told
        assert not watched.watcher.check()


@on_linux
def test_B06_a_closed_loop_does_not_kill_the_thread(tmp_path: Path) -> None:
    (tmp_path / INBOX).mkdir(parents=True)
    source = InotifySource()
    loop = asyncio.new_event_loop()
    watched = Watched(tmp_path)
    watcher = Watcher(
        tmp_path,
        [INBOX],
        mode="auto",
        on_hint=watched.on_hint,
        on_overflow=watched.on_overflow,
        loop=loop,
        open_source=lambda: source,
    )
    watcher.start()
    loop.close()
    for number in range(3):
        watched.drop(f"{number}.json")
        time.sleep(0.01)
    assert source.alive()
    watcher.stop()
    assert not source.alive()


class CountingLoop:
    """Passes on to a loop and counts how often it was woken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wakes = 0

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.wakes += 1
        self._loop.call_soon_threadsafe(callback)


@on_linux
async def test_hints_that_come_while_the_loop_is_busy_share_one_wake_up(tmp_path: Path) -> None:
    loop = CountingLoop(asyncio.get_running_loop())
    async with watching(tmp_path, loop=loop) as watched:
        for number in range(50):
            watched.drop(f"{number}.json")
        assert watched.hints == [], "callbacks run on the loop only"
        await watched.until_told("49.json")
        assert len(watched.hints) == 50
        assert loop.wakes < 25, "the loop was not free before the last drop"


@on_linux
async def test_a_deleted_directory_is_told_and_watched_again_once_it_is_back(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as watched:
        shutil.rmtree(watched.inbox)
        await watched.until_gone()
        assert watched.watcher.check()
        assert not watched.watcher.check(), "an absent directory is no news twice"
        watched.inbox.mkdir()
        watched.drop("early.json")
        assert watched.watcher.check(), "what came before the watch must be listed"
        watched.drop("late.json")
        await watched.until_told("late.json")
        assert watched.told == [("", "gone_dir"), ("late.json", "moved_in")]


@on_linux
async def test_a_directory_swapped_for_another_is_watched_anew(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.inbox.rename(tmp_path / "aside")
        await watched.until_gone()
        watched.drop("old.json", "aside")
        watched.inbox.mkdir()
        assert watched.watcher.check()
        watched.drop("old.json", "aside")
        watched.drop("new.json")
        await watched.until_told("new.json")
        assert ("old.json", "moved_in") not in watched.told


@on_linux
async def test_a_directory_moved_away_and_back_is_watched_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.inbox.rename(tmp_path / "aside")
        await watched.until_gone()
        (tmp_path / "aside").rename(watched.inbox)
        assert watched.watcher.check(), "the same inode, and still a watch that is over"
        watched.drop("again.json")
        await watched.until_told("again.json")


@on_linux
async def test_a_directory_that_comes_later_is_watched_from_the_next_check(tmp_path: Path) -> None:
    async with watching(tmp_path, INBOX, "approvals") as watched:
        assert watched.watcher.mode == "inotify"
        assert not watched.watcher.check()
        (tmp_path / "approvals").mkdir()
        assert watched.watcher.check()
        watched.drop("yes.json", "approvals")
        await watched.until_told("yes.json")
        assert watched.hints[0].directory == "approvals"


@on_linux
async def test_directories_are_added_and_removed_while_it_runs(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        (tmp_path / "receipts").mkdir()
        watched.watcher.add("receipts")
        watched.drop("r.json", "receipts")
        await watched.until_told("r.json")
        watched.watcher.remove("receipts")
        watched.drop("unwatched.json", "receipts")
        watched.drop("e.json")
        await watched.until_told("e.json")
        assert watched.told == [("r.json", "moved_in"), ("e.json", "moved_in")]
        assert not watched.watcher.check()


@on_linux
async def test_no_probe_file_stays_behind(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        assert list(watched.inbox.iterdir()) == []


@on_linux
async def test_a_directory_nobody_can_write_to_is_believed(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watcher = Watcher(
        Path("/proc"),
        ["sys"],
        mode="auto",
        on_hint=watched.on_hint,
        on_overflow=watched.on_overflow,
        loop=asyncio.get_running_loop(),
    )
    watcher.start()
    assert watcher.mode == "inotify"
    watcher.stop()


async def test_B08_polling_has_no_thread_and_says_so(tmp_path: Path) -> None:
    before = threading.active_count()
    async with watching(tmp_path, mode="polling") as watched:
        assert threading.active_count() == before
        assert watched.watcher.mode == "polling"
        assert "bus.watcher" in watched.watcher.reason
        assert not watched.watcher.check()


@on_linux
async def test_nothing_is_told_after_stop_and_no_thread_stays(tmp_path: Path) -> None:
    before = threading.active_count()
    async with watching(tmp_path) as watched:
        watched.drop("told.json")
        await watched.until_told("told.json")
        watched.drop("waiting.json")
        watched.watcher.stop()
        watched.drop("late.json")
        await asyncio.sleep(0.01)
        assert [name for name, _ in watched.told] == ["told.json"]
        assert threading.active_count() == before


class MuteSource:
    """A mount that takes watches and never tells anything."""

    mode = "inotify"

    def __init__(self) -> None:
        self.closed = False

    def add(self, path: Path, reports: Reports) -> Forget:
        return lambda: None

    def alive(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True


async def test_B05_a_directory_whose_probe_goes_unnoticed_is_polled(tmp_path: Path) -> None:
    source = MuteSource()
    async with watching(tmp_path, open_source=lambda: source) as watched:
        assert watched.watcher.mode == "polling"
        assert str(watched.inbox) in watched.watcher.reason
        assert "bus.watcher" in watched.watcher.reason
        assert source.closed


async def test_a_mute_directory_added_later_makes_it_poll_and_list(tmp_path: Path) -> None:
    async with watching(tmp_path, "absent", open_source=MuteSource) as watched:
        (tmp_path / "receipts").mkdir()
        watched.watcher.add("receipts")
        due = [watched.watcher.check() for _ in range(3)]
        assert due == [False, False, True]
        assert watched.watcher.mode == "polling"


def run_with_limit(limit: str, value: int, home: Path) -> str:
    """Start a watcher in a user namespace with a limit of its own; its mode and reason."""
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from kernel_gamma.bus.watcher import Watcher\n"
        "loop = asyncio.new_event_loop()\n"
        "w = Watcher(Path(sys.argv[1]), ['a', 'b', 'c'], mode='auto', on_hint=print,"
        " on_overflow=print, loop=loop)\n"
        "w.start(); print(w.mode, w.reason); w.stop(); loop.close()\n"
    )
    for name in "abc":
        (home / name).mkdir()
    shell = f'echo {value} > /proc/sys/user/{limit} || exit 99; exec "$0" -c "$1" "$2"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", shell, sys.executable, script, str(home)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(keepends=True)[-1]  # above it: what was logged


needs_unshare = pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")


@on_linux
@needs_unshare
def test_B05_used_up_watches_make_it_poll_and_name_the_limit(tmp_path: Path) -> None:
    told = run_with_limit("max_inotify_watches", 2, tmp_path)
    assert told.startswith("polling ")
    assert "fs.inotify.max_user_watches" in told


@on_linux
@needs_unshare
def test_B05_used_up_instances_make_it_poll_and_name_the_limit(tmp_path: Path) -> None:
    told = run_with_limit("max_inotify_instances", 0, tmp_path)
    assert told.startswith("polling ")
    assert "fs.inotify.max_user_instances" in told


@on_linux
@needs_unshare
def test_enough_watches_are_enough(tmp_path: Path) -> None:
    assert run_with_limit("max_inotify_watches", 3, tmp_path) == "inotify \n"


OVERFLOW_CHILD = """
import asyncio, sys
from pathlib import Path
from kernel_gamma.bus.watcher import Watcher

async def main():
    done = asyncio.Event()
    told = {"hints": 0, "overflows": 0}
    def on_hint(hint):
        told["hints"] += 1
        if hint.name == "last.json":
            done.set()
    def on_overflow():
        told["overflows"] += 1
        print("overflow", flush=True)
    w = Watcher(Path(sys.argv[1]), ["inbox"], mode="auto", on_hint=on_hint,
                on_overflow=on_overflow, loop=asyncio.get_running_loop())
    w.start()
    print("ready", flush=True)
    async with asyncio.timeout(30):
        await done.wait()
    w.stop()
    print(told["overflows"] > 0, told["hints"] > 0, w.check(), flush=True)

asyncio.run(main())
"""


@contextmanager
def child(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@on_linux
def test_B01_an_overflow_of_the_kernels_queue_is_told(tmp_path: Path) -> None:
    depth = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if depth > 100_000:
        pytest.skip(f"the kernel queues {depth} events: too many to fill here")
    inbox, outside = tmp_path / "inbox", tmp_path / "e.json"
    inbox.mkdir()
    outside.touch()
    with child(OVERFLOW_CHILD, str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        for number in range(depth + 1000):  # two names, for the kernel merges equal neighbours
            inside = inbox / f"{number % 2}.json"
            outside.rename(inside)
            inside.rename(outside)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "overflow\n"
        outside.rename(inbox / "last.json")
        assert process.stdout.readlines()[-1] == "True True False\n"


async def test_watchdogs_own_observer_serves_other_systems(tmp_path: Path) -> None:
    async with watching(tmp_path, open_source=ObserverSource) as watched:
        assert (watched.watcher.mode, watched.watcher.reason) == ("observer", "")
        watched.drop("moved.json")
        await watched.until_told("moved.json")
        (watched.inbox / "draft.tmp").write_text("{}")
        (watched.inbox / "draft.tmp").rename(watched.inbox / "renamed.json")
        await watched.until_told("renamed.json")
        (watched.inbox / "renamed.json").rename(tmp_path / "away.json")
        watched.drop("last.json")
        await watched.until_told("last.json")
        assert {name for name, _ in watched.told} == {"moved.json", "renamed.json", "last.json"}


async def test_watchdogs_own_observer_finds_a_replaced_directory_again(tmp_path: Path) -> None:
    async with watching(tmp_path, open_source=ObserverSource) as watched:
        shutil.rmtree(watched.inbox)
        await watched.until_gone()
        watched.inbox.mkdir()
        assert watched.watcher.check()
        watched.drop("again.json")
        await watched.until_told("again.json")
