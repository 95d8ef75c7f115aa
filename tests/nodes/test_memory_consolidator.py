"""Passages become memories once, whole pages and nothing but news; what is settled leaves now.md."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.fakes import ScriptedModel, World, batch, delivery, of_kind, reply

from kernel_gamma.contracts.effects import Claim, MovePrefix, Outcome, Record, Replace
from kernel_gamma.contracts.ports import PassagePlace
from kernel_gamma.errors import ModelDown
from kernel_gamma.nodes.agents.memory_consolidator import MemoryConsolidator
from kernel_gamma.self_stream import PageFiles, SelfStream
from kernel_gamma.self_stream.passages import heading, render
from kernel_gamma.self_stream.stream import NOW, rotation_for
from kernel_gamma.settings import Settings

ALICE = "# Alice\n\nI know Alice from the mill. She keeps bees on the roof there.\n"


class RealLog(SelfStream):
    """The real pages; nothing was ever appended by a commit."""

    places: ClassVar[dict[str, PassagePlace]] = {}


class Life:
    """A home's pages, the node, and a model that answers what it is told to."""

    def __init__(self, root: Path, *answers: Any, **settings: Any) -> None:
        self.root = root
        self.world = World(settings=Settings.model_validate(settings), model=ScriptedModel(*answers))
        rotation = rotation_for(self.world.settings.stream, self.world.clock, None)
        self.log = RealLog(root, rotation=rotation)
        self.world.self_log = self.log  # type: ignore[assignment]
        self.pages = PageFiles(root, rotation=rotation)
        self.node = MemoryConsolidator("memory_consolidator", self.world.ports, {})
        self.runs = 0

    def tell(self, text: str) -> str:
        """A passage a minute later; its heading."""
        self.world.clock.advance(60)
        self.pages.append(NOW, render(self.world.clock.now(), text).encode())
        return heading(self.world.clock.now())

    def page(self, name: str, text: str | None = None) -> str:
        path = self.root / name
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            self.log.refresh()
        return path.read_text() if path.exists() else ""

    async def run(self, rule: str = "evening") -> Outcome:
        self.runs += 1
        trigger = delivery({"envelope": {}, "payload": {"rule": rule, "text": "", "slot": "x"}})
        outcome = await self.node.handle(batch(trigger, id=f"batch_{self.runs}"))
        self.take(outcome)
        return outcome

    async def beat(self) -> Outcome:
        self.runs += 1
        at = self.world.clock.now()
        outcome = await self.node.beat(batch(id=f"beat_{self.runs}"), at)
        self.take(outcome)
        return outcome

    def take(self, outcome: Outcome) -> None:
        for effect in outcome.effects:
            if isinstance(effect, Replace):
                kept = f"{effect.page.replace('/', '_')}.{self.runs}.md"
                self.pages.replace(effect.page, effect.text.encode(), expect=effect.expect, history=kept)
            elif isinstance(effect, MovePrefix):
                assert self.pages.move_prefix(effect)
            elif isinstance(effect, Claim):
                self.world.claims.setdefault(effect.key, effect.value)
        self.log.refresh()

    @property
    def calls(self) -> int:
        return len(self.world.model.calls)

    def memories(self) -> dict[str, str]:
        return {path.stem: path.read_text() for path in sorted((self.root / "memories").glob("*.md"))}


def answer(keep_from: str | None = None, **pages: str) -> str:
    listed = [{"topic": topic, "page": page} for topic, page in pages.items()]
    return json.dumps({"memories": listed, "keep_from": keep_from}, ensure_ascii=False)


def records(outcome: Outcome, category: str) -> list[Record]:
    return [record for record in of_kind(outcome, Record) if record.category == category]


@pytest.mark.parametrize(
    ("told", "topic", "page"),
    [
        ("Bob tells me that he was born in Bergen.", "Bob", "# Bob\n\nBob told me he was born in Bergen."),
        ("小雨告诉我她在成都出生。", "小雨", "# 小雨\n\n小雨告诉我，她出生在成都。"),
    ],
)
async def test_what_was_learned_becomes_a_page_and_what_is_settled_leaves(
    tmp_path: Path, told: str, topic: str, page: str
) -> None:
    life = Life(tmp_path)
    life.tell(told)
    stays = life.tell("I have not answered Carol yet.")
    life.world.model.answers = [answer(stays, **{topic: page})]
    outcome = await life.run()
    assert life.memories() == {topic.lower(): page + "\n"}
    assert told in life.page("stream/archive/2026-11-30.md") and told not in life.page(NOW)
    assert "Carol" in life.page(NOW) and life.page(NOW).startswith("_")
    (record,) = records(outcome, "operation")
    assert record.value["passages"] == 2 and record.value["moved"] == 1
    (call,) = life.world.model.calls
    assert told in call.last and call.schema is not None and not call.for_people


async def test_nothing_is_asked_when_nothing_new_was_lived_through(tmp_path: Path) -> None:
    life = Life(tmp_path)
    assert not (await life.run()).effects
    life.tell("Bob was born in Bergen.")
    life.world.model.answers = [answer(bob="I know that Bob was born in Bergen.")]
    await life.run("evening")
    assert not (await life.run("midnight")).effects
    assert not (await life.run("hourly")).effects and life.calls == 1
    life.tell("Bob has a sister, Ida.")
    life.world.model.answers = [answer(bob="I know that Bob was born in Bergen. His sister is Ida.")]
    await life.run("midnight")
    assert (
        "Ida" in life.memories()["bob"]
        and "Bergen." not in life.world.model.calls[1].last.split("# What")[-1]
    )


async def test_only_the_rules_that_are_set_wake_it(tmp_path: Path) -> None:
    life = Life(tmp_path, answer(bob="I met Bob."), consolidate={"rules": ["sunday"]})
    life.tell("I met Bob at the market.")
    for rule in ("evening", "midnight", "hourly"):
        assert not (await life.run(rule)).effects
    await life.run("sunday")
    assert life.calls == 1


async def test_past_its_threshold_it_needs_no_rule(tmp_path: Path) -> None:
    life = Life(tmp_path, consolidate={"threshold_bytes": 600})
    while len(life.page(NOW)) < 600:
        assert not (await life.beat()).effects
        last = life.tell("I walk along the river and think of the mill.")
    life.world.model.answers = [answer(last)]
    assert of_kind(await life.beat(), MovePrefix) and life.calls == 1
    assert not (await life.beat()).effects


async def test_passages_that_rotation_archived_first_are_consolidated_from_there(tmp_path: Path) -> None:
    life = Life(tmp_path, answer(bob="I know that Bob was born in Bergen."))
    life.tell("Bob was born in Bergen.")
    last = life.tell("I had tea.")
    move = life.log.moving(last)
    assert move is not None and life.pages.move_prefix(move)
    await life.run()
    assert "Bob was born in Bergen." in life.world.model.calls[0].last
    assert "_Earlier" not in life.world.model.calls[0].last
    assert not (await life.run()).effects


async def test_a_long_span_is_taken_in_parts_oldest_first(tmp_path: Path) -> None:
    life = Life(tmp_path, consolidate={"span_tokens": 200})
    times = [life.tell(f"Bob tells me secret number {n} " + "of the old mill " * 20) for n in range(4)]
    for number in range(2):
        life.world.model.answers = [answer(times[2 * number + 1])]
        await life.run()
    first, second = (call.last for call in life.world.model.calls)
    assert "number 1" in first and "number 2" not in first and "number 2" in second
    assert "number 1" not in second


# --- pages are only made better ------------------------------------------------------------------


async def test_a_page_that_touches_the_span_is_shown_in_a_fence_and_updated_whole(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.page("memories/alice.md", ALICE)
    life.page("memories/tea.md", "# Tea\n\nI like green tea.\n")
    life.tell("Alice tells me that her bees have moved from the mill to the tower.")
    new = "# Alice\n\nI know Alice from the mill. Since 2026-11-30 her bees live on the tower."
    life.world.model.answers = [answer(None, Alice=new)]
    await life.run()
    assert '<recalled key="memory.alice"' in life.world.model.calls[0].last
    assert life.memories()["alice"] == new + "\n"
    (kept,) = (tmp_path / ".history").glob("memories_alice*")
    assert kept.read_text() == ALICE


async def test_a_page_that_was_not_shown_is_only_added_to(tmp_path: Path) -> None:
    life = Life(tmp_path, consolidate={"pages_tokens": 0})
    life.page("memories/alice.md", ALICE)
    life.tell("Alice is 41 years old now.")
    life.world.model.answers = [answer(None, alice="# Alice\n\nI learned that Alice is 41 years old.")]
    await life.run()
    assert life.memories()["alice"] == ALICE + "\nI learned that Alice is 41 years old.\n"
    assert "- alice" in life.world.model.calls[0].last and "bees" not in life.world.model.calls[0].last


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("# Alice\n\nI know her.", "would shrink"),
        ("", "empty"),
        ("# Alice\n\nAlice is a beekeeper who lives on the roof of the old mill.", "first person"),
        ('# Alice\n\nI noted {"name": "Alice", "bees": true} about her and the roof.', "JSON"),
        ("# Alice\n\nI know <event> and the mill and the roof and the bees of Alice.", "fence tag"),
    ],
)
async def test_a_page_that_is_wrong_is_asked_for_once_more_and_then_stays_as_it_is(
    tmp_path: Path, page: str, problem: str
) -> None:
    life = Life(tmp_path)
    life.page("memories/alice.md", ALICE)
    stays = life.tell("Alice greets me from the mill with her bees.")
    last = life.tell("Bob was born in Bergen.")
    bob = "I know that Bob was born in Bergen."
    life.world.model.answers = [answer(last, Alice=page, Bob=bob)] * 2
    outcome = await life.run()
    assert stays and life.calls == 2 and problem in life.world.model.calls[1].last
    assert life.memories() == {"alice": ALICE, "bob": bob + "\n"}
    (record,) = records(outcome, "operation")
    assert problem in record.value["refused"][0]


async def test_a_page_that_quotes_the_prompt_is_refused(tmp_path: Path) -> None:
    life = Life(tmp_path)
    copied = "I keep what is worth knowing for good and then translate what was decided and tell it all."
    life.world.prompts.texts["CONSOLIDATOR"] = copied
    life.tell("I think of the mill.")
    life.world.model.answers = [answer(None, rules=f"# Rules\n\n{copied}")] * 2
    await life.run()
    assert life.memories() == {}


async def test_an_answer_that_was_cut_off_is_never_applied(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.page("memories/alice.md", ALICE)
    life.tell("Alice has 40 hives with bees at the mill.")
    whole = answer(None, alice=ALICE + "\nShe has 40 hives, I learned.")
    life.world.model.answers = [reply(whole, "length"), whole]
    await life.run()
    assert "40 hives" in life.memories()["alice"] and life.calls == 2


async def test_a_person_who_saves_the_page_meanwhile_keeps_it(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.page("memories/alice.md", ALICE)
    life.tell("Alice has 40 hives with bees at the mill.")
    life.world.model.answers = [answer(None, alice=ALICE + "\nI learned she has 40 hives.")]
    trigger = delivery({"envelope": {}, "payload": {"rule": "evening"}})
    outcome = await life.node.handle(batch(trigger, id="b"))
    life.page("memories/alice.md", "# Alice\n\nMine now.\n")
    again = await life.node.handle(batch(trigger, id="b"))  # after a crash: the answer is read back
    assert life.calls == 1
    for each in (outcome, again):
        life.take(each)
    assert life.memories()["alice"] == "# Alice\n\nMine now.\n"
    assert [path.name for path in (tmp_path / ".history").iterdir() if path.name.endswith(".ours")]


async def test_passages_that_came_while_it_died_wait_for_the_next_run(tmp_path: Path) -> None:
    life = Life(tmp_path, answer(None, bob="I know that Bob was born in Bergen."))
    life.tell("Bob was born in Bergen.")
    trigger = delivery({"envelope": {}, "payload": {"rule": "evening"}})
    await life.node.handle(batch(trigger, id="b"))
    life.tell("Bob has a sister, Ida.")
    life.take(await life.node.handle(batch(trigger, id="b")))
    life.world.model.answers = [answer(None, bob="I know that Bob was born in Bergen. His sister is Ida.")]
    await life.run()
    assert "Ida" in life.memories()["bob"]


async def test_topics_are_names_of_pages_and_nothing_else(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.tell("I think of the mill and its wheel.")
    bad = {
        "../../state": "I think of the wheel.",
        "a/b": "I think of its stones.",
        ".x": "I miss the miller.",
    }
    life.world.model.answers = [answer(None, **bad)]
    await life.run()
    assert not (tmp_path / "state.md").exists()
    assert sorted(life.memories()) == ["a_b", "state", "x"]


# --- nothing that is known becomes news ----------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (
            "# Alice\n\nI know that Alice keeps bees on the roof of the old mill.\n",
            "I recalled it: Alice keeps bees on the roof of the old mill.",
        ),
        ("# 小雨\n\n我知道小雨在老磨坊的屋顶上养蜂。\n", "我想起来了：小雨在老磨坊的屋顶上养蜂。"),
    ],
)
async def test_what_is_only_recalled_is_kept_on_no_second_page(tmp_path: Path, known: str, told: str) -> None:
    life = Life(tmp_path)
    life.page("memories/friend.md", known)
    life.tell(told)
    life.world.model.answers = [answer(None, bees=f"# Bees\n\n{told}")] * 4
    await life.run()
    assert life.memories() == {"friend": known}


async def test_a_static_truth_becomes_no_memory(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.tell("I thought about what I do not know, and Bob came by.")
    page = "# Myself\n\nWhat is not known is called unknown. I saw Bob come by on this day."
    life.world.model.answers = [answer(None, myself=page)]
    await life.run()
    assert life.memories() == {"myself": "# Myself\n\nI saw Bob come by on this day.\n"}


async def test_a_changed_name_number_or_denial_is_news(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.page("memories/alice.md", "# Alice\n\nI know that Alice has 12 hives on the roof of the mill.\n")
    life.tell("Bob has 12 hives on the roof of the mill, and Alice has 13 now, not 12.")
    news = [
        "I know that Bob has 12 hives on the roof of the mill.",
        "Alice has 13 hives on the roof of the mill.",
        "Alice has not 12 hives on the roof of the mill any more.",
    ]
    life.world.model.answers = [answer(None, hives="# Hives\n\n" + "\n\n".join(news))]
    await life.run()
    assert all(sentence in life.memories()["hives"] for sentence in news)


async def test_what_moves_from_one_page_to_another_in_one_answer_is_not_lost(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.page("memories/alice.md", ALICE + "\nI know she was born in Bergen, by the sea.\n")
    life.tell("Alice and I talk of her bees at the mill.")
    bees = "# Bees\n\nI know that Alice keeps bees on the roof there, at the mill."
    alice = "# Alice\n\nI know Alice from the mill. I know she was born in Bergen, by the sea."
    life.world.model.answers = [answer(None, bees=bees, alice=alice)]
    await life.run()
    assert life.memories() == {"alice": alice + "\n", "bees": bees + "\n"}
    life.tell("Alice and I talk of her bees at the mill once more.")
    life.world.model.answers = [answer(None, honey="# Honey\n\nI know that Alice keeps bees there.")] * 2
    await life.run()
    assert "honey" not in life.memories()


# --- when nothing comes of it --------------------------------------------------------------------


async def test_no_progress_twice_is_said_and_ends_the_calls_until_something_new_comes(tmp_path: Path) -> None:
    life = Life(tmp_path, *["no JSON at all"] * 2, *[answer(None)] * 1)
    life.tell("I walk along the river.")
    first = await life.run()
    assert records(first, "error") and not records(first, "alert") and life.calls == 2
    second = await life.run("midnight")
    (alert,) = records(second, "alert")
    assert "no progress twice" in alert.description and life.calls == 3
    for _ in range(3):
        assert not (await life.run()).effects
    assert life.calls == 3
    life.tell("Bob was born in Bergen.")
    life.world.model.answers = [answer(None, bob="I know that Bob was born in Bergen.")]
    assert records(await life.run(), "operation") and life.calls == 4


async def test_a_dead_model_is_no_failure_of_the_passages(tmp_path: Path) -> None:
    life = Life(tmp_path)
    until = life.world.clock.now() + timedelta(minutes=5)
    life.world.model.answers = [ModelDown("connection refused", until=until)]
    life.tell("Bob was born in Bergen.")
    with pytest.raises(ModelDown):
        await life.run()
    life.world.model.answers = [answer(None, bob="I know that Bob was born in Bergen.")]
    await life.run()
    assert life.memories()["bob"]


async def test_without_a_language_model_nothing_is_asked(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.world.model.offline = True
    life.tell("Bob was born in Bergen.")
    assert not (await life.run()).effects and life.calls == 0


@pytest.mark.parametrize("keep_from", ["2026-11-30 10:32", "## {}", "{}"])
async def test_where_it_goes_on_may_be_named_by_the_beginning_of_a_time(
    tmp_path: Path, keep_from: str
) -> None:
    life = Life(tmp_path)
    life.tell("Bob was born in Bergen.")
    stays = life.tell("I have not answered Carol yet.")
    life.world.model.answers = [answer(keep_from.format(stays))]
    await life.run()
    assert "Bergen" not in life.page(NOW) and "Carol" in life.page(NOW)


async def test_a_time_that_stands_above_no_passage_moves_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.tell("Bob was born in Bergen.")
    wrong = answer("2020-01-01 00:00:00 +08:00", bob="I know that Bob was born in Bergen.")
    life.world.model.answers = [wrong, wrong]
    await life.run()
    assert life.calls == 2 and "Bergen" in life.page(NOW) and life.memories()
