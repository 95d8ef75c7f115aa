"""Every operation may be done again after a crash, and is then done once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from kernel_gamma.bus.apply import Applier
from kernel_gamma.bus.plan import Operation
from kernel_gamma.self_stream.pages import PageFiles


class Died(BaseException):
    """Stands for SIGKILL at a step."""


def applier(root: Path, die_at: int | None = None) -> tuple[Applier, list[str]]:
    reached: list[str] = []

    def step(name: str) -> None:
        reached.append(name)
        if die_at is not None and len(reached) == die_at:
            raise Died(name)

    pages = PageFiles(root / "self", step, split_writes=True)
    return Applier(str(root), pages, step=step, on_conflict=lambda page, kept: None), reached


OPERATIONS: list[Operation] = [
    ("append", "stream/now.md", "I hear 雨。\n\n", "", 1),
    ("append", "stream/now.md", "And again.\n\n", "", 1),
    ("replace", "state.md", "calm\n", None, "state.batch_1.0.md"),
    ("write", "pipeline/message_queue", "msg_1.json", '{"n": 1}\n', "emit"),
    ("write", "outbox/console", "out_1.json", '{"n": 2}\n', "emit"),
    ("write", "inbox/acks", "e.json", '{"ok": true}\n', "plain"),
    ("move", "inbox/taken/1_e.json", "inbox/pending/done/2026-11-30/e.json"),
]


def prepare(root: Path) -> None:
    (root / "inbox/taken").mkdir(parents=True)
    (root / "inbox/taken/1_e.json").write_text("dropped")


def world(root: Path) -> dict[str, str]:
    files = (p for p in root.rglob("*") if p.is_file() and not p.name.endswith(".tmp"))
    return {str(p.relative_to(root)): p.read_text() for p in files}


def steps() -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        one, reached = applier(Path(name))
        one.apply(OPERATIONS, redo=False)
        return reached


@pytest.mark.parametrize("at", range(1, len(steps()) + 1))
def test_killed_at_any_step_and_done_again_the_world_is_the_same(tmp_path: Path, at: int) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for root in (whole, cut):
        prepare(root)
    applier(whole)[0].apply(OPERATIONS, redo=False)
    with pytest.raises(Died):
        applier(cut, die_at=at)[0].apply(OPERATIONS, redo=False)
    for _ in range(2):
        applier(cut)[0].apply(OPERATIONS, redo=True)
    assert world(cut) == world(whole)


def test_a_redone_emit_is_not_written_for_those_who_have_had_it(tmp_path: Path) -> None:
    prepare(tmp_path)
    done = tmp_path / "outbox/console/done"
    done.mkdir(parents=True)
    (done / "out_1.json").touch()
    applier(tmp_path)[0].apply(OPERATIONS, redo=True, left=lambda directory, name: name == "msg_1.json")
    assert not (tmp_path / "outbox/console/out_1.json").exists()
    assert not (tmp_path / "pipeline/message_queue/msg_1.json").exists()


def test_a_redone_emit_replaces_half_a_file(tmp_path: Path) -> None:
    prepare(tmp_path)
    queue = tmp_path / "pipeline/message_queue"
    queue.mkdir(parents=True)
    (queue / "msg_1.json").write_bytes(b"\0" * 9)
    applier(tmp_path)[0].apply(OPERATIONS, redo=True, left=lambda directory, name: False)
    assert (queue / "msg_1.json").read_text() == '{"n": 1}\n'


def test_names_and_texts_that_are_no_utf_8_pass(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.json")
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / name).touch()
    applier(tmp_path)[0].apply(
        [
            ("move", f"q/{name}", f"q/done/{name}"),
            ("append", "stream/now.md", "lone \ud800\n\n", "\udfff\n", 1),
        ],
        redo=False,
    )
    assert (tmp_path / "q/done" / name).exists()
    assert (tmp_path / "self/stream/now.md").read_text().endswith("lone ?\n\n")


def test_an_event_of_the_bus_itself_is_dropped_like_any_other(tmp_path: Path) -> None:
    applier(tmp_path)[0].drop_event("page_conflict_1.json", b'{"type": "page.conflict"}\n')
    assert (tmp_path / "inbox/pending/page_conflict_1.json").read_text() == '{"type": "page.conflict"}\n'
