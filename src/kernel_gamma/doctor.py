"""What could keep a mind from living well here, each with the way to mend it. Changes nothing.

A check says ok, warn (it runs, but …) or fail (it does not run, or will lose its way).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.registry import build_registry
from kernel_gamma.assembly import read_task_types
from kernel_gamma.bus.folders import SKELETON
from kernel_gamma.bus.keep_times import load_keep_times
from kernel_gamma.bus.ledger import Ledger, LedgerDamaged
from kernel_gamma.bus.watcher import Watcher
from kernel_gamma.configuration import Home, load_environment, load_settings, read_yaml
from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import SettingsError
from kernel_gamma.model.roles import ROLES, ResolvedRole, Roles, shown_url
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.prompts import LANGUAGES, Prompts
from kernel_gamma.rhythm.clock import clock_for
from kernel_gamma.settings import Settings
from kernel_gamma.topology import load_topology, wiring_warnings
from kernel_gamma.truths.retention_file import read_retention
from kernel_gamma.truths.static.approvals import drift_between, files_on_disk
from kernel_gamma.truths.static.lock import read_lock
from kernel_gamma.truths.static.places import LOCK_FILE, Places
from kernel_gamma.truths.static.rendering import Block, build, joined
from kernel_gamma.truths.static.skeleton import skeleton_differences
from kernel_gamma.truths.static.webhook import approval_problem

__all__ = ["Finding", "Level", "examine"]

Level = Literal["ok", "warn", "fail"]

_OLDEST_PYTHON = (3, 11)
_FEW_WATCHES, _FEW_INSTANCES = 8192, 128
_LOW_BYTES, _NO_BYTES = 500_000_000, 20_000_000
_MODELS_TIMEOUT_SEC = 5.0
_BEFORE_THIS_PROGRAM = 2025
_STEPPED_BACK_SEC = 60.0
_ANSWER_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Level
    text: str
    mend: str = ""

    def as_json(self) -> dict[str, str]:
        return {"check": self.check, "level": self.level, "text": self.text, "mend": self.mend}


@dataclass(frozen=True, slots=True)
class _Patient:
    home: Home
    environ: Mapping[str, str]
    settings: Settings
    data: Path
    clock: Clock


def examine(
    home: Path,
    environ: Mapping[str, str],
    *,
    holder: Callable[[Path], Mapping[str, Any] | None] = lambda data: None,
) -> Iterator[Finding]:
    """All findings, in the order they are made; an online model's endpoint is asked once.

    `holder(data)` says who holds the mind. Must not be called from a running event loop.
    """
    yield _python()
    try:
        full = load_environment(home, environ)
        settings = load_settings(home, full)
    except SettingsError as error:
        for line in str(error).splitlines():
            yield Finding("settings", "fail", line, "mend the key, then run kgamma doctor again")
        return
    yield Finding("settings", "ok", f"{Home(home).settings_file} and the environment are sound")
    patient = _Patient(Home(home), full, settings, Home(home).data_dir(settings), clock_for(settings.clock))
    for check in (
        _tools,
        _prompts,
        _task_types,
        _retention,
        _topology,
        _static,
        _approval,
        _folders,
        _space,
        _watching,
        _ledger,
        _tables,
        _clock,
        _model,
    ):
        yield from check(patient)
    held = holder(patient.data) if patient.data.is_dir() else None
    yield Finding("daemon", "ok", f"running, process {held.get('pid')}" if held else "not running")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST_PYTHON:
        return Finding("python", "fail", f"Python {version} is too old", "install Python 3.11 or newer")
    return Finding("python", "ok", f"Python {version}")


# Configuration


def _tools(patient: _Patient) -> Iterator[Finding]:
    file = patient.home.config_dir / "tools.yaml"
    try:
        build_registry(BUILTINS, read_yaml(file) if file.exists() else None, file=str(file))
    except SettingsError as error:
        yield Finding("tools", "fail", str(error), error.mend)
    else:
        yield Finding("tools", "ok", f"{file}" if file.exists() else "no tools.yaml: the built-in tools only")


def _prompts(patient: _Patient) -> Iterator[Finding]:
    try:
        prompts = Prompts(patient.home.prompts_dir)
    except SettingsError as error:
        yield Finding("prompts", "fail", str(error), error.mend or f"kgamma init {patient.home.root}")
        return
    yield Finding("prompts", "ok", f"{patient.home.prompts_dir}, English and Chinese alike")
    most = patient.settings.context.persona_tokens
    for language in LANGUAGES:
        taken = Tokens().count(prompts.text("SOUL", language))
        if taken > most:
            yield Finding(
                "prompts",
                "warn",
                f"prompts/{language}/SOUL.md takes {taken} tokens: paragraphs over {most} are left out",
                "shorten it, or raise context.persona_tokens",
            )


def _task_types(patient: _Patient) -> Iterator[Finding]:
    try:
        types = read_task_types(patient.home)
    except SettingsError as error:
        yield Finding("task types", "fail", str(error), error.mend)
    else:
        yield Finding("task types", "ok", ", ".join(types.rules))


def _retention(patient: _Patient) -> Iterator[Finding]:
    file = patient.home.config_dir / "retention.yaml"
    try:
        classes = read_retention(patient.home.config_dir)
        keep = load_keep_times(read_yaml(file) if file.exists() else {}, str(file))
    except SettingsError as error:
        yield Finding("retention", "fail", str(error), error.mend)
        return
    yield Finding("retention", "ok", f"{file}" if file.exists() else "no retention.yaml: the shipped times")
    for prefix, days in classes.shortened():
        told = f"{prefix}. is shipped as kept for ever; here it goes after {days} days"
        yield Finding("retention", "warn", told, f"write keep: forever in {file}, unless you mean it")
    if keep.dead_letter is not None:
        told = f"files that were set aside go after {keep.dead_letter.total_seconds() / 86_400:g} days"
        yield Finding("retention", "warn", told, f"write dead_letter: forever in {file}, unless you mean it")


def _topology(patient: _Patient) -> Iterator[Finding]:
    file = patient.home.topology_file(patient.settings)
    try:
        declared = load_topology(file, patient.home.root)
    except SettingsError as error:
        yield Finding("topology", "fail", str(error), error.mend)
        return
    warnings = wiring_warnings(declared)
    for warning in warnings:
        yield Finding("topology", "warn", warning, f"enable the missing node in {file}")
    if not warnings:
        yield Finding("topology", "ok", f"{len(declared)} nodes: {', '.join(node.id for node in declared)}")


def _static(patient: _Patient) -> Iterator[Finding]:
    """Channel A: the files in their forms and budgets, as approved, and true of this home."""
    home, tokens = patient.home.root, Tokens()
    try:
        places = Places(patient.settings.static.paths)
        lock, found = read_lock(home), files_on_disk(home, places)
        drift = drift_between(lock, found, places) if lock is not None else []
    except SettingsError as error:
        yield Finding("static", "fail", str(error), error.mend)
        return
    if lock is None:
        mend = "the next start restores it from memory.db, or else approves the files as they stand"
        yield Finding("static", "warn", f"{LOCK_FILE} is not there", mend)
    for one in drift:
        mend = f"kgamma static diff {one.file}; then kgamma static propose {one.file}, or put it back"
        said = {"missing": "is gone", "new": "is new", "unreadable": "cannot be read"}.get(
            one.kind, "was changed"
        )
        yield Finding("static", "warn", f"{one.file} {said}, and nobody has approved that", mend)
    with suppress(OSError, ValueError, EOFError):  # a damaged table is told by a check of its own
        tokens.load()
    try:
        block = build({f: raw for f, raw in found.items() if raw is not None}, places, tokens.count)
    except SettingsError as error:
        # what is served is what was approved, as long as that is to be had
        served = any(error.file in (one.file, one.file.rpartition("/")[0]) for one in drift)
        yield Finding("static", "warn" if served else "fail", str(error), error.mend)
        return
    yield from _skeleton(patient, block)
    if lock is not None and not drift:
        lean, full = (tokens.count(joined(block.sections(profile))) for profile in ("lean", "full"))
        yield Finding("static", "ok", f"{len(found)} files as approved; {full} tokens in full, {lean} lean")


def _approval(patient: _Patient) -> Iterator[Finding]:
    settings = patient.settings.static
    if (problem := approval_problem(settings, patient.environ)) is not None:
        yield Finding("approval", "warn", *problem)
    elif settings.approval != "cli":
        host = shown_url(settings.approval_webhook or "").partition("//")[2].partition("/")[0]
        yield Finding("approval", "ok", f"proposals are told to {host} ({settings.approval}), and signed")


def _skeleton(patient: _Patient, block: Block) -> Iterator[Finding]:
    gateway = patient.settings.gateway
    ports = {"gateway": gateway.port} if gateway.enabled and gateway.port else {}
    try:
        declared = load_topology(patient.home.topology_file(patient.settings), patient.home.root)
    except SettingsError:
        return  # told by its own check
    file = patient.settings.static.paths.kernel_skeleton
    for said in skeleton_differences(block.skeleton, ports=ports, nodes=[node.id for node in declared]):
        mend = f"change {file}, then kgamma static propose {file}"
        yield Finding("static", "warn", f"{file}: {said}", mend)


# The disk


def _folders(patient: _Patient) -> Iterator[Finding]:
    data = patient.data
    base = _nearest(data)
    if problem := _cannot_move(base):
        yield Finding("data", "fail", f"{base}: {problem}", "make it writable for this user (chown, chmod)")
        return
    device = base.stat().st_dev
    strays = [d for d in SKELETON if (data / d).exists() and (data / d).stat().st_dev != device]
    for stray in strays:
        yield Finding(
            "data",
            "fail",
            f"{data / stray} is on another file system, so files cannot be moved into it whole",
            "keep the whole data directory on one file system",
        )
    locked = [d for d in SKELETON if (data / d).exists() and not os.access(data / d, os.W_OK | os.X_OK)]
    for folder in locked:
        yield Finding("data", "fail", f"{data / folder} is not writable", "chown or chmod it")
    if not strays and not locked:
        yet = "" if data.exists() else " can be made"
        yield Finding("data", "ok", f"{data}{yet}, writable, one file system")


def _nearest(path: Path) -> Path:
    """`path` or the first folder above it that exists."""
    return next(found for found in (path, *path.parents) if found.exists())


def _cannot_move(folder: Path) -> str:
    """Why a file cannot be written and renamed in `folder`; "" when it can."""
    try:
        with tempfile.TemporaryDirectory(prefix=".kgamma-doctor-", dir=folder) as probe:
            first, second = Path(probe) / "a", Path(probe) / "b"
            first.write_bytes(b"probe")
            first.rename(second)
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return ""


def _space(patient: _Patient) -> Iterator[Finding]:
    base = _nearest(patient.data)
    free = shutil.disk_usage(base).free
    told = f"{free / 1e9:.1f} GB are free on the disk of {base}"
    if free < _NO_BYTES:
        yield Finding("space", "fail", told, "free some space: the mind waits on a full disk")
    elif free < _LOW_BYTES:
        yield Finding("space", "warn", told, "free some space before the mind has to wait")
    else:
        yield Finding("space", "ok", told)
    stats = os.statvfs(base)
    if stats.f_files and stats.f_favail < 1000:
        text = f"only {stats.f_favail} more files can be made on this disk"
        yield Finding("space", "fail", text, "remove files: it has run out of inodes")


def _watching(patient: _Patient) -> Iterator[Finding]:
    if patient.settings.bus.watcher == "polling":
        every = patient.settings.bus.poll_sec
        yield Finding("watching", "ok", f"folders are listed every {every:g} s, as bus.watcher says")
        return
    for name, few in (("max_user_watches", _FEW_WATCHES), ("max_user_instances", _FEW_INSTANCES)):
        with suppress(OSError, ValueError):
            limit = int(Path(f"/proc/sys/fs/inotify/{name}").read_text())
            if limit < few:
                text = f"fs.inotify.{name} is only {limit}"
                yield Finding("watching", "warn", text, f"sysctl fs.inotify.{name}={few * 8}")
    mode, reason = asyncio.run(_probe(_nearest(patient.data)))
    if mode == "polling":
        yield Finding("watching", "warn", f"new files are found by listing only: {reason}", "see above")
    else:
        yield Finding("watching", "ok", f"new files are noticed at once ({mode})")


async def _probe(base: Path) -> tuple[str, str]:
    """What the watcher comes to in a folder beside the real ones."""
    try:
        with tempfile.TemporaryDirectory(prefix=".kgamma-doctor-", dir=base) as folder:
            watcher = Watcher(
                Path(folder),
                ["."],
                mode="auto",
                on_hint=lambda hint: None,
                on_overflow=lambda: None,
                loop=asyncio.get_running_loop(),
            )
            watcher.start()
            found = watcher.mode, watcher.reason
            watcher.stop()
            return found
    except OSError as error:
        return "polling", f"{base}: {error.strerror}"


def _ledger(patient: _Patient) -> Iterator[Finding]:
    path = patient.data / "ledger.db"
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        yield _no_ledger(path)
        return
    try:
        ledger = Ledger.open(path, read_only=True)
    except SettingsError as error:
        yield Finding("ledger", "fail", str(error), error.mend)
        return
    except LedgerDamaged as error:
        yield _damaged(str(error))
        return
    try:
        rows = [str(row[0]) for row in ledger.all("quick_check")]
        newest = ledger.one("newest_commit_at")
    except sqlite3.Error as error:
        yield _damaged(f"{path}: {error}")
        return
    finally:
        ledger.close()
    if rows != ["ok"]:
        yield _damaged(f"{path}: {'; '.join(rows)}")
        return
    yield Finding("ledger", "ok", f"{path} is sound")
    now = patient.clock.now()
    if newest and not patient.settings.clock.trial and newest[0] - now.timestamp() > _STEPPED_BACK_SEC:
        last = datetime.fromtimestamp(newest[0], patient.clock.zone)
        text = (
            f"the clock says {now:%Y-%m-%d %H:%M:%S}, but the last thing happened at {last:%Y-%m-%d %H:%M:%S}"
        )
        yield Finding("clock", "warn", text, "set the clock (NTP)")


def _no_ledger(path: Path) -> Finding:
    write_ahead = path.with_name(f"{path.name}-wal")
    if write_ahead.is_file() and write_ahead.stat().st_size:
        text = f"{path} is {'empty' if path.exists() else 'gone'}, but its log {write_ahead.name} is there"
        mend = "put ledger.db back if you have it; else the next start keeps the log aside and begins anew"
        return Finding("ledger", "warn", text, mend)
    return Finding("ledger", "ok", "there is none yet: the first start makes it")


def _damaged(text: str) -> Finding:
    mend = "stop the daemon, move ledger.db aside: what is pending is taken up again, effects may repeat"
    return Finding("ledger", "fail", text, mend)


# Time, tokens, model


def _clock(patient: _Patient) -> Iterator[Finding]:
    now, clock = patient.clock.now(), patient.settings.clock
    told = f"{now:%Y-%m-%d %H:%M:%S %z}, zone {clock.zone or f'{patient.clock.zone} (the system says so)'}"
    if clock.trial:
        yield Finding(
            "clock", "warn", f"a trial's time runs: {told}", "remove clock.trial to live in real time"
        )
    elif now.year < _BEFORE_THIS_PROGRAM:
        yield Finding("clock", "fail", f"the clock is wrong: {told}", "set the clock (NTP)")
    else:
        yield Finding("clock", "ok", told)


def _tables(patient: _Patient) -> Iterator[Finding]:
    tokens = Tokens()
    try:
        tokens.load("o200k_base")
        tokens.load("cl100k_base")
    except (OSError, ValueError, EOFError) as error:
        yield Finding("tokens", "fail", f"a token table is damaged: {error}", "install kernel-gamma again")
    else:
        yield Finding("tokens", "ok", "both token tables are whole; no network is needed to count")


def _model(patient: _Patient) -> Iterator[Finding]:
    settings = patient.settings.model
    try:
        roles = Roles(settings, patient.environ)
    except SettingsError as error:
        yield Finding("model", "fail", str(error), error.mend)
        return
    if roles.offline:
        wanted = settings.mode == "offline"
        mend = f"put OPENAI_API_KEY=… or OPENAI_BASE_URL=… into {patient.home.env_file}"
        text = "offline: rules and templates answer instead of a language model"
        yield Finding("model", "ok" if wanted else "warn", text, "" if wanted else mend)
        return
    asked: dict[str, list[ResolvedRole]] = {}
    for role in ROLES:
        if roles.has(role):
            resolved = roles.resolve(role)
            asked.setdefault(resolved.endpoint, []).append(resolved)
    for resolved_roles in asked.values():
        yield from _endpoint(resolved_roles)


def _endpoint(roles: list[ResolvedRole]) -> Iterator[Finding]:
    """One GET /models: is somebody there, is the key good, are the models known?"""
    first = roles[0]
    told = f"{shown_url(first.base_url).rstrip('/')}/models"
    request = urllib.request.Request(told, headers={"Authorization": f"Bearer {first.api_key}"})
    try:
        with urllib.request.urlopen(request, timeout=_MODELS_TIMEOUT_SEC) as answer:
            names = _names_in(answer.read(_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        yield _refused(first, told, error)
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        mend = (
            "check the address (OPENAI_BASE_URL or model.….base_url), the network, and that the server runs"
        )
        yield Finding("model", "fail", f"{told} cannot be reached: {reason}", mend)
        return
    missing = sorted({role.settings.model for role in roles} - names) if names else []
    for name in missing:
        using = " and ".join(role.role for role in roles if role.settings.model == name)
        mend = f"set model.{roles[0].role}.model to one of {', '.join(sorted(names)[:8])}"
        yield Finding("model", "warn", f"{told} does not list {name} (for {using})", mend)
    if not missing:
        models = ", ".join(f"{role.role}: {role.settings.model}" for role in roles)
        yield Finding("model", "ok", f"{told} answers; {models}")


def _refused(role: ResolvedRole, told: str, error: urllib.error.HTTPError) -> Finding:
    with error:
        if error.code in (401, 403):
            mend = f"check the key in the environment variable {role.settings.api_key_env}"
            return Finding("model", "fail", f"{told} refuses the key (HTTP {error.code})", mend)
        if error.code in (404, 405, 501):
            return Finding("model", "ok", f"{told} answers, but cannot list its models (HTTP {error.code})")
        mend = "try again later; the daemon waits for it and loses nothing"
        return Finding("model", "warn", f"{told} answers with HTTP {error.code}", mend)


def _names_in(body: bytes) -> set[str]:
    with suppress(ValueError, TypeError, AttributeError):
        return {str(model["id"]) for model in json.loads(body).get("data", ()) if "id" in model}
    return set()
