from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.errors import BadTruth, StoreDamaged
from kernel_gamma.truths.folding import names_joined
from kernel_gamma.truths.rows import (
    FIRST_MICROS,
    LAST_MICROS,
    decode_value,
    encode_value,
    fold_key,
    foldable,
    found_by,
    micros,
    moment,
    row_id,
    who_of,
)
from kernel_gamma.truths.terms import index_terms

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))


def nested(depth: int, value: Any = 1) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=8))])))
def test_a_time_comes_back_to_the_microsecond(when: datetime) -> None:
    if FIRST_MICROS <= micros(when) <= LAST_MICROS:
        assert moment(micros(when), UTC) == when
        assert row_id(micros(when)) >= 0


def test_ids_are_in_time_order_from_the_year_1_to_9999() -> None:
    years = [1, 500, 1969, 1970, 2026, 9999]
    ids = [row_id(micros(datetime(year, 1, 1, tzinfo=UTC))) for year in years]
    assert ids == sorted(ids)
    assert ids[0] == 0
    assert row_id(LAST_MICROS) < 1 << 62


@pytest.mark.parametrize("zone", [UTC, EAST, WEST])
def test_the_first_and_the_last_moment_of_the_calendar_can_be_told_in_every_zone(zone: timezone) -> None:
    assert moment(FIRST_MICROS, zone) == datetime(1, 1, 1, tzinfo=UTC)
    assert moment(LAST_MICROS, zone) == datetime.max.replace(tzinfo=UTC)


@given(JSON)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    text = encode_value(value, 1 << 20)
    text.encode()
    assert decode_value("a.b", text) == value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {"a": [float("-inf")]},
        object(),
        {"a": {1, 2}},
        b"bytes",
        [10**5000],
    ],
)
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(BadTruth):
        encode_value(value, 1 << 20)


def test_a_value_is_bounded_in_bytes_not_in_signs() -> None:
    assert encode_value("a" * 98, 100)
    assert encode_value("磁" * 32, 100)
    for value in ("a" * 99, "磁" * 33, "\ud800" * 17, "\0" * 17):
        with pytest.raises(BadTruth, match="larger than 100 bytes"):
            encode_value(value, 100)


@pytest.mark.parametrize("depth", [201, 900, 100_000])
def test_a_value_nested_too_deep_to_be_read_from_anywhere_is_refused(depth: int) -> None:
    with pytest.raises(BadTruth, match="nested too deep"):
        encode_value(nested(depth), 1 << 20)


def test_brackets_in_text_and_beside_each_other_are_no_depth() -> None:
    assert encode_value("[" * 1000 + '{"' * 1000, 1 << 20)
    assert encode_value([[] for _ in range(1000)], 1 << 20)
    assert encode_value({'\\"[': '[[[\\"' * 500}, 1 << 20)
    assert encode_value(nested(200), 1 << 20)


def test_garbage_in_a_row_is_damage_and_not_a_value() -> None:
    with pytest.raises(StoreDamaged, match=r"incident\.x: its value"):
        decode_value("incident.x", '{"a": \x00')


@pytest.mark.parametrize(
    ("value", "who"),
    [
        ({"from": "alice", "text": "hi"}, "alice"),
        ({"service": "nginx", "host": "web-01"}, "nginx\nweb-01"),
        ({"service": 5}, ""),
        ("Alice: see you", "Alice"),
        ({"text": "小明：今天下雨 "}, ""),
        ({"text": "小明： 今天下雨"}, "小明"),
        ("see https://x.org: y", ""),
        ("one two three four: five", ""),
        (["from"], ""),
        (None, ""),
    ],
)
def test_who_speaks_is_a_field_that_says_so_or_the_name_before_a_colon(value: Any, who: str) -> None:
    assert who_of(value) == who


def test_a_record_is_found_by_the_words_of_its_key_but_not_by_its_times_and_ids() -> None:
    text = found_by("incident.startup_loop.root_cause", "what", "why")
    assert text == "what\nwhy\nstartup_loop root_cause"
    assert found_by("incident.20260911T080000Z.01J8ZQ4W0000000000000000AB", "what", "why") == "what\nwhy"
    assert found_by("incident", "what", "why") == "what\nwhy"


def test_the_minds_own_past_is_found_by_what_its_page_says() -> None:
    value = {"page": "memories/about_alice.md", "heading": "Likes", "text": "tea"}
    assert found_by("memory.about_alice.1", "", value) == "Likes\ntea\nabout alice"
    assert found_by("diary.2026-11-30.1", "", value) == "Likes\ntea"
    assert found_by("stream.2026-11-30.1", "", value) == "tea"


def test_records_fold_that_differ_in_numbers_and_digests_and_not_in_codes_or_words() -> None:
    same = [fold_key(f"disk full {n} at 2026 deadbeef{n}0 sda", "alert") for n in (1, 77, 123456)]
    assert len(set(same)) == 1
    different = ["status 200 ok", "status 500 ok", "status 500 bad", "disk full"]
    assert len({fold_key(text, "alert") for text in different}) == 4
    assert fold_key("disk full", "alert") != fold_key("disk full", "alert.disk")
    assert fold_key("born 1990", "memory") != fold_key("born 1991", "memory")
    assert 0 <= same[0] < 1 << 56


CHANGING = re.compile(
    r"( (?:status|code|errno|exit|signal|http) \d{1,5}(?= ))"
    r"| \d[^ ]*| (?=[a-f]*\d)[0-9a-f]{8,}(?= )"
)
WORDS = st.sampled_from(
    [
        "status",
        "code",
        "http",
        "disk",
        "12",
        "5",
        "123456",
        "12a",
        "deadbeef",
        "deadbeef1",
        "a1b2c3d4e",
        "٣",
        "磁",
    ]
)


@given(st.lists(WORDS, max_size=8))
def test_what_a_fold_key_leaves_out_is_what_files_of_before_were_written_with(words: list[str]) -> None:
    steady = CHANGING.sub(lambda match: match[1] or "", f" {' '.join(words)} ")
    digest = blake2b(f"alert\0{steady}".encode(), digest_size=7).digest()
    assert fold_key(" ".join(words), "alert") == int.from_bytes(digest, "big")


@given(st.lists(st.sampled_from([*"a1f.:-_ ", "web-0", "10.0", "::", "磁", "x2"]), max_size=14).map("".join))
def test_a_text_that_is_compared_as_it_stands_holds_no_name_or_address_to_join(text: str) -> None:
    assert foldable("alert.disk.of", text) == names_joined(text)


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("a.disk.20260911T080000Z.01JABCDEFGHJKMNPQRSTVWXYZ0", "t\ndisk"),
        ("a.20260911T080000Z.01JABCDEFGHJKMNPQRSTVWXYZ0", "t"),
        ("a.20260911.disk", "t\ndisk"),
        ("20260911.01JABCDEFGHJKMNPQRSTVWXYZ0", "t"),
        ("a.b.20260911.c.n1", "t\nb c n1"),
    ],
)
def test_the_words_of_a_key_are_its_parts_that_are_no_times(key: str, named: str) -> None:
    assert found_by(key, "", "t") == named


def test_half_a_surrogate_pair_is_kept_as_its_escape() -> None:
    text = encode_value({"a": "x\ud83dy"}, 100)
    assert text == '{"a":"x\\ud83dy"}'
    assert json.loads(text) == {"a": "x\ud83dy"}


def test_records_of_two_hosts_or_addresses_do_not_share_a_fold_key() -> None:
    def folded(text: str) -> int:
        return fold_key(" ".join(index_terms(foldable("alert.disk.n1", text))), "alert.disk")

    for one, other in (
        ("web-01", "web-02"),
        ("主机01", "主机02"),
        ("10.0.0.1", "10.0.0.2"),
        ("srv2", "srv3"),
    ):
        first, second = (f"{name} disk full 磁盘已满 after {{}} s at {{}}%" for name in (one, other))
        assert folded(first.format(1, 20)) == folded(first.format(33, 4))
        assert folded(first.format(1, 20)) != folded(second.format(1, 20)), one


def test_a_receipt_of_the_daemon_is_found_by_what_it_tells_and_not_by_its_ids() -> None:
    receipt = {
        "trace_id": "tr7", "node": "internalizer", "passage_id": "pa7", "session_key": "private:alice",
        "events": [{"id": "ev7", "type": "message", "from": "alice", "text": "磁盘满了", "trace_id": "tr7"}],
    }  # fmt: skip
    text = found_by("task.20261130T080000Z.01J8ZQ4W0000000000000000AB", "disk", receipt)
    assert text == "disk\nevents.type: message\nevents.from: alice\n磁盘满了"
    action = {
        "trace_id": "tr7", "node": "n", "passage_id": "p", "session_key": "s", "action_id": "ac7",
        "tool": "open_ticket", "arguments": {"id": "T-1", "session_key": "mine"},
    }  # fmt: skip
    text = found_by("result.x", "", action)
    assert text == "tool: open_ticket\narguments.id: T-1\narguments.session_key: mine\nx"
    aside = {
        "path": "inbox/a.json", "error": "bad_json", "detail": "line 1", "node": "n", "attempts": 1,
        "time": "2026-11-30T08:00:00Z",
    }  # fmt: skip
    for more in ({}, {"trace_id": "tr7"}):
        text = found_by("error.x", "", aside | more)
        assert text == "path: inbox/a.json\nerror: bad_json\ndetail: line 1\nx"
    assert found_by("operation.x", "", {"version": "1.0", "boot": 3, "pid": 77}) == "version: 1.0\nx"


def test_the_ids_in_a_record_of_somebody_else_are_words_of_it() -> None:
    own = {"trace_id": "tr7", "node": "web-01", "id": "T-1", "boot": 3}
    assert found_by("incident.x", "", own) == "trace_id: tr7\nnode: web-01\nid: T-1\nboot: 3\nx"
