"""An event that came by HTTP means what it would have meant as a dropped file."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kernel_gamma.bus.folders import ACKS, INBOX
from kernel_gamma.bus.lock import hold, let_go
from kernel_gamma.contracts.events import ParsedEvent, read_events, trust_lookup
from kernel_gamma.contracts.json_text import read_document
from kernel_gamma.errors import Poison
from kernel_gamma.gateway.event_drop import EventDrop, with_ids
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.rhythm.ids import FixedIds, UlidIds
from kernel_gamma.settings import InboxSettings, Settings

NOW = datetime(2026, 11, 30, 10, 30, tzinfo=ZoneInfo("Asia/Shanghai"))
TRUST = trust_lookup(["owner"], ["alice"], ["feed"])

PLAIN: list[dict[str, Any]] = [
    {"text": "hello"},
    {
        "text": "你好",
        "from": "小明",
        "session": "group:42",
        "channel": "telegram",
        "mood": "fine",
        "data": {"a": 1},
    },
    {"type": "door.bell"},
    {"type": "door.bell", "from": "alice", "ttl_sec": "60", "text": "rang"},
    {"type": "rhythm.hourly", "text": "an hour has passed"},
    {"type": "message.edited", "text": "no", "from": "owner", "channel": "feed"},
    {"text": "", "id": "evt_mine", "time": "2026-11-30T09:00:00"},
    {"text": "a", "id": 7},
    {"text": "a", "id": "not an id!", "ttl_sec": 5},
    {"text": "a", "session_key": "private:bob", "source_type": "action", "trust": "owner", "payload": None},
    {"text": "a", "timestamp": "2026-11-30T09:00:00"},
    {"text": "a", "timestamp": "soon"},
    {"text": "a", "time": {}, "timestamp": "2026-11-30T09:00:00Z", "data": {"timestamp": 3}},
    {"type": "action.done", "from": "self", "text": "I did it"},
    {"text": "it is me", "from": "main"},
    {"attachments": [{"url": "https://example.org/a.png", "media_type": "image/png"}]},
]


def parse(document: Any, ids: Any = None) -> ParsedEvent:
    (event,) = read_events(
        document, accepted_at=NOW, new_id=(ids or FixedIds()).new, trust_of=TRUST, mind="main"
    )
    return event


@pytest.mark.parametrize(
    "document", PLAIN, ids=lambda document: json.dumps(document, ensure_ascii=False)[:60]
)
def test_a_plain_event_means_the_same_in_its_envelope(document: dict[str, Any]) -> None:
    before = parse(document)
    wrapped = with_ids(document, before, NOW)
    after = parse(json.loads(json.dumps(wrapped)), UlidIds(SystemClock()))
    assert after.event == before.event
    assert (after.ttl_sec, after.hops, after.source_type) == (before.ttl_sec, before.hops, before.source_type)


def test_an_envelope_keeps_all_it_says_and_gets_a_trace() -> None:
    document = {
        "envelope": {
            "id": "msg_1",
            "timestamp": "2026-11-30T10:00:00+08:00",
            "source_node": "cam",
            "hops": 2,
            "x": 1,
        },
        "payload": {"text": "somebody at the door"},
    }
    before = parse(document)
    done = with_ids(document, before, NOW)
    assert done["envelope"] == {**document["envelope"], "trace_id": before.event.trace_id}
    assert done["payload"] == document["payload"]
    after = parse(done, UlidIds(SystemClock()))
    assert replace(after, envelope=None) == replace(before, envelope=None)


@pytest.mark.parametrize(
    "document",
    [
        {"specversion": "1.0", "id": "1", "source": "cam", "type": "motion"},
        {"header": {"message_id": "m1", "source": {"app": "qq"}}, "payload": {"summary": "hi"}},
    ],
)
def test_a_form_with_an_id_of_its_own_stays_as_it_is(document: dict[str, Any]) -> None:
    assert with_ids(document, parse(document), NOW) is document


# Into the inbox


@pytest.fixture
def drop(tmp_path: Path) -> EventDrop:
    clock = SystemClock("Asia/Shanghai")
    return EventDrop(tmp_path, Settings(), clock, UlidIds(clock))


def dropped(drop: EventDrop) -> list[Path]:
    return sorted((drop.data / INBOX).iterdir())


def test_the_file_is_whole_and_holds_the_ids_that_were_told(drop: EventDrop) -> None:
    told = drop('{"text": "水开了", "from": "alice"}'.encode())
    (file,) = dropped(drop)
    assert file.name == told["file"]
    event = parse(json.loads(file.read_bytes())).event
    assert (event.id, event.trace_id, event.text) == (told["id"], told["trace_id"], "水开了")


def test_each_event_of_an_array_has_its_ids(drop: EventDrop) -> None:
    told = drop(b'[{"text": "a"}, {"type": "b", "id": "evt_b"}]')
    (file,) = dropped(drop)
    events = read_events(
        json.loads(file.read_bytes()), accepted_at=NOW, new_id=FixedIds().new, trust_of=TRUST
    )
    assert told["ids"] == [one.event.id for one in events]
    assert told["trace_ids"] == [one.event.trace_id for one in events]
    assert (told["id"], told["trace_id"]) == (told["ids"][0], told["trace_ids"][0])
    assert told["ids"][1] == "evt_b"


@pytest.mark.parametrize("raw", [b"", b"{", b"3", b"[]", b"{}", b'[{"text": "a"}, {}]', b'{"text": {}}'])
def test_what_is_no_event_is_not_dropped(drop: EventDrop, raw: bytes) -> None:
    with pytest.raises(Poison):
        drop(raw)
    assert not (drop.data / INBOX).exists()


@pytest.mark.parametrize("form", [b'{"text": "%s"}', b'[{"text": "a"}, {"type": "b", "text": "%s"}]'])
def test_what_would_be_too_large_in_the_inbox_is_not_dropped(tmp_path: Path, form: bytes) -> None:
    """The daemon takes a file of exactly inbox.max_bytes and sets a larger one aside."""
    clock = SystemClock("Asia/Shanghai")
    settings = Settings(inbox=InboxSettings(max_bytes=2000))
    drop = EventDrop(tmp_path, settings, clock, UlidIds(clock))
    drop(form % b"x")
    (first,) = dropped(drop)
    room = 2000 - len(first.read_bytes()) + 1
    drop(form % (b"x" * room))
    sizes = sorted(len(path.read_bytes()) for path in dropped(drop))
    assert sizes[-1] == 2000
    too_large = form % (b"x" * (room + 1))
    assert len(too_large) < 2000
    with pytest.raises(Poison, match=r"2001 bytes, inbox\.max_bytes is 2000") as caught:
        drop(too_large)
    assert caught.value.kind == "too_large"
    assert len(dropped(drop)) == 2


def test_what_its_envelope_would_nest_too_deeply_is_not_dropped(drop: EventDrop) -> None:
    def nested(levels: int) -> bytes:
        return b'{"text": "a", "deep": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    most = drop.settings.inbox.max_depth
    drop(nested(most - 1))
    with pytest.raises(Poison, match=r"nested deeper than inbox\.max_depth = 64 levels"):
        drop(nested(most))
    (file,) = dropped(drop)
    parse(read_document(file.read_bytes(), max_depth=most))


def test_the_trace_of_a_cloud_event_is_unknown_while_nobody_is_awake(drop: EventDrop) -> None:
    told = drop(b'{"specversion": "1.0", "id": "c1", "source": "cam", "type": "motion"}')
    assert (told["id"], told["trace_id"]) == ("c1", None)
    nameless = drop(b'{"header": {}, "payload": {"summary": "hi"}}')
    assert (nameless["id"], nameless["trace_id"]) == (None, None)


def test_the_trace_of_a_cloud_event_comes_from_the_ack_of_the_mind(drop: EventDrop) -> None:
    lock = hold(drop.data)

    def acknowledge() -> None:
        deadline = time.monotonic() + 10
        while not (drop.data / INBOX).exists() or not dropped(drop):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (drop.data / ACKS).mkdir(parents=True)
        ack = {"ok": True, "id": "c1", "trace_id": "trace_1"}
        (drop.data / ACKS / dropped(drop)[0].name).write_text(json.dumps(ack))

    mind = threading.Thread(target=acknowledge)
    mind.start()
    try:
        told = drop(b'{"specversion": "1.0", "id": "c1", "source": "cam", "type": "motion"}')
    finally:
        mind.join()
        let_go(drop.data, lock)
    assert told["trace_id"] == "trace_1"


def test_the_time_of_an_event_is_that_of_its_arrival(drop: EventDrop) -> None:
    drop(b'{"text": "a"}')
    event = parse(json.loads(dropped(drop)[0].read_bytes())).event
    assert abs(event.time - drop.clock.now()) < timedelta(minutes=1)
