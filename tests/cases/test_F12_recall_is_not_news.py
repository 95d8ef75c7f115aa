"""F12 recall is not news: what is recalled two hundred times stands once, in the store and in a prompt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.fakes import PLAIN_PROMPTS, FakeClock, MemoryPrompts, MemorySelfLog, World

from kernel_gamma.context.own_parts import OwnParts
from kernel_gamma.contracts.context import Request
from kernel_gamma.contracts.ports import Snippet
from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.self_stream.passages import render
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.truths.self_index import SelfIndex
from kernel_gamma.truths.store import open_truths

FACTS = {
    "en": (
        "Alice keeps bees on the roof of the old mill.",
        "I recalled it: {} I told her so.",
        "bees roof mill",
    ),
    "zh": ("小梅在老磨坊的屋顶上养蜂。", "我想起来了：{} 我这样告诉了她。", "屋顶 养蜂"),
}


@pytest.mark.parametrize("language", FACTS)
def test_F12_after_200_turns_about_it_a_fact_is_one_memory_and_one_result_a_level(
    tmp_path: Path, language: str
) -> None:
    fact, turn, query = FACTS[language]
    root = tmp_path / "self"
    (root / "memories").mkdir(parents=True)
    (root / "stream").mkdir()
    (root / "memories/alice.md").write_text(f"# Alice\n\n{fact}\n", encoding="utf-8")
    clock = SystemClock("UTC")
    store = open_truths(tmp_path / "memory.db", clock)
    index = SelfIndex(store, PastFiles(root, clock.zone), clock)
    begin = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
    told = ""
    for number in range(200):
        told += render(begin + timedelta(minutes=number), turn.format(fact)) + "\n"
        (root / "stream/now.md").write_text(told, encoding="utf-8")
        if number % 20 == 19:
            index.refresh()
            recalled = store.search(Search(query=query))
            assert [one.truth.level for one in recalled.results].count("L3") == 1

    assert store.categories() == {"stream": 200, "memory": 1}
    found = store.search(Search(query=query)).results
    assert sorted(one.truth.level or "" for one in found) == ["L1", "L3"]
    assert fact in next(one.excerpt for one in found if one.truth.level == "L3")
    store.close()


@pytest.mark.parametrize("language", FACTS)
def test_F12_a_prompt_holds_a_fact_once_however_often_it_was_recalled(tmp_path: Path, language: str) -> None:
    fact, turn, query = FACTS[language]
    clock = FakeClock()
    store = open_truths(tmp_path / "memory.db", clock)
    log = MemorySelfLog({})
    entries = [NewTruth(key="memory.alice", value={"page": "memories/alice.md", "text": fact}, level="L3")]
    for number in range(200):
        told = turn.format(fact)
        log.tell(f"psg_{number}", told)
        value = {"page": "stream/now.md", "heading": "", "text": told}
        entries.append(NewTruth(key=f"stream.p{number}", value=value, level="L1"))
    store.put_own(entries)
    log.found = [Snippet("memory.alice", "", fact)]
    world = World(truths=store)
    settings = world.settings
    count = partial(world.model.count_tokens, "quality")
    own = OwnParts(MemoryPrompts(PLAIN_PROMPTS), log, count, settings.internalizer, settings.context)
    request = Request(
        task=query,
        now=clock.now(),
        language="en",
        parts=[own.stream("en"), own.memory(own.recollected(query), "en"), own.task(query, "en")],
    )
    assembled = world.assembler.assemble(request)
    assert assembled.turns[-1].text.count(fact) == 1
    left_out = [entry for entry in assembled.audit["parts"] if not entry["kept"]]
    assert left_out and all(entry["reason"].startswith(("a duplicate", "over the")) for entry in left_out)
    assert store.categories() == {"stream": 200, "memory": 1}
    store.close()
