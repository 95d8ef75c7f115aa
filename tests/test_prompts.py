from __future__ import annotations

from pathlib import Path

import pytest

from kernel_gamma.contracts.ports import Prompts as PromptsPort
from kernel_gamma.errors import SettingsError
from kernel_gamma.prompts import Prompts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "en/GREETING", "Hello {who}, it is {time}. {{braces}} and {who} again.\n")
    write(tmp_path, "zh/GREETING", "{time}了，你好，{who}。{{括号}}\n")
    write(tmp_path, "en/SOUL", "I am.")
    write(tmp_path, "zh/SOUL", "我在。")
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        Prompts(folder)
    return caught.value


def test_placeholders_are_filled_in_both_languages(folder: Path) -> None:
    prompts: PromptsPort = Prompts(folder)
    assert (
        prompts.text("GREETING", "en", who="Ann", time="noon")
        == "Hello Ann, it is noon. {braces} and Ann again."
    )
    assert prompts.text("GREETING", "zh", who="小林", time="中午") == "中午了，你好，小林。{括号}"


def test_braces_in_values_are_left_alone(folder: Path) -> None:
    filled = Prompts(folder).text("GREETING", "zh", who="{time}", time="{{x}}")
    assert filled == "{{x}}了，你好，{time}。{括号}"


def test_sources_are_the_files_in_order_of_their_names(folder: Path) -> None:
    assert Prompts(folder).sources("zh") == ("{time}了，你好，{who}。{{括号}}", "我在。")


def test_a_placeholder_nobody_fills_is_an_error(folder: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        Prompts(folder).text("GREETING", "en", who="Ann")
    assert (caught.value.file, caught.value.key) == (str(folder / "en/GREETING.md"), "time")


def test_a_value_without_placeholder_is_an_error(folder: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        Prompts(folder).text("SOUL", "zh", who="小林")
    assert (caught.value.file, caught.value.key) == (str(folder / "zh/SOUL.md"), "who")
    assert "{who}" in caught.value.mend


def test_an_unknown_prompt_is_an_error(folder: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        Prompts(folder).text("NOTHING", "en")
    assert caught.value.file == str(folder / "en/NOTHING.md")


@pytest.mark.parametrize("text", ["a { b", "a } b", "{Name}", "{a b}", "{}", "{{{", "{name}", "{language}"])
def test_a_single_brace_is_refused_with_its_line(folder: Path, text: str) -> None:
    path = write(folder, "en/SOUL", f"first line\n{text}")
    error = refusal(folder)
    assert error.file == str(path)
    assert "line 2" in error.problem


def test_a_prompt_of_one_language_only_is_refused(folder: Path) -> None:
    write(folder, "en/EXTRA", "only here")
    error = refusal(folder)
    assert (error.file, error.key, error.problem) == (str(folder / "zh/EXTRA.md"), "EXTRA", "is missing")


def test_a_placeholder_of_one_language_only_is_refused(folder: Path) -> None:
    write(folder, "zh/SOUL", "我是{who}。")
    error = refusal(folder)
    assert (error.file, error.key) == (str(folder / "en/SOUL.md"), "who")


def test_an_empty_prompt_is_refused(folder: Path) -> None:
    path = write(folder, "zh/SOUL", " \n")
    error = refusal(folder)
    assert (error.file, error.problem) == (str(path), "is empty")


def test_a_missing_language_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "en/SOUL", "I am.")
    error = refusal(tmp_path)
    assert error.file == str(tmp_path / "zh")
    assert "kgamma init" in error.mend


def test_bad_bytes_are_refused(folder: Path) -> None:
    (folder / "en/SOUL.md").write_bytes(b"\xff\xfe")
    assert "UTF-8" in refusal(folder).problem


def test_a_byte_order_mark_and_foreign_line_ends_do_not_reach_the_prompt(folder: Path) -> None:
    (folder / "en/SOUL.md").write_bytes(b"\xef\xbb\xbfI am.\r\nStill.\r\n")
    assert Prompts(folder).text("SOUL", "en") == "I am.\nStill."


def test_files_of_editors_are_not_prompts(folder: Path) -> None:
    write(folder, "en/.SOUL.md.swp", "x")
    (folder / "en/SOUL.md~").write_text("x")
    (folder / "en/notes.txt").write_text("{")
    assert len(Prompts(folder).sources("en")) == 2


def test_reload_takes_over_what_was_written(folder: Path) -> None:
    prompts = Prompts(folder)
    write(folder, "en/SOUL", "I changed.")
    assert prompts.text("SOUL", "en") == "I am."
    prompts.reload()
    assert prompts.text("SOUL", "en") == "I changed."


def test_a_reload_of_something_broken_keeps_the_last_good_prompts(folder: Path) -> None:
    prompts = Prompts(folder)
    write(folder, "en/SOUL", "I changed.")
    write(folder, "zh/SOUL", "{")
    with pytest.raises(SettingsError):
        prompts.reload()
    assert prompts.text("SOUL", "en") == "I am."
