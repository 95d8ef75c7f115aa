"""An event that came by HTTP becomes a file in the inbox.

The sender wants the event's id and its trace at once, not when the mind has taken it. So a plain event is
dropped in the standard envelope, and an envelope is completed: ids that stand there are kept as given. A
CloudEvent or an AMP event is dropped as it is, because its own id says whether it came before; its trace
is known when the mind has acknowledged it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kernel_gamma.bus.files import sync_paths, write_whole
from kernel_gamma.bus.folders import ACKS, INBOX
from kernel_gamma.bus.lock import holder
from kernel_gamma.contracts.envelope import Json, encode_document, rfc3339
from kernel_gamma.contracts.event_keys import word_of
from kernel_gamma.contracts.events import ParsedEvent, read_events, trust_lookup
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.contracts.ports import Clock, Ids
from kernel_gamma.errors import Poison
from kernel_gamma.settings import Settings

__all__ = ["EventDrop", "with_ids"]

_SOURCE = "gateway"
_ACK_WAIT_SEC = 5.0
_LOOK_EVERY_SEC = 0.05


@dataclass(frozen=True, slots=True)
class EventDrop:
    """The inbox of one mind, whether a daemon runs or not."""

    data: Path
    settings: Settings
    clock: Clock
    ids: Ids

    def __call__(self, raw: bytes) -> dict[str, Json]:
        """Check, drop, and say by which ids it is known: `{"id", "trace_id", "file"}`, for several events
        also `ids` and `trace_ids`. Blocks for a file and, for CloudEvents and AMP, for the mind's ack.

        Raises Poison for what is no event or would be none to the mind (`too_large`), OSError when it
        cannot be written.
        """
        inbox, trust, now = self.settings.inbox, self.settings.trust, self.clock.now()
        made: list[str] = []

        def new_id(prefix: str) -> str:
            made.append(self.ids.new(prefix))
            return made[-1]

        document = read_document(raw, max_depth=inbox.max_depth)
        events = read_events(
            document,
            accepted_at=now,
            new_id=new_id,
            trust_of=trust_lookup(trust.owner, trust.known, trust.web),
            mind=self.settings.mind,
        )
        elements = document if isinstance(document, list) else [document]
        dropped = [with_ids(element, event, now) for element, event in zip(elements, events, strict=True)]
        name = f"{self.ids.new('http')}.json"
        file = encode_document(dropped if isinstance(document, list) else dropped[0])
        self._check(file)
        self._write(name, file)
        ids: list[str | None] = []
        traces: list[str | None] = []
        for old, new, parsed in zip(elements, dropped, events, strict=True):
            ours = new is not old
            ids.append(parsed.event.id if ours or parsed.event.id not in made else None)
            traces.append(parsed.event.trace_id if ours else None)
        return self._answer(name, ids, traces)

    def _check(self, file: bytes) -> None:
        """What was read may still grow over a bound by its envelope: the mind would set it aside."""
        most, deepest = self.settings.inbox.max_bytes, self.settings.inbox.max_depth
        if len(file) > most:
            raise Poison(
                f"the event is too large: in the inbox it has {len(file)} bytes, inbox.max_bytes is {most}",
                kind="too_large",
            )
        try:
            read_document(file, max_depth=deepest)
        except Poison as poison:
            raise Poison(
                f"the event in its envelope is nested deeper than inbox.max_depth = {deepest} levels",
                kind=poison.kind,
            ) from None

    def _write(self, name: str, raw: bytes) -> None:
        directory = os.fsencode(self.data / INBOX)
        write_whole(directory, name.encode(), raw)
        if self.settings.bus.durability == "full":
            sync_paths([os.path.join(directory, name.encode()), directory])

    def _answer(self, name: str, ids: list[str | None], traces: list[str | None]) -> dict[str, Json]:
        if None in traces:
            ack = self._ack(name) or {}
            told_ids = ack.get("ids") or [ack.get("id")]
            told_traces = ack.get("trace_ids") or [ack.get("trace_id")]
            if ack.get("ok") and len(told_ids) == len(told_traces) == len(ids):
                ids, traces = told_ids, told_traces
        answer: dict[str, Json] = {"id": ids[0], "trace_id": traces[0], "file": name}
        if len(ids) > 1:
            answer |= {"ids": ids, "trace_ids": traces}
        return answer

    def _ack(self, name: str) -> dict[str, Json] | None:
        """What the mind says to the file; None when no daemon runs or it takes too long."""
        path = self.data / ACKS / name
        deadline = self.clock.monotonic() + _ACK_WAIT_SEC
        while holder(self.data) is not None and self.clock.monotonic() < deadline:
            try:
                found = json.loads(path.read_bytes())
            except (OSError, ValueError):
                time.sleep(_LOOK_EVERY_SEC)
                continue
            return found if isinstance(found, dict) else None
        return None


def with_ids(document: Json, parsed: ParsedEvent, now: datetime) -> Json:
    """`document` with the ids of `parsed` in its envelope; the very same object when its form has none."""
    event = parsed.event
    if parsed.envelope is not None:
        envelope = {**document["envelope"], "id": event.id, "trace_id": event.trace_id}
        return {**document, "envelope": envelope}
    if "specversion" in document or "header" in document:
        return document
    payload = dict(document)
    if word_of("id", payload.get("id")) == event.id:
        del payload["id"]
    payload.pop("ttl_sec", None)
    if not payload.get("time"):
        payload.pop("time", None)
        if event.time != now:  # taken from the key that other programs use
            payload["time"] = payload.pop("timestamp")
    if parsed.source_type != "message":
        payload["from"] = event.from_  # else it would be the source
    envelope = {
        "id": event.id,
        "trace_id": event.trace_id,
        "timestamp": rfc3339(now),
        "source_node": _SOURCE,
        "source_type": parsed.source_type,
        "session_key": event.session,
        "ttl_sec": parsed.ttl_sec,
    }
    return {"envelope": envelope, "payload": payload}
