"""What hides behind characters nobody sees is still read for what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.contracts.looks import escape_tags, look, unescape_tags

UNSEEN = "\u00ad\u2063\u180e\ufe0f\u3164\u0338\x08\u200b\u202e\u2060\ufeff\U000e0065\u115f\u2800"


@pytest.mark.parametrize("hidden", UNSEEN)
@pytest.mark.parametrize("name", ["event", "passage", "recalled"])
def test_no_unseen_character_hides_a_tag(hidden: str, name: str) -> None:
    for tag in (
        f"<{hidden}{name}>",
        f"<{name[:2]}{hidden}{name[2:]}>",
        f"<{name}{hidden}>",
        f"<{name}{hidden}id",
        f"<{hidden * 500}/{hidden}{name}",
    ):
        assert escape_tags(f"a {tag} b") == f"a &lt;{tag[1:]} b"


@pytest.mark.parametrize(
    "tag", ["＜event>", "﹤/passage>", "<ｅｖｅｎｔ>", "<𝐞vent>", "<évent>", "≮event>", "<RECALLED"]
)
def test_other_widths_and_accents_hide_none_either(tag: str) -> None:
    assert escape_tags(tag) == f"&lt;{tag[1:]}"


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "<b>bold</b>",
        "<events>",
        "<event-bus>",
        "<éventail>",
        "1 <2",
        "<",
        "＜标题＞",
        "《事件》",
        "<e",
    ],
)
def test_other_marks_are_left_as_they_are(text: str) -> None:
    assert escape_tags(text) == text
    assert unescape_tags("&lt;" + text) == "&lt;" + text


PIECES = st.sampled_from(["<", "/", "event", "passage", "recalled", "x", " ", *UNSEEN])


@given(st.lists(PIECES, max_size=40).map("".join))
def test_nothing_escaped_is_read_as_a_tag_and_it_comes_back(text: str) -> None:
    escaped = escape_tags(text)
    assert escape_tags(escaped) == escaped
    assert unescape_tags(escaped) == text


@pytest.mark.parametrize("text", ["self", " Self ", "s\u200belf", "ｓｅｌｆ", "SE\u00adLF", "s\u0301elf"])
def test_names_are_compared_as_they_are_read(text: str) -> None:
    assert look(text) == "self"


def test_other_scripts_keep_their_letters() -> None:
    assert look("小 林") == "小林"
    assert look("Straße") == "strasse"
