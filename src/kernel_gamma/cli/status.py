"""`kgamma status`: how the mind is doing. Works without a daemon and without a ledger."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from kernel_gamma.bus.folders import DEAD_LETTER, INBOX, STATUS_FILE, TAKEN, directory_of
from kernel_gamma.bus.inquiries import claims_under
from kernel_gamma.bus.lock import holder
from kernel_gamma.bus.watcher import ignored
from kernel_gamma.cli.home import Place, hint, open_place, read_ledger
from kernel_gamma.cli.letters import letters_in
from kernel_gamma.cli.rhythm import next_slots
from kernel_gamma.cli.terminal import (
    Failed,
    HomeOption,
    JsonOption,
    ago,
    as_called,
    counted,
    print_json,
    print_table,
    say,
)
from kernel_gamma.errors import SettingsError
from kernel_gamma.loops.circuits import LOOPS, open_loops
from kernel_gamma.model.roles import Roles
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.topology import load_topology
from kernel_gamma.truths.static.approvals import drift_between, files_on_disk
from kernel_gamma.truths.static.lock import read_lock
from kernel_gamma.truths.static.places import Places

__all__ = ["app", "queues_of", "status_of", "why_it_waits"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def status(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Running? Queues, oldest pending, nodes, model, tokens, budget, last error."""
    place = open_place(home)
    found = status_of(place)
    if as_json:
        print_json(found)
    else:
        _show(place, found)


def status_of(place: Place) -> dict[str, Any]:
    """Everything `status --json` prints; keys of parts that are not built are None."""
    held = holder(place.data) if place.data.is_dir() else None
    written = _written(place.data)
    fresh = written if held is not None and written.get("pid") == held.get("pid") else {}
    queues, oldest = queues_of(place)
    tokens, unreadable = _tokens_today(place)
    limit = place.settings.budget.tokens_per_day
    nodes = fresh.get("nodes") or _nodes(place, written, "starting" if held is not None else "stopped")
    return {
        "running": held is not None,
        "pid": held.get("pid") if held is not None else None,
        "mind": place.settings.mind,
        "home": str(place.home),
        "data": str(place.data),
        "started_at": fresh.get("started_at"),
        "written_at": written.get("written_at"),
        "queues": queues,
        "oldest_pending_sec": oldest,
        "nodes": nodes,
        "model": fresh.get("model") or _model(place),
        "tokens_today": tokens,
        "budget_left": max(0, limit - tokens) if limit and tokens is not None else None,
        "dead_letters": sum(1 for _ in letters_in(place.data / DEAD_LETTER)),
        "approvals": None,
        "static_drift": _static_drift(place),
        "context": fresh.get("context"),
        "memory": fresh.get("memory"),
        "open_loops": _open_loops(place),
        "next_slots": _next_slots(place),
        "measures": fresh.get("measures"),
        "alerts": fresh.get("alerts"),
        "stale": fresh.get("stale"),
        "stalled": fresh.get("stalled"),
        "watcher": fresh.get("watcher"),
        "durability": place.settings.bus.durability,
        "last_error": unreadable or _last_error(nodes, written),
    }


def _next_slots(place: Place) -> list[dict[str, Any]] | None:
    """None where config/rhythm.yaml is not understood; doctor tells."""
    try:
        return next_slots(place)
    except SettingsError:
        return None


def why_it_waits(place: Place) -> tuple[str, datetime | None] | None:
    """What a running mind says it waits for, and until when if it knows; None when it does not wait."""
    held = holder(place.data) if place.data.is_dir() else None
    written = _written(place.data)
    if held is None or written.get("pid") != held.get("pid"):
        return None
    if written.get("stalled"):
        return str(written["stalled"]), None
    for name, node in (written.get("nodes") or {}).items():
        if node.get("status") == "parked":
            until = datetime.fromisoformat(node["until"]) if node.get("until") else None
            told = f" until {until:%Y-%m-%d %H:%M:%S}" if until else ""
            return f"{name} waits{told}: {node.get('reason') or 'no reason is told'}", until
    return None


def _static_drift(place: Place) -> list[str] | None:
    """Static truths that are not as they were approved; None where nobody approved any yet."""
    lock = read_lock(place.home)
    if lock is None:
        return None
    places = Places(place.settings.static.paths)
    return [drift.file for drift in drift_between(lock, files_on_disk(place.home, places), places)]


def _written(data: Path) -> dict[str, Any]:
    """What the daemon last wrote of itself."""
    try:
        found = json.loads((data / STATUS_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def queues_of(place: Place) -> tuple[dict[str, int], float | None]:
    """Files waiting in each queue directory of the topology, and the age of the oldest in seconds."""
    now = SystemClock().now().timestamp()  # files carry the system's time, also in a trial
    counts: dict[str, int] = {}
    oldest: float | None = None
    for directory in _directories(place):
        counts[directory] = 0
        for entry in _entries(place.data / directory):
            if ignored(entry.name):
                continue
            counts[directory] += 1
            with suppress(OSError):
                age = max(0.0, now - entry.stat(follow_symlinks=False).st_mtime)
                oldest = age if oldest is None else max(oldest, age)
    return counts, None if oldest is None else round(oldest, 3)


def _directories(place: Place) -> list[str]:
    """Watched ones, with inbox/taken where accepted files wait for their turn."""
    patterns = [INBOX, TAKEN]
    with suppress(SettingsError):
        patterns += [
            directory_of(p) for node in load_topology(place.topology_file, place.home) for p in node.watch
        ]
    found: dict[str, None] = {}
    for pattern in patterns:
        if "*" not in pattern:
            found[pattern] = None
            continue
        for path in sorted(place.data.glob(pattern)):
            if path.is_dir() and path.name != "done":
                found[str(path.relative_to(place.data))] = None
    return list(found)


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError:
        return


def _tokens_today(place: Place) -> tuple[int | None, str | None]:
    """Tokens of this local day; None with the reason when the ledger cannot be read."""
    try:
        with read_ledger(place.data) as ledger:
            row = ledger.one("spent_on", f"{place.clock.now():%Y-%m-%d}") if ledger is not None else None
    except (Failed, SettingsError) as error:  # SettingsError: a newer version wrote it
        return None, str(error)
    return int(row[0]) if row else 0, None


def _open_loops(place: Place) -> list[dict[str, Any]] | None:
    """Circuits and worries as the ledger knows them; None when it cannot be read."""
    now = place.clock.now()
    try:
        with read_ledger(place.data) as ledger:
            return open_loops(claims_under(ledger, LOOPS, now), now) if ledger is not None else []
    except (Failed, SettingsError):
        return None


def _nodes(place: Place, written: dict[str, Any], state: str) -> dict[str, Any]:
    """The nodes of the topology while no daemon speaks for them; errors are those of its last life."""
    told = written.get("nodes")
    before: dict[str, Any] = told if isinstance(told, dict) else {}
    try:
        declared = [node.id for node in load_topology(place.topology_file, place.home)]
    except SettingsError:
        declared = list(before)
    return {
        name: {"status": state, "last_error": (before.get(name) or {}).get("last_error")} for name in declared
    }


def _model(place: Place) -> dict[str, Any]:
    """What the next start would use."""
    try:
        offline = Roles(place.settings.model, place.environ).offline
    except SettingsError as error:
        return {"mode": "misconfigured", "breaker": None, "last_error": str(error)}
    return {"mode": "offline" if offline else "online", "breaker": None}


def _last_error(nodes: dict[str, Any], written: dict[str, Any]) -> str | None:
    model = written.get("model")
    said = [written.get("stalled"), model.get("last_error") if isinstance(model, dict) else None]
    said += [f"{name}: {state['last_error']}" for name, state in nodes.items() if state.get("last_error")]
    return next((str(error) for error in said if error), None)


def _show_memory(memory: dict[str, Any]) -> None:
    if stopped := memory.get("stopped"):
        say(f"memory   no consolidation until something new is lived through: {stopped}", "yellow")


def _show(place: Place, found: dict[str, Any]) -> None:
    if found["running"]:
        since = f" since {found['started_at']}" if found["started_at"] else ""
        say(f"{found['mind']}: running{since}, process {found['pid'] or '?'}", "bold green")
    else:
        say(f"{found['mind']}: not running ({hint(place.home, 'run')})", "bold yellow")
    say(f"data     {found['data']}, durability {found['durability']}")
    model, watcher = found["model"], found["watcher"]
    breaker = f", breaker {model['breaker']}" if model.get("breaker") else ""
    say(f"model    {model['mode']}{breaker}")
    say(f"tokens   {_tokens_in_words(place, found)}")
    sums = found["context"] or {}
    if sums.get("calls"):
        saved = f", {sums['saved_share']:.0%} saved" if sums.get("saved_share") is not None else ""
        cached = f", {sums['cached_share']:.0%} from caches" if sums.get("cached_share") is not None else ""
        say(f"prompts  {sums['calls']} since the start, {sums['assembled_tokens']} tokens{saved}{cached}")
    if watcher:
        say(
            f"files    noticed by {watcher['mode']}"
            + (f" ({watcher['reason']})" if watcher["reason"] else "")
        )
    if found["oldest_pending_sec"] is not None:
        say(f"oldest   {ago(found['oldest_pending_sec'])} pending")
    if found["stalled"]:
        say(f"stalled  {found['stalled']}", "red")
    if found["last_error"]:
        say(f"error    {as_called(found['last_error'])}", "red")
    _show_health(found)
    _show_memory(found["memory"] or {})
    if found["static_drift"]:
        changed = ", ".join(found["static_drift"])
        say(f"drift    not as approved: {changed} ({hint(place.home, 'static status')})", "yellow")
    for loop in found["open_loops"] or ():
        say(f"loop     {_loop_in_words(loop)}", "yellow")
    if found["dead_letters"]:
        aside = counted(found["dead_letters"], "file")
        say(f"aside    {aside} ({hint(place.home, 'dead-letter list')})", "yellow")
    say()
    print_table(["queue", "files"], [[name, str(count)] for name, count in found["queues"].items()])
    say()
    print_table(["node", "status", "until", "last error"], [_row(*node) for node in found["nodes"].items()])


def _loop_in_words(loop: dict[str, Any]) -> str:
    if loop["kind"] == "rumination":
        return f"rumination: {loop['text'].removeprefix('- ')} ({counted(loop['held'], 'time')} not written)"
    until = f" until {loop['until']}" if loop["state"] == "open" else ""
    kept = f"{counted(loop['held'], 'event')} kept back"
    return f"{loop['kind']} with {loop['source']} in {loop['session']}: {loop['state']}{until}, {kept}"


def _show_health(found: dict[str, Any]) -> None:
    """What the inspector and the dead_letter_router found last."""
    for alert in found["alerts"] or ():
        say(f"alert    {alert['text']}", "red" if alert["severity"] == "core" else "yellow")
    if stale := [f"{key.replace('_', ' ')} {n}" for key, n in (found["stale"] or {}).items() if n]:
        say(f"stale    {', '.join(stale)}")


def _tokens_in_words(place: Place, found: dict[str, Any]) -> str:
    if found["tokens_today"] is None:
        return "unknown"
    left = f"{found['budget_left']} left" if place.settings.budget.tokens_per_day else "no limit"
    return f"{found['tokens_today']} today, {left}"


def _row(name: str, state: dict[str, Any]) -> list[str]:
    return [name, str(state["status"]), state.get("until") or "", state.get("last_error") or ""]
