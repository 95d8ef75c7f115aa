"""The section `files` of config/retention.yaml."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import yaml

from kernel_gamma.bus.keep_times import KeepTimes, load_keep_times, moment_before
from kernel_gamma.configuration import defaults_dir, read_yaml
from kernel_gamma.errors import SettingsError


def test_what_is_shipped_is_what_holds_without_a_file() -> None:
    shipped = read_yaml(defaults_dir() / "config/retention.yaml")
    assert set(shipped["files"]) == set(KeepTimes.__dataclass_fields__)  # type: ignore[arg-type]
    assert load_keep_times(shipped) == KeepTimes() == load_keep_times({}) == load_keep_times({"classes": []})


def test_what_is_not_named_is_as_shipped() -> None:
    written = load_keep_times(yaml.safe_load("files: {done: 1 day, acks: 2 hours, ledger: forever}"))
    assert written == KeepTimes(done=timedelta(days=1), acks=timedelta(hours=2), ledger=None)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("files: [done]", "files", "must be a section"),
        ("files: {don: 1 day}", "files.don", "unknown key"),
        ("files: {done: 5}", "files.done", "no time"),
        ("files: {done: 0 days}", "files.done", "no time"),
        ("files: {acks: 3 weeks}", "files.acks", "no time"),
        ("files: {history: 99999 days}", "files.history", "no time"),
        ("files: {ledger: 5 hours}", "files.ledger", "less than a day"),
    ],
)
def test_a_mistake_is_named_with_its_key(text: str, key: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        load_keep_times(yaml.safe_load(text), "config/retention.yaml")
    assert (caught.value.file, caught.value.key) == ("config/retention.yaml", key)


def test_a_day_is_24_hours_also_over_summer_time() -> None:
    now = datetime(2026, 3, 29, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert moment_before(now, timedelta(days=1)).isoformat() == "2026-03-28T11:00:00+01:00"
