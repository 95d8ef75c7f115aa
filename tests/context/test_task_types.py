"""Which type a task is of, in both languages, and what config/task_types.yaml may say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.configuration import defaults_dir, lay_out, read_yaml
from kernel_gamma.context.task_types import FALLBACK, TaskTypes, load_task_types
from kernel_gamma.contracts.truths import TASK_TYPES
from kernel_gamma.errors import SettingsError

SHIPPED = read_yaml(defaults_dir() / "config/task_types.yaml")
TYPES = load_task_types(SHIPPED)
PAGE = Path(__file__).parents[2] / "docs/task-types.md"

SAID = {
    "ops_debug": """
        the live service fails to start and loops for ever | 线上服务启动失败，进入死循环
        Why did the gateway return 502 errors last night? | 网关昨晚为什么返回502错误？
        The disk on alpha is full again | alpha 的磁盘又满了
        nginx keeps restarting every two minutes | nginx 每两分钟重启一次
        Find the root cause of yesterday's outage | 查一下昨天故障的根因
        Memory leak in the worker since the last release | 自从上次发布后 worker 内存泄漏
        What alerts fired in the last 24 h? | 最近24小时有哪些告警？
        The database is down | 数据库挂了
        Our API is very slow today | 今天接口很慢
        Is everything ok with the mail server? | 邮件服务器正常吗？
        show me the inspection report of this morning | 看一下今早的巡检报告
        service won't start | 服务起不来
    """,
    "dev_deploy": """
        Deploy version 2.3 to production | 把2.3版本部署到生产环境
        Roll back the last release | 回滚上次发布
        Implement the new search endpoint | 实现新的搜索接口
        Add a unit test for the parser | 给解析器加一个单元测试
        Upgrade the database schema | 升级数据库表结构
        How is the gateway configured? | 网关是怎么配置的？
        Write a Python function that sorts a list | 写一个迁移用户表的脚本
        Set up a CI pipeline for the repository | 给仓库搭建CI流水线
        Which version is running in staging? | 预发环境跑的是哪个版本？
    """,
    "decision_analysis": """
        Should we move to another cloud provider? | 我们要不要换云服务商？
        What are the risks of the plan? | 这个计划有什么风险？
        Compare PostgreSQL and MySQL for our use | 比较一下 PostgreSQL 和 MySQL
        Which of the two offers is better? | 两个报价哪个更好？
        Weigh the pros and cons of remote work | 权衡远程办公的利弊
        What did we decide about pricing? | 关于定价我们之前是怎么决定的？
        Would it be wise to sell the old servers? | 旧服务器卖掉划算吗？
    """,
    "content_creation": """
        Write a blog post about our new product | 写一篇关于新产品的博客
        Draft a newsletter for the customers | 给客户起草一份简报
        Compose a poem about autumn | 写一首关于秋天的诗
        Rewrite this paragraph in a friendlier tone | 用更友好的语气改写这一段
        Write an article on how we handle errors | 写一篇文章介绍我们如何处理错误
        Make the text sound more formal | 把文字改得正式一些
    """,
    "general_query": """
        who are you? | 你是谁？
        what time is it | 现在几点了？
        Hello! | 你好！
        Thank you very much | 非常感谢
        What is the capital of France? | 法国的首都是哪里？
        Remember that I like tea | 记住我喜欢喝茶
        Do you remember my name? | 你还记得我的名字吗？
        I feel good today | 我今天心情不错
        My sister arrives on Friday | 我妹妹星期五到
        12345 | 😀
    """,
    "emergency_block": """
        Emergency! Stop the deployment | 紧急！停止部署
        halt now | 立即停止
        URGENT: the payment service is looping | 紧急：支付服务进入死循环
        Emergency stop, all agents | 所有代理急停
        The circuit breaker has tripped | 熔断器已触发
        shut it down immediately | 立刻终止
    """,
}
TASKS = [
    (name, task.strip())
    for name, lines in SAID.items()
    for line in lines.strip().splitlines()
    for task in line.split("|")
]


def written(**changes: Any) -> dict[str, Any]:
    """The shipped file with some types changed or added; None takes one out."""
    types = {**SHIPPED["types"], **changes}
    return {"types": {name: entry for name, entry in types.items() if entry is not None}}


def own(**more: Any) -> dict[str, Any]:
    return {"profile": "lean", "budget": 1800, "dynamic_budget": 600, **more}


# ---- the six


def test_the_six_types_are_shipped_with_their_budgets() -> None:
    assert tuple(TYPES.rules) == TASK_TYPES
    found = {name: (rule.profile, rule.budget, rule.dynamic_budget) for name, rule in TYPES.rules.items()}
    assert found == {
        "ops_debug": ("full", 3000, 1400),
        "dev_deploy": ("full", 2500, 900),
        "decision_analysis": ("full", 2500, 900),
        "content_creation": ("lean", 2000, 500),
        "general_query": ("lean", 1500, 0),
        "emergency_block": ("full", 3500, 1900),
    }
    assert TYPES.rule("ops_debug").hours == 24
    assert TYPES.rule("dev_deploy").static_truths
    assert [rule.name for rule in TYPES.rules.values() if rule.sign] == ["emergency_block"]


def test_both_languages_have_words_for_every_type_that_words_tell() -> None:
    for rule in TYPES.rules.values():
        assert set(rule.words) == (set() if rule.name == FALLBACK else {"en", "zh"}), rule.name


def test_a_new_home_gets_the_file(tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert read_yaml(tmp_path / "config/task_types.yaml") == SHIPPED


# ---- the guess


@pytest.mark.parametrize(("name", "task"), TASKS, ids=[task for _, task in TASKS])
def test_a_task_is_told_by_its_words(name: str, task: str) -> None:
    guess = TYPES.guess(task)
    assert guess.rule.name == name, guess.why
    assert guess.tied == ()


@pytest.mark.parametrize("name", [name for name in SAID if name not in (FALLBACK, "emergency_block")])
def test_the_guess_says_which_words_it_found(name: str) -> None:
    for task in (task for other, task in TASKS if other == name):
        guess = TYPES.guess(task)
        quoted = re.findall("“(.+?)”", guess.why)
        assert quoted and name in guess.scores
        words = [word for listed in guess.rule.words.values() for word in listed]
        assert set(quoted) <= set(words)


def test_languages_may_be_mixed_and_letters_full_width() -> None:
    for task in ("deploy 失败了", "Ｄｅｐｌｏｙ　ｆａｉｌｅｄ", "DEPLOY FAILED", "ci_deploy-FAILED"):
        scores = TYPES.guess(task).scores
        assert set(scores) == {"ops_debug", "dev_deploy"}, task


@pytest.mark.parametrize(
    "task", ["deploy", "deploys", "deployed", "deploying", "deployment", "deployments", "部署", "请部署一下"]
)
def test_a_word_is_found_in_any_of_its_forms(task: str) -> None:
    assert TYPES.guess(task).rule.name == "dev_deploy"


@pytest.mark.parametrize("task", ["specious", "the blogger Loggins", "a crashing-free-ish Porter", "decimal"])
def test_a_latin_word_inside_another_is_not_found(task: str) -> None:
    found = TYPES.guess(task).scores
    assert not {"dev_deploy", "decision_analysis", "content_creation"} & set(found)


def test_of_words_that_lie_in_one_another_the_longest_counts() -> None:
    assert TYPES.guess("release notes").scores == {"content_creation": 2.0}
    assert TYPES.guess("新闻稿").scores == {"content_creation": 2.0}


def test_a_word_said_often_counts_once() -> None:
    assert TYPES.guess("deploy " * 50).scores == TYPES.guess("deploy").scores
    assert TYPES.guess("部署" * 50).scores == TYPES.guess("部署").scores


def test_what_is_wanted_stands_at_either_end_of_a_long_task() -> None:
    log = "abc 123 " * 50_000
    for task in (f"Deploy this: {log}", f"{log} 部署"):
        assert TYPES.guess(task).rule.name == "dev_deploy"


def test_a_tie_is_told_and_the_first_of_the_file_taken() -> None:
    for task in ("the error and the version", "错误 版本"):
        guess = TYPES.guess(task)
        assert guess.tied == ("ops_debug", "dev_deploy")
        assert guess.rule.name == "ops_debug"
        assert "dev_deploy" in guess.why


@pytest.mark.parametrize("task", ["who are you?", "写一首诗", ""])
def test_a_sign_of_an_emergency_makes_any_task_one(task: str) -> None:
    guess = TYPES.guess(task, signs=["the breaker is open", "incident.loop"])
    assert guess.rule.name == "emergency_block"
    assert "the breaker is open, incident.loop" in guess.why


def test_without_a_type_for_it_a_sign_changes_nothing() -> None:
    types = load_task_types(written(emergency_block=None))
    assert types.guess("who are you?", signs=["breaker"]).rule.name == FALLBACK


@pytest.mark.parametrize("name", TASK_TYPES)
def test_a_type_that_is_asked_for_is_taken_before_all_else(name: str) -> None:
    guess = TYPES.guess("紧急 halt now", signs=["breaker"], wanted=name)
    assert guess.rule.name == name
    assert name in guess.why


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    for ask in (lambda: TYPES.guess("x", wanted="ops"), lambda: TYPES.rule("ops")):
        with pytest.raises(ValueError, match=r"'ops'.*ops_debug, dev_deploy.*emergency_block"):
            ask()


WORDS = [word for rule in TYPES.rules.values() for listed in rule.words.values() for word in listed]


@given(st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5))).map(" ".join)))
def test_a_guess_never_fails_and_stays_the_same(task: str) -> None:
    guess = TYPES.guess(task)
    assert guess == TYPES.guess(task)
    assert guess == load_task_types(SHIPPED).guess(task)
    assert guess.rule is TYPES.rules[guess.rule.name]
    assert all(score > 0 for score in guess.scores.values())
    if guess.tied:
        assert len(guess.tied) > 1 and guess.tied[0] == guess.rule.name
        assert len({guess.scores[name] for name in guess.tied}) == 1
    if not guess.scores:
        assert guess.rule.name == FALLBACK
    assert guess.why and "\n" not in guess.why


@given(st.sampled_from(WORDS), st.sampled_from([" ", "，", ". ", "\n"]))
def test_every_word_of_the_file_is_found_where_it_stands(word: str, gap: str) -> None:
    for task in (word, word.upper(), f"xyz{gap}{word}{gap}xyz", f"我{gap}{word}{gap}他"):
        assert TYPES.guess(task).scores


# ---- types of one's own


def test_a_type_of_ones_own_is_told_by_its_words() -> None:
    types = load_task_types(
        written(
            garden=own(
                categories=["garden.beds."],
                like="ops_debug",
                strong={"en": ["water the plants"], "zh": ["浇水"]},
            )
        )
    )
    for task in ("Did you water the plants?", "watered the plants", "给阳台上的花浇水"):
        assert types.guess(task).rule.name == "garden"
    rule = types.rule("garden")
    assert (rule.like, rule.categories, rule.hours) == ("ops_debug", ("garden.beds",), None)
    assert types.guess("anything", wanted="garden").rule is rule


def test_the_printed_type_is_accepted() -> None:
    text = next(
        t for t in re.findall(r"^```\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S) if "like:" in t
    )
    types = load_task_types(written(**yaml.safe_load(text)))
    (name,) = yaml.safe_load(text)
    assert types.guess("Water the plants").rule.name == types.guess("给植物浇水").rule.name == name


def test_the_page_gives_the_shipped_numbers() -> None:
    page = PAGE.read_text("utf-8")
    for rule in TYPES.rules.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{rule.name}`"))
        numbers = [int(number.replace(",", "")) for number in re.findall(r"(?<=\| )[\d,]+(?= \|)", row)]
        assert numbers == [rule.budget, rule.dynamic_budget]
        assert all(f"`{category}.`" in row for category in rule.categories)


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (1, 500), (500, 500), (1234, 1234), (9999, 2000)])
def test_the_budget_of_channel_b_is_held_within_its_bounds(asked: int, given: int) -> None:
    types = load_task_types(written(general_query=own(budget=5000, dynamic_budget=asked)))
    assert types.rule(FALLBACK).dynamic_budget == given


@pytest.mark.parametrize(
    ("document", "key", "said"),
    [
        ({}, "types", "is missing"),
        (None, "types", "is missing"),
        (["x"], "types", "a list"),
        ({"types": []}, "types", "section"),
        ({"types": {}}, "types", "general_query is missing"),
        ({"type": {}}, "types", "is missing"),
        (written(general_query=None), "types", "general_query is missing"),
        (written(garden=own(budgt=1)), "types.garden.budgt", "did you mean budget"),
        (written(garden=own(budget="many")), "types.garden.budget", "is text"),
        (written(garden=own(budget=True)), "types.garden.budget", "is true"),
        (written(garden=own(profile="fat")), "types.garden.profile", "'full' or 'lean'"),
        (written(garden={"profile": "lean", "budget": 900}), "types.garden.dynamic_budget", "is missing"),
        (written(garden=own(dynamic_budget=-1)), "types.garden.dynamic_budget", "greater"),
        (written(garden=own(budget=400)), "types.garden.dynamic_budget", "more than the budget"),
        (written(garden=own(categories=["a b"])), "types.garden.categories", "write it like incident."),
        (written(garden=own(hours=0)), "types.garden.hours", "greater"),
        (written(garden=own(like="garden")), "types.garden.like", "ops_debug"),
        (written(garden=own(sign=True)), "types.garden.sign", "emergency_block too"),
        (written(garden=own(words={"fr": ["x"]})), "types.garden.words.fr", "en, zh"),
        (written(garden=own(words={"en": ["  "]})), "types.garden.words.en", "holds no word"),
        (written(garden=own(words=["x"])), "types.garden.words", "section"),
        (written(**{"My Garden": own()}), "types.My Garden", "small letters"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_how_to_mend_it(document: Any, key: str, said: str) -> None:
    if key == "types.garden.sign":
        document["types"]["garden"]["sign"] = True
    with pytest.raises(SettingsError) as caught:
        load_task_types(document, "config/task_types.yaml")
    assert caught.value.file == "config/task_types.yaml"
    assert said in str(caught.value)
    if key != "types.garden.sign":
        assert caught.value.key == key
    assert caught.value.mend


def test_types_come_from_the_file_alone() -> None:
    types = load_task_types({"types": {FALLBACK: own()}})
    assert isinstance(types, TaskTypes)
    assert list(types.rules) == [FALLBACK]
    assert types.guess("紧急 deploy failed", signs=["breaker"]).rule.name == FALLBACK


@pytest.mark.parametrize(
    "task",
    [
        "Which client had 0x14f05578bd80002?",
        "会话 0x14f05578bd80002 属于谁？",
        "what about b9000564-fe1a-409b-b8cc-1e88b294cd1d",
        "who is 10.10.34.13?",
        "how is web-01 today",
    ],
)
def test_an_identifier_of_a_machine_speaks_for_operations(task: str) -> None:
    guess = TYPES.guess(task)
    assert guess.rule.name == "ops_debug" and guess.scores == {"ops_debug": 1.0}


@pytest.mark.parametrize("task", ["a 100 years ago", "well-being", "version 1.2.3 is here", "我在 2026 年"])
def test_what_only_looks_like_one_is_none(task: str) -> None:
    assert "ops_debug" not in TYPES.guess(task).scores
