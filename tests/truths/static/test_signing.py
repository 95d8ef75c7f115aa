from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kernel_gamma.truths.static.signing import (
    SIGNATURE,
    TIMESTAMP,
    WINDOW_SEC,
    BadSignature,
    check_signature,
    feishu_bot_sign,
    feishu_card_signature,
    signed_headers,
)

SECRET, NOW, BODY = "a shared secret 密", 1_796_000_000, b'{"id": 1}'


def test_what_one_side_signs_the_other_side_takes_within_the_window() -> None:
    headers = signed_headers(SECRET, NOW, BODY)
    expected = hmac.new(SECRET.encode(), b"1796000000." + BODY, hashlib.sha256).hexdigest()
    assert headers == {TIMESTAMP: "1796000000", SIGNATURE: f"sha256={expected}"}
    marks = {
        check_signature(SECRET, headers, BODY, now=NOW + late, feishu=False)
        for late in (-WINDOW_SEC, 0, WINDOW_SEC)
    }
    assert len(marks) == 1


@pytest.mark.parametrize(
    ("headers", "body", "late", "said"),
    [
        (signed_headers("another", NOW, BODY), BODY, 0, "not that of"),
        (signed_headers(SECRET, NOW, BODY), BODY + b" ", 0, "not that of"),
        (signed_headers(SECRET, NOW, BODY) | {TIMESTAMP: str(NOW + 1)}, BODY, 0, "not that of"),
        (signed_headers(SECRET, NOW, BODY) | {SIGNATURE: "sha256=é"}, BODY, 0, "not that of"),
        (signed_headers(SECRET, NOW, BODY) | {TIMESTAMP: "1e9"}, BODY, 0, "whole seconds"),
        (signed_headers(SECRET, NOW, BODY) | {TIMESTAMP: "9" * 5000}, BODY, 0, "whole seconds"),
        (signed_headers(SECRET, NOW, BODY), BODY, WINDOW_SEC + 1, "more than 300 seconds"),
        (signed_headers(SECRET, NOW, BODY), BODY, -WINDOW_SEC - 1, "more than 300 seconds"),
        ({}, BODY, 0, "are missing"),
    ],
)
def test_what_is_not_signed_so_is_refused(headers: dict[str, str], body: bytes, late: int, said: str) -> None:
    with pytest.raises(BadSignature, match=said) as refused:
        check_signature(SECRET, headers, body, now=NOW + late, feishu=False)
    assert SECRET not in str(refused.value)


def test_a_feishu_bot_is_signed_with_time_and_secret_as_the_key() -> None:
    key = f"{NOW}\n{SECRET}".encode()
    assert (
        feishu_bot_sign(SECRET, NOW) == base64.b64encode(hmac.new(key, digestmod="sha256").digest()).decode()
    )


def test_a_feishu_card_is_taken_only_where_feishu_is_asked_for() -> None:
    headers = {
        "X-Lark-Request-Timestamp": str(NOW),
        "X-Lark-Request-Nonce": "n1",
        "X-Lark-Signature": hashlib.sha256(f"{NOW}n1{SECRET}".encode() + BODY).hexdigest(),
    }
    mark = check_signature(SECRET, headers, BODY, now=NOW, feishu=True)
    assert mark == feishu_card_signature(SECRET, str(NOW), "n1", BODY)
    for now, body, feishu in ((NOW, BODY, False), (NOW, b"{}", True), (NOW + 301, BODY, True)):
        with pytest.raises(BadSignature):
            check_signature(SECRET, headers, body, now=now, feishu=feishu)
