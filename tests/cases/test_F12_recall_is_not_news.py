"""F12 recall is not news: what is recalled 200 times stands once, in store, prompt and memory pages."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.fakes import PLAIN_PROMPTS, FakeClock, MemoryPrompts, MemorySelfLog, World
from tests.harness import QUICK, drop
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.configuration import lay_out
from kernel_gamma.context.own_parts import OwnParts
from kernel_gamma.contracts.context import Request
from kernel_gamma.contracts.ports import Snippet
from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.mind import Mind
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.self_stream.passages import render
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.settings import Settings
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


TALK = {
    "en": (
        "Tell me again where Alice keeps her bees!",
        "Someone asks about the bees once more. I decide to recall “bees roof mill”.",
        "I recalled it: {} So I told it once more.",
        "# Bees\n\nI recalled it: {} Tell apart what is known, guessed and unknown.",
    ),
    "zh": (
        "再告诉我一次，小梅在哪里养蜂？",
        "又有人问起养蜂的事。我决定回想“屋顶 养蜂”。",
        "我想起来了：{} 于是我又说了一遍。",
        "# 养蜂\n\n我想起来了：{}",
    ),
}
TURNS = 200


@pytest.mark.parametrize("language", FACTS)
async def test_F12_200_turns_about_one_fact_each_with_recall_leave_it_told_once(
    tmp_path: Path, language: str
) -> None:
    fact, _, query = FACTS[language]
    asks, decides, recalls, page = TALK[language]

    def answer(request: ParsedRequest) -> Answer:
        if request.agent == "memory_consolidator":
            memories = [{"topic": f"bees {request.number}", "page": page.format(fact)}]
            last = re.findall(r"(?m)^## (.+)$", request.last)[-1]
            return Answer(json.dumps({"memories": memories, "keep_from": last}, ensure_ascii=False))
        if request.agent == "externalizer":
            wanted = decides in (request.passage or "")
            actions = [{"tool": "recall", "arguments": {"query": query}}] if wanted else []
            return Answer(json.dumps({"thought": "", "actions": actions}))
        told = [decides if event["type"] == "message" else recalls.format(fact) for event in request.events]
        return Answer("\n\n".join(told))

    lay_out(tmp_path)
    limit = 16_384
    with ScriptedServer(answer) as server:
        settings = Settings.model_validate(
            {
                "bus": QUICK,
                "preprocessor": {"debounce_sec": 0},
                "budget": {"tokens_per_day": 0},
                "clock": {"zone": "Asia/Shanghai"},
                "stream": {"max_bytes": limit},
                "model": {"stream": "off"},
            }
        )
        mind = Mind(tmp_path, settings, {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"})
        root = mind.data / "self"
        (root / "memories").mkdir(parents=True, exist_ok=True)
        (root / "memories/friend.md").write_text(
            f"# Friend\n\nI know this 我知道：{fact}\n", encoding="utf-8"
        )
        await mind.start()
        running = asyncio.create_task(mind.run())
        try:
            for number in range(TURNS):
                drop(mind.data, f"{number}.json", {"text": asks, "from": f"p{number % 7}"})
                if number % 25 == 24:
                    async with asyncio.timeout(60):
                        assert await mind.drained() == ""
                    document = {"envelope": {}, "payload": {"rule": "evening", "slot": str(number)}}
                    drop(mind.data, f"evening_{number}.json", document, "rhythm/triggers")
                    async with asyncio.timeout(60):
                        assert await mind.drained() == ""
                    assert (root / "stream/now.md").stat().st_size <= limit
            pages = {path.stem: path.read_text(encoding="utf-8") for path in (root / "memories").glob("*.md")}
            assert sum(text.count(fact) for text in pages.values()) == 1, pages
            assert list(pages) == ["friend"]
            assert 2 <= server.count("memory_consolidator") <= TURNS // 25
            told = [p.read_text(encoding="utf-8") for p in (root / "stream/archive").glob("*.md")]
            whole = "".join([*told, (root / "stream/now.md").read_text(encoding="utf-8")])
            assert whole.count(decides) >= TURNS // 25 and whole.count(fact) >= TURNS // 25
            await mind.keeping.look()
            assert mind.keeping.store.categories()["memory"] == 1
        finally:
            await mind.stop()
            await running
