"""F15 search in Chinese, Japanese and Korean: words of one, two and more signs are found wherever they stand.

The same questions are put to the store, to the command line and over HTTP.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kernel_gamma.configuration import lay_out
from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.truths.self_index import SelfIndex
from kernel_gamma.truths.store import open_truths

PATIENCE_SEC = 60.0
ENVIRON: Mapping[str, str] = {"KGAMMA_CLOCK__ZONE": "UTC", "PYTHONUNBUFFERED": "1"}

FACTS: Mapping[str, str] = {
    "zh": "昨天小明在西湖边喝了一杯龙井茶，然后乘地铁回家。",
    "zh tw": "她說颱風要來了，陽台的盆栽都搬進屋裡。",
    "ja": "田中さんは毎朝コーヒーを飲んでから会議室へ行きます。",
    "ko": "민수는 주말마다 고양이와 함께 공원에서 산책을 한다.",
    "mixed": "部署v2版本时Redis连接池爆满，重启worker三次才恢复。",
    "full width": "请把ＡＰＩ密钥换成ＰＹＴＨＯＮ脚本生成的，限额５０００次。",
    "emoji": "生日蛋糕🎂端上来时，奶奶笑着比了个👍🏽。",
    "rare": "𠮷野家的牛丼比别处便宜。",
    "other": "I watered the tomatoes and fixed the squeaky gate.",
}
NOISE = (
    "今天天气很好，适合散步。",
    "会议改到下午三点。",
    "数据库备份已经完成。",
    "駅まで歩いて十分かかる。",
    "오늘은 비가 온다.",
    "The build passed on the second try.",
)

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("茶", "zh"),
    ("湖", "zh"),
    ("西湖", "zh"),
    ("地铁", "zh"),
    ("铁回", "zh"),
    ("龙井茶", "zh"),
    ("西湖边喝", "zh"),
    ("小明喝了什么茶？", "zh"),
    ("颱", "zh tw"),
    ("颱風", "zh tw"),
    ("陽台的盆栽", "zh tw"),
    ("朝", "ja"),
    ("田中", "ja"),
    ("ｺｰﾋｰ", "ja"),
    ("コーヒー", "ja"),
    ("会議室", "ja"),
    ("飲んでから", "ja"),
    ("민", "ko"),
    ("공원", "ko"),
    ("고양이", "ko"),
    ("고양이와 산책", "ko"),
    ("Redis", "mixed"),
    ("redis连接池", "mixed"),
    ("爆满", "mixed"),
    ("v2版本", "mixed"),
    ("重启WORKER", "mixed"),
    ("API", "full width"),
    ("api密钥", "full width"),
    ("python脚本", "full width"),
    ("ｐｙｔｈｏｎ", "full width"),
    ("5000", "full width"),
    ("５０００", "full width"),
    ("🎂", "emoji"),
    ("👍", "emoji"),
    ("奶奶👍", "emoji"),
    ("蛋糕🎂", "emoji"),
    ("𠮷", "rare"),
    ("𠮷野家", "rare"),
    ("牛丼", "rare"),
    ("squeaky gates", "other"),
)
NOTHING: tuple[str, ...] = ("茶龙", "湖西", "汽车", "猫", "🚀", "강아지", "テスト", "？！…", "，")
SOME = [QUESTIONS[number] for number in (0, 2, 7, 13, 17, 22, 31, 33)]


def page(fact: str) -> str:
    return f"memories/{fact.replace(' ', '_')}.md"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose past and whose records both hold every fact, among others."""
    folder = tmp_path_factory.mktemp("家") / "home"
    lay_out(folder)
    data = folder / "data/kernel"
    memories = data / "self/memories"
    memories.mkdir(parents=True, exist_ok=True)
    for fact, text in FACTS.items():
        (data / "self" / page(fact)).write_text(f"{text}\n", encoding="utf-8")
    (memories / "noise.md").write_text("\n\n".join(NOISE), encoding="utf-8")
    clock = SystemClock("UTC")
    with closing(open_truths(data / "memory.db", clock)) as store:
        records = [NewTruth(key=f"task.{key(fact)}", value={"note": text}) for fact, text in FACTS.items()]
        records += [NewTruth(key=f"task.n{n}", value={"note": text}) for n, text in enumerate(NOISE)]
        store.upsert_many(records)
        SelfIndex(store, PastFiles(data / "self", clock.zone), clock).refresh()
    return folder


def key(fact: str) -> str:
    return fact.replace(" ", "_")


def check(results: list[dict[str, Any]], fact: str) -> None:
    """The memory and the record of a fact come before everything else."""
    first = {found["category"]: found["value"] for found in results[:2]}
    assert set(first) == {"memory", "task"}, results
    assert first["task"] == {"note": FACTS[fact]}
    assert (first["memory"]["page"], first["memory"]["text"]) == (page(fact), FACTS[fact])


def check_nothing(query: str, results: list[dict[str, Any]]) -> None:
    assert results == [], query


# ---- the store


@pytest.mark.parametrize(("query", "fact"), QUESTIONS)
def test_F15_the_store_finds_a_word_of_any_length(home: Path, query: str, fact: str) -> None:
    check(from_store(home, query), fact)


@pytest.mark.parametrize("query", NOTHING)
def test_F15_the_store_finds_nothing_where_nothing_stands(home: Path, query: str) -> None:
    check_nothing(query, from_store(home, query))


def from_store(home: Path, query: str) -> list[dict[str, Any]]:
    with closing(open_truths(home / "data/kernel/memory.db", SystemClock("UTC"))) as store:
        found = store.search(Search(query=query)).results
    return [{"category": one.truth.category, "value": one.truth.value} for one in found]


# ---- the command line, each time a process of its own


def kgamma(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kernel_gamma", *arguments, "--home", os.fspath(home)]


def environ() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("KGAMMA_")} | dict(ENVIRON)


def from_shell(home: Path, query: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [*kgamma(home, "truths", "search", "--json"), "--", query],
        env=environ(),
        capture_output=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    results: list[dict[str, Any]] = json.loads(ended.stdout)["results"]
    return results


@pytest.mark.parametrize(("query", "fact"), SOME)
def test_F15_the_command_line_finds_a_word_of_any_length(home: Path, query: str, fact: str) -> None:
    check(from_shell(home, query), fact)


def test_F15_the_command_line_finds_nothing_where_nothing_stands(home: Path) -> None:
    for query in NOTHING[:2]:
        check_nothing(query, from_shell(home, query))


# ---- HTTP, a gateway of its own


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[str]:
    """The address of a running `kgamma gateway`."""
    output = home / "gateway.txt"
    with output.open("wb") as out:
        process = subprocess.Popen(
            kgamma(home, "gateway", "--port", "0"), env=environ(), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + PATIENCE_SEC
        while not (match := re.search(r"^gateway +(http://\S+)\n", output.read_text(), re.MULTILINE)):
            assert process.poll() is None and time.monotonic() < deadline, output.read_text()
            time.sleep(0.02)
        yield match[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SEC)


def from_http(url: str, query: str, *, escaped: bool = False) -> list[dict[str, Any]]:
    body = json.dumps({"query": query}, ensure_ascii=escaped).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/truth/search", body, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_SEC) as answer:
        results: list[dict[str, Any]] = json.loads(answer.read())["results"]
    return results


@pytest.mark.parametrize(("query", "fact"), QUESTIONS)
def test_F15_http_finds_a_word_of_any_length(gateway: str, query: str, fact: str) -> None:
    check(from_http(gateway, query), fact)


def test_F15_http_reads_escaped_queries_alike(gateway: str) -> None:
    for query, fact in SOME:
        check(from_http(gateway, query, escaped=True), fact)


@pytest.mark.parametrize("query", NOTHING)
def test_F15_http_finds_nothing_where_nothing_stands(gateway: str, query: str) -> None:
    check_nothing(query, from_http(gateway, query))
