from __future__ import annotations

import json

import pytest
from rich.cells import cell_len

from kernel_gamma.cli.terminal import (
    ago,
    as_called,
    call_it,
    counted,
    cut,
    note,
    print_json,
    print_table,
    say,
    shown,
)


def test_escape_sequences_of_strangers_do_not_run() -> None:
    assert shown("a\x1b[2Jb\x07\rc") == r"a\x1b[2Jb\x07\rc"
    assert shown("turn\u202eed") == r"turn\u202eed"


def test_words_lines_and_tabs_stay_as_they_are() -> None:
    assert shown("小明\n\tok\r\n") == "小明\n\tok\n"


def test_names_that_are_no_utf8_are_made_visible() -> None:
    assert shown("b\udcffd") == r"b\udcffd"


def test_square_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    say("[red]not red[/red] :smile:")
    assert capsys.readouterr().out == "[red]not red[/red] :smile:\n"


def test_long_lines_are_not_broken_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    say("word " * 100)
    print_table(["a"], [["word " * 100]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines] == [("word " * 100).strip(), "a", ("word " * 100).strip()]


def test_json_keeps_chinese_and_escapes_what_utf8_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "小明"})
    assert "小明" in capsys.readouterr().out
    print_json({"a": "\udcff"})
    assert json.loads(capsys.readouterr().out) == {"a": "\udcff"}


def test_a_line_is_cut_to_columns_and_a_chinese_character_has_two() -> None:
    assert cut("short", 10) == "short"
    assert cut("0123456789", 10) == "0123456789"
    assert cut("0123456789a", 10) == "012345678…"
    assert cut("我每天早上喝绿茶", 10) == "我每天早…"
    assert cell_len(cut("绿" * 100_000, 21)) <= 21


def test_hints_name_the_command_as_it_was_called(capsys: pytest.CaptureFixture[str]) -> None:
    text = "`kgamma run` writes logs/kgamma.log; kgamma tells"
    assert as_called(text) == text
    call_it("python3 run.py")
    try:
        note(text)
        say("kgamma run")
    finally:
        call_it("kgamma")
    out, err = capsys.readouterr()
    assert err == "`python3 run.py run` writes logs/kgamma.log; python3 run.py tells\n"
    assert out == "kgamma run\n", "what the mind says is no hint"


def test_one_file_two_files() -> None:
    assert [counted(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (42, "42 s"), (300, "5 min"), (11_520, "3.2 h"), (400_000, "5 d")],
)
def test_durations_are_told_in_the_unit_people_use(seconds: float, words: str) -> None:
    assert ago(seconds) == words
