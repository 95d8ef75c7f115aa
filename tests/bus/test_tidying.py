"""Old files and rows go once a day, what anybody still needs stays, and a number is never given twice."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from tests.harness import Rig, SteppedClock, finish, forward, node_class

from kernel_gamma.bus.keep_times import KeepTimes
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.tidying import Tidying, TidyingPorts
from kernel_gamma.contracts.effects import Append, Batch, Outcome, PassageRef
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import Park
from kernel_gamma.nodes.base import Node

DAY = 86_400


class Life:
    """A bus on a clock that can be set forward, and the tidying of its folder."""

    def __init__(self, root: Path, nodes: Mapping[str, type[Node]], keep: KeepTimes | None = None) -> None:
        self.clock = SteppedClock("UTC")
        self.root, self.nodes = root, nodes
        self.keep = keep or KeepTimes()
        self.told: list[Mapping[str, Json]] = []
        self.rig = Rig(root, nodes, clock=self.clock)

    async def __aenter__(self) -> Life:
        await self.rig.start()
        self.tidying = Tidying(
            TidyingPorts(
                root=self.root,
                clock=self.clock,
                keep=self.keep,
                disk=self.rig.bus.disk,
                ledger=self.root / "ledger.db",
                real_time=False,
                tell=self.told.append,
            )
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.tidying.stop()
        await self.rig.stop()

    async def look(self) -> None:
        await self.rig.until(lambda: not self.rows("commits WHERE synced = 0"))
        self.tidying.look()
        await self.tidying.finished()

    async def pass_days(self, days: int) -> None:
        """A look each day: a leap of the clock is not believed at once."""
        for _ in range(days // 5):
            self.clock.steps += 5 * DAY
            await self.look()

    def rows(self, table: str) -> int:
        ledger = Ledger.open(self.root / "ledger.db", read_only=True)
        (found,) = ledger._db.execute(f"SELECT count(*) FROM {table}").fetchone()
        ledger.close()
        return int(found)


CHAIN: dict[str, type[Node]] = {
    "first": node_class(forward, emit=("pipeline/message_queue/msg_*.json",)),
    "second": node_class(finish, watch=("pipeline/message_queue/msg_*.json",)),
}


async def test_a_day_long_past_leaves_no_file_and_no_row(tmp_path: Path) -> None:
    async with Life(tmp_path, CHAIN) as life:
        for number in range(20):
            life.rig.drop(f"{number}.json", {"text": f"早 {number}"})
        await life.rig.drained()
        await life.look()
        assert len(life.rig.names("inbox/pending/done")) == 20
        await life.pass_days(85)
        assert (life.told, life.rows("files")) == ([], 40)
        await life.pass_days(10)
        assert life.rig.names("inbox/pending/done") == life.rig.names("pipeline/message_queue/done") == []
        # the newest numbers stay: they are counted on
        assert (life.rows("files"), life.rows("commits")) == (1, 1)
        assert (life.rows("deliveries"), life.rows("lookup")) == (1, 0)
        rows, files = life.told
        assert rows == {"ledger": {"files": 39, "commits": 39}}  # to the hour; folders by whole days
        assert files == {"done": 40}
        await life.pass_days(10)
        assert len(life.told) == 2


async def test_numbers_go_on_and_what_is_dropped_again_is_new(tmp_path: Path) -> None:
    async with Life(tmp_path, CHAIN) as life:
        life.rig.drop("a.json")
        await life.rig.drained()
        await life.look()
        await life.pass_days(100)
        (before,) = life.rig.ledger.one("last_seq") or (0,)
    again = Rig(tmp_path, CHAIN, clock=life.clock)
    async with again:
        again.drop("a.json")
        await again.drained()
        (after,) = again.ledger.one("last_seq") or (0,)
        assert after > before
        assert again.names("inbox/pending/done") == ["a.json"]


async def wait_for_ever(node: Node, batch: Batch) -> Outcome:
    raise Park("the model is away", until=None)


async def test_what_waits_keeps_all_it_came_from(tmp_path: Path) -> None:
    nodes = {**CHAIN, "second": node_class(wait_for_ever, watch=("pipeline/message_queue/msg_*.json",))}
    async with Life(tmp_path, nodes) as life:
        life.rig.drop("a.json", {"text": "do not forget me"})
        await life.rig.until(lambda: life.rig.names("inbox/pending/done"))
        await life.look()
        await life.pass_days(200)
        assert life.rig.names("inbox/pending/done") == ["a.json"]
        assert (life.rows("files"), life.rows("commits")) == (2, 1)
        assert life.told == []
    async with Life(tmp_path, CHAIN) as life:
        life.clock.steps += 300 * DAY
        await life.rig.drained()
        assert len(life.rig.names("pipeline/message_queue/done")) == 1


async def tell_passage(node: Node, batch: Batch) -> Outcome:
    text = f"## 2026-11-30 10:00:0{batch[0].seq} +00:00\n\nI saw it.\n"
    passage = PassageRef(node.ports.ids.new("psg"), "experience")
    return Outcome.of(Append(page="stream/now.md", text=text, passage=passage))


async def test_the_place_of_a_passage_is_known_while_it_stands_in_now_md(tmp_path: Path) -> None:
    async with Life(tmp_path, {"speaker": node_class(tell_passage)}) as life:
        for number in range(4):
            life.rig.drop(f"{number}.json")
        await life.rig.drained()
        await life.look()
        await life.pass_days(120)
        assert (life.rows("passages"), life.rows("commits")) == (4, 1)
        page = tmp_path / "self/stream/now.md"
        passages = page.read_text().split("## ")
        page.write_text("## ".join(["", *passages[3:]]))  # the first two were moved to the archive
        await life.pass_days(5)
        assert life.rows("passages") == 2
        assert life.told[-1] == {"ledger": {"passages": 2}}


@pytest.mark.parametrize("gone", [True, False])
async def test_a_file_set_aside_is_known_again_for_as_long_as_it_lies_there(
    tmp_path: Path, gone: bool
) -> None:
    async def refuse(node: Node, batch: Batch) -> Outcome:
        from kernel_gamma.errors import Poison

        raise Poison("invalid", "no")

    nodes = {**CHAIN, "second": node_class(refuse, watch=("pipeline/message_queue/msg_*.json",))}
    async with Life(tmp_path, nodes) as life:
        life.rig.drop("a.json")
        life.rig.drop("b.json")
        await life.rig.drained()
        await life.look()
        (first, *_) = sorted((tmp_path / "dead_letter").glob("*/msg_*[0-9A-Z].json"))
        if gone:
            first.unlink()
        await life.pass_days(100)
        # the newest row stays in any case
        assert life.rows("files WHERE outcome = 'dead'") == (1 if gone else 2)


async def test_answers_of_models_go_before_what_they_cost(tmp_path: Path) -> None:
    async def ask(node: Node, batch: Batch) -> Outcome:
        async def run() -> Json:
            return {"text": "a long answer", "usage": {"prompt_tokens": 7}}

        await node.ports.journal.once(batch, "ask", run, kind="model")
        return Outcome()

    async with Life(tmp_path, {"asker": node_class(ask)}) as life:
        life.rig.drop("a.json")
        await life.rig.drained()
        await life.look()
        await life.pass_days(40)
        assert life.rows("journal WHERE result IS NULL AND prompt_tokens = 7") == 1
        assert life.told == [{"ledger": {"answers": 1}}]
        await life.pass_days(60)
        assert life.rows("journal") == 0


async def test_a_clock_that_leaps_is_believed_on_the_second_day(tmp_path: Path) -> None:
    async with Life(tmp_path, CHAIN) as life:
        life.rig.drop("a.json")
        await life.rig.drained()
        await life.look()
        life.clock.steps += 4000 * DAY  # a battery that is empty
        await life.look()
        assert life.rig.names("inbox/pending/done") == ["a.json"]
        life.clock.steps = DAY
        await life.look()
        assert life.rig.names("inbox/pending/done") == ["a.json"]
        assert life.told == []


async def test_freed_pages_leave_the_file(tmp_path: Path) -> None:
    async with Life(tmp_path, CHAIN, KeepTimes(ledger=timedelta(days=20))) as life:
        for number in range(300):
            life.rig.drop(f"{number}.json", {"text": "x" * 3000})
        await life.rig.drained()
        await life.look()
        (before,) = life.rig.ledger._db.execute("PRAGMA page_count").fetchone()
        await life.pass_days(30)
        (after,) = life.rig.ledger._db.execute("PRAGMA page_count").fetchone()
        assert after < before / 2


async def test_a_look_that_was_cut_short_is_told_by_the_next(tmp_path: Path) -> None:
    async with Life(tmp_path, CHAIN) as life:
        life.rig.drop("a.json")
        await life.rig.drained()
        await life.look()
        await life.rig.bus.disk.attempt(lambda ledger: ledger.run("set_meta", "tidying since", "yesterday"))
        await life.pass_days(5)
        (told,) = life.told
        assert "yesterday" in str(told["cut_short"])
        await life.pass_days(5)
        assert len(life.told) == 1
