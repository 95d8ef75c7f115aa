from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.truths.static.conftest import Bench, counting

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import SettingsError
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.approvals import files_on_disk, sha256_of
from kernel_gamma.truths.static.changes import ChangeRefused
from kernel_gamma.truths.static.lock import read_lock
from kernel_gamma.truths.static.places import LOCK_FILE, Places
from kernel_gamma.truths.static.rendering import joined
from kernel_gamma.truths.store import open_truths

IDENTITY = "config/identity.json"


def full(channel: object) -> str:
    return joined(channel.sections("full"))  # type: ignore[attr-defined]


def test_the_block_is_the_same_bytes_from_call_to_call_and_lean_begins_it(bench: Bench) -> None:
    channel = bench.channel()
    first = full(channel)
    assert {full(channel) for _ in range(5)} == {first} == {full(bench.channel())}
    assert first.startswith(joined(channel.sections("lean")) + "\n\n")
    assert channel.drift() == ()
    assert channel.tokens("lean") <= 900
    assert bench.told == []


def test_an_edit_is_told_once_and_the_approved_bytes_are_served(bench: Bench) -> None:
    channel = bench.channel()
    before = full(channel)
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    assert full(channel) == before
    assert full(channel) == before
    (drift,) = channel.drift()
    assert (drift.file, drift.kind) == (IDENTITY, "changed")
    assert drift.found_sha256 == sha256_of(bench.path(IDENTITY).read_bytes())
    (alert,) = bench.alerts()
    assert alert["file"] == IDENTITY
    assert alert["approved_sha256"] == drift.approved_sha256


def test_a_drift_that_was_mended_and_comes_again_is_told_again(bench: Bench) -> None:
    channel = bench.channel()
    channel.drift()
    text = bench.path(IDENTITY).read_text()
    for _ in range(2):
        bench.path(IDENTITY).write_text(text.replace("kernel-gamma", "x"))
        assert len(channel.drift()) == 1
        bench.path(IDENTITY).write_text(text)
        assert channel.drift() == ()
    assert len(bench.alerts()) == 2


def test_a_start_after_an_edit_serves_what_was_approved(bench: Bench) -> None:
    before = full(bench.channel())
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    assert full(bench.channel()) == before
    bench.path(IDENTITY).write_text("{broken")
    assert full(bench.channel()) == before


def test_missing_new_and_unreadable_files_are_drift(bench: Bench) -> None:
    channel = bench.channel()
    before = full(channel)
    bench.path("config/metalaws/20-configuration-drift.yaml").unlink()
    bench.path("config/metalaws/40-new.yaml").write_text("id: new\ntitle: New\ntext: New rule.\n")
    bench.path("config/metalaws/.41-hidden.yaml").write_text("nothing of ours")
    bench.path("config/metalaws/notes.txt").write_text("nothing of ours")
    bench.path(IDENTITY).unlink()
    bench.path(IDENTITY).mkdir()
    assert full(channel) == before
    assert [(drift.file, drift.kind) for drift in channel.drift()] == [
        (IDENTITY, "unreadable"),
        ("config/metalaws/20-configuration-drift.yaml", "missing"),
        ("config/metalaws/40-new.yaml", "new"),
    ]
    assert len(bench.alerts()) == 3


def test_a_pipe_in_the_place_of_a_file_does_not_hang_the_mind(bench: Bench) -> None:
    channel = bench.channel()
    before = full(channel)
    bench.path(IDENTITY).unlink()
    os.mkfifo(bench.path(IDENTITY))
    assert full(channel) == before
    assert [drift.kind for drift in channel.drift()] == ["unreadable"]


def test_an_approval_by_another_process_is_served_at_the_next_call(bench: Bench) -> None:
    channel = bench.channel()
    before = full(channel)
    bench.edit(IDENTITY, "DID-LOCAL-000001", "DID-LOCAL-000002")
    other = open_truths(bench.database, bench.clock)
    changes = bench.changes()
    changes.approve(changes.propose(IDENTITY, why="ours", by="alice").id, name="bob", now=bench.clock.now())
    other.close()
    assert full(channel) == before.replace("DID-LOCAL-000001", "DID-LOCAL-000002")
    assert channel.drift() == ()


def test_a_lost_store_is_filled_again_from_approved_files(bench: Bench) -> None:
    bench.approve(IDENTITY, "DID-LOCAL-000001", "DID-LOCAL-000002")
    before = full(bench.channel())
    bench.lose_store()
    assert full(bench.channel()) == before
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    assert full(bench.channel()) == before


def test_an_edit_before_the_very_first_start_is_drift_too(bench: Bench) -> None:
    text = bench.path(IDENTITY).read_text()
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    channel = bench.channel()
    assert json.loads(text)["system_id"] in full(channel)
    assert "someone-else" not in full(channel)
    assert [drift.kind for drift in channel.drift()] == ["changed"]


def test_approved_bytes_that_are_nowhere_stop_a_start_and_not_a_mind_that_runs(bench: Bench) -> None:
    bench.approve(IDENTITY, "DID-LOCAL-000001", "DID-LOCAL-000002")
    running = bench.channel()
    before = full(running)
    bench.lose_store()
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    with pytest.raises(SettingsError) as caught:
        bench.channel().sections("lean")
    assert caught.value.file == IDENTITY
    assert "kgamma static approve" in caught.value.mend
    assert full(running) == before


def test_a_lost_lock_is_restored_from_the_store_and_told(bench: Bench) -> None:
    before = full(bench.channel())
    lock = bench.path(LOCK_FILE).read_bytes()
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    bench.path(LOCK_FILE).unlink()
    channel = bench.channel()
    assert full(channel) == before
    assert bench.path(LOCK_FILE).read_bytes() == lock
    assert [alert["kind"] for alert in bench.alerts()] == ["restored", "changed"]
    assert full(channel) == before
    assert len(bench.alerts()) == 2


def test_a_copy_of_the_lock_that_somebody_else_wrote_counts_for_nothing(bench: Bench) -> None:
    before = full(bench.channel())
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    forged = json.loads(bench.path(LOCK_FILE).read_bytes())
    forged["files"][IDENTITY]["sha256"] = sha256_of(bench.path(IDENTITY).read_bytes())
    bench.store.upsert(NewTruth(key="static.lock", value=forged, trust="unknown"))
    bench.path(LOCK_FILE).unlink()
    assert full(bench.channel()) == before
    lock = read_lock(bench.home)
    assert lock is not None
    assert lock.files[IDENTITY].sha256 != forged["files"][IDENTITY]["sha256"]


def test_without_lock_and_store_the_files_are_approved_as_they_stand_and_that_is_told(bench: Bench) -> None:
    bench.path(LOCK_FILE).unlink()
    bench.edit(IDENTITY, "kernel-gamma", "my-own")
    assert "my-own" in full(bench.channel())
    lock = read_lock(bench.home)
    assert lock is not None
    assert {approval.approved_by for approval in lock.files.values()} == {"first start"}
    assert [category for category, _, _ in bench.told] == ["operation.static_change"]
    bench.channel().sections("full")
    assert len(bench.told) == 1


def test_a_home_from_before_there_were_static_truths_gets_the_shipped_ones(bench: Bench) -> None:
    expected = full(bench.channel())
    bench.lose_store()
    for file in (LOCK_FILE, *read_files(bench)):
        bench.path(file).unlink()
    assert full(bench.channel()) == expected
    assert sorted(read_files(bench)) and read_lock(bench.home) is not None
    assert bench.channel().drift() == ()


def read_files(bench: Bench) -> list[str]:
    return [*files_on_disk(bench.home, Places(StaticPaths()))]


def test_files_that_are_not_sound_are_not_approved_by_a_first_start(bench: Bench) -> None:
    bench.path(LOCK_FILE).unlink()
    bench.path(IDENTITY).write_text("{}")
    with pytest.raises(SettingsError):
        bench.channel().sections("full")
    assert not bench.path(LOCK_FILE).exists()
    assert bench.store.categories() == {}


@pytest.mark.parametrize(
    "text", ["{nope", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"a": {}}}']
)
def test_a_lock_that_cannot_be_understood_stops_a_start_and_not_a_mind_that_runs(
    bench: Bench, text: str
) -> None:
    channel = bench.channel()
    before = full(channel)
    bench.path(LOCK_FILE).write_text(text)
    with pytest.raises(SettingsError) as caught:
        bench.channel().sections("full")
    assert caught.value.file == LOCK_FILE
    assert full(channel) == full(channel) == before
    assert [drift.file for drift in channel.drift()] == [LOCK_FILE]
    assert len(bench.alerts()) == 1


def test_a_lock_over_budget_bytes_is_not_taken_by_a_mind_that_runs(bench: Bench) -> None:
    channel = bench.channel()
    before = full(channel)
    bench.edit(IDENTITY, "shipped default", "word " * 300)
    lock = json.loads(bench.path(LOCK_FILE).read_bytes())
    lock["files"][IDENTITY]["sha256"] = sha256_of(bench.path(IDENTITY).read_bytes())
    bench.path(LOCK_FILE).write_text(json.dumps(lock))
    assert full(channel) == before
    assert "tokens of the prompt" in bench.alerts()[0]["error"]
    with pytest.raises(SettingsError, match="100 are allowed"):
        bench.channel().sections("full")


def test_approved_bytes_in_the_store_cannot_be_swapped(bench: Bench) -> None:
    bench.approve(IDENTITY, "DID-LOCAL-000001", "DID-LOCAL-000002")
    before = full(bench.channel())
    (key,) = [t.key for t in bench.store.each("static") if "000002" in str(t.value)]
    assert bench.store.get(key).locked  # type: ignore[union-attr]
    bench.store.unlock(key)
    bench.store.upsert(NewTruth(key=key, value={"text": "{}", "sha256": "0"}, trust="unknown"))
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    assert full(bench.channel()) == before


def test_approved_bytes_come_only_when_they_are_asked_for(bench: Bench) -> None:
    bench.channel().sections("full")
    assert bench.store.search(Search(query="DID-LOCAL-000001")).total == 0
    assert bench.store.search(Search(query="identity", categories=["static"])).total > 0


def test_only_operators_that_a_task_names_are_loaded_with_what_they_need(bench: Bench) -> None:
    channel = bench.channel()
    assert channel.operators_in("please Plan-Change for 端口plan-change的") == [
        "gather-evidence", "weigh-options", "plan-change",
    ]  # fmt: skip
    assert list(channel.operators_in("plan-changes, replan-change, plan a change")) == []
    sections = channel.sections("lean", operators=["trace-cause"])
    assert [section.name for section in sections] == ["meta_axioms", "identity", "metalaws", "operators"]
    assert "gather-evidence(question)" in sections[-1].text
    assert "weigh-options" not in sections[-1].text
    assert not sections[-1].forced


def test_what_a_text_touches_is_found_in_both_languages(bench: Bench) -> None:
    bench.path("config/core/truth/磁盘.md").write_text("# 磁盘布局\n\n数据放在第二块盘上。\n")
    changes = bench.changes()
    proposal = changes.propose("config/core/truth/磁盘.md", why="", by="小明")
    changes.approve(proposal.id, name="小明", now=bench.clock.now())
    channel = bench.channel()
    assert channel.truths_in("磁盘布局是怎样的？")[0] == "磁盘"
    assert list(channel.truths_in("what are the two pools?")) == ["two-pools"]
    assert list(channel.truths_in("hello there")) == []
    assert channel.sections("full", named=["磁盘"])[-1].text == "# 磁盘布局\n\n数据放在第二块盘上。"


def test_what_is_loaded_on_demand_stays_within_400_tokens_and_whole(bench: Bench) -> None:
    changes = bench.changes()
    for name in ("one", "two", "three"):
        bench.path(f"config/core/truth/{name}.md").write_text(f"# {name}\n" + "word " * 150)
        proposal = changes.propose(f"config/core/truth/{name}.md", why="", by="alice")
        changes.approve(proposal.id, name="alice", now=bench.clock.now())
    channel = bench.channel()
    all_names, all_operators = ["one", "two", "three", "nobody"], ["plan-change", "trace-cause", "nobody"]
    sections = channel.sections("full", named=all_names, operators=all_operators)
    loaded = sections[len(channel.sections("full")) :]
    assert [section.name for section in loaded] == ["operators", "truth.one"]
    assert sum(counting()(section.text) for section in loaded) <= 400
    assert counting()(joined(sections)) <= 2000
    assert full(channel) == joined(sections[: len(channel.sections("full"))])


def test_many_threads_see_one_block(bench: Bench) -> None:
    channel = bench.channel()
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: full(channel), range(50)))) == 1
    bench.edit(IDENTITY, "kernel-gamma", "someone-else")
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: full(channel), range(50)))) == 1
    assert len(bench.alerts()) == 1


def test_a_home_that_cannot_be_written_is_served_all_the_same(bench: Bench) -> None:
    before = full(bench.channel())
    bench.path(LOCK_FILE).unlink()
    bench.path(f"config/.{LOCK_FILE.rpartition('/')[2]}.tmp").mkdir()  # the lock cannot be written
    channel = bench.channel()
    assert full(channel) == full(channel) == before
    assert not bench.path(LOCK_FILE).exists()
    assert [alert["kind"] for alert in bench.alerts()] == ["restored"]


def _approve_what_stands(bench: Bench) -> str | None:
    """The text that is approved now; None when there was nothing to approve."""
    changes = bench.changes()
    try:
        proposal = changes.propose(IDENTITY, why="", by="alice")
    except (ChangeRefused, SettingsError):
        return None
    changes.approve(proposal.id, name="alice", now=bench.clock.now())
    return proposal.text


STEPS = st.sampled_from(
    ["edit", "break", "remove", "put back", "approve", "lose lock", "restart", "lose store"]
)


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_whatever_happens_to_the_files_the_last_approved_words_are_served(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        path = bench.path(IDENTITY)
        approved = path.read_text()
        channel = bench.channel()
        channel.drift()
        for number, step in enumerate(steps):
            if step == "edit":
                path.write_text(json.dumps({**json.loads(approved), "system_id": f"mind-{number}"}))
            elif step == "break":
                path.write_text("{nope")
            elif step == "remove":
                path.unlink(missing_ok=True)
            elif step == "put back":
                path.write_text(approved)
            elif step == "approve":
                approved = _approve_what_stands(bench) or approved
            elif step == "lose lock":
                bench.path(LOCK_FILE).unlink(missing_ok=True)
            elif step == "restart":
                channel = bench.channel()
            elif path.exists() and path.read_text() == approved and bench.path(LOCK_FILE).exists():
                bench.lose_store()  # with the lock and the files at hand nothing is lost
                channel = bench.channel()
            assert f"System: {json.loads(approved)['system_id']}" in full(channel).splitlines()
            assert bool(channel.drift()) == (not path.exists() or path.read_text() != approved)
        bench.store.close()
