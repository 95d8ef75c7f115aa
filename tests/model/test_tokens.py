from __future__ import annotations

import hashlib
import subprocess
import sys
import threading

import pytest

from kernel_gamma.model.tokens import (
    Calibration,
    Tokens,
    _read_table,
    encoding_for,
    estimate,
    without_surrogates,
)

EN = (
    "This morning I walked in the park; the weather was fine, and I met an old friend who asked"
    " whether I'd like to travel with her. I decided to answer tomorrow.\n"
) * 8
ZH = "今天早上我去公园散步，天气很好，遇见了小明。他说下周要去上海出差，问我要不要一起去。\n" * 8
JSON = '{"envelope": {"id": "msg_01J8ZK3", "hops": 0}, "payload": {"text": "hello there"}}\n' * 8


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    loaded = Tokens()
    loaded.load("o200k_base")
    return loaded


def test_ids_are_those_tiktoken_gives(tokens: Tokens) -> None:
    # Known ids of the published encodings.
    assert tokens.encode("hello world", "o200k_base") == [24912, 2375]
    assert tokens.encode("hello world", "cl100k_base") == [15339, 1917]
    assert tokens.encode("tiktoken is great!", "cl100k_base") == [83, 1609, 5963, 374, 2294, 0]


def test_special_tokens_in_a_text_are_plain_text(tokens: Tokens) -> None:
    assert 199999 not in tokens.encode("<|endoftext|>")
    assert tokens.count("<|endoftext|>") > 1


def test_lone_surrogates_are_counted_as_replacement_characters(tokens: Tokens) -> None:
    assert tokens.encode("a\ud83d b") == tokens.encode("a\ufffd b")
    assert without_surrogates("\ud83d\ude00 \udc00") == "😀 \ufffd"


def test_a_short_text_does_not_load_the_table_and_a_long_one_does() -> None:
    fresh = Tokens()
    assert fresh.count("hello world") > 0
    assert not fresh.loaded()
    exact = fresh.count(EN)
    assert fresh.loaded()
    assert exact == len(fresh.encode(EN))
    assert fresh.count("hello world") == 2


def test_counts_of_long_and_short_texts_are_remembered(tokens: Tokens) -> None:
    class Counting(Tokens):
        encoded = 0

        def encode(self, text: str, encoding: str = "o200k_base") -> list[int]:  # type: ignore[override]
            self.encoded += 1
            return super().encode(text)

    counting = Counting()
    counting.load()
    for _ in range(3):
        assert counting.count(EN) == tokens.count(EN)
        assert counting.count("short") == tokens.count("short")
    assert counting.encoded == 2


def test_several_threads_load_one_table() -> None:
    fresh = Tokens()
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(fresh.count(ZH))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(counts)) == 1
    assert len(counts) == 4


@pytest.mark.parametrize("text", [EN, ZH, JSON, EN + ZH])
def test_the_estimate_is_near_the_count(tokens: Tokens, text: str) -> None:
    assert estimate(text) == pytest.approx(tokens.count(text), rel=0.15)


def test_the_estimate_of_nothing_is_nothing() -> None:
    assert estimate("") == 0
    assert estimate(" ") == 1


def test_unknown_models_are_counted_with_a_margin() -> None:
    assert encoding_for("gpt-4.1-mini") == ("o200k_base", True)
    assert encoding_for("openai/gpt-4o") == ("o200k_base", True)
    assert encoding_for("gpt-4") == ("cl100k_base", True)
    assert encoding_for("qwen2.5-7b-instruct") == ("o200k_base", False)
    assert Calibration(exact=False).applied(1000) == 1100
    assert Calibration(exact=True).applied(1000) == 1000


def test_reported_usage_corrects_the_margin_within_bounds() -> None:
    learned = Calibration(exact=False)
    learned.observe(1000, 1400)
    assert learned.applied(1000) == 1400
    learned.observe(1000, 1410)
    assert learned.applied(1000) == 1400, "small changes do not move it"
    wild = Calibration(exact=False)
    wild.observe(1000, 90_000)
    assert wild.ratio == pytest.approx(2.5)
    tiny = Calibration(exact=False)
    tiny.observe(10, 90)
    assert tiny.ratio == Calibration.FIRST_RATIO
    exact = Calibration(exact=True)
    exact.observe(1000, 2000)
    assert exact.applied(1000) == 1000


def test_a_damaged_table_is_refused() -> None:
    with pytest.raises(ValueError, match="install kernel-gamma again"):
        _read_table("o200k_base", hashlib.sha256(b"another").hexdigest())


def test_the_memory_of_a_loaded_table_stays_small() -> None:
    code = (
        "from kernel_gamma.model.gateway import ModelGateway\n"
        "from kernel_gamma.model.tokens import Tokens\n"
        "def mb():\n"
        "    return int(open('/proc/self/statm').read().split()[1]) * 4096 // 1_000_000\n"
        "before = mb(); Tokens().load(); print(before, mb())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, run.stdout.split())
    assert before < 100
    assert after < 180
