"""Finding what was dropped: hints when they come, listings at a slow, adaptive pace always."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from kernel_gamma.bus.folders import INBOX, SKELETON, directory_of
from kernel_gamma.bus.intake import Arrival, Intake, IntakeRules, Refusal
from kernel_gamma.bus.watcher import Hint, Watcher
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import Fenced, Stop
from kernel_gamma.settings import BusSettings

__all__ = ["Tender", "TenderPorts"]

log = structlog.get_logger(__name__)

_BATCH = 256
_FIRST_PACE_SEC = 1.0
_AFTER_TROUBLE_SEC = 0.5
_CLOCK_FILE = b".clock"


@dataclass(frozen=True, slots=True)
class TenderPorts:
    """What tending asks the bus."""

    clock: Clock
    accept: Callable[[Intake, list[Arrival | Refusal]], Awaitable[None]]
    """Take arrivals and refusals of one directory, in order."""
    known: Callable[[str, Collection[bytes]], Awaitable[Collection[bytes]]]
    """Which names of a directory are in the books."""
    room: Callable[[str], int]
    """How many more files of a directory its subscribers can hold."""
    still_ours: Callable[[], None]
    """Raises Fenced when the folder was taken away or is held by another."""
    listed: Callable[[], Awaitable[None]]
    """Runs after each listing."""


class Tender:
    """The task that keeps looking."""

    def __init__(
        self,
        root: Path,
        settings: BusSettings,
        rules: IntakeRules,
        ports: TenderPorts,
        *,
        patterns: Sequence[str],
        emitted: Sequence[str],
    ) -> None:
        """`emitted`: directories the bus writes itself, listed but not watched."""
        self._root = root
        self._raw_root = os.fsencode(root)
        self._settings = settings
        self._rules = rules
        self._ports = ports
        self._clock = ports.clock
        self._patterns = patterns
        self._emitted = set(emitted)
        self._intakes: dict[str, Intake] = {}
        self._wake = asyncio.Event()
        self._list_now = True
        self._pace_sec = _FIRST_PACE_SEC
        self._listed_at = 0.0
        self._listed = asyncio.Event()
        self._accepting = 0
        self._trouble = ""
        self.watcher: Watcher | None = None

    async def start(self) -> None:
        """Make the folders, look at everything once, begin to watch."""
        self._make_folders()
        self._expand()
        watched = [d for d in self._intakes if d not in self._emitted or d == INBOX]
        self.watcher = Watcher(
            self._root,
            watched,
            mode=self._settings.watcher,
            on_hint=self._hint,
            on_overflow=self.look,
            loop=asyncio.get_running_loop(),
        )
        self.watcher.start()
        if self.watcher.reason:
            log.warning("notifications do not work here: polling", reason=self.watcher.reason)

    def stop(self) -> None:
        """No more hints."""
        if self.watcher is not None:
            self.watcher.stop()

    def _make_folders(self) -> None:
        problem = ""
        for directory in (
            *SKELETON,
            *(directory_of(p) for p in self._patterns if "*" not in directory_of(p)),
        ):
            try:
                (self._root / directory).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                problem = f"{directory}/ cannot be made: {error}; put a folder there"
        self._tell_trouble(problem)

    def _tell_trouble(self, problem: str) -> None:
        """Log what keeps coming back only when it changes."""
        if problem != self._trouble:
            self._trouble = problem
            if problem:
                log.error("the queues cannot be looked at", problem=problem)

    def _expand(self) -> None:
        """An intake for every directory the patterns mean; `*` in a pattern stands for one folder."""
        for pattern in self._patterns:
            for directory in self._directories(directory_of(pattern)):
                if directory not in self._intakes:
                    self._intakes[directory] = Intake(self._raw_root, directory, self._rules)

    def _directories(self, pattern: str) -> list[str]:
        found = [""]
        for part in pattern.split("/"):
            if "*" not in part:
                found = [f"{base}/{part}".lstrip("/") for base in found]
                continue
            found = [
                f"{base}/{child}".lstrip("/")
                for base in found
                for child in self._folders(base)
                if fnmatch.fnmatchcase(child, part) and child != "done"
            ]
        return found

    def _folders(self, base: str) -> list[str]:
        try:
            with os.scandir(self._root / base) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def _hint(self, hint: Hint) -> None:
        intake = self._intakes.get(hint.directory)
        if intake is None or hint.kind == "gone_dir":
            self.look()
            return
        intake.hint(hint.name, closed=hint.kind in ("moved_in", "closed"))
        self._wake.set()

    def look(self) -> None:
        """List everything soon."""
        self._list_now = True
        self._wake.set()

    def nudge(self) -> None:
        """There may be room again."""
        if any(intake.queued for intake in self._intakes.values()):
            self._wake.set()

    @property
    def waiting(self) -> int:
        """Files seen and not yet accepted."""
        return self._accepting + sum(len(intake) for intake in self._intakes.values())

    def acceptable(self) -> bool:
        """Whether some of them will be accepted as things are."""
        open_now = (d for d, intake in self._intakes.items() if len(intake))
        return self._accepting > 0 or any(self._ports.room(d) > 0 for d in open_now)

    async def settle(self) -> None:
        """A fresh listing has been made and what it found has been looked at once."""
        self._listed.clear()
        self.look()
        await self._listed.wait()

    async def run(self) -> None:
        """Until cancelled. Raises Fenced and Stop; whatever else goes wrong is tried again."""
        while True:
            try:
                moved = await self._look_once()
            except (Fenced, Stop):
                raise
            except Exception as error:  # noqa: BLE001 - the mind must not go deaf: it looks again
                self._tell_trouble(f"{type(error).__name__}: {error}")
                moved = False
                await asyncio.sleep(_AFTER_TROUBLE_SEC)
            if moved:
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._until_next())

    async def _look_once(self) -> bool:
        """List if it is time, then hand on what is settled; whether anything was."""
        self._wake.clear()
        found = 0
        if self._list_now or self._clock.monotonic() >= self._listed_at + self._pace():
            found = await self._listing()
        moved = await self._pump()
        if found or moved:
            self._pace_sec = _FIRST_PACE_SEC
        if not self._list_now:
            self._listed.set()
        return moved

    def _pace(self) -> float:
        if self.watcher is not None and self.watcher.mode == "polling":
            return min(self._settings.poll_sec, self._pace_sec)
        return self._pace_sec

    def _until_next(self) -> float:
        now = self._clock.monotonic()
        at = self._listed_at + self._pace()
        for intake in self._intakes.values():
            if (due := intake.due_at()) is not None:
                at = min(at, due)
        return max(0.005, at - now)

    async def _listing(self) -> int:
        self._list_now = False
        self._ports.still_ours()  # before folders are made: none in what somebody has removed
        self._make_folders()
        if self.watcher is not None and self.watcher.check():
            log.info("the watcher was set up again")
        self._expand()
        found = 0
        for directory, intake in list(self._intakes.items()):
            names: Collection[bytes] = intake.fresh_names()
            if names:
                # What the bus wrote, and what was accepted where it lies, still stands there.
                known = set(await self._ports.known(directory, names))
                names = [n for n in names if n not in known]
            found += intake.admit(names, self._file_clock)
        self._listed_at = self._clock.monotonic()
        self._pace_sec = min(self._pace_sec * 2, self._settings.reconcile_max_sec)
        await self._tell_listed()
        return found

    async def _tell_listed(self) -> None:
        try:
            await self._ports.listed()
        except (Fenced, Stop):
            raise
        except Exception:
            log.exception("what follows a listing failed")

    def _file_clock(self) -> float:
        """The file system's own time: what it stamps on a file touched now. 0 where none can be touched."""
        path = os.path.join(self._raw_root, _CLOCK_FILE)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError:  # a full disk: then no file is taken for old, and each is watched for a while
            return 0.0
        try:
            os.utime(fd)
            return os.fstat(fd).st_mtime
        finally:
            os.close(fd)

    async def _pump(self) -> bool:
        """Hand on what is settled, as far as there is room; whether anything was."""
        moved = False
        for directory, intake in list(self._intakes.items()):
            room = self._ports.room(directory)
            if room <= 0:
                continue
            found = intake.collect(self._clock.monotonic(), min(room, _BATCH))
            if found:
                moved = True
                self._accepting = len(found)
                try:
                    await self._ports.accept(intake, found)
                finally:
                    self._accepting = 0
        return moved
