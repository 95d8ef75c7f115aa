from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_gamma.contracts.json_text import clean_json, read_document
from kernel_gamma.errors import Poison

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def poison_of(raw: bytes, *, max_depth: int = 64) -> Poison:
    with pytest.raises(Poison) as caught:
        read_document(raw, max_depth=max_depth)
    return caught.value


def nested(levels: int) -> bytes:
    """An object in which `levels` objects and arrays stand one in the other, itself counted."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_an_object_and_an_array_of_objects_are_read() -> None:
    assert read_document('{"text": "你好"}'.encode(), max_depth=64) == {"text": "你好"}
    assert read_document(b'[{"text": "a"}, {"text": "b"}]\n', max_depth=64) == [
        {"text": "a"},
        {"text": "b"},
    ]


def test_a_byte_order_mark_is_tolerated() -> None:
    assert read_document(b'\xef\xbb\xbf{"text": "a"}', max_depth=64) == {"text": "a"}


@pytest.mark.parametrize("raw", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"])
def test_an_empty_file_is_called_empty(raw: bytes) -> None:
    assert poison_of(raw).kind == "empty"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"text": "a"', "line 1, column 13"),
        (b'{"text":\n  oops}', "line 2, column 3"),
        (b"hello", "line 1, column 1"),
        (b'{"a": 1}{"b": 2}', "Extra data at line 1, column 9"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": [-Infinity]}', "-Infinity"),
        (b'{"a": 1e999}', "1e999"),
        (b'{"a": ' + b"9" * 5000 + b"}", "limit"),
        (b'{"a": ' + b"9" * 400 + b".5}", "too large"),
        (b'{"text":\n"\xff\xfe"}', "byte 0xff in line 2"),
        ('{"text": "好"}'.encode()[:-3], "not UTF-8: byte 0xe5"),
        ('{"text": "hi"}'.encode("utf-16"), "UTF-16"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b"\0" * 200, "NUL bytes only"),
        (b'{"a": "line\nbreak"}', "control character"),
    ],
)
def test_what_is_not_json_says_what_and_where(raw: bytes, said: str) -> None:
    poison = poison_of(raw)
    assert poison.kind == "not_json"
    assert said in str(poison)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'"text"', "is text"),
        (b"42", "is a number"),
        (b"null", "is null"),
        (b"true", "is true"),
        (b"[]", "empty array"),
        (b"[1]", "element 0"),
        (b'[{"text": "a"}, ["b"]]', "element 1 of the array must be an object, is a list"),
    ],
)
def test_what_is_no_object_is_named(raw: bytes, said: str) -> None:
    poison = poison_of(raw)
    assert poison.kind == "not_an_object"
    assert said in str(poison)


def test_the_deepest_level_allowed_is_read_and_the_next_is_refused() -> None:
    read_document(nested(64), max_depth=64)
    poison = poison_of(nested(65))
    assert poison.kind == "too_deep"
    assert "deeper than 64 levels at line 1, column 69" in str(poison)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000, nested(50_000)])
def test_a_bottomless_file_is_refused(raw: bytes) -> None:
    assert poison_of(raw).kind == "too_deep"


def test_a_limit_past_what_python_can_walk_still_ends_in_poison() -> None:
    assert poison_of(nested(50_000), max_depth=1_000_000).kind == "too_deep"


def test_brackets_inside_strings_are_no_depth() -> None:
    raw = json.dumps({"text": '[{"' * 500 + "\\"}).encode()
    assert read_document(raw, max_depth=4) == {"text": '[{"' * 500 + "\\"}


def test_a_wide_document_is_not_a_deep_one() -> None:
    document = {"rows": [{"n": n} for n in range(500)]}
    assert read_document(json.dumps(document).encode(), max_depth=3) == document


@pytest.mark.parametrize("cut", [b'{"text": "[[[[[[[[', b'{"text": "[[[[[[[[\\'])
def test_a_string_cut_in_the_middle_is_not_mistaken_for_depth(cut: bytes) -> None:
    assert poison_of(cut, max_depth=4).kind == "not_json"


def test_lone_surrogates_and_nul_become_replacement_characters() -> None:
    raw = rb'{"te\ud800xt": ["a\udfffb", {"n\u0000": "\uD83D\uDE00"}], "plain": 1}'
    assert read_document(raw, max_depth=64) == {
        "te\ufffdxt": ["a\ufffdb", {"n\ufffd": "😀"}],
        "plain": 1,
    }


def test_an_escaped_backslash_before_u_is_left_alone() -> None:
    assert read_document(rb'{"a": "\\ud800"}', max_depth=64) == {"a": r"\ud800"}


def test_of_equal_keys_the_last_counts() -> None:
    assert read_document(b'{"a": 1, "a": 2}', max_depth=64) == {"a": 2}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text().map(lambda text: text.replace("\0", "")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab好"), inner, max_size=4),
    max_leaves=20,
)


@unhurried
@given(st.dictionaries(st.text("abc好"), json_values), st.booleans())
def test_what_was_written_is_what_is_read(document: dict[str, object], ascii_only: bool) -> None:
    raw = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert read_document(raw, max_depth=100) == document


@unhurried
@given(st.binary(max_size=200) | st.text('{}[]",:\\u0123d8ae \n').map(str.encode))
def test_no_bytes_raise_anything_but_poison(raw: bytes) -> None:
    try:
        document = read_document(raw, max_depth=5)
    except Poison as poison:
        assert poison.kind in {"empty", "not_json", "too_deep", "not_an_object"}
        assert str(poison)
    else:
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


@unhurried
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_cleaned_json_can_always_be_written(value: object) -> None:
    cleaned = clean_json(value)
    assert json.dumps(cleaned, ensure_ascii=False).encode()
    assert clean_json(cleaned) == cleaned
