"""F11 cut rewrite: a consolidator's answer that ends with finish_reason length changes no page."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness import QUICK, drop
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.configuration import lay_out
from kernel_gamma.mind import Mind
from kernel_gamma.self_stream.passages import render
from kernel_gamma.settings import Settings

ALONE = "nodes:\n  - {id: memory_consolidator, class: MemoryConsolidator, role: quality}\n"
PAGES = {
    "en": (
        "alice",
        "# Alice\n\nI know Alice from the mill. She keeps bees there, and I help her in spring.\n",
    ),
    "zh": ("小雨", "# 小雨\n\n我在磨坊认识了小雨。她在那里养蜂，春天我去帮忙。\n"),
}
NEWS = {"en": "She told me that she has 12 hives now.", "zh": "小雨在磨坊告诉我，她养蜂的蜂箱现在有十二个。"}


class Consolidator:
    """Answers what it is told to; counts."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked = 0

    def __call__(self, request: ParsedRequest) -> Answer:
        self.asked += 1
        return self.answers.pop(0)


def page_answer(topic: str, page: str, keep_from: str | None = None, **how: Any) -> Answer:
    found = {"memories": [{"topic": topic, "page": page}], "keep_from": keep_from}
    return Answer(json.dumps(found, ensure_ascii=False), **how)


async def trigger(mind: Mind, slot: str) -> None:
    document = {"envelope": {}, "payload": {"rule": "evening", "slot": slot, "text": "", "idle": False}}
    drop(mind.data, f"evening_{slot}.json", document, "rhythm/triggers")
    async with asyncio.timeout(20):
        assert await mind.drained() == ""


def truths(mind: Mind, category: str) -> list[str]:
    found = mind.keeping.store.page(limit=50, category=category)[1]
    return [f"{truth.description} {json.dumps(truth.value, ensure_ascii=False)}" for truth in found]


@pytest.mark.parametrize("language", PAGES)
async def test_F11_a_cut_answer_changes_nothing_and_the_next_good_run_works(
    tmp_path: Path, language: str
) -> None:
    topic, old = PAGES[language]
    lay_out(tmp_path)
    (tmp_path / "config/topology.yaml").write_text(ALONE)
    script = Consolidator()
    whole = f"{old.strip()} {NEWS[language]}"
    cut = page_answer(topic, whole, finish_reason="length")
    with ScriptedServer(script) as server:
        settings = Settings.model_validate({"bus": QUICK, "clock": {"zone": "Asia/Shanghai"}})
        environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
        mind = Mind(tmp_path, settings, environ)
        now = mind.data / "self/stream/now.md"
        now.parent.mkdir(parents=True, exist_ok=True)
        now.write_text(render(mind.clock.now(), NEWS[language]))
        page = mind.data / f"self/memories/{topic}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(old)
        before = now.read_bytes()
        await mind.start()
        running = asyncio.create_task(mind.run())
        try:
            script.answers = [cut, cut]
            await trigger(mind, "20261130T220000Z")
            assert script.asked == 2 and page.read_text() == old and now.read_bytes() == before
            await mind.bus.disk.checkpoint()
            mind.keeping.recorder.flush()
            assert any("cut off" in told or "截断" in told for told in truths(mind, "error"))
            assert not list((mind.data / "self/.history").iterdir())
            # A page that lost much of itself is asked for again, and stays if it comes again.
            script.answers = [page_answer(topic, old[: len(old) // 2 - 4])] * 2
            await trigger(mind, "20261201T220000Z")
            assert page.read_text() == old and now.read_bytes() == before
            mind.keeping.recorder.flush()
            assert any("no progress twice" in told for told in truths(mind, "alert"))
            await mind.bus.settle()
            await trigger(mind, "20261202T220000Z")
            assert script.asked == 4, "nothing new was lived through: nothing is asked"
            status = mind.status()["memory"]
            assert isinstance(status, dict) and "would shrink" in str(status["stopped"])
            with now.open("a") as stream:
                stream.write(render(mind.clock.now(), f"{NEWS[language]} I 我"))
            script.answers = [page_answer(topic, whole)]
            await trigger(mind, "20261203T220000Z")
            assert page.read_text() == whole + "\n"
            (kept,) = (mind.data / "self/.history").iterdir()
            assert kept.read_text() == old
            assert mind.status()["memory"]["stopped"] is None  # type: ignore[index]
        finally:
            await mind.stop()
            await running
