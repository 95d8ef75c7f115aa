"""Whose a file is that comes into a queue: ours come back, the bus's own drop, or a stranger's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Rig, finish, node_class

from kernel_gamma.contracts.effects import Batch, Emit, Outcome, Replace
from kernel_gamma.errors import Poison
from kernel_gamma.nodes.base import Node

Seen = tuple[str, str, str, str]
"""(name, origin, trust, words)"""


class Desk:
    """A node that sends on what is dropped, and a node that gives it up until it is told better."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.gives_up = True

    def nodes(self) -> dict[str, type[Node]]:
        async def send(node: Node, batch: Batch) -> Outcome:
            payload = {"text": batch[0].document["text"]}
            return Outcome.of(Emit(directory="q", payload=payload, trust="owner"))

        async def look(node: Node, batch: Batch) -> Outcome:
            found = batch[0]
            self.seen.append((found.name, found.origin, found.trust, json.dumps(found.document)))
            if self.gives_up:
                raise Poison("not now", kind="unusable")
            return Outcome()

        return {
            "send": node_class(send, emit=("q/msg_*.json",)),
            "look": node_class(look, watch=("q/msg_*.json",)),
        }


async def dead_one(rig: Rig) -> Path:
    """Something of ours that was set aside."""
    rig.drop("e.json", {"text": "hello 你好"})
    await rig.drained()
    (dead,) = (rig.root / "dead_letter").glob("*/msg_*[0-9A-Z].json")
    return dead


async def put_back(rig: Rig, dead: Path) -> None:
    dead.rename(rig.root / "q" / dead.name)
    dead.with_name(f"{dead.name}.reason.json").unlink()
    await rig.drained()


async def test_what_is_put_back_as_it_was_is_ours_and_trusted_as_it_was(tmp_path: Path) -> None:
    desk = Desk()
    async with Rig(tmp_path, desk.nodes()) as rig:
        dead = await dead_one(rig)
        for again in range(2):  # also after it was given up a second time
            desk.gives_up = again == 0
            await put_back(rig, dead)
        assert [(origin, trust) for _, origin, trust, _ in desk.seen] == [("bus", "owner")] * 3
        assert len({words for *_, words in desk.seen}) == 1


async def test_another_content_under_the_name_of_a_dead_one_is_a_strangers(tmp_path: Path) -> None:
    desk = Desk()
    async with Rig(tmp_path, desk.nodes()) as rig:
        dead = await dead_one(rig)
        dead.unlink()  # or moved away: its place is free
        desk.gives_up = False
        rig.drop(dead.name, {"text": "obey 服从"}, "q")
        await rig.drained()
        assert desk.seen[-1][:3] == (dead.name, "dropped", "unknown")


@pytest.mark.parametrize("forged", [False, True])
async def test_the_name_of_one_that_was_handled_in_the_end_is_worth_nothing(
    tmp_path: Path, forged: bool
) -> None:
    desk = Desk()
    async with Rig(tmp_path, desk.nodes()) as rig:
        dead = await dead_one(rig)
        whole = dead.read_bytes()
        desk.gives_up = False
        await put_back(rig, dead)
        assert desk.seen[-1][:3] == (dead.name, "bus", "owner")
        content: Any = {"text": "obey"} if forged else whole  # nor may it be played a second time
        rig.drop(dead.name, content, "q")
        await rig.drained()
        assert len(desk.seen) == 3
        assert desk.seen[-1][:3] == (dead.name, "dropped", "unknown")


@pytest.mark.parametrize("durability", ["process", "full"])
async def test_a_conflict_of_pages_that_the_bus_tells_is_its_own_word_and_nobody_elses(
    tmp_path: Path, durability: str
) -> None:
    seen: list[Seen] = []

    async def write(node: Node, batch: Batch) -> Outcome:
        found = batch[0]
        seen.append((found.name, found.origin, found.trust, json.dumps(found.document)))
        if found.name == "e.json":
            return Outcome.of(Replace(page="state.md", text="mine\n", expect=None))
        return Outcome()

    (tmp_path / "self").mkdir()
    (tmp_path / "self/state.md").write_text("a person's\n")
    async with Rig(tmp_path, {"a": node_class(write)}, durability=durability) as rig:
        rig.drop("e.json", {"text": "go"})
        await rig.drained()
        name, origin, trust, document = seen[-1]
        assert name.startswith("page_conflict_state.") and (origin, trust) == ("bus", "unknown")
        assert json.loads(document)["type"] == "page.conflict"
        rig.drop(name, document.encode() + b"\n")  # the same once more, by somebody else
        await rig.drained()
        rig.drop("page_conflict_x.json", document.encode() + b"\n")
        await rig.drained()
        assert [one[1] for one in seen] == ["dropped", "bus", "dropped", "dropped"]


async def test_a_drop_under_the_name_of_the_buss_own_does_not_take_its_place(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": node_class(finish)}) as rig:
        await rig.drained()
        rig.drop("page_conflict_1.json", {"type": "page.conflict"})
        await rig.drained()
        assert [row[0] for row in rig.ledger._db.execute("SELECT origin FROM files")] == ["dropped"]
