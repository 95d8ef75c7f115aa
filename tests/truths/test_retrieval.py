"""Search as the contract has it: what matches, how similar it is, in which order, and how much of it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes import START, ZONE, FakeClock

from kernel_gamma.contracts.truths import TASK_TYPES, Finding, NewTruth, Search
from kernel_gamma.truths.rows import found_by
from kernel_gamma.truths.store import COUNT_BOUND, SqliteTruths, open_truths
from kernel_gamma.truths.terms import index_terms, query_terms
from kernel_gamma.truths.time_words import find_times

ASKED_ONLY = ["assembly", "metrics", "performance", "debug", "temp"]
ROOT_CAUSE = "incident.startup_loop_20260911.root_cause"
NOISE = [
    "disk",
    "cpu",
    "memory",
    "gateway",
    "queue",
    "worker",
    "timeout",
    "retry",
    "磁盘",
    "内存",
    "网关",
    "队列",
    "超时",
    "启动",
    "失败",
    "重试",
    "巡检",
    "正常",
]

ALPHABET = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "omicron",
    "pi",
    "rho",
    "sigma",
    "tau",
    "upsilon",
    "phi",
    "chi",
    "psi",
    "omega",
    "aleph",
    "beth",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteTruths]:
    found = open_truths(tmp_path / "memory.db", FakeClock())
    yield found
    found.close()


def put(
    store: SqliteTruths, *texts: Any, category: str = "incident", start: int = 0, step: float = 1
) -> None:
    """Records a step (seconds) apart, the first at START + `start`."""
    store.upsert_many(
        [
            NewTruth(
                key=f"{category}.g{start}.n{n}",
                value=text,
                timestamp=START + timedelta(seconds=start + n * step),
            )
            for n, text in enumerate(texts)
        ]
    )


def find(store: SqliteTruths, query: str = "", **more: Any) -> Finding:
    return store.search(Search(query=query, **more))


def keys(finding: Finding) -> list[str]:
    return [found.truth.key for found in finding.results]


def values(finding: Finding) -> list[Any]:
    return [found.truth.value for found in finding.results]


def noise(count: int, *, seed: int = 1) -> list[NewTruth]:
    chance = random.Random(seed)
    at = datetime(2026, 9, 11, 8, tzinfo=ZONE)
    return [
        NewTruth(
            category=chance.choice(["incident", "error", "inspection", "task", "metrics"]),
            description=" ".join(chance.choices(NOISE, k=4)),
            value={"message": " ".join(chance.choices(NOISE, k=12)), "number": n},
            timestamp=at - timedelta(minutes=chance.randrange(1, 20_000)),
        )
        for n in range(count)
    ]


# ---- the documented example


@pytest.mark.parametrize("others", [0, 10, 3000])
@pytest.mark.parametrize("paragraphs", [1, 60])
def test_the_documented_example_finds_the_root_cause_first(
    store: SqliteTruths, others: int, paragraphs: int
) -> None:
    store.upsert_many(noise(others))
    cause = "配置漂移导致服务启动失败，守护进程不断重启，形成死循环。\n"
    more = "修复：回滚到上一个获批准的版本，然后重新加载网关并观察十分钟的日志。\n" * (paragraphs - 1)
    store.upsert(
        NewTruth(
            key=ROOT_CAUSE,
            description="启动失败死循环根因分析",
            value={"root_cause": cause + more, "severity": "core"},
            timestamp=datetime(2026, 9, 11, 8, tzinfo=ZONE),
        )
    )
    found = find(
        store,
        "死循环 启动失败",
        categories=["incident", "error"],
        start=datetime(2026, 9, 1, tzinfo=ZONE),
        end=datetime(2026, 9, 11, 23, 59, 59, tzinfo=ZONE),
        limit=10,
        min_similarity=0.6,
        task_type="ops_debug",
    )
    assert keys(found)[0] == ROOT_CAUSE
    assert 0.6 <= found.results[0].similarity <= 1
    assert found.total >= 1
    assert find(store, "startup loop root cause", min_similarity=0.6).results[0].truth.key == ROOT_CAUSE


# ---- similarity


@pytest.mark.parametrize(
    "query", ["disk", "disk failure", "磁盘 失败", "启动失败", "why did the disk gateway queue fail"]
)
@pytest.mark.parametrize("task_type", [None, *TASK_TYPES])
def test_results_come_by_falling_similarity_between_0_and_1(
    store: SqliteTruths, query: str, task_type: Any
) -> None:
    store.upsert_many(noise(400))
    shares = [one.similarity for one in find(store, query, limit=100, task_type=task_type).results]
    assert len(shares) == 100 or (query == "disk failure" and shares)
    assert shares == sorted(shares, reverse=True)
    assert all(0 < share <= 1 for share in shares)


def test_without_a_query_the_newest_come_first_with_similarity_1(store: SqliteTruths) -> None:
    put(store, *"abcde")
    for query in ("", "   ", "\n"):
        found = find(store, query, limit=3)
        assert found.total == 5
        assert values(found) == ["e", "d", "c"]
        assert {one.similarity for one in found.results} == {1}


@pytest.mark.parametrize("others", [0, 20, 2000])
@pytest.mark.parametrize("length", [3, 40, 400])
def test_a_record_that_says_all_the_words_is_as_similar_whatever_stands_around_it(
    tmp_path: Path, others: int, length: int
) -> None:
    """Within 0.15: how long other records are tells how much its own length thins its words."""
    store = open_truths(tmp_path / "memory.db", FakeClock())
    store.upsert_many(noise(others))
    chance = random.Random(length)
    store.upsert_many(
        [
            NewTruth(key=f"task.{n}", value=" ".join(f"disk w{chance.randrange(999)}" for _ in range(length)))
            for n in range(others // 2)
        ]
    )
    store.upsert(NewTruth(key="incident.it", value="the carburettor of the generator disk"))
    for query in ("carburettor", "carburettor generator", "generator carburettor disk"):
        found = find(store, query)
        assert keys(found)[0] == "incident.it"
        assert found.results[0].similarity == pytest.approx(1, abs=0.15)
    store.close()


def test_a_record_with_one_of_two_words_is_less_similar_than_one_with_both(store: SqliteTruths) -> None:
    put(store, "disk failure in rack 3", "disk replaced in rack 3", "power failure in rack 3", "all is well")
    found = find(store, "disk failure")
    assert values(found)[0] == "disk failure in rack 3"
    assert found.total == 3
    assert found.results[1].similarity < 0.75 < found.results[0].similarity


# ---- totals


@pytest.mark.parametrize("fold", [True, False])
def test_the_total_counts_what_matches_and_not_what_is_returned_or_looked_at(
    store: SqliteTruths, fold: bool
) -> None:
    store.upsert_many(noise(300))
    put(store, *[f"the carburettor broke in {word}" for word in ALPHABET[:25]], start=100)
    for limit in (1, 10, 24, 25, 26, 1000):
        found = find(store, "carburettor", limit=limit, fold=fold)
        assert (found.total, len(found.results)) == (25, min(limit, 25))
        assert not found.bounded


@pytest.mark.parametrize("least", [0.01, 0.3, 0.5, 0.6, 0.8, 0.9, 0.99, 1])
@pytest.mark.parametrize("longest", [0, 400])
@pytest.mark.parametrize("others", [0, 1500])
@pytest.mark.parametrize(
    "query", ["carburettor gearbox", "变速箱 化油器", "why did the gearbox carburettor break down again"]
)
def test_with_a_least_similarity_the_total_is_what_could_be_returned(
    store: SqliteTruths, least: float, longest: int, others: int, query: str
) -> None:
    chance = random.Random(3)
    store.upsert_many(noise(others))
    texts = []
    for _ in range(25):
        filler = [f"w{chance.randrange(10**6)}" for _ in range(chance.randrange(longest + 1))]
        words = ["carburettor", "gearbox", "变速箱和化油器坏了"]
        texts.append(" ".join(chance.sample([*words, *filler], len(filler) + 3)))
    put(store, *texts, *[f"the carburettor 化油器 is fine {n}" for n in range(40)])
    few, all_ = (find(store, query, min_similarity=least, limit=limit, fold=False) for limit in (10, 1000))
    assert few.total == all_.total == len(all_.results)
    assert len(few.results) == min(10, few.total)
    assert all(one.similarity >= least - 5e-5 for one in all_.results)


def test_a_long_text_counts_once_however_many_snippets_say_the_word(store: SqliteTruths) -> None:
    page = "The carburettor was taken apart and put together again on that day. " * 60
    put(store, *[f"{page} {word}" for word in ALPHABET[:12]])
    put(store, "a carburettor", start=100)
    for more in (
        {},
        {"start": START - timedelta(days=1)},
        {"categories": ["incident"]},
        {"min_similarity": 0.2},
    ):
        found = find(store, "carburettor", limit=100, fold=False, **more)
        assert found.total == len(found.results) == 13
        assert len(set(keys(found))) == 13
    apart = "gearbox " + "w " * 900 + " antenna"
    put(store, apart, start=200)
    found = find(store, "gearbox antenna", min_similarity=0.6)
    assert (found.total, len(found.results)) == (1, 1)


def test_matches_are_counted_to_a_bound(store: SqliteTruths) -> None:
    put(store, *[f"disk {n}" for n in range(COUNT_BOUND + 20)], step=0.01)
    put(store, "antenna", start=1000)
    assert find(store, "disk").total == COUNT_BOUND
    assert find(store, "disk").bounded
    assert find(store).bounded
    assert not find(store, "antenna").bounded
    assert find(store, "disk", end=START + timedelta(seconds=2)).total == 201


# ---- where it looks


@pytest.mark.parametrize("query", ["", "disk"])
@pytest.mark.parametrize("fold", [True, False])
def test_a_time_range_is_inclusive_to_the_microsecond(store: SqliteTruths, query: str, fold: bool) -> None:
    put(store, *[f"disk {word}" for word in ALPHABET[:20]], step=0.000_001)
    put(store, *[f"disk {word}" for word in ALPHABET[:20]], start=1, step=0.2, category="task")
    for first, last in ((0, 0), (3, 9), (0, 19)):
        start, end = START + timedelta(microseconds=first), START + timedelta(microseconds=last)
        found = find(store, query, start=start, end=end, limit=100, fold=fold)
        assert found.total == len(found.results) == last - first + 1
        assert all(start <= one.truth.timestamp <= end for one in found.results)
        assert (found.start, found.end) == (start, end)
    assert find(store, query, start=START, end=START - timedelta(seconds=1)).total == 0
    assert find(store, query, start=START + timedelta(seconds=1), limit=100).total == 20
    utc = find(store, query, start=datetime.fromisoformat("2026-11-30T02:30:05Z"), end=START, limit=100)
    assert utc.total == 1


def test_a_fold_is_counted_within_the_time_that_was_asked(store: SqliteTruths) -> None:
    put(store, *[{"message": f"disk is {n} % full"} for n in range(60)], step=0.1)
    start, end = START + timedelta(seconds=1), START + timedelta(seconds=2)
    (one,) = find(store, "disk full", start=start, end=end).results
    assert (one.count, one.first, one.last) == (11, start, end)


@pytest.mark.parametrize("query", ["", "disk"])
@pytest.mark.parametrize(
    ("category", "count"),
    [
        ("incident", 5),
        ("incident.", 5),
        ("incident.disk", 3),
        ("incident.disk.sda", 2),
        ("incident.disk.sda.smart", 1),
        ("incident.disk.sda.smart.raw", 1),
        ("incident.20260911", 1),
        ("incident.dis", 0),
        ("incident.disk.sdb", 0),
        ("unknown", 0),
        ("INCIDENT", 0),
        ("", 0),
        ("磁盘", 0),
        ("\ud800", 0),
        ('c1" OR "', 0),
    ],
)
def test_a_category_may_be_a_longer_prefix_and_an_unknown_one_has_nothing(
    store: SqliteTruths, query: str, category: str, count: int
) -> None:
    for key in ("x", "disk.x", "disk.sda.x", "disk.sda.smart.raw.x", "20260911.x"):
        store.upsert(NewTruth(key=f"incident.{key}", value=f"disk {key}"))
    store.upsert(NewTruth(key="task.disk.x", value="disk"))
    found = find(store, query, categories=[category], fold=False)
    assert (found.total, len(found.results)) == (count, count)
    both = find(store, query, categories=[category, "task"], fold=False, limit=100)
    assert (both.total, len(both.results)) == (count + 1, count + 1)


def test_categories_may_be_very_many(store: SqliteTruths) -> None:
    names = [f"kind{n}" for n in range(600)]
    store.upsert_many([NewTruth(key=f"{name}.x", value=f"disk {name}") for name in names])
    assert find(store, "disk", categories=names * 20).total == 600
    assert find(store, categories=names).total == 600
    assert find(store).total == 600


@pytest.mark.parametrize("category", ASKED_ONLY)
@pytest.mark.parametrize("query", ["", "disk", "what about the disk in the server rack today"])
def test_what_comes_only_when_asked_for_is_found_when_it_is_named(
    store: SqliteTruths, category: str, query: str
) -> None:
    put(store, "the disk of the server rack")
    put(store, *["disk of the server rack"] * 30, category=f"{category}.sub", start=1)
    assert {one.truth.category for one in find(store, query, limit=100, fold=False).results} == {"incident"}
    assert find(store, query).total == 1
    for name in (category, f"{category}.sub"):
        found = find(store, query, categories=[name], limit=100, fold=False)
        assert (found.total, len(found.results)) == (30, 30)
    assert find(store, query, categories=[category, "incident"]).total == 31
    for task_type in TASK_TYPES:
        assert find(store, query, task_type=task_type).total == 1


# ---- words


@pytest.mark.parametrize(
    "query",
    ["!!!", "。，、", '"', "* ^ -", "\0", "\ud800", "( )", "\u200b", "—", "\N{COMBINING ACUTE ACCENT}"],
)
def test_signs_alone_ask_for_nothing(store: SqliteTruths, query: str) -> None:
    put(store, "disk", "磁盘", '"')
    found = find(store, query)
    assert (found.total, found.results, found.terms) == (0, (), ())


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("雨一直下", "雨"),
        ("今日天气很好", "天气"),
        ("服务器在重启", "服务器"),
        ("サーバーが落ちた", "サーバー"),
        ("雪が降る", "雪"),
        ("디스크 오류", "디스크"),
        ("비가 온다", "비"),
        ("ＤＩＳＫ　ｆｕｌｌ", "disk full"),
        ("disk full", "ＤＩＳＫ"),
        ("k8s集群重启", "k8s"),
        ("k8s集群重启", "集群"),
        ("K8S集群重启", "k8s集群"),
        ("部署 failed 了", "failed 部署"),
        ("done 🔥 again", "🔥"),
        ("是", "是"),
        ("我们的", "的"),
        ("the who", "the"),
        ("to be or not to be", "to be or not to be"),
        ("disks were failing", "disk fail"),
        ("ERR_CONN_RESET", "conn reset"),
        ("10.0.0.1 unreachable", "10.0.0.1"),
        ("naïve café", "CAFÉ"),
        ("ошибка диска", "Ошибка"),
        ("f" * 64, "f" * 64),
    ],
)
def test_a_word_is_found_in_any_script(store: SqliteTruths, text: str, query: str) -> None:
    put(store, text)
    put(store, *["something else", "另外的事情", "ほかのこと", "다른 것"], start=50)
    found = find(store, query)
    assert text in values(found)
    assert values(found)[0] == text


@pytest.mark.parametrize("query", ["天空", "雨天", "气天", "天气预报员"])
def test_signs_that_do_not_stand_together_are_not_the_word(store: SqliteTruths, query: str) -> None:
    put(store, "今日天气很好")
    assert find(store, query, min_similarity=0.6).total == 0


SCRIPTS = st.text(
    st.characters(categories=("L", "N"), max_codepoint=0x2FF)
    | st.sampled_from("磁盘已满启动失败的是了サーバー디스크🔥 .-_'\""),
    min_size=1,
    max_size=60,
)


@given(SCRIPTS, SCRIPTS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_word_of_a_record_finds_it(
    tmp_path_factory: pytest.TempPathFactory, text: str, other: str
) -> None:
    store = open_truths(tmp_path_factory.mktemp("truths") / "memory.db", FakeClock())
    store.upsert(NewTruth(key="incident.it", value={"text": text}, description=other))
    store.upsert(NewTruth(key="incident.other", value="something else"))
    for word in re.findall(r"\w+", found_by("incident.it", other, {"text": text})):
        times = find_times(word, START)
        if times.rest.strip() == word and not times.latest and query_terms(word):
            assert "incident.it" in keys(find(store, word)), word
    store.close()


def test_neighbours_answer_questions_and_never_a_search_for_a_few_words(store: SqliteTruths) -> None:
    put(
        store,
        "Bob: shall we take the ferry across the strait on friday",
        "Alice: tickets are sold out",
        "nothing to say here",
        step=20,
    )
    for query in ("ferry", "ferry strait", "ferry strait friday"):
        found = find(store, query)
        assert len(found.results) == found.total == 1
        assert not found.results[0].why["around"]
    question = find(store, "which ferry across the strait do they want to take on the weekend")
    assert values(question)[0].startswith("Bob")
    assert any(value.startswith("Alice") for value in values(question))


# ---- order


def judge(store: SqliteTruths, key: str, query: str, *, relevant: bool) -> None:
    assert store.feedback(key, query, relevant=relevant)


@pytest.mark.parametrize(("query", "other"), [("disk failure", "gateway timeout"), ("磁盘故障", "网关超时")])
def test_feedback_changes_the_order_for_similar_queries_only(
    store: SqliteTruths, query: str, other: str
) -> None:
    put(store, f"{query} {other} alpha", f"{query} {other} beta", f"{query} {other} gamma")
    before, before_other = keys(find(store, query)), keys(find(store, other))
    last = before[-1]
    judge(store, before[0], query, relevant=False)
    judge(store, last, query, relevant=True)
    after = keys(find(store, query))
    assert after[0] == last
    assert after[-1] == before[0]
    assert keys(find(store, other)) == before_other
    judge(store, before[0], query, relevant=True)
    assert find(store, query).results[-1].similarity > 0.5


@pytest.mark.parametrize("query", ["latest deploy", "最新 deploy"])
def test_latest_prefers_the_newest_of_equals(store: SqliteTruths, query: str) -> None:
    put(store, *[f"deploy of {word} done" for word in ALPHABET[:20]], step=3600)
    found = find(store, query, limit=5)
    assert values(found)[0] == f"deploy of {ALPHABET[19]} done"
    times = [one.truth.timestamp for one in found.results]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("query", ["昨天 启动失败", "yesterday startup failure"])
def test_a_time_word_prefers_the_records_of_its_time_among_many(store: SqliteTruths, query: str) -> None:
    store.upsert_many(
        [
            NewTruth(
                key=f"incident.n{n}",
                value=f"启动失败 startup failure of {ALPHABET[n % 20]} {ALPHABET[n // 20 % 20]}",
                timestamp=START - timedelta(minutes=n),
            )
            for n in range(6000)
        ]
    )
    found = find(store, query, limit=10)
    yesterday = START.date() - timedelta(days=1)
    assert len(found.results) == 10
    assert {one.truth.timestamp.astimezone(ZONE).date() for one in found.results} == {yesterday}
    assert found.start is not None and found.start.date() == yesterday
    assert found.total > 1440  # a boost, never a filter


def test_a_time_alone_is_a_range(store: SqliteTruths) -> None:
    put(store, *[f"disk {n}" for n in range(72)], start=-72 * 3600, step=3600)
    found = find(store, "yesterday", limit=100, fold=False)
    assert found.total == len(found.results) == 24


def test_a_task_prefers_its_categories_among_equals(store: SqliteTruths) -> None:
    put(store, "style of disk", category="style")
    put(store, "alert of disk", category="alert")
    for task_type, first in (("ops_debug", "alert"), ("content_creation", "style")):
        found = find(store, "disk", task_type=task_type)
        assert found.results[0].truth.category == first
        assert found.total == 2


# ---- folding and budgets


LOGS = [
    "disk /dev/sda is {n} % full at 2026-11-30 10:{m:02d}:00",
    "磁盘 sda 已用 {n} %，时间 2026-11-30 10:{m:02d}:00",
]


@pytest.mark.parametrize("log", LOGS)
def test_near_duplicates_count_as_one_with_how_many_and_from_when_to_when(
    store: SqliteTruths, log: str
) -> None:
    store.upsert_many(
        [
            NewTruth(
                category="alert",
                value={"message": log.format(n=n, m=n % 60)},
                timestamp=START + timedelta(minutes=n),
            )
            for n in range(250)
        ]
    )
    put(store, "disk 磁盘 sda was replaced 已更换", start=5)
    for query in ("disk sda", "磁盘 sda", ""):
        found = find(store, query, categories=["alert"])
        (one,) = found.results
        assert (one.count, one.first, one.last) == (250, START, START + timedelta(minutes=249))
        assert found.total == 250 or query not in ("", "sda")
    found = find(store, "sda")
    assert found.total == 251
    assert [one.count for one in found.results] in ([250, 1], [1, 250])
    listed = find(store, "sda", fold=False, limit=1000)
    assert len(set(keys(listed))) == 251
    assert {one.count for one in listed.results} == {1}


def test_a_record_that_says_something_else_is_not_hidden_by_many_that_say_the_same(
    store: SqliteTruths,
) -> None:
    put(store, "the disk was replaced by hand")
    put(store, *[{"message": f"disk check {n} passed"} for n in range(400)], start=10)
    found = find(store, "disk")
    assert "the disk was replaced by hand" in values(found)


@pytest.mark.parametrize("budget", [0, 1, 30, 60, 200, 500, 2000])
@pytest.mark.parametrize("query", ["", "disk", "磁盘"])
def test_a_token_budget_is_never_exceeded_and_what_has_no_room_is_named(
    store: SqliteTruths, budget: int, query: str
) -> None:
    put(store, *[f"disk 磁盘 {word} " * (n + 1) for n, word in enumerate(ALPHABET)])
    found = find(store, query, token_budget=budget, limit=100)
    assert sum(one.tokens for one in found.results) <= budget
    assert all(one.tokens > 0 and one.excerpt for one in found.results)
    left = dict(found.left_out)
    assert {key for key, why in left.items() if why == "no room in the budget"}.isdisjoint(keys(found))
    if len(found.results) < len(ALPHABET):
        assert "no room in the budget" in left.values()
    assert found.total == len(ALPHABET)


def test_what_is_left_out_has_a_reason(store: SqliteTruths) -> None:
    put(store, *[f"disk failure {word}" for word in ALPHABET[:12]], "disk")
    found = find(store, "disk failure", limit=10, min_similarity=0.6)
    reasons = sorted(why for _, why in found.left_out)
    assert reasons == ["below the least similarity", "beyond the limit", "beyond the limit"]
    assert not set(keys(found)) & {key for key, _ in found.left_out}
    store.upsert_many(
        [
            NewTruth(
                key=f"alert.{word}.x", value="the same words of the antenna in every one of these records"
            )
            for word in ALPHABET[:3]
        ]
    )
    found = find(store, "antenna", limit=10)
    same = [why for _, why in found.left_out if why.startswith("says the same as alert.")]
    assert len(found.results) + len(same) == 3


# ---- hostile words

NASTY = [
    '"',
    '""',
    '"""',
    "'",
    "disk' OR '1'='1",
    "'; DROP TABLE truths; --",
    'disk" OR "x',
    "disk AND",
    "AND OR NOT",
    "NOT",
    "NEAR",
    "NEAR(disk full, 2)",
    "disk NEAR/2 full",
    "disk*",
    "*",
    "^disk",
    "-disk",
    "--",
    "text:disk",
    "cat:c1",
    "{text who}:disk",
    "- text : disk",
    "(disk",
    "disk)",
    "((((((((((",
    "+ + +",
    "disk + full",
    "rank:bm25",
    "words MATCH 'x'",
    "\\",
    '\\\\"',
    "%",
    "_%_",
    "disk\0full",
    "\0",
    "\ud800",
    "\udfffdisk\ud800",
    "\ufeffdisk",
    "\u202edisk",
    "👨‍👩‍👧‍👦",
    "é" * 500,
    "disk " * 2000,
    "x" * 10_000,
    "磁盘" * 5000,
    " ".join(f"w{n}" for n in range(100_000)),
    "".join(chr(n) for n in range(0x20, 0x7F)),
    "".join(chr(n) for n in range(0x20)),
    "昨天" * 3000,
    "yesterday " * 1000,
    "2026-13-45T99:99:99",
    "0" * 5000,
    "last 99999999999999999999 days",
]


def ask_everything(store: SqliteTruths, text: str) -> None:
    for more in ({}, {"categories": [text]}, {"min_similarity": 0.5}, {"token_budget": 100, "fold": False}):
        found = find(store, text, **more)
        assert found.total >= len(found.results)
    assert store.get(text) is None
    assert store.versions(text) == []
    assert not store.unlock(text)
    assert store.delete([text]) == 0
    assert not store.feedback(text, text, relevant=True)
    assert store.feedback("incident.it", text, relevant=True, by=text)
    store.upsert(NewTruth(key="incident.it", value={text[:1000]: [text]}, description=text))
    find(store, text)


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_no_text_breaks_anything(store: SqliteTruths, text: str) -> None:
    put(store, "disk full", "磁盘已满")
    store.upsert(NewTruth(key="incident.it", value=1))
    ask_everything(store, text)
    truth = store.get("incident.it")
    assert truth is not None and truth.value == {text[:1000]: [text]}
    assert find(store, "disk").total >= 1
    assert find(store, "磁盘").total >= 1
    assert store.verify().ok


@given(st.lists(st.text(max_size=80) | st.sampled_from(NASTY[:44]), max_size=4).map(" ".join))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_text_at_all_breaks_anything(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    store = open_truths(tmp_path_factory.mktemp("truths") / "memory.db", FakeClock())
    store.upsert(NewTruth(key="incident.it", value=1))
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", text):
        ask_everything(store, text)
    assert store.verify().ok
    store.close()


def shuffled(items: Sequence[NewTruth]) -> list[NewTruth]:
    return random.Random(7).sample(items, len(items))


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_search_is_what_a_walk_over_all_records_finds(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = open_truths(tmp_path_factory.mktemp("truths") / "memory.db", FakeClock())
    texts = data.draw(st.lists(st.lists(st.sampled_from(NOISE), min_size=1, max_size=6), max_size=25))
    made = [
        NewTruth(
            key=f"{data.draw(st.sampled_from(['incident', 'incident.disk', 'error', 'metrics']))}.n{n}",
            value=" ".join(words),
            timestamp=START + timedelta(seconds=data.draw(st.integers(0, 30))),
        )
        for n, words in enumerate(texts)
    ]
    store.upsert_many(shuffled(made))
    query = data.draw(st.lists(st.sampled_from(["disk", "cpu", "磁盘", "retry"]), max_size=3, unique=True))
    categories = data.draw(
        st.lists(st.sampled_from(["incident", "incident.disk", "metrics", "none"]), max_size=2)
    )
    start, end = (START + timedelta(seconds=data.draw(st.integers(0, 30))) for _ in range(2))
    found = find(store, " ".join(query), categories=categories, start=start, end=end, fold=False, limit=1000)
    expected = {
        truth.key
        for truth in store.each()
        if start <= truth.timestamp <= end
        and (
            any(f"{truth.key}.".startswith(f"{name}.") for name in categories)
            if categories
            else truth.category != "metrics"
        )
        and (
            not query
            or set(index_terms(" ".join(query))) & set(index_terms(found_by(truth.key, "", truth.value)))
        )
    }
    assert set(keys(found)) == expected
    assert found.total == len(expected)
    store.close()


@pytest.mark.parametrize("query", ["what happened today", "今天发生了什么", "今天发生了什么事"])
def test_what_happened_in_a_time_lists_that_time(store: SqliteTruths, query: str) -> None:
    store.upsert(NewTruth(key="incident.disk", value="the disk is full", timestamp=START))
    store.upsert(NewTruth(key="incident.old", value="old", timestamp=START - timedelta(days=9)))
    assert keys(find(store, query)) == ["incident.disk"]


def test_a_category_counts_the_key_of_its_very_name(store: SqliteTruths) -> None:
    for key in ("incident.disk", "incident.disk.full", "incident.net"):
        store.upsert(NewTruth(key=key, value="the disk"))
    found = find(store, "disk", categories=["incident.disk"])
    assert sorted(keys(found)) == ["incident.disk", "incident.disk.full"]
    assert found.total == 2


def test_a_search_that_need_not_count_finds_the_same_and_tells_at_least_so_many(store: SqliteTruths) -> None:
    for number in range(30):
        store.upsert(
            NewTruth(
                key=f"note.{number:02}x{number}", value=f"disk of machine {chr(97 + number % 26)}{number}"
            )
        )
    counted = store.search(Search(query="disk machine", limit=5))
    quick = store.search(Search(query="disk machine", limit=5, counted=False))
    assert [one.truth.key for one in quick.results] == [one.truth.key for one in counted.results]
    assert counted.total == 30 and 5 <= quick.total <= 30
    listed = store.search(Search(categories=("note",), limit=5, counted=False))
    assert len(listed.results) == 5 <= listed.total
