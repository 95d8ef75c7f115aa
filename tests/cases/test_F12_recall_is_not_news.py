"""F12 recall is not news, as far as the store goes: a fact that is recalled two hundred times stands once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernel_gamma.contracts.truths import Search
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
