"""A ledger that is gone or damaged, made anew from the files as far as they reach; no daemon may run.

    a msg_ file that an int_ file names        was told: to done/
    an int_ file whose passage an act_ names   was translated: to done/
    another int_ file, its passage standing    is taken up by the next start, trusted `unknown`
    an act_ file                               waits for a person: nobody knows what was carried out
    files in done/                             are in the books again: `kgamma trace` finds them
    CloudEvents of the dedupe window           are known again
    passages in now.md that an int_ names      have their places

What no file tells is named: usage and budgets, attempts, receipts of tools, times of handling.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kernel_gamma.bus.adoption import adopt_passages
from kernel_gamma.bus.files import move
from kernel_gamma.bus.folders import ACKS, INBOX, SELF
from kernel_gamma.bus.ledger import Ledger, LedgerDamaged
from kernel_gamma.bus.records import Books
from kernel_gamma.bus.setting_aside import set_database_aside
from kernel_gamma.bus.steps import KillSwitch
from kernel_gamma.contracts.events import read_events, trust_lookup
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.errors import Poison
from kernel_gamma.mind import open_ledger
from kernel_gamma.self_stream.pages import PageFiles
from kernel_gamma.settings import Settings

__all__ = ["Rebuilt", "is_sound", "rebuild_ledger"]

MISSING = (
    "tokens spent so far today: the day's budget begins anew",
    "attempts of what failed, and receipts of tools: orders that still wait are put before a person",
    "who was behind what waits: it is trusted as unknown",
    "times of handling and calls of models in `kgamma trace`",
)
_MESSAGES, _PASSAGES, _ORDERS = (
    f"pipeline/{queue}" for queue in ("message_queue", "internalized", "action_queue")
)
_DEEPEST = 64


@dataclass(slots=True)
class Rebuilt:
    """What a rebuild has found."""

    files: int = 0
    """Handled files in the books again."""
    told: int = 0
    """Messages in their queue whose passage stands: moved to done/."""
    translated: int = 0
    adopted: int = 0
    """Passages that the next start takes up."""
    passages: int = 0
    known: int = 0
    """CloudEvents that are known again."""
    orders: int = 0
    """Orders that will be put before a person."""
    missing: tuple[str, ...] = field(default=MISSING)


def is_sound(path: Path) -> bool:
    """Whether there is a ledger that can be read whole."""
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        ledger = Ledger.open(path, read_only=True)
    except LedgerDamaged:
        return False
    with closing(ledger):
        try:
            return ledger.all("quick_check") == [("ok",)]
        except sqlite3.Error:  # so broken that it cannot even be asked
            return False


def rebuild_ledger(
    data: Path, settings: Settings, nodes: Mapping[str, tuple[str, ...]], now: datetime
) -> Rebuilt:
    """Make a new ledger; a damaged one is set aside whole. `nodes` with their watch patterns.

    The caller holds the mind's lock. Raises Stop, OSError.
    """
    path = data / "ledger.db"
    if path.is_file() and path.stat().st_size:
        set_database_aside(path)
    ledger = open_ledger(path)
    found = Rebuilt()
    try:
        notes = [doc for _, doc in _documents(data, _PASSAGES)]
        found.told, found.translated = _settle(data, notes, now)
        found.orders = len(list((data / _ORDERS).glob("act_*.json")))
        pages = PageFiles(data / SELF, KillSwitch(None), split_writes=False)
        books = Books(os.fsencode(data), pages, subscribers=lambda directory, name: ())
        with ledger.transaction(full=True):
            adopt_passages(ledger, books, os.fsencode(data), nodes, now)
            (found.adopted,) = ledger.one("last_seq") or (0,)
            _enter_done(ledger, books, data, found)
            _enter_passages(ledger, data, notes, found)
            _enter_claims(ledger, data, settings, now, found)
    finally:
        ledger.close()
    return found


def _settle(data: Path, notes: list[dict[str, Any]], now: datetime) -> tuple[int, int]:
    told = {f"{name}.json" for doc in notes for name in doc["payload"].get("message_ids") or ()}
    ordered = {doc["payload"].get("passage_id") for _, doc in _documents(data, _ORDERS)}
    ordered |= {doc["payload"].get("passage_id") for _, doc in _documents(data, "approvals/pending")}
    through = [path for path in (data / _MESSAGES).glob("msg_*.json") if path.name in told]
    translated = [
        path
        for path, doc in _documents(data, _PASSAGES)
        if path.parent == data / _PASSAGES and doc["payload"].get("passage_id") in ordered
    ]
    for path in (*through, *translated):
        move(os.fsencode(path), os.fsencode(path.parent / "done" / f"{now:%Y-%m-%d}" / path.name))
    return len(through), len(translated)


def _documents(data: Path, queue: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Enveloped files of a queue and its done/, oldest name first; what cannot be read is passed over."""
    folder = data / queue
    for path in sorted([*folder.glob("*.json"), *folder.glob("done/*/*.json")], key=lambda path: path.name):
        try:
            document = read_document(path.read_bytes(), max_depth=_DEEPEST)
        except (OSError, Poison):
            continue
        if isinstance(document, dict) and isinstance(document.get("payload"), dict):
            yield path, document


def _enter_done(ledger: Ledger, books: Books, data: Path, found: Rebuilt) -> None:
    dated = [
        (path.lstat().st_mtime, queue, path)
        for queue in (INBOX, _MESSAGES, _PASSAGES, _ORDERS, "rhythm/triggers")
        for path in (data / queue).glob("done/*/*.json")
    ]
    (seq,) = ledger.one("last_seq") or (0,)
    for at, queue, path in sorted(dated, key=lambda row: (row[0], os.fsencode(row[2]))):
        seq += 1
        found.files += 1
        worn, ids = _ids_in(path)
        name, final = os.fsencode(path.name), os.fsencode(path.relative_to(data))
        own = "dropped" if queue == INBOX else "bus"
        ledger.run(
            "add_file", seq, queue, name, os.fsencode(f"{queue}/") + name, own, "live", "unknown",
            worn.get("id"), worn.get("trace_id"), worn.get("session_key"), at, None, None,
        )  # fmt: skip
        ledger.run("leave_file", final, "done", seq)
        for other in ids:
            ledger.run("add_lookup", other, seq)


def _ids_in(path: Path) -> tuple[dict[str, str], set[str]]:
    """The envelope's words, and other ids under which the file is looked for."""
    try:
        document = read_document(path.read_bytes(), max_depth=_DEEPEST)
    except (OSError, Poison):
        return {}, set()
    if not isinstance(document, dict):
        return {}, set()
    envelope, payload = document.get("envelope"), document.get("payload")
    worn = {k: v for k, v in envelope.items() if isinstance(v, str)} if isinstance(envelope, dict) else {}
    ids: set[str] = set()
    for holder in (document, payload if isinstance(payload, dict) else {}):
        inside = [holder, *(holder.get("events") or ()), *(holder.get("actions") or ())]
        for one in inside:
            if isinstance(one, dict):
                ids |= {v for k in ("id", "trace_id") if isinstance(v := one.get(k), str) and v}
    return worn, ids


def _enter_passages(ledger: Ledger, data: Path, notes: list[dict[str, Any]], found: Rebuilt) -> None:
    try:
        page = (data / SELF / "stream/now.md").read_bytes()
    except OSError:
        return
    for document in notes:
        told, envelope = document["payload"], document.get("envelope") or {}
        try:
            begin, length, sha256 = int(told["stream_offset"]), int(told["length"]), str(told["sha256"])
            passage = str(told["passage_id"])
        except (KeyError, TypeError, ValueError):
            continue
        block = page[begin : begin + length]
        stands = len(block) == length and hashlib.sha256(block).hexdigest() == sha256
        if not stands or ledger.one("passage", passage) is not None:
            continue
        found.passages += 1
        heading = block.split(b"\n", 1)[0].decode("utf-8", "replace").removeprefix("## ")
        at = datetime.fromisoformat(str(envelope.get("timestamp"))).timestamp()
        ledger.run(
            "add_passage", passage, 0, "stream/now.md", begin, length, sha256, heading, "experience", at,
            "rebuilt", envelope.get("trace_id"), None,
        )  # fmt: skip


def _enter_claims(ledger: Ledger, data: Path, settings: Settings, now: datetime, found: Rebuilt) -> None:
    """What a CloudEvent that comes again is answered, as its ack says."""
    window = timedelta(hours=settings.inbox.dedupe_hours)
    for path in (data / INBOX).glob("done/*/*.json"):
        accepted = datetime.fromtimestamp(path.lstat().st_mtime, UTC)
        if accepted + window <= now:
            continue
        try:
            ack = json.loads((data / ACKS / path.name).read_bytes())
            parsed = read_events(
                read_document(path.read_bytes(), max_depth=_DEEPEST),
                accepted_at=accepted,
                new_id=lambda prefix: prefix,
                trust_of=trust_lookup((), (), ()),
                inherited=None,
                mind=settings.mind,
            )
        except (OSError, ValueError, Poison):
            continue
        names, traces = ack.get("ids") or [ack.get("id")], ack.get("trace_ids") or [ack.get("trace_id")]
        for one, name, trace in zip(parsed, names, traces, strict=False):
            if one.dedupe_key and name:
                value = json.dumps({"id": name, "trace_id": trace})
                until = (accepted + window).timestamp()
                ledger.run("add_claim", f"cloudevent:{one.dedupe_key}", value, until, now.timestamp())
                found.known += 1
