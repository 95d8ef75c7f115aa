from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_gamma.contracts.events import (
    ParsedEvent,
    read_events,
    safe_channel,
    session_of,
    trust_lookup,
)
from kernel_gamma.contracts.json_text import clean_json, read_document
from kernel_gamma.contracts.payloads import Event
from kernel_gamma.contracts.trust import Trust
from kernel_gamma.errors import Poison

ZONE = timezone(timedelta(hours=8))
ACCEPTED = datetime(2026, 11, 30, 10, 30, tzinfo=ZONE)
TRUST_OF = trust_lookup(owner=["owner"], known=["alice", "qq"], web=["web.example"])


def new_id(prefix: str) -> str:
    return f"{prefix}_NEW"


def read(document: Any, *, inherited: Trust | None = None) -> tuple[ParsedEvent, ...]:
    return read_events(document, accepted_at=ACCEPTED, new_id=new_id, trust_of=TRUST_OF, inherited=inherited)


def one(document: Any, *, inherited: Trust | None = None) -> ParsedEvent:
    (parsed,) = read(document, inherited=inherited)
    return parsed


def event_of(document: Any) -> Event:
    return one(document).event


def refusal(document: Any) -> str:
    with pytest.raises(Poison) as caught:
        read(document)
    return str(caught.value)


def enveloped(payload: Any, /, **envelope: Any) -> dict[str, Any]:
    five = {
        "id": "evt_1",
        "trace_id": "trace_1",
        "timestamp": "2026-11-30T02:00:00Z",
        "source_node": "sensor",
        "session_key": "private:alice",
    }
    return {"envelope": {**five, **envelope}, "payload": payload}


def cloud(**keys: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "c1", "source": "web.example", "type": "push", **keys}


def amp(payload: dict[str, Any] | None = None, /, **data: Any) -> dict[str, Any]:
    return {
        "header": {"message_id": "m1", "source": {"app": "qq"}},
        "payload": {
            "type": "message.received",
            "session_id": "s1",
            "summary": "你好",
            "data": {"text": "你好呀", "user_id": 10001, **data},
            **(payload or {}),
        },
    }


# Plain


def test_a_text_alone_is_a_message_from_nobody_in_particular() -> None:
    assert event_of({"text": "你好"}) == Event.model_validate(
        {
            "id": "evt_NEW",
            "type": "message",
            "text": "你好",
            "from": "unknown",
            "session": "private:unknown",
            "channel": "console",
            "time": ACCEPTED,
            "data": {},
            "trust": "unknown",
            "trace_id": "trace_NEW",
        }
    )


def test_a_type_alone_is_an_event_of_the_system_session() -> None:
    parsed = one({"type": "door.opened"})
    assert (parsed.event.type, parsed.event.text, parsed.event.session) == ("door.opened", "", "system")
    assert parsed.source_type == "system"
    assert parsed.hops == 0
    assert parsed.envelope is None
    assert parsed.dedupe_key is None
    assert parsed.ttl_sec is None


def test_every_plain_key_is_used_and_the_others_are_kept_in_data() -> None:
    parsed = one(
        {
            "id": "my-id_1",
            "type": "message",
            "text": "hi",
            "from": "alice",
            "session": "group:42",
            "channel": "console",
            "time": "2026-11-30T09:00:00+01:00",
            "ttl_sec": 60,
            "mood": "good",
            "data": {"city": "上海"},
            "attachments": [{"path": "inbox/attachments/a.png", "media_type": "image/png"}],
        }
    )
    event = parsed.event
    assert (event.id, event.from_, event.session, event.trust) == ("my-id_1", "alice", "group:42", "known")
    assert event.time.isoformat() == "2026-11-30T09:00:00+01:00"
    assert event.data == {"city": "上海", "mood": "good"}
    assert event.attachments[0].path == "inbox/attachments/a.png"
    assert parsed.ttl_sec == 60


def test_session_key_is_read_like_session() -> None:
    assert event_of({"text": "a", "session_key": "group:1"}).session == "group:1"


def test_a_sender_gives_the_session_its_name() -> None:
    assert event_of({"text": "a", "from": "小明"}).session == "private:小明"
    assert event_of({"type": "door.opened", "from": "小明"}).session == "private:小明"


@pytest.mark.parametrize("document", [{}, {"from": "alice"}, {"text": None}, {"header": {}, "x": 1}])
def test_neither_text_nor_type_is_refused(document: Any) -> None:
    assert "needs `text` or `type`" in refusal(document)


def test_a_picture_without_words_is_a_message() -> None:
    assert event_of({"attachments": [{"url": "https://example.org/a.png"}]}).type == "message"


def test_an_empty_text_is_still_a_message() -> None:
    assert event_of({"text": ""}).text == ""


@pytest.mark.parametrize(("value", "text"), [(42, "42"), (1.5, "1.5"), (True, "true"), ("  a \n", "  a \n")])
def test_scalars_are_read_as_text(value: Any, text: str) -> None:
    assert event_of({"text": value}).text == text


@pytest.mark.parametrize("key", ["text", "type", "from", "session", "channel", "id"])
@pytest.mark.parametrize("value", [["a"], {"a": 1}])
def test_a_known_key_that_is_no_text_is_named(key: str, value: Any) -> None:
    assert refusal({"text": "a", "type": "b", key: value}).startswith(f"{key}: must be text, is a")


@pytest.mark.parametrize("value", [-1, 1.5, "soon", True, [1], {}])
def test_a_bad_ttl_is_named(value: Any) -> None:
    assert refusal({"text": "a", "ttl_sec": value}).startswith("ttl_sec: must be")


def test_an_endless_ttl_is_cut_to_what_dates_can_hold() -> None:
    ttl = one({"text": "a", "ttl_sec": 10**30}).ttl_sec
    assert ttl == 1_000_000_000
    assert ACCEPTED + timedelta(seconds=ttl) > ACCEPTED


@pytest.mark.parametrize("given", ["a/b", "has space", "x" * 129, "中文", "../../etc", "a.b"])
def test_an_id_that_is_no_name_is_replaced_and_kept_in_data(given: str) -> None:
    event = event_of({"text": "a", "id": given})
    assert event.id == "evt_NEW"
    assert event.data == {"id": given}


@pytest.mark.parametrize(("given", "kept"), [("A-z_9", "A-z_9"), (42, "42"), ("x" * 128, "x" * 128)])
def test_a_good_id_is_kept(given: Any, kept: str) -> None:
    event = event_of({"text": "a", "id": given})
    assert event.id == kept
    assert event.data == {}


def test_what_a_plain_event_may_not_claim_is_only_data() -> None:
    parsed = one({"text": "a", "trust": "owner", "hops": 9, "trace_id": "t", "source_type": "action"})
    assert parsed.event.trust == "unknown"
    assert parsed.hops == 0
    assert parsed.event.trace_id == "trace_NEW"
    assert parsed.source_type == "message"
    assert parsed.event.data == {"trust": "owner", "hops": 9, "trace_id": "t", "source_type": "action"}


def test_two_levels_that_name_the_same_key_lose_nothing() -> None:
    event = event_of({"text": "a", "mood": "outer", "data": {"mood": "inner"}})
    assert event.data == {"mood": "inner", "_mood": "outer"}


def test_data_that_is_no_object_stays_under_its_name() -> None:
    assert event_of({"type": "t", "data": [1, 2]}).data == {"data": [1, 2]}


def test_a_plain_message_received_keeps_its_name_and_is_still_a_message() -> None:
    parsed = one({"type": "message.received", "text": "a"})
    assert parsed.event.type == "message.received"
    assert parsed.source_type == "message"


# Times


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("2026-11-30T01:02:03Z", "2026-11-30T01:02:03+00:00"),
        ("2026-11-30t01:02:03z", "2026-11-30T01:02:03+00:00"),
        ("2026-11-30 01:02:03.250-05:00", "2026-11-30T01:02:03.250000-05:00"),
        ("2026-11-30T01:02:03.123456789Z", "2026-11-30T01:02:03.123456+00:00"),
        ("2026-11-30T01:02:03", "2026-11-30T01:02:03+08:00"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59+00:00"),
    ],
)
def test_times_are_read(written: str, read_as: str) -> None:
    assert event_of({"text": "a", "time": written}).time.isoformat() == read_as


@pytest.mark.parametrize(
    "written",
    [
        "yesterday",
        "2026-11-30",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-12:00",
        1764470000,
        ["2026-11-30T01:02:03Z"],
    ],
)
def test_a_bad_time_is_refused(written: Any) -> None:
    said = refusal({"text": "a", "time": written})
    assert said.startswith("time: must be RFC 3339 like 2026-11-30T10:30:00+08:00")


# The standard envelope


def test_five_fields_make_an_envelope() -> None:
    parsed = one(enveloped({"text": "hi", "from": "alice", "room": 3}))
    assert parsed.envelope is not None
    assert parsed.envelope.as_json() == {
        "id": "evt_1",
        "mind": "main",
        "trace_id": "trace_1",
        "parent_id": None,
        "timestamp": "2026-11-30T02:00:00+00:00",
        "source_node": "sensor",
        "source_type": "message",
        "session_key": "private:alice",
        "ttl_sec": None,
        "hops": 0,
    }
    event = parsed.event
    assert (event.id, event.trace_id, event.from_, event.session) == (
        "evt_1",
        "trace_1",
        "alice",
        "private:alice",
    )
    assert event.time == datetime.fromisoformat("2026-11-30T02:00:00Z")
    assert event.data == {"room": 3}
    assert event.trust == "known"


def test_an_envelope_carries_its_ttl_and_its_hops() -> None:
    parsed = one(enveloped({"text": "hi"}, ttl_sec=3600, hops=2, parent_id="evt_0", mind="luna"))
    assert (parsed.ttl_sec, parsed.hops) == (3600, 2)
    assert parsed.envelope is not None
    assert (parsed.envelope.parent_id, parsed.envelope.mind) == ("evt_0", "luna")


@pytest.mark.parametrize("key", ["id", "timestamp", "source_node"])
def test_an_envelope_without_a_field_it_needs_names_it(key: str) -> None:
    assert refusal(enveloped({"text": "hi"}, **{key: None})) == f"envelope.{key}: is missing"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hops", -1),
        ("hops", "many"),
        ("ttl_sec", -5),
        ("ttl_sec", [1]),
        ("source_type", "divine"),
        ("source_type", ["message"]),
        ("mind", "Not A Mind"),
        ("mind", 7),
        ("timestamp", "noon"),
        ("session_key", {"a": 1}),
        ("source_node", []),
        ("trace_id", {}),
    ],
)
def test_a_bad_envelope_field_is_named(key: str, value: Any) -> None:
    assert refusal(enveloped({"text": "hi"}, **{key: value})).startswith(f"envelope.{key}: ")


def test_a_missing_or_unusable_trace_is_made_anew() -> None:
    assert one(enveloped({"text": "a"}, trace_id=None)).event.trace_id == "trace_NEW"
    parsed = one(enveloped({"text": "a"}, trace_id="../x", id="not an id", parent_id="no way"))
    assert parsed.envelope is not None
    assert (parsed.envelope.id, parsed.envelope.trace_id) == ("evt_NEW", "trace_NEW")
    assert parsed.envelope.parent_id is None
    assert parsed.event.data == {"id": "not an id"}


def test_an_envelope_without_a_session_gets_the_default() -> None:
    assert one(enveloped({"text": "a", "from": "bob"}, session_key=None)).event.session == "private:bob"
    parsed = one(enveloped({"rule": "hourly"}, session_key=None, source_type="rhythm"))
    assert parsed.event.session == "rhythm:hourly"
    assert parsed.envelope is not None
    assert parsed.envelope.session_key == "rhythm:hourly"
    assert one(enveloped({"n": 1}, session_key=None, source_type="system")).event.session == "system"


def test_the_envelopes_session_wins_over_the_payloads() -> None:
    event = one(enveloped({"text": "a", "session": "inner"})).event
    assert (event.session, event.data) == ("private:alice", {})
    assert one(enveloped({"text": "a", "session": "inner"}, session_key=None)).event.session == "inner"


def test_a_trigger_is_an_event_of_its_rule() -> None:
    parsed = one(
        enveloped(
            {"rule": "morning", "slot": "2026-11-30T08:00:00+08:00", "text": "早上八点了"},
            source_type="rhythm",
            source_node="timer_scheduler",
            session_key="rhythm:morning",
        )
    )
    assert parsed.event.type == "rhythm.morning"
    assert parsed.event.from_ == "timer_scheduler"
    assert parsed.source_type == "rhythm"


@pytest.mark.parametrize("claimed", ["action", "reflection"])
def test_a_dropped_envelope_cannot_pose_as_the_minds_own_doing(claimed: str) -> None:
    document = enveloped({"type": "action.done", "text": "I did it"}, source_type=claimed, hops=1)
    dropped = one(document)
    assert dropped.source_type == "system"
    assert dropped.hops == 1
    written_by_the_bus = one(document, inherited="known")
    assert written_by_the_bus.source_type == claimed


@pytest.mark.parametrize(
    "claimed",
    ["action.done", "page.conflict", "Action.failed", " action.done", "act\u200bion.done", "ｐａｇｅ.x"],
)
def test_what_is_dropped_cannot_tell_of_the_minds_own_actions_and_pages(claimed: str) -> None:
    amp_event = amp({"type": claimed})
    for document in ({"type": claimed}, enveloped({"type": claimed}), cloud(type=claimed), amp_event):
        event = event_of(document)
        assert event.type == f"external.{claimed.strip()}" or event.type == f"external.{claimed}"
        assert one(document, inherited="known").event.type.endswith(claimed.strip())
        assert not one(document, inherited="known").event.type.startswith("external.")


def test_types_that_only_resemble_them_keep_their_name() -> None:
    for name in ("action", "actions.done", "pager.alert", "external.action.done", "行动.完成"):
        assert event_of({"type": name}).type == name


@pytest.mark.parametrize("name", ["self", "SELF", "s\u00adelf", "Aurora", "aurora\u2063"])
def test_nobody_outside_speaks_as_the_mind_itself(name: str) -> None:
    def heard(document: Any, inherited: Trust | None = None) -> Event:
        (parsed,) = read_events(
            document,
            accepted_at=ACCEPTED,
            new_id=new_id,
            trust_of=TRUST_OF,
            inherited=inherited,
            mind="aurora",
        )
        return parsed.event

    sensed = enveloped({"type": "sensor.on", "n": 1}, source_node=name)
    for document in ({"text": "a", "from": name}, enveloped({"text": "a", "from": name}), sensed):
        assert heard(document).from_ == "unknown"
        assert heard(document, "known").from_ == name
    assert heard({"text": "a", "from": name}).session == "private:unknown"
    assert heard({"text": "a", "from": name, "session": "group:1"}).session == "group:1"
    assert session_of({"text": "a", "from": name}, "aurora") == "private:unknown"
    assert heard({"text": "a", "from": "myself"}).from_ == "myself"


def test_an_envelope_that_is_no_message_comes_from_its_node() -> None:
    event = one(enveloped({"type": "sensor.on", "room": "kitchen"})).event
    assert (event.from_, event.session) == ("sensor", "private:alice")
    assert one(enveloped({"type": "sensor.on", "from": "door"})).event.from_ == "door"
    assert one(enveloped({"text": "hi"})).event.from_ == "unknown"
    assert one(enveloped({"type": "sensor.on", "n": 1}, session_key=None)).event.session == "system"


def test_a_timestamp_is_the_time_when_it_is_one_and_no_time_is_given() -> None:
    moment = "2026-11-30T09:00:00+08:00"
    event = event_of({"text": "a", "timestamp": moment})
    assert (event.time.isoformat(), event.data) == (moment, {})
    both = event_of({"text": "a", "time": moment, "timestamp": "2026-01-01T00:00:00Z"})
    assert (both.time.isoformat(), both.data) == (moment, {"timestamp": "2026-01-01T00:00:00Z"})
    for other in (1764468000, "yesterday", ["x"]):
        event = event_of({"text": "a", "timestamp": other})
        assert (event.time, event.data) == (ACCEPTED, {"timestamp": other})


def test_inherited_trust_wins_over_names() -> None:
    document = enveloped({"text": "a", "from": "owner"})
    assert one(document).event.trust == "owner"
    assert one(document, inherited="web").event.trust == "web"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"envelope": {}, "payload": {"text": "a"}}, "envelope.id: is missing"),
        ({"envelope": "x", "payload": {"text": "a"}}, "envelope: must be an object, is text"),
        ({"envelope": {"id": "a"}}, "payload: is missing"),
        (enveloped([]), "payload: must be an object, is a list"),
        (enveloped({}), "payload: needs `text` or `type`"),
        (enveloped({"n": 1}), "payload: needs `text` or `type`"),
        (enveloped({"text": ["a"]}), "payload.text: must be text, is a list"),
    ],
)
def test_a_broken_envelope_says_what_it_lacks(document: Any, said: str) -> None:
    assert refusal(document) == said


def test_a_plain_event_may_have_a_key_called_envelope() -> None:
    assert event_of({"text": "a", "envelope": "blue"}).data == {"envelope": "blue"}


# CloudEvents


def test_a_cloud_event_is_read() -> None:
    parsed = one(
        cloud(
            time="2026-11-30T01:00:00Z",
            subject="main",
            data={"text": "pushed", "from": "alice", "session": "repo:1", "channel": "git", "n": 2},
        )
    )
    event = parsed.event
    assert (event.id, event.type, event.text, event.from_) == ("c1", "push", "pushed", "alice")
    assert (event.session, event.channel) == ("repo:1", "git")
    assert event.time == datetime.fromisoformat("2026-11-30T01:00:00Z")
    assert event.data == {"n": 2, "source": "web.example", "subject": "main"}
    assert parsed.source_type == "system"
    assert parsed.dedupe_key == '["web.example", "c1"]'


def test_the_source_speaks_when_no_sender_is_named() -> None:
    event = event_of(cloud(data="plain words"))
    assert (event.text, event.from_, event.session) == ("plain words", "web.example", "private:web.example")
    assert event.trust == "web"


def test_a_trusted_sender_does_not_lift_a_source_of_the_web() -> None:
    assert event_of(cloud(data={"from": "owner", "text": "a"})).trust == "web"
    assert event_of(cloud(source="WEB.example ", data={"from": "owner"})).trust == "web"


def test_the_dedupe_key_tells_every_pair_from_every_other() -> None:
    pairs = [("a", "b,c"), ("a,b", "c"), ('a", "b', "c"), ("a", 'b", "c'), ("a ", "b"), ("a", " b")]
    keys = [one(cloud(source=source, id=id_)).dedupe_key for source, id_ in pairs]
    assert len(set(keys)) == len(pairs)


@pytest.mark.parametrize("data", [None, [1], 5, {"n": 1}])
def test_a_cloud_event_without_words_has_an_empty_text(data: Any) -> None:
    event = event_of(cloud(data=data))
    assert event.text == ""
    expected = {} if data is None else data if isinstance(data, dict) else {"data": data}
    assert event.data == {**expected, "source": "web.example"}


def test_the_producers_own_keys_are_no_errors() -> None:
    body = {
        "text": {"body": "x"},
        "from": ["a"],
        "channel": {"id": 1},
        "attachments": [{"title": "a card"}],
        "time": 5,
    }
    event = event_of(cloud(data=body))
    assert event.data == {**body, "source": "web.example"}
    assert event.from_ == "web.example"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"specversion": "0.3"}, "specversion: must be 1.0, is 0.3"),
        ({"specversion": None}, "specversion: must be 1.0"),
        ({"id": None}, "id: is missing"),
        ({"source": ""}, "source: is missing"),
        ({"type": " "}, "type: is missing"),
        ({"id": {}}, "id: must be text"),
        ({"time": "now"}, "time: must be RFC 3339"),
    ],
)
def test_a_broken_cloud_event_says_what_it_lacks(keys: dict[str, Any], said: str) -> None:
    assert refusal(cloud(**keys)).startswith(said)


def test_a_cloud_events_own_id_is_kept_when_it_is_no_name() -> None:
    parsed = one(cloud(id="urn:x:1"))
    assert parsed.event.id == "evt_NEW"
    assert parsed.event.data["id"] == "urn:x:1"
    assert parsed.dedupe_key == '["web.example", "urn:x:1"]'


# AMP


def test_an_amp_message_is_read() -> None:
    parsed = one(amp())
    event = parsed.event
    assert (event.id, event.type, event.text, event.from_) == ("m1", "message", "你好呀", "10001")
    assert (event.session, event.channel, event.trust) == ("s1", "qq", "known")
    assert event.data == {"summary": "你好"}
    assert parsed.source_type == "message"


def test_an_amp_group_is_known_by_its_group_id() -> None:
    event = event_of(amp(is_group=True, group_id=777))
    assert event.session == "group:777"
    assert event.data == {"summary": "你好", "is_group": True, "group_id": 777, "session_id": "s1"}


def test_an_amp_message_that_is_no_group_ignores_the_group_id() -> None:
    assert event_of(amp(is_group=False, group_id=777)).session == "s1"


def test_an_amp_summary_stands_in_for_a_missing_text() -> None:
    event = event_of(amp(text=None))
    assert event.text == "你好"
    assert event.data == {}


def test_an_amp_event_of_another_type_keeps_its_name() -> None:
    parsed = one(amp({"type": "weather.changed", "session_id": None, "data": {"rain": 1}}))
    event = parsed.event
    assert (event.type, event.text, event.from_, event.session) == (
        "weather.changed",
        "你好",
        "qq",
        "private:qq",
    )
    assert event.data == {"rain": 1}
    assert parsed.source_type == "system"


def test_amp_keeps_what_it_does_not_know() -> None:
    document = amp()
    document["header"]["source"]["instance"] = 2
    document["header"]["priority"] = "low"
    document["payload"]["tone"] = "warm"
    document["note"] = "n"
    data = event_of(document).data
    assert data == {"summary": "你好", "tone": "warm", "priority": "low", "instance": 2, "note": "n"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"header": {}, "payload": []}, "payload: must be an object, is a list"),
        ({"header": {"source": "qq"}, "payload": {}}, "header.source: must be an object, is text"),
        ({"header": {"message_id": []}, "payload": {}}, "header.message_id: must be text"),
        ({"header": {}, "payload": {"summary": {}}}, "payload.summary: must be text"),
    ],
)
def test_a_broken_amp_event_says_where(document: Any, said: str) -> None:
    assert refusal(document).startswith(said)


# Arrays, attachments, channels, trust


def test_an_array_is_read_in_its_order_and_may_mix_forms() -> None:
    parsed = read([{"text": "a"}, cloud(), amp(), enveloped({"text": "d"})])
    assert [found.event.type for found in parsed] == ["message", "push", "message", "message"]


def test_one_bad_element_refuses_the_whole_array() -> None:
    assert refusal([{"text": "a"}, {"text": []}]).startswith("element 1: text: must be text")


@pytest.mark.parametrize("document", [[], [1], None, "a", 5])
def test_what_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(Poison) as caught:
        read(document)
    assert caught.value.kind == "not_an_object"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "inbox/attachments/../../ledger.db",
        "inbox/attachments/",
        "inbox/attachments",
        "inbox/attachments//a",
        "inbox/pending/a.json",
        "../inbox/attachments/a.png",
        "inbox\\attachments\\a.png",
        "inbox/attachments/a\0.png",
        "self/state.md",
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda found: {"text": "a", "attachments": found},
        lambda found: enveloped({"text": "a", "attachments": found}),
        lambda found: cloud(data={"attachments": found}),
        lambda found: amp(attachments=found),
    ],
)
def test_an_attachment_elsewhere_is_refused_and_named(
    path: str, wrap: Callable[[list[dict[str, str]]], dict[str, Any]]
) -> None:
    said = refusal(wrap([{"url": "https://example.org/a.png"}, {"path": path}]))
    assert "attachments[1].path: must lie under inbox/attachments/" in said
    assert path in said


@pytest.mark.parametrize(
    ("attachments", "said"),
    [
        ("a.png", "attachments: must be a list"),
        (["a.png"], "attachments[0]: must be an object"),
        ([{}], "attachments[0]: needs `path` or `url`"),
        ([{"url": "file:///etc/passwd"}], "attachments[0].url: must begin with https://"),
        ([{"url": "https://a.example/", "media_type": []}], "attachments[0].media_type: must be text"),
    ],
)
def test_a_broken_attachment_is_named(attachments: Any, said: str) -> None:
    assert refusal({"text": "a", "attachments": attachments}).startswith(said)


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("console", "console"),
        ("微信", "微信"),
        ("Discord #general", "Discord_general"),
        ("../../etc", "_.._etc"),
        ("a/b", "a_b"),
        (".hidden", "hidden"),
        ("..", "console"),
        ("///", "console"),
        ("", "console"),
        ("Done", "_done"),
        ("a\nb\0c", "a_b_c"),
        ("-rf", "rf"),
    ],
)
def test_a_channel_becomes_a_folder_name(given: str, safe: str) -> None:
    assert safe_channel(given) == safe


@given(st.text(st.characters()))
def test_no_channel_leads_out_of_its_folder(name: str) -> None:
    safe = safe_channel(name)
    assert safe
    assert not safe.startswith((".", "-"))
    assert "/" not in safe
    assert "\0" not in safe
    assert len(safe.encode()) <= 100
    assert safe_channel(safe) == safe


@pytest.mark.parametrize(
    ("names", "trust"),
    [
        ([], "unknown"),
        (["mallory"], "unknown"),
        (["owner"], "owner"),
        (["mallory", "alice"], "known"),
        (["owner", "qq"], "known"),
        (["owner", "web.example"], "web"),
        (["Web.Example"], "web"),
        (["Owner"], "unknown"),
    ],
)
def test_the_least_of_the_listed_names_counts(names: Sequence[str], trust: Trust) -> None:
    assert TRUST_OF(names) == trust


def test_a_channel_that_is_listed_counts_as_given_and_as_its_folder() -> None:
    lookup = trust_lookup(owner=["owner"], known=[], web=["the web"])
    for channel in ("the web", "The Web"):
        (parsed,) = read_events(
            {"text": "a", "from": "owner", "channel": channel},
            accepted_at=ACCEPTED,
            new_id=new_id,
            trust_of=lookup,
        )
        assert parsed.event.trust == "web"


# The session alone


@pytest.mark.parametrize(
    "document",
    [
        {"text": "a"},
        {"text": "a", "from": "alice"},
        {"type": "door"},
        {"text": "a", "session": "group:42"},
        enveloped({"text": "a"}),
        enveloped({"rule": "hourly"}, source_type="rhythm", session_key=None),
        cloud(data={"from": "bob"}),
        amp(),
        amp(is_group=True, group_id="g"),
        [{"text": "a", "from": "first"}, {"text": "b", "from": "second"}],
    ],
)
def test_the_session_alone_is_the_session_of_the_first_event(document: Any) -> None:
    assert session_of(document) == read(document)[0].event.session


@pytest.mark.parametrize("document", [None, 1, "a", [], {}, [1], {"text": []}, {"envelope": 1}])
def test_no_session_can_be_told_of_what_is_no_event(document: Any) -> None:
    assert session_of(document) == ""


# Any object at all

KNOWN_KEYS = [
    *("envelope", "payload", "header", "specversion", "id", "source", "type", "text", "from"),
    *("session", "session_key", "session_id", "channel", "time", "timestamp", "data", "attachments"),
    *("ttl_sec", "hops", "trace_id", "source_node", "source_type", "app", "message_id", "user_id"),
    *("is_group", "group_id", "summary", "rule", "path", "url", "media_type", "odd"),
]
likely = st.sampled_from(
    ["message", "rhythm", "1.0", "2026-11-30T10:00:00Z", "inbox/attachments/a", "小明", "", True, None, 0, 3]
)
values = st.recursive(
    likely | st.text(st.characters(codec="utf-8"), max_size=5) | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KNOWN_KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)
objects = st.dictionaries(st.sampled_from(KNOWN_KEYS), values, max_size=8)
shaped = st.one_of(
    objects,
    st.builds(lambda keys: {**cloud(), **keys}, objects),
    st.builds(lambda keys, payload: enveloped(payload, **keys), objects, objects),
    st.builds(lambda keys, data: amp(keys, **data), objects, objects),
)


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(shaped | st.lists(shaped, max_size=3))
def test_no_document_raises_anything_but_poison_and_a_good_one_survives_its_own_json(document: Any) -> None:
    session = session_of(document)
    try:
        parsed = read(document)
    except Poison as poison:
        assert str(poison)
        return
    assert parsed[0].event.session == session
    for found in parsed:
        again = Event.model_validate(json.loads(found.event.model_dump_json(by_alias=True)))
        assert (again.id, again.text, again.from_) == (
            found.event.id,
            found.event.text,
            found.event.from_,
        )
        assert found.event.time.utcoffset() is not None


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(), st.text(min_size=1), st.dictionaries(st.text(), st.integers() | st.text()))
def test_words_sender_and_data_arrive_as_they_were_dropped(
    text: str, sender: str, data: dict[str, Any]
) -> None:
    raw = json.dumps({"text": text, "from": sender, "data": data}).encode()
    event = event_of(read_document(raw, max_depth=64))
    assert event.text == text.replace("\0", "\ufffd")
    assert event.from_ == (sender.replace("\0", "\ufffd").strip() or "unknown")
    assert event.data == clean_json(data)
