"""The composition root: opens one data directory, builds everything that belongs to it, hands out ports.

Nothing here is global: several minds fit in one process.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

import kernel_gamma
from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.host import Tools
from kernel_gamma.actions.registry import build_registry
from kernel_gamma.assembly import Assembly, Counting
from kernel_gamma.bus.event_bus import BusPorts, FileEventBus
from kernel_gamma.bus.files import Unreadable, overwrite, read_regular, write_whole
from kernel_gamma.bus.folders import ATTACHMENTS, SELF, SKELETON, STATUS_FILE
from kernel_gamma.bus.inquiries import Inquiries
from kernel_gamma.bus.journal import LedgerJournal
from kernel_gamma.bus.keep_times import load_keep_times
from kernel_gamma.bus.ledger import Ledger, LedgerDamaged
from kernel_gamma.bus.plan import Plan
from kernel_gamma.bus.records import Committed
from kernel_gamma.bus.room import wait_for_room
from kernel_gamma.bus.setting_aside import set_database_aside
from kernel_gamma.bus.signals import read_folder, read_signal, triggers_made
from kernel_gamma.bus.steps import KillSwitch
from kernel_gamma.bus.subscription import Observer
from kernel_gamma.bus.tidying import Tidying, TidyingPorts
from kernel_gamma.bus.writer import is_disk_full
from kernel_gamma.circuit import Circuit
from kernel_gamma.configuration import Home, read_yaml
from kernel_gamma.context.consolidation import stopped_mark
from kernel_gamma.contracts.alerts import Inspection, Look
from kernel_gamma.contracts.context import Assembled, Request
from kernel_gamma.contracts.effects import Append, Outcome, PassageRef
from kernel_gamma.contracts.envelope import Json, encode_document, rfc3339
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.contracts.language import Language
from kernel_gamma.contracts.ports import Clock, Ids, Model, Passage
from kernel_gamma.errors import Fenced, SettingsError, Stop, TruthError
from kernel_gamma.inspections import Inspections, Seen
from kernel_gamma.keeping import Keeping
from kernel_gamma.loops.circuits import LOOPS, open_loops
from kernel_gamma.measures import Measures
from kernel_gamma.model.gateway import ModelGateway
from kernel_gamma.model.offline import OFFLINE_NOTICE, ONLINE_NOTICE, calls_itself_offline
from kernel_gamma.nodes.base import NodePorts
from kernel_gamma.prompts import Prompts
from kernel_gamma.rhythm.clock import clock_for
from kernel_gamma.rhythm.ids import UlidIds
from kernel_gamma.rhythm.reminders import REMINDERS
from kernel_gamma.rhythm.rules import read_rules
from kernel_gamma.self_stream.pages import PageFiles
from kernel_gamma.self_stream.passages import render
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.self_stream.stream import NOW, SelfStream, rotation_for
from kernel_gamma.settings import Settings
from kernel_gamma.topology import load_topology, wiring_warnings
from kernel_gamma.truths.retention_file import read_retention
from kernel_gamma.truths.static.webhook import Webhook

__all__ = ["Mind", "open_ledger"]

log = structlog.get_logger(__name__)

_PUT_BACK = timedelta(minutes=30)
_AFTER_THE_DAY = timedelta(hours=1)
_STATUS_EVERY_SEC = 1.0
_LARGEST_ATTACHMENT = 20_000_000
_PUT_BACK_NOTE: Mapping[Language, str] = {
    "en": "_I put this passage back: a save of this page from an editor had dropped it._",
    "zh": "_这一段是我放回来的：编辑器保存这一页时把它弄丢了。_",
}


class Mind:
    """One data directory, alive between `start` and `stop`."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        model: Model | None = None,
        observe: Observer | None = None,
    ) -> None:
        """Build everything from settings; nothing is delivered before `start`.

        `model` replaces the configured one (tests, benchmarks). `observe` hears what happens, for a live
        view. Raises SettingsError for whatever is wrong in config/ and prompts/.
        """
        self.settings = settings
        self.home = Home(home)
        self.data = self.home.data_dir(settings)
        self._observer = observe
        self.clock: Clock = clock_for(settings.clock)
        self.ids: Ids = UlidIds(self.clock)
        kill = KillSwitch(settings.debug.kill_at if settings.debug.enabled else None)
        self._prepare_folders()
        self._ledger = open_ledger(self.data / "ledger.db")
        self._inquiries = Inquiries(self._ledger.path, self.clock)
        fixed = None if settings.language == "auto" else settings.language
        rotation = rotation_for(settings.stream, self.clock, fixed)
        self.pages = PageFiles(self.data / SELF, kill, split_writes=kill.armed, rotation=rotation)
        self.self_log = SelfStream(self.data / SELF, rotation=rotation)
        self.keeping = Keeping(
            self.data / "memory.db",
            settings,
            environ,
            self.clock,
            PastFiles(self.data / SELF, self.clock.zone),
            read_retention(self.home.config_dir),
        )
        self.model: Model = model or ModelGateway(
            settings,
            clock=self.clock,
            spending=self._inquiries,
            environ=environ,
            read_attachment=self._read_attachment,
        )
        self.bus = FileEventBus(
            self.data,
            settings,
            self._ledger,
            BusPorts(
                clock=self.clock,
                ids=self.ids,
                pages=self.pages,
                parse=lambda raw: read_document(raw, max_depth=settings.inbox.max_depth),
                kill=kill,
                observe=self._observed,
                foresee=self._foresee,
                recorder=self.keeping.recorder,
                stands=self._stands_now,
            ),
        )
        self.bus.on_listing = self._look_at_pages
        self._tidying = self._tidier()
        self.assembly = Assembly(
            self.home,
            settings,
            self.keeping.store,
            self.self_log,
            self.clock,
            Counting(self.model.count_tokens, self.model.window),
            tell=self.keeping.tell,
            breaker=self._breaker,
        )
        self.keeping.webhook = Webhook(
            settings.static,
            environ,
            self.keeping.store,
            self.clock,
            diff=self.assembly.changes.diff,
        )
        self.declared = load_topology(self.home.topology_file(settings), home)
        self._measures = Measures(self.data, self.clock)
        self._inspections = Inspections(
            self.home, settings, self.data, self.clock, self.declared, self.keeping.store, self.keeping.alerts
        )
        self._circuit = Circuit(self.bus, self.declared, self._ports(kill))
        self._language: Language = "zh" if settings.language == "zh" else "en"
        self._now_seen: tuple[int, int, int] | None = None
        self._rotation = rotation
        self._tidied = ""
        """The day whose beginning has cleared now.md of earlier ones."""
        self._status_timer: asyncio.TimerHandle | None = None
        self._started_at = self.clock.now()
        self._fenced = False
        """Another daemon has the mind: not even the status is ours to write."""

    def _prepare_folders(self) -> None:
        for directory in SKELETON:
            (self.data / directory).mkdir(parents=True, exist_ok=True)
        device = self.data.stat().st_dev
        done = [folder for d in SKELETON if (self.data / (folder := f"{d}/done")).is_dir()]
        for directory in (*SKELETON, *done):
            if (self.data / directory).stat().st_dev != device:
                raise SettingsError(
                    str(self.data / directory),
                    "data_dir",
                    "this folder is on another file system, so files cannot be moved into it whole",
                    "keep the whole data directory on one file system",
                )

    def _tidier(self) -> Tidying:
        file = self.home.config_dir / "retention.yaml"
        return Tidying(
            TidyingPorts(
                root=self.data,
                clock=self.clock,
                keep=load_keep_times(read_yaml(file) if file.exists() else {}, str(file)),
                disk=self.bus.disk,
                ledger=self._ledger.path,
                real_time=not self.settings.clock.trial,
                tell=self.keeping.removed,
            )
        )

    def _ports(self, kill: KillSwitch) -> NodePorts:
        settings = self.settings
        journal = LedgerJournal(self.bus.disk, self.clock, kill)
        tools_file = self.home.config_dir / "tools.yaml"
        registry = build_registry(BUILTINS, read_yaml(tools_file) if tools_file.exists() else None)
        return NodePorts(
            clock=self.clock,
            ids=self.ids,
            journal=journal,
            model=self.model,
            self_log=self.self_log,
            tools=Tools(
                registry,
                journal=journal,
                self_log=self.self_log,
                settings=settings,
                draft=self.assembly.draft,
            ),
            prompts=Prompts(self.home.prompts_dir),
            settings=settings,
            place_of=self._inquiries.place_of,
            seen=lambda key: self.bus.claimed_ahead(key) or self._inquiries.seen(key),
            assemble=self._assemble,
            rhythm=read_rules(self.home.config_dir, self.clock.zone),
            signal=lambda path: read_signal(self.data, path),
            last_happening=self._inquiries.last_happening,
            triggers_made=lambda: triggers_made(self.data),
            reminders=lambda: read_folder(self.data, REMINDERS),
            kept=lambda prefix: {**self._inquiries.kept(prefix), **self.bus.kept_ahead(prefix)},
            measures=self._measure,
            inspect=self._inspect,
        )

    async def _assemble(self, request: Request) -> Assembled:
        """Beside the loop: the store is searched, and what is counted may be long."""
        return await asyncio.to_thread(self.assembly.assembler.assemble, request)

    async def _measure(self) -> Mapping[str, Json]:
        """Measure, and tell the status."""
        measured = await asyncio.to_thread(self._measures.take)
        self._status_soon()
        return measured

    async def _inspect(self, look: Look) -> Inspection:
        """What only the loop may read is read here; the rest is looked at beside it."""
        status = getattr(self.model, "status", None)
        seen = Seen(status() if status is not None else {}, self.bus.watcher_state)
        found = await asyncio.to_thread(self._inspections.look, look, seen)
        self._status_soon()
        return found

    def _breaker(self) -> str:
        status = getattr(self.model, "status", None)
        return "closed" if status is None else str(status().get("breaker"))

    def _read_attachment(self, path: str) -> bytes:
        """An attachment below inbox/attachments/. Raises OSError when it cannot be read from there."""
        base = (self.data / ATTACHMENTS).resolve()
        found = (self.data / path).resolve()
        if not found.is_relative_to(base):
            raise OSError(f"{path} is not under {ATTACHMENTS}/")
        try:
            return read_regular(os.fsencode(found), _LARGEST_ATTACHMENT)[0]
        except Unreadable as error:
            raise OSError(f"{path}: {error}") from error

    # ---- life

    async def start(self) -> None:
        """Take the mind over, recover, list, watch."""
        try:
            self._ledger.take_over()
            for warning in wiring_warnings(self.declared):
                log.warning("topology", warning=warning)
            await asyncio.to_thread(self.self_log.refresh)
            await self.bus.start(self._circuit.subscribers())
        except Exception as error:
            if not is_disk_full(error):
                raise
            raise Stop(f"{self.data}: the disk is full ({error}); free some space and start again") from error
        await asyncio.to_thread(self._look_at_static_truths)
        await asyncio.to_thread(self._inspections.recall)
        await self._say_which_model()
        await asyncio.to_thread(self.keeping.began, kernel_gamma.__version__, self._ledger.boot, os.getpid())
        self._write_status()

    def _look_at_static_truths(self) -> None:
        """A section over its budget, or approved bytes that are nowhere, end the start with a sentence."""
        try:
            self.assembly.static.drift()
        except TruthError as error:
            log.warning("approved static truths could not be kept", error=str(error))

    async def run(self) -> None:
        """Deliver until `stop`; raises Stop or Fenced when the mind cannot go on."""
        try:
            await self._circuit.run()
        except Fenced:
            self._fenced = True
            raise

    async def stop(self) -> None:
        """Stop taking, let running handlers finish within the grace, commit them, close everything."""
        await self._circuit.stop(self.settings.shutdown_grace_sec)
        watcher = self.bus.watcher_state
        await self._tidying.stop()
        await self.bus.stop()
        if not self._fenced:
            await asyncio.to_thread(self.keeping.ended, "asked to stop")
        self.keeping.close()
        if self._status_timer is not None:
            self._status_timer.cancel()
        if not self._fenced:
            self._write_status(running=False, watcher=watcher)
        self._inquiries.close()
        self._ledger.close()
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()

    async def drained(self) -> str:
        """Wait until nothing is pending, held, in retry or in flight: "" then, or why the rest is stuck."""
        while True:
            if await self.bus.settle() and self.bus.quiet() and not self._circuit.beats_due():
                return ""
            if reason := self.bus.blocked():
                return reason
            await asyncio.sleep(0.02)

    async def _say_which_model(self) -> None:
        """A stream that begins without a language model says so, and once more when there is one."""
        if getattr(self.model, "offline", False):
            mark = self.self_log.fingerprint(NOW)
            if mark is not None and mark[1] > 0:
                return
            notice = OFFLINE_NOTICE
        elif calls_itself_offline((await asyncio.to_thread(self.self_log.page, NOW)).text):
            notice = ONLINE_NOTICE
        else:
            return
        text = render(self.clock.now(), notice[self._language])
        ref = PassageRef(self.ids.new("psg"), "note")
        cause = f"start_{self._ledger.boot}"
        await self.bus.commit_own(cause, Outcome.of(Append(page=NOW, text=text, passage=ref)))

    def _foresee(self, plan: Plan) -> None:
        """What a queued commit will add to the stream is read as if it stood."""
        for append in plan.appends:
            if append.page == NOW:
                self.self_log.foresee(append.text)
        for _, page, text, *_ in plan.replaces:
            self.self_log.foresee_page(page, text)

    def _stands_now(self, plan: Plan) -> None:
        for append in plan.appends:
            if append.page == NOW:
                self.self_log.forget(append.text)
        for _, page, text, *_ in plan.replaces:
            self.self_log.forget_page(page, text)

    # ---- pages others touch

    async def _look_at_pages(self) -> None:
        """After a listing: hand-made changes of the pages are taken in.

        Passages that a foreign save of now.md has dropped are put back, once.
        """
        self.self_log.refresh()
        self._tidying.look()
        await self.keeping.look()
        await self._tidy_stream()
        mark = self.self_log.fingerprint(NOW)
        if mark == self._now_seen:
            return
        if not self.bus.disk.unmarked:  # else passages stand that the ledger does not call standing yet
            self._now_seen = mark
        recent = self._inquiries.recent_passages(self.clock.now() - _PUT_BACK)
        if not recent or self._stands(recent[-1][0]):
            return  # a stale save drops the newest passage first
        lost = self.self_log.missing([block.encode("utf-8", "replace") for _, block in recent])
        for index in lost:
            await self._put_back(*recent[index])

    async def _tidy_stream(self) -> None:
        """Passages of earlier days leave now.md, and what a person's save has made too long: no model needed.

        A consolidation at the day's end comes first, if one comes within the hour.
        """
        mark, day = self.self_log.fingerprint(NOW), self._rotation.day(self.clock.now() - _AFTER_THE_DAY)
        if mark is None or (day == self._tidied and mark[1] <= self._rotation.max_bytes):
            return
        try:
            move = self.self_log.overdue(day)
        except OSError as error:
            log.warning("now.md could not be looked through; tried again at the next look", error=str(error))
            return
        if move is None:
            self._tidied = day
            return
        await self.bus.commit_own(self.ids.new("rotation"), Outcome.of(move))

    def _stands(self, passage_id: str) -> bool:
        place = self._inquiries.place_of(passage_id)
        if place is None:
            return True
        try:
            with (self.data / SELF / place.page).open("rb") as page:
                page.seek(place.offset)
                return hashlib.sha256(page.read(place.length)).hexdigest() == place.sha256
        except OSError:
            return False

    async def _put_back(self, passage_id: str, block: str) -> None:
        heading, _, text = block.partition("\n")
        note = _PUT_BACK_NOTE[self._language]
        again = f"{heading}\n\n{note}\n\n{text.strip()}\n"
        await self.bus.commit_own(
            f"put_back_{passage_id}",
            Outcome.of(Append(page=NOW, text=again)),
            extra=lambda ledger: ledger.run("put_back", passage_id),
        )
        log.warning("a passage that a foreign save dropped was put back", passage=passage_id)

    # ---- status

    def _observed(self, what: str, details: Mapping[str, Any]) -> None:
        if what == "committed":
            self._remember_changes(details["commit"])
            if details["batch"].deliveries:  # a beat is no load
                self.keeping.committed(details["node"])
        elif what == "paused":
            self.keeping.waits(details["node"], str(details["reason"]))
        elif what == "stalled":
            self.keeping.waits("disk", str(details["reason"]))
        if self._observer is not None:
            try:
                self._observer(what, details)
            except Exception:
                log.exception("whoever looks on failed", what=what)
        self._status_soon()

    def _status_soon(self) -> None:
        if self._status_timer is None:
            loop = asyncio.get_running_loop()
            self._status_timer = loop.call_later(_STATUS_EVERY_SEC, self._write_status)

    def _remember_changes(self, commit: Committed) -> None:
        """What was just written to memories and diary can be recollected at once."""
        pages = [op[1] for op in commit.operations if op[0] in ("append", "replace") and op[1] != NOW]
        if pages:
            self.self_log.refresh(pages)

    def status(self, watcher: tuple[str, str] | None = None) -> dict[str, Json]:
        """What only the running process knows; the rest of `kgamma status` is read from files."""
        mode, reason = watcher or self.bus.watcher_state
        model = getattr(self.model, "status", None)
        return {
            "pid": os.getpid(),
            "mind": self.settings.mind,
            "started_at": rfc3339(self._started_at),
            "written_at": rfc3339(self.clock.now()),
            "nodes": self.bus.node_states(),
            "model": model() if model is not None else {"mode": "custom", "breaker": "closed"},
            "watcher": {"mode": mode, "reason": reason or None},
            "stalled": self.bus.disk.stall_reason or None,
            "durability": self.settings.bus.durability,
            "context": self.keeping.sums.as_json(),
            "open_loops": open_loops(self._inquiries.kept(LOOPS), self.clock.now()),
            "measures": self._measures.last,
            "alerts": self._inspections.open_alerts(),
            "stale": self._inspections.stale,
            "memory": self._memory_status(),
        }

    def _memory_status(self) -> dict[str, Json]:
        """How long now.md is, and why no consolidation runs, if none does until something new comes."""
        mark = self.self_log.fingerprint(NOW)
        newest: list[Passage] = []
        with suppress(OSError):  # what cannot be read is told where it is to be written
            newest = self.self_log.tail(self._rotation.max_bytes)[-1:]
        stopped = [self._inquiries.seen(stopped_mark(passage)) for passage in newest if passage.heading]
        return {
            "now_bytes": mark[1] if mark is not None else 0,
            "now_max_bytes": self._rotation.max_bytes,
            "stopped": next((found["reason"] for found in stopped if found), None),
        }

    def _write_status(self, *, running: bool = True, watcher: tuple[str, str] | None = None) -> None:
        self._status_timer = None
        document = {**self.status(watcher), "running": running}
        directory, _, name = STATUS_FILE.rpartition("/")
        try:
            try:
                write_whole(os.fsencode(self.data / directory), name.encode(), encode_document(document))
            except OSError as error:
                if not is_disk_full(error):
                    raise
                overwrite(os.fsencode(self.data / STATUS_FILE), encode_document(document))
        except OSError as error:
            log.warning("metrics/status.json could not be written", error=str(error))


def open_ledger(path: Path) -> Ledger:
    """The ledger; a damaged one is set aside whole and a new one begun: files still pending come again.

    Nothing is opened while the disk is full: whoever starts then waits until there is room.
    """
    wait_for_room(path.parent)
    log_of_nothing = path.with_name(path.name + "-wal")
    if not _bytes_of(path) and not path.is_dir() and _bytes_of(log_of_nothing):
        # SQLite would delete a log beside an empty file, and with it what may yet be saved by hand.
        _set_aside(
            path, f"{path} is {'empty' if path.exists() else 'gone'}, its log {log_of_nothing.name} is not"
        )
    try:
        return Ledger.open(path)
    except LedgerDamaged as error:
        _set_aside(path, str(error))
        return Ledger.open(path)


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _set_aside(path: Path, error: str) -> None:
    log.error("the ledger was damaged and set aside", error=error, kept=set_database_aside(path))
