"""Judges a mind from outside: files and, for what files cannot tell, the ledger. Never asks the daemon.

Everything here holds after any number of kills, once a run with `--once` has ended by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_gamma.self_stream.rotation import is_bridge

__all__ = ["PLACES", "Account", "read_json", "read_ledger", "read_log", "where_files_are"]

PLACES = ("pending", "taken", "done", "dead_letter")

_TAKEN = re.compile(r"^\d+_(.+)$")
_NOTICE = re.compile(r"^(?:I notice what has come to me|我看到了这些)[:：] ?(.+?)[.。]$", re.MULTILINE)
_HEADING = re.compile(r"^## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d$", re.MULTILINE)


def where_files_are(data: Path, dropped: Mapping[str, bytes]) -> Counter[str]:
    """How many dropped files are in which place; also right after a kill, when nothing was put right.

    Fails unless each is in exactly one place, byte for byte.
    """
    found: dict[str, list[tuple[str, Path]]] = {name: [] for name in dropped}
    for place, path, name in _standing(data):
        if name in found:
            found[name].append((place, path))
    counts = Counter(dict.fromkeys(PLACES, 0))
    for name, places in found.items():
        assert len(places) == 1, f"{name} must be in one place, is in {[str(path) for _, path in places]}"
        place, path = places[0]
        assert path.read_bytes() == dropped[name], f"{path} was changed"
        counts[place] += 1
    return counts


def _standing(data: Path) -> Iterator[tuple[str, Path, str]]:
    """(place, path, name it was dropped under) of everything that has come through the inbox."""
    for path in (data / "inbox/pending").glob("*.json"):
        yield "pending", path, path.name
    for path in (data / "inbox/taken").glob("*.json"):
        match = _TAKEN.match(path.name)
        assert match is not None, path
        yield "taken", path, match[1]
    for path in (data / "inbox/pending/done").glob("*/*.json"):
        yield "done", path, path.name
    for path in (data / "dead_letter").glob("*/*.json"):
        if not path.name.endswith(".reason.json"):
            yield "dead_letter", path, path.name


def read_ledger(data: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of a copy of the ledger, so that looking changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ledger.db", "ledger.db-wal"):
            if (data / name).exists():
                shutil.copy(data / name, folder)
        if not Path(folder, "ledger.db").exists():
            return []
        db = sqlite3.connect(Path(folder, "ledger.db"))
        try:
            return db.execute(query).fetchall()
        finally:
            db.close()


def read_log(data: Path, message: str) -> list[dict[str, Any]]:
    """The records of one message in the log of all runs."""
    path = data / "logs/kgamma.log"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [record for record in map(json.loads, lines) if record.get("event") == message]


@dataclass(slots=True)
class Account:
    """What a mind has made of what was dropped; the constructor only reads."""

    data: Path
    dropped: Mapping[str, bytes]
    acks: dict[str, Any] = field(init=False)
    told: Counter[str] = field(init=False)
    """Event id → passages of the stream that name it."""
    replies: Counter[str] = field(init=False)
    """Text → out_ files."""
    dead: dict[str, Any] = field(init=False)
    """Name in dead_letter/ → its reason."""

    def __post_init__(self) -> None:
        self.acks = {path.name: read_json(path) for path in (self.data / "inbox/acks").glob("*.json")}
        self.told = Counter(
            event
            for line in _NOTICE.findall(self.stream().decode("utf-8", "replace"))
            for event in line.split(", ")
        )
        outs = list((self.data / "outbox").glob("*/out_*.json"))
        self.replies = Counter(read_json(path)["payload"]["text"] for path in outs)
        reasons = (self.data / "dead_letter").glob("*/*.reason.json")
        self.dead = {path.name.removesuffix(".reason.json"): read_json(path) for path in reasons}

    def page(self, name: str) -> str:
        path = self.data / "self" / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def stream(self) -> bytes:
        """The archive day by day, then now.md without its bridge: every passage as it was written."""
        now = self.data / "self/stream/now.md"
        page = now.read_bytes() if now.exists() else b""
        archived = sorted((self.data / "self/stream/archive").glob("*.md"))
        if archived:
            bridge, _, page = page.partition(b"\n\n")
            assert is_bridge(bridge.decode()), f"now.md does not open with a bridge: {bridge[:80]!r}"
        return b"".join([*(day.read_bytes() for day in archived), page])

    def ids_of(self, name: str) -> list[str]:
        """The event ids a dropped file was acknowledged with."""
        ack = self.acks[name]
        return list(ack["ids"]) if "ids" in ack else [ack["id"]]

    def own_events(self) -> dict[str, Any]:
        """Events the mind dropped itself and has perceived: id → document."""
        paths = (self.data / "inbox/pending/done").glob("*/evt_*.json")
        return {document["envelope"]["id"]: document for document in map(read_json, paths)}

    def lost_words(self) -> set[str]:
        """Ids of events whose message file was set aside: they are told in no passage."""
        paths = (self.data / "dead_letter").glob("*/msg_*.json")
        messages = [p for p in paths if not p.name.endswith(".reason.json")]
        return {event["id"] for path in messages for event in read_json(path)["payload"]["events"]}

    def check(self) -> None:
        """All that holds whatever the model said. Fails with the first thing that does not."""
        counts = where_files_are(self.data, self.dropped)
        assert counts["pending"] == counts["taken"] == 0, f"something still waits: {counts}"
        self._check_events()
        self._check_json()
        self._check_names()
        self._check_stream()
        self._check_ledger()

    def _check_events(self) -> None:
        events = set(self.own_events())
        for name in self.dropped:
            assert name in self.acks, f"{name} was never acknowledged"
            accepted = name not in self.dead
            assert self.acks[name]["ok"] is accepted, f"{name}: {self.acks[name]}"
            if accepted:
                events.update(self.ids_of(name))
        lost = self.lost_words()
        wrong = {e: self.told[e] for e in events if self.told[e] != (0 if e in lost else 1)}
        assert not wrong, f"each event must be told once; how often they were: {wrong}"
        assert set(self.told) <= events, f"told but never dropped: {set(self.told) - events}"
        twice = {text: n for text, n in self.replies.items() if n != 1}
        assert not twice, f"said more than once: {twice}"

    def _check_json(self) -> None:
        for path in self.data.rglob("*.json"):
            if self.dropped.get(path.name) != path.read_bytes():  # a dropped file may be anything
                read_json(path)

    def _check_names(self) -> None:
        left = [p for p in self.data.rglob("*") if p.name.endswith(".tmp")]
        assert not left, f"unfinished writes are left: {left}"
        for queue in ("message_queue", "internalized", "action_queue"):
            waiting = list((self.data / "pipeline" / queue).glob("*.json"))
            assert not waiting, f"left in a queue: {waiting}"

    def _check_stream(self) -> None:
        """The stream is exactly the recorded passages, whole, each once, in the order of their commits."""
        page = self.stream()
        rows = read_ledger(
            self.data,
            "SELECT length, sha256 FROM passages WHERE page = 'stream/now.md' ORDER BY commit_n, offset",
        )
        at = 0
        for length, digest in rows:
            block = page[at : at + length]
            assert hashlib.sha256(block).hexdigest() == digest, f"no whole passage at byte {at} of the stream"
            at += length
        assert at == len(page), "the stream holds more than the passages of the ledger"
        assert len(_HEADING.findall(page.decode())) == len(rows), "a passage stands without its heading"

    def _check_ledger(self) -> None:
        unapplied = read_ledger(self.data, "SELECT n, node FROM commits WHERE applied = 0")
        assert not unapplied, f"commits that were not carried out: {unapplied}"
        open_ones = read_ledger(
            self.data, "SELECT * FROM deliveries WHERE status NOT IN ('finished', 'dead')"
        )
        assert not open_ones, f"deliveries that are not through: {open_ones}"
        live = read_ledger(self.data, "SELECT seq, state, path FROM files WHERE state = 'live'")
        assert not live, f"files that have not left: {live}"


def read_json(path: Path) -> Any:
    """The document of a file. Fails naming the path."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise AssertionError(f"{path} holds no whole JSON: {error}") from error
