from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from kernel_gamma.configuration import defaults_dir, read_yaml
from kernel_gamma.errors import SettingsError
from kernel_gamma.truths.retention import OTHERS, Retention, RetentionClass, load_retention
from kernel_gamma.truths.retention_file import read_retention

PERMANENT = [
    "incident", "inspection", "task", "result", "operation", "deploy", "error", "alert", "decision", "risk",
    "style", "brand", "template", "spec",
]  # fmt: skip
NOW = datetime(2026, 11, 30, 10, 30, 5, 123, tzinfo=timezone(timedelta(hours=8)))


def loaded(text: str) -> Retention:
    return load_retention(yaml.safe_load(text))


def refused(text: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        loaded(text)
    assert caught.value.file == "config/retention.yaml"
    return caught.value


def test_the_shipped_file_says_what_the_code_has() -> None:
    file = defaults_dir() / "config/retention.yaml"
    assert load_retention(read_yaml(file)) == Retention.default()


def test_what_is_permanent_stands_in_the_chain_and_comes_unasked() -> None:
    retention = Retention.default()
    for category in (*PERMANENT, "something_else", "某事"):
        found = retention.class_of(f"{category}.20260911T080000Z.01J")
        assert (found.days, found.chain, found.unasked) == (None, True, True), category


@pytest.mark.parametrize(
    ("category", "days"), [("metrics", 30), ("performance", 30), ("debug", 7), ("temp", 7), ("assembly", 30)]
)
def test_what_is_short_lived_is_neither_sealed_nor_found_unasked(category: str, days: int) -> None:
    found = Retention.default().class_of(f"{category}.x")
    assert (found.days, found.chain, found.unasked) == (days, False, False)


@pytest.mark.parametrize("category", ["stream", "diary", "memory"])
def test_the_own_past_is_permanent_and_outside_the_chain_whatever_the_file_leaves_out(category: str) -> None:
    for retention in (Retention.default(), Retention(())):
        found = retention.class_of(f"{category}.alice")
        assert (found.days, found.chain, found.unasked) == (None, False, True)


def test_a_longer_prefix_wins_whatever_the_order() -> None:
    entries = [
        "{prefixes: [metrics.keep.], keep: forever}",
        "{prefixes: [metrics.], keep: 30 days}",
        "{prefixes: [metrics.keep.raw.], keep: 2 days}",
    ]
    for order in (entries, entries[::-1]):
        retention = loaded("classes:\n" + "".join(f"  - {entry}\n" for entry in order))
        kept = {key: retention.class_of(key).days for key in (
            "metrics.cpu", "metrics.keep.cpu", "metrics.keep.raw.x", "metrics.keep", "metrics",
            "metrics.keeper.x", "metrics.a.b.c.d",
        )}  # fmt: skip
        assert kept == {
            "metrics.cpu": 30, "metrics.keep.cpu": None, "metrics.keep.raw.x": 2, "metrics.keep": 30,
            "metrics": 30, "metrics.keeper.x": 30, "metrics.a.b.c.d": 30,
        }  # fmt: skip


def test_a_prefix_ends_at_a_dot() -> None:
    assert Retention.default().class_of("metricsroom.x") is OTHERS
    assert Retention.default().class_of("temperature.kitchen") is OTHERS


def test_all_keys_of_one_folder_share_their_class() -> None:
    retention = loaded(
        "classes:\n  - {prefixes: [a.b.c.], keep: 1 day}\n  - {prefixes: [a.], keep: 9 days}\n"
    )
    assert retention.prefix_of("a.b.c") == retention.prefix_of("a.b.d") == "a"
    assert retention.prefix_of("a.b.c.x") == "a.b.c"
    assert retention.prefix_of("other.x.y") == "other"


def test_due_names_every_prefix_with_a_limit_and_its_exact_moment() -> None:
    due = dict(Retention.default().due(NOW))
    assert set(due) == {"metrics", "performance", "debug", "temp", "assembly"}
    assert due["metrics"] == NOW - timedelta(days=30)
    assert due["debug"].isoformat() == "2026-11-23T10:30:05.000123+08:00"


def test_a_day_is_24_hours_also_when_the_clocks_are_changed() -> None:
    # at 01:30 on that Sunday in New York the hour from one to two comes twice
    zone = ZoneInfo("America/New_York")
    now = datetime(2026, 11, 2, 12, 0, tzinfo=zone)
    (_, before), *_ = Retention((RetentionClass(("x",), 1, False),)).due(now)
    assert now.astimezone(UTC) - before.astimezone(UTC) == timedelta(hours=24)
    assert before.tzinfo is zone


def test_what_must_be_asked_for() -> None:
    retention = Retention.default()
    short = {"assembly", "metrics", "performance", "debug", "temp"}
    assert retention.asked_only() == {*short, "static", "proposal", "tombstone"}
    assert not retention.comes_unasked("assembly.x")
    assert retention.comes_unasked("incident.x")


def test_keeping_incidents_for_less_is_allowed_and_told() -> None:
    retention = loaded(
        "classes:\n"
        "  - {prefixes: [incident.], keep: 90 days, chain: false}\n"
        "  - {prefixes: [error.noisy.], keep: 1 day}\n"
        "  - {prefixes: [metrics.], keep: 3 days}\n"
        "  - {prefixes: [garden.], keep: 3 days}\n"
    )
    assert retention.class_of("incident.x").days == 90
    assert retention.shortened() == [("incident", 90), ("error.noisy", 1)]
    assert Retention.default().shortened() == []


def test_chain_goes_with_keep_unless_written() -> None:
    retention = loaded("classes:\n  - {prefixes: [a.], keep: forever}\n  - {prefixes: [b.], keep: 2 days}\n")
    assert (retention.is_chained("a.x"), retention.is_chained("b.x")) == (True, False)
    assert not loaded("classes:\n  - {prefixes: [a.], keep: forever, chain: false}\n").is_chained("a.x")


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("clases: []", "clases", "unknown key"),
        ("classes: {a: 1}", "classes", "must be a list, is an object"),
        ("classes: [metrics.]", "classes[0]", "must be a section, is text"),
        ("classes: [{prefixes: [a.], kept: 1 day}]", "classes[0].kept", "did you mean keep?"),
        ("classes: [{prefixes: [a.], colour: red}]", "classes[0].colour", "it may hold prefixes, keep"),
        ("classes: [{keep: forever}]", "classes[0].prefixes", "must be a list of prefixes, is null"),
        ("classes: [{prefixes: [], keep: forever}]", "classes[0].prefixes", "must be a list of prefixes"),
        ("classes: [{prefixes: a., keep: forever}]", "classes[0].prefixes", "must be a list of prefixes"),
        (
            "classes: [{prefixes: [7], keep: forever}]",
            "classes[0].prefixes",
            "a prefix is text, not a number",
        ),
        ("classes: [{prefixes: ['事 件.'], keep: forever}]", "classes[0].prefixes", "'事 件.'"),
        ("classes: [{prefixes: [a.]}]", "classes[0].keep", "is missing (write forever, or 30 days"),
        ("classes: [{prefixes: [a.], keep: 30}]", "classes[0].keep", "no time to keep a record: 30"),
        ("classes: [{prefixes: [a.], keep: 0 days}]", "classes[0].keep", "0 days"),
        ("classes: [{prefixes: [a.], keep: -1 days}]", "classes[0].keep", "-1 days"),
        ("classes: [{prefixes: [a.], keep: 999999 days}]", "classes[0].keep", "1 to 36500"),
        ("classes: [{prefixes: [a.], keep: 一周}]", "classes[0].keep", "一周"),
        ("classes: [{prefixes: [a.], keep: forever, chain: often}]", "classes[0].chain", "true or false"),
        ("classes: [{prefixes: [a.], keep: forever, unasked: 1}]", "classes[0].unasked", "true or false"),
        (
            "classes: [{prefixes: [a.], keep: 9 days, unasked: false}, "
            "{prefixes: [b., a.b.], keep: forever, unasked: true}]",
            "classes[1].unasked",
            "a.b. cannot come unasked: it lies below a., which must be asked for "
            "(remove unasked: true here, or write unasked: true for a.)",
        ),
        ("classes: [{prefixes: [tombstone.x.], keep: 9 days}]", "classes[0].prefixes", "what was forgotten"),
        ("classes: [{prefixes: [a.b.c.d.], keep: 9 days, unasked: false}]", "classes[0].unasked", "too deep"),
        ("classes: [{prefixes: [a.], keep: 9 days, chain: true}]", "classes[0].chain", "add chain: false"),
        ("classes: [{prefixes: [diary.], keep: 9 days}]", "classes[0]", "the mind's own pages"),
        ("classes: [{prefixes: [stream.x.], keep: forever, chain: true}]", "classes[0]", "own pages"),
        (
            "classes: [{prefixes: [a.], keep: forever}, {prefixes: [b., a], keep: 1 day}]",
            "classes[1].prefixes",
            "a. stands in classes[0] too",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_mend(text: str, key: str, said: str) -> None:
    error = refused(text)
    assert error.key == key
    assert said in str(error)


def test_a_file_that_is_missing_or_says_nothing_means_the_shipped_classes(tmp_path: Path) -> None:
    assert read_retention(tmp_path) == Retention.default()
    (tmp_path / "retention.yaml").write_text("# nothing yet\n")
    assert read_retention(tmp_path) == Retention.default()


def test_a_home_decides_for_itself_and_errors_name_its_file(tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text("classes:\n  - {prefixes: [garden.], keep: 2 days, unasked: false}\n")
    retention = read_retention(tmp_path)
    assert retention.class_of("garden.x").days == 2
    assert retention.class_of("metrics.x") is OTHERS
    file.write_text("classes:\n  - {prefixes: [garden.], keep: sometimes}\n")
    with pytest.raises(SettingsError, match="keep: is no time to keep a record: sometimes") as caught:
        read_retention(tmp_path)
    assert caught.value.file == str(file)


def test_a_list_of_any_json_never_breaks_the_check() -> None:
    junk: list[Any] = [None, True, 1.5, "x", [], {}, [{}], {"prefixes": [None]}, {"prefixes": [["a"]]}]
    for value in junk:
        with pytest.raises(SettingsError):
            load_retention({"classes": [value]})


def test_below_an_asked_only_prefix_nothing_comes_unasked() -> None:
    retention = loaded(
        "classes: [{prefixes: [a.], keep: 9 days, unasked: false}, {prefixes: [a.b.], keep: forever}]"
    )
    assert not retention.comes_unasked("a.b.c")
    assert not retention.comes_unasked("a.b")
    assert retention.comes_unasked("ab.c")
    deep = loaded("classes: [{prefixes: [a.b.], keep: 9 days, unasked: false}]")
    assert deep.comes_unasked("a.b")  # a key of that very name lies in a., as for every other rule
    assert not deep.comes_unasked("a.b.c.d")


def test_tombstones_are_kept_for_ever_whatever_the_file_leaves_out() -> None:
    for retention in (Retention.default(), Retention(())):
        found = retention.class_of("tombstone.x")
        assert (found.days, found.chain, found.unasked) == (None, True, False)
