"""What is wrong with the mind's own body, looked at from inside while it lives. Calls no model.

Every check has a kind, the part of a code before the colon; docs/health.md says how each is mended. A check
that cannot be made leaves its alert as it stands.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from kernel_gamma.bus.folders import OUTBOX, matches, shown
from kernel_gamma.bus.ledger import Ledger, LedgerDamaged
from kernel_gamma.bus.watcher import ignored
from kernel_gamma.configuration import Home
from kernel_gamma.contracts.alerts import Finding, Inspection, Look, open_after, standing, told
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.ports import Clock, TruthStore
from kernel_gamma.contracts.truths import NewTruth, Truth
from kernel_gamma.errors import SettingsError, TruthError
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.settings import Settings
from kernel_gamma.topology import Declared, wiring_warnings
from kernel_gamma.truths.static.approvals import drift_between, files_on_disk
from kernel_gamma.truths.static.lock import read_lock
from kernel_gamma.truths.static.places import Places
from kernel_gamma.truths.static.rendering import build
from kernel_gamma.truths.static.skeleton import skeleton_differences

__all__ = ["Inspections", "Seen"]

log = structlog.get_logger(__name__)

_NEARLY_FULL = 10
"""An alert of severity core below this part of `inspector.disk_free_mb`."""
_DRIFT = {"missing": "is gone", "new": "is new", "unreadable": "cannot be read"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What only the event loop may read."""

    model: Mapping[str, Json]
    """As of the status."""
    watcher: tuple[str, str]
    """As of FileEventBus.watcher_state."""


class Inspections:
    """Of one mind. `look` is called in a thread, one at a time for each kind of look."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        data: Path,
        clock: Clock,
        declared: Sequence[Declared],
        store: TruthStore,
        alerts: Callable[[], Sequence[Truth | NewTruth]],
    ) -> None:
        """`alerts`: the inspector's newest alerts, also those the store does not have yet."""
        self._home = home
        self._settings = settings
        self._data = data
        self._clock = clock
        self._declared = declared
        self._store = store
        self._alerts = alerts
        self._open: dict[str, dict[str, Json]] = {}
        self._at = (clock.now(), clock.monotonic())
        self.stale: dict[str, Json] | None = None
        """How many files nobody takes up, by kind; None until it was looked."""

    def recall(self) -> None:
        """Read which alerts stand open from before."""
        with suppress(TruthError):
            self._open = told(self._alerts(), rfc3339)

    def open_alerts(self) -> list[Json]:
        """For the status: `code`, `text`, `severity`, `since`."""
        return [{"code": code, **one} for code, one in sorted(self._open.items())]

    def look(self, look: Look, seen: Seen) -> Inspection:
        """Make all checks of a look. Raises TruthError when it cannot be read which alerts stand open."""
        report = _Report()
        checks: list[Callable[[_Report], None]] = [
            self._space,
            self._waiting,
            lambda report: self._model(report, seen.model),
            lambda report: self._watcher(report, *seen.watcher),
            self._time,
            self._static,
        ]
        if look == "daily":
            checks += [self._ledger, self._chain, self._skeleton]
        if look == "stale":
            checks = [self._orphans, self._expired, self._outbox, self._approvals, self._requests]
        for check in checks:
            try:
                check(report)
            except (OSError, sqlite3.Error, LedgerDamaged, TruthError, SettingsError) as error:
                log.warning("a check of the mind's health could not be made", error=str(error))
        found = Inspection(
            findings=tuple(report.findings),
            checked=frozenset(report.checked),
            standing=standing(self._alerts()),
            facts=report.facts,
        )
        self._open = open_after(self._open, found, rfc3339(self._clock.now()))
        if look == "stale":
            self.stale = dict(report.facts)
        return found

    # ---- every hour

    def _space(self, report: _Report) -> None:
        free_mb = shutil.disk_usage(self._data).free // 1_000_000
        report.facts["disk_free_mb"] = free_mb
        least = self._settings.inspector.disk_free_mb
        report.check("disk.low", "disk.full")
        if free_mb * _NEARLY_FULL < least:
            report.find(
                "disk.full", f"only {free_mb} MB are free on the disk: soon I cannot write", core=True
            )
        elif free_mb < least:
            report.find("disk.low", f"only {free_mb} MB are free on the disk of {self._data}")

    def _waiting(self, report: _Report) -> None:
        with self._ledger_read() as ledger:
            rows = ledger.all("waiting_by_node")
        now, longest = self._clock.now(), self._settings.inspector.stuck_sec
        report.facts["waiting"] = {node: count for node, count, _ in rows}
        report.check("queue.stuck")
        for node, count, oldest in rows:
            if now.timestamp() - oldest > longest:
                since = datetime.fromtimestamp(oldest, now.tzinfo)
                text = f"{count} deliveries wait for {node}, the oldest since {since:%Y-%m-%d %H:%M}"
                report.find(f"queue.stuck:{node}", text)

    def _model(self, report: _Report, model: Mapping[str, Json]) -> None:
        state = model.get("breaker", "closed")
        report.facts["breaker"] = state
        if state == "half_open":
            return  # neither well nor ill: the next look tells
        report.check("endpoint.away")
        if state == "open":
            said = f": {model['last_error']}" if model.get("last_error") else ""
            report.find("endpoint.away", f"the language model does not answer{said}"[:400])

    def _watcher(self, report: _Report, mode: str, reason: str) -> None:
        report.facts["watcher"] = mode
        report.check("watcher.polling")
        if mode == "polling" and self._settings.bus.watcher != "polling":
            report.find("watcher.polling", f"new files are found by listing only: {reason}")

    def _time(self, report: _Report) -> None:
        """Whether the clock was set since the last look; a trial's clock is not the machine's."""
        if self._settings.clock.trial:
            return
        (then, before), self._at = self._at, (self._clock.now(), self._clock.monotonic())
        jump = (self._at[0] - then).total_seconds() - (self._at[1] - before)
        report.facts["clock_jump_sec"] = round(jump, 1)
        report.check("time.jumped")
        if abs(jump) > self._settings.inspector.clock_jump_sec:
            text = f"the clock jumped by {jump:.0f} s: it was set anew, or the machine slept"
            report.find("time.jumped", text)

    def _static(self, report: _Report) -> None:
        lock = read_lock(self._home.root)
        if lock is None:
            return
        places = Places(self._settings.static.paths)
        drift = drift_between(lock, files_on_disk(self._home.root, places), places)
        report.facts["static_drift"] = [one.file for one in drift]
        report.check("drift")
        for one in drift:
            said = _DRIFT.get(one.kind, "was changed")
            report.find(f"drift:{one.file}", f"{one.file} {said}, and nobody has approved that")

    # ---- every day

    def _ledger(self, report: _Report) -> None:
        with self._ledger_read() as ledger:
            rows = [str(row[0]) for row in ledger.all("quick_check")]
        report.facts["ledger"] = "; ".join(rows)[:400]
        report.check("ledger.damaged")
        if rows != ["ok"]:
            report.find("ledger.damaged", f"ledger.db is damaged: {'; '.join(rows)}"[:400], core=True)

    def _chain(self, report: _Report) -> None:
        found = self._store.verify()
        report.facts["chain"] = {"ok": found.ok, "links": found.links}
        report.check("chain.broken")
        if not found.ok:
            text = f"the hash chain is broken at {found.broken_key or 'its end'}: {found.reason}"
            report.find("chain.broken", text[:400], core=True)

    def _skeleton(self, report: _Report) -> None:
        """Whether topology, kernel_skeleton.yaml and settings agree."""
        report.check("topology.wiring")
        warnings = wiring_warnings(self._declared)
        if warnings:
            report.find("topology.wiring", "; ".join(warnings)[:400])
        gateway, places = self._settings.gateway, Places(self._settings.static.paths)
        files = files_on_disk(self._home.root, places)
        whole = {file: raw for file, raw in files.items() if raw is not None}
        block = build(whole, places, Tokens().count)
        report.check("skeleton.differs")
        ports = {"gateway": gateway.port} if gateway.enabled and gateway.port else {}
        nodes = [node.id for node in self._declared]
        said = skeleton_differences(block.skeleton, ports=ports, nodes=nodes)
        if said:
            file = self._settings.static.paths.kernel_skeleton
            report.find("skeleton.differs", f"{file}: {'; '.join(said)}"[:400])

    # ---- what nobody takes up

    def _orphans(self, report: _Report) -> None:
        """Files in the pipeline that no node of the topology watches."""
        watched = [pattern for node in self._declared for pattern in node.watch]
        old = _old(hours=self._settings.dead_letter_router.orphan_hours)
        folders = [f"pipeline/{name}" for name in _folders(self._data / "pipeline")]
        found = {
            folder: [
                name
                for name in _files(self._data / folder, before=old)
                if not any(matches(pattern, folder, name) for pattern in watched)
            ]
            for folder in [*folders, "rhythm/triggers"]
        }
        report.facts["orphans"] = sum(map(len, found.values()))
        report.check("files.orphan")
        for folder, names in found.items():
            if names:
                text = f"no node watches {len(names)} files in {folder}, e.g. {shown(names[0])}"
                report.find(f"files.orphan:{shown(folder)}", text[:400])

    def _expired(self, report: _Report) -> None:
        hours = self._settings.dead_letter_router.orphan_hours
        before = self._clock.now() - timedelta(hours=hours)
        with self._ledger_read() as ledger:
            rows = ledger.all("expired_by_node", before.timestamp())
        report.facts["expired"] = sum(count for _, count in rows)
        report.check("files.expired")
        for node, count in rows:
            text = f"{count} deliveries for {node} are past their time to live and were never handed over"
            report.find(f"files.expired:{node}", text)

    def _outbox(self, report: _Report) -> None:
        days = self._settings.dead_letter_router.stale_days
        old = _old(hours=days * 24)
        channels = _folders(self._data / OUTBOX)
        found = {name: sum(1 for _ in _files(self._data / OUTBOX / name, before=old)) for name in channels}
        report.facts["outbox"] = sum(found.values())
        report.check("outbox.untaken")
        for name, count in found.items():
            if count:
                text = f"nobody has taken {count} messages from outbox/{shown(name)} for {days:g} days"
                report.find(f"outbox.untaken:{shown(name)}", text)

    def _approvals(self, report: _Report) -> None:
        hours = self._settings.dead_letter_router.waiting_hours
        count = sum(1 for _ in _files(self._data / "approvals/pending", before=_old(hours=hours)))
        report.facts["approvals"] = count
        report.check("approvals.waiting")
        if count:
            text = f"{count} orders wait in approvals/pending/ for a person, for {hours:g} hours"
            report.find("approvals.waiting", text)

    def _requests(self, report: _Report) -> None:
        """Requests of tools that are programs of their own, without a receipt of the same name."""
        hours = self._settings.dead_letter_router.waiting_hours
        total = 0
        report.check("tools.unanswered")
        for tool in _folders(self._data / "tools"):
            folder = self._data / "tools" / tool
            names = set(_files(folder / "requests", before=_old(hours=hours)))
            count = len(names - {*_files(folder / "receipts")})
            total += count
            if count:
                text = f"{count} requests to the tool {shown(tool)} have no receipt after {hours:g} hours"
                report.find(f"tools.unanswered:{shown(tool)}", text)
        report.facts["tool_requests"] = total

    def _ledger_read(self) -> closing[Ledger]:
        return closing(Ledger.open(self._data / "ledger.db", read_only=True))


class _Report:
    """What the checks of one look have found so far."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.checked: set[str] = set()
        self.facts: dict[str, Json] = {}

    def check(self, *kinds: str) -> None:
        """These could be looked at."""
        self.checked.update(kinds)

    def find(self, code: str, text: str, *, core: bool = False) -> None:
        self.findings.append(Finding(code, text, "core" if core else "warning"))


def _old(*, hours: float) -> float:
    """The time that files as old as this carry: the system's, also in a trial."""
    return (SystemClock().now() - timedelta(hours=hours)).timestamp()


def _folders(base: Path) -> list[str]:
    with suppress(FileNotFoundError), os.scandir(base) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and entry.name != "done")
    return []


def _files(folder: Path, *, before: float | None = None) -> Iterator[str]:
    """Names of the queue's files in a folder, without those that are younger."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if ignored(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                if before is None or entry.stat(follow_symlinks=False).st_mtime <= before:
                    yield entry.name
