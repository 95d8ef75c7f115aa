from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel_gamma.configuration import (
    Home,
    defaults_dir,
    describe_settings,
    home_of,
    lay_out,
    load_environment,
    load_settings,
    read_yaml,
)
from kernel_gamma.errors import SettingsError
from kernel_gamma.prompts import Prompts
from kernel_gamma.settings import Settings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    write(tmp_path, "")
    return tmp_path


def write(home: Path, yaml: str) -> Path:
    path = home / "config" / "kernel.yaml"
    path.write_text(yaml, encoding="utf-8")
    return path


def refusal(home: Path, environ: Mapping[str, str] | None = None) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load_settings(home, environ or {})
    return caught.value


# kernel.yaml


def test_an_empty_file_means_the_defaults(home: Path) -> None:
    assert load_settings(home, {}) == Settings()


def test_the_shipped_file_means_the_defaults() -> None:
    assert load_settings(defaults_dir(), {}) == Settings()


def test_the_file_wins_over_the_defaults_key_by_key(home: Path) -> None:
    write(
        home,
        """
mind: luna
bus:
  settle_sec: 0.1
trust: {owner: [alice, 小明]}
model:
  quality: {base_url: http://127.0.0.1:8080/v1}
  fast: {model: small}
  stream: off
clock: {zone: Asia/Shanghai}
log:
""",
    )
    settings = load_settings(home, {})
    assert settings.mind == "luna"
    assert settings.bus.settle_sec == 0.1
    assert settings.bus.max_attempts == 5
    assert settings.trust.owner == ("alice", "小明")
    assert settings.model.quality.model == "gpt-4.1-mini"
    assert settings.model.quality.base_url == "http://127.0.0.1:8080/v1"
    assert settings.model.fast is not None
    assert settings.model.fast.model == "small"
    assert settings.model.stream == "off"
    assert settings.log.level == "info"


def test_an_unquoted_date_is_text(home: Path) -> None:
    write(home, "clock: {trial: true, start: 2026-11-30T08:00:00+08:00, rate: 60}")
    assert load_settings(home, {}).clock.start == "2026-11-30T08:00:00+08:00"


@pytest.mark.parametrize(
    ("yaml", "key", "problem", "mend"),
    [
        ("bus: {setle_sec: 1}", "bus.setle_sec", "unknown key", "did you mean bus.settle_sec?"),
        ("settle_sec: 1", "settle_sec", "unknown key", "did you mean bus.settle_sec?"),
        ("buss: {}", "buss", "unknown key", "did you mean bus?"),
        ("zzz: 1", "zzz", "unknown key", "remove it"),
        (
            "model: {quality: {api_key: sk-secret}}",
            "model.quality.api_key",
            "unknown key",
            "did you mean model.quality.api_key_env?",
        ),
        ("bus: {settle_sec: soon}", "bus.settle_sec", 'is "soon"', ""),
        ("bus: {max_attempts: 0}", "bus.max_attempts", "must be greater than or equal to 1, is 0", ""),
        ("bus: {durability: half}", "bus.durability", "must be 'full' or 'process', is \"half\"", ""),
        ("bus: 3", "bus", "must be a section, is 3", ""),
        ("bus: [1]", "bus", "must be a section", ""),
        ("mind: Luna Moon", "mind", "pattern", ""),
        ("mind: 7", "mind", "must be a valid string, is 7", ""),
        ("trust: {owner: alice}", "trust.owner", 'is "alice"', ""),
        ("trust: {owner: [1]}", "trust.owner.0", "must be a valid string, is 1", ""),
        ("model: {fast: {window: 2048}}", "model.fast.model", "is missing", ""),
        ("clock: {zone: Asia/Shangai}", "clock.zone", "no time zone Asia/Shangai", "Asia/Shanghai"),
        ("clock: {zone: ../../etc/passwd}", "clock.zone", "no time zone", ""),
        ("clock: {zone: Asia}", "clock.zone", "no time zone", ""),
        ("clock: {start: 2026-11-30T08:00:00Z}", "clock.start", "trials only", "clock.trial: true"),
        ("clock: {rate: 2}", "clock.rate", "trials only", "clock.trial: true"),
        ("clock: {trial: true, start: noon}", "clock.start", "no RFC 3339 time", ""),
        ("debug: {kill_at: commit}", "debug.kill_at", "crash tests only", "debug.enabled: true"),
        ("debug: {enabled: true, kill_at: 'commit:0'}", "debug.kill_at", "step:n", ""),
        ("bus: {settle_sec: 1}\nbus: {settle_sec: 2}", "line 2", "bus stands here a second time", ""),
        ("bus:\n  window: 1\n  window: 2", "line 3", "window stands here a second time", ""),
        ("mind: main\n  bus: {", "line 2", "", ""),
        ("7: a", "line 1", "7 is no name", ""),
        ("Bus: {window: 1}", "Bus", "unknown key", ""),
        ("bus: {Window: 1}", "bus.Window", "unknown key", "did you mean bus.window?"),
        ("just words", "file", "must hold sections", ""),
        ("- a\n- b", "file", "must hold sections", ""),
    ],
)
def test_what_is_wrong_in_the_file_is_said(home: Path, yaml: str, key: str, problem: str, mend: str) -> None:
    path = write(home, yaml)
    error = refusal(home)
    assert error.file == str(path)
    assert error.key == key
    assert problem in error.problem
    assert mend in error.mend
    assert str(path) in str(error)


def test_a_secret_in_the_wrong_place_is_not_printed(home: Path) -> None:
    write(home, "model: {quality: {api_key: sk-secret}}")
    assert "sk-secret" not in str(refusal(home))


def test_every_problem_is_told_at_once(home: Path) -> None:
    write(home, "bus: {setle_sec: 1, max_attempts: 0}\nclock: {zone: 7}")
    said = str(refusal(home, {"KGAMMA_NOPE": "1"}))
    for key in ("bus.setle_sec", "bus.max_attempts", "clock.zone", "KGAMMA_NOPE"):
        assert key in said


def test_a_home_without_settings_says_how_to_make_one(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert error.file == str(tmp_path / "config" / "kernel.yaml")
    assert "kgamma init" in error.mend


def test_a_file_that_is_not_utf_8_is_refused(home: Path) -> None:
    (home / "config" / "kernel.yaml").write_bytes("mind: café".encode("latin-1"))
    assert "UTF-8" in refusal(home).problem


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config" / "kernel.yaml").mkdir(parents=True)
    assert "cannot be read" in refusal(tmp_path).problem


def test_other_files_of_config_are_read_as_strictly(home: Path) -> None:
    path = home / "config" / "tools.yaml"
    path.write_text("tools:\n  - {name: forget, permission: off}\n")
    assert read_yaml(path) == {"tools": [{"name": "forget", "permission": "off"}]}


# Variables


def test_variables_win_over_the_file(home: Path) -> None:
    write(home, "bus: {settle_sec: 0.1, window: 7}")
    settings = load_settings(
        home,
        {
            "KGAMMA_MIND": "luna",
            "KGAMMA_BUS__SETTLE_SEC": "0.2",
            "KGAMMA_DEBUG__ENABLED": "true",
            "KGAMMA_TRUST__KNOWN": "alice, 小明",
            "KGAMMA_TRUST__WEB": '["a,b", "c"]',
            "KGAMMA_MODEL__QUALITY__MODEL": "big",
            "KGAMMA_MODEL__FAST__MODEL": "small",
            "KGAMMA_MODEL__FAST__WINDOW": "4096",
            "KGAMMA_CLOCK__ZONE": "null",
            "KGAMMA_LOG__LEVEL": "",
            "KGAMMA_HOME": "/somewhere",
            "PATH": "/bin",
        },
    )
    assert (settings.mind, settings.bus.settle_sec, settings.bus.window) == ("luna", 0.2, 7)
    assert settings.debug.enabled is True
    assert settings.trust.known == ("alice", "小明")
    assert settings.trust.web == ("a,b", "c")
    assert settings.model.quality.model == "big"
    assert settings.model.fast is not None
    assert (settings.model.fast.model, settings.model.fast.window) == ("small", 4096)
    assert settings.clock.zone is None
    assert settings.log.level == "info"


@pytest.mark.parametrize(
    ("variable", "key", "mend"),
    [
        ("KGAMMA_BUS__SETLE_SEC", "bus.setle_sec", "did you mean KGAMMA_BUS__SETTLE_SEC?"),
        ("KGAMMA_BUS_SETTLE_SEC", "bus_settle_sec", "did you mean KGAMMA_BUS__SETTLE_SEC?"),
        ("KGAMMA_BUS", "bus", ""),
        ("KGAMMA_BUS__WINDOW__X", "bus.window.x", ""),
        ("KGAMMA_", "", ""),
        ("KGAMMA_HOMES", "homes", ""),
    ],
)
def test_an_unknown_variable_is_refused(home: Path, variable: str, key: str, mend: str) -> None:
    error = refusal(home, {variable: "1"})
    assert error.file == f"environment variable {variable}"
    assert error.key == key
    assert error.problem == "unknown key"
    assert mend in error.mend


def test_a_wrong_value_names_the_variable(home: Path) -> None:
    error = refusal(home, {"KGAMMA_BUS__MAX_ATTEMPTS": "none"})
    assert error.file == "environment variable KGAMMA_BUS__MAX_ATTEMPTS"
    assert error.key == "bus.max_attempts"
    assert 'is "none"' in error.problem
    zone = refusal(home, {"KGAMMA_CLOCK__ZONE": "Mars/Olympus"})
    assert (zone.file, zone.key) == ("environment variable KGAMMA_CLOCK__ZONE", "clock.zone")


def test_the_process_itself_is_not_asked(home: Path) -> None:
    """Only the mapping that was handed in counts: two minds of one process may differ."""
    os.environ["KGAMMA_MIND"] = "somebody"
    try:
        assert load_settings(home, {}).mind == "main"
        assert load_settings(home, {"KGAMMA_MIND": "luna"}).mind == "luna"
    finally:
        del os.environ["KGAMMA_MIND"]


def test_null_is_a_name_where_nothing_is_no_choice(home: Path) -> None:
    settings = load_settings(home, {"KGAMMA_MIND": "null", "KGAMMA_MODEL__QUALITY__BASE_URL": "null"})
    assert (settings.mind, settings.model.quality.base_url) == ("null", None)


def test_a_variable_over_a_broken_section_tells_of_the_section(home: Path) -> None:
    path = write(home, "bus: 3")
    error = refusal(home, {"KGAMMA_BUS__WINDOW": "4"})
    assert (error.file, error.key) == (str(path), "bus")


# .env


def test_the_env_file_completes_the_environment_and_never_wins(home: Path) -> None:
    (home / ".env").write_text(
        "\ufeff# keys\nOPENAI_API_KEY=sk-file\nexport OPENAI_BASE_URL='http://127.0.0.1/v1'\nMONEY=$HOME\n"
        "KGAMMA_MIND=luna\nEMPTY\n",
        encoding="utf-8",
    )
    environ = {"OPENAI_API_KEY": "sk-real", "HOME": "/root"}
    loaded = load_environment(home, environ)
    assert loaded == {
        "OPENAI_API_KEY": "sk-real",
        "OPENAI_BASE_URL": "http://127.0.0.1/v1",
        "MONEY": "$HOME",
        "KGAMMA_MIND": "luna",
        "HOME": "/root",
    }
    assert environ == {"OPENAI_API_KEY": "sk-real", "HOME": "/root"}
    assert load_settings(home, {}).mind == "luna"
    assert load_settings(home, {"KGAMMA_MIND": "sol"}).mind == "sol"


def test_without_an_env_file_the_environment_is_what_it_is(home: Path) -> None:
    assert load_environment(home, {"A": "b"}) == {"A": "b"}


def test_a_line_of_the_env_file_that_is_no_setting_is_named_but_not_printed(home: Path) -> None:
    (home / ".env").write_text("GOOD=1\nOPENAI_API_KEY 'sk-secret\n")
    error = refusal(home)
    assert (error.file, error.key) == (str(home / ".env"), "line 2")
    assert "sk-secret" not in str(error)


def test_an_env_file_that_is_not_utf_8_is_refused(home: Path) -> None:
    (home / ".env").write_bytes(b"A=\xff")
    assert refusal(home).file == str(home / ".env")


# The home


def test_the_home_is_the_option_the_variable_or_the_current_directory(tmp_path: Path) -> None:
    environ = {"KGAMMA_HOME": str(tmp_path / "b")}
    assert home_of(str(tmp_path / "a"), environ) == tmp_path / "a"
    assert home_of(None, environ) == tmp_path / "b"
    assert home_of(None, {}) == Path.cwd()
    assert home_of("relative", {}).is_absolute()
    assert home_of("~", {}) == Path.home()


def test_a_home_knows_its_paths(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.settings_file == tmp_path / "config" / "kernel.yaml"
    assert home.prompts_dir == tmp_path / "prompts"
    assert home.data_dir(Settings()) == tmp_path / "data" / "kernel"
    assert home.data_dir(Settings(data_dir="/var/mind")) == Path("/var/mind")
    assert home.topology_file(Settings()) == tmp_path / "config" / "topology.yaml"


def test_a_home_that_was_laid_out_is_ready(tmp_path: Path) -> None:
    target = tmp_path / "new" / "home"
    written = lay_out(target)
    assert target / "config" / "kernel.yaml" in written
    assert target / "data" / "README.md" in written
    assert all(path.is_file() for path in written)
    assert not (target / "data" / "kernel").exists()
    assert load_settings(target, {}) == Settings()
    assert Prompts(Home(target).prompts_dir).sources("zh")


def test_laying_out_never_writes_over_anything(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    mine = write(tmp_path, "mind: luna")
    written = lay_out(tmp_path)
    assert written
    assert mine not in written
    assert mine.read_text() == "mind: luna"
    assert lay_out(tmp_path) == []


def test_only_what_was_shipped_is_laid_out(tmp_path: Path) -> None:
    written = {path.relative_to(tmp_path).parts[0] for path in lay_out(tmp_path)}
    assert written == {"config", "prompts", "data"}
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".")] == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError) as caught:
        lay_out(tmp_path / "file")
    assert str(tmp_path / "file") in caught.value.file


def test_no_endpoint_is_shipped() -> None:
    text = (defaults_dir() / "config" / "kernel.yaml").read_text(encoding="utf-8")
    assert "base_url" not in text
    assert "://" not in text


# The description


def test_every_setting_is_described_once() -> None:
    docs = describe_settings()
    keys = [doc.key for doc in docs]
    assert len(keys) == len(set(keys))
    assert [doc.key for doc in docs if not doc.sentence] == []
    assert {"mind", "bus.settle_sec", "model.quality.base_url", "model.fast", "debug.kill_at"} <= set(keys)


def test_a_description_says_type_default_and_meaning() -> None:
    docs = {doc.key: doc for doc in describe_settings()}
    settle = docs["bus.settle_sec"]
    assert (settle.type, settle.default) == ("number >= 0", "0.5")
    assert settle.sentence.startswith("A file nobody closed")
    assert (docs["bus.durability"].type, docs["bus.durability"].default) == ("full | process", '"full"')
    assert (docs["trust.owner"].type, docs["trust.owner"].default) == ("list of text", '["owner"]')
    assert (docs["clock.zone"].type, docs["clock.zone"].default) == ("text or null", "null")
    assert docs["model.quality.max_output_tokens"].type == "whole number or null >= 1"
    assert docs["model.quality.model"].default == '"gpt-4.1-mini"'
    assert docs["model.fast"].type == "section or null"
    assert docs["budget.reserved_for_people"].type == "number >= 0 <= 1"


def test_the_variable_that_holds_the_secret_of_approvals_is_no_setting(tmp_path: Path) -> None:
    lay_out(tmp_path)
    environ = {
        "KGAMMA_APPROVAL_SECRET": "s",
        "KGAMMA_STATIC__APPROVAL_SECRET_ENV": "KGAMMA_OFFICE",
        "KGAMMA_OFFICE": "s",
    }
    assert load_settings(tmp_path, environ).static.approval_secret_env == "KGAMMA_OFFICE"
    with pytest.raises(SettingsError, match="KGAMMA_OFFICE"):
        load_settings(tmp_path, {"KGAMMA_OFFICE": "s"})
