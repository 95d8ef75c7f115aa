from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.truths.static.scan import find_secrets

JOIN = "".join  # secrets are put together here, so that no scanner of repositories takes them for real


@pytest.mark.parametrize(
    "line",
    [
        JOIN(["-----BEGIN RSA ", "PRIVATE KEY-----"]),
        JOIN(["-----BEGIN ", "PRIVATE KEY-----"]),
        JOIN(["key: sk-", "proj-abcdefghij0123456789"]),
        JOIN(["gh", "p_abcdefghijklmnopqrstuvwxyz0123456789"]),
        JOIN(["AK", "IAIOSFODNN7EXAMPLE"]),
        JOIN(["xo", "xb-123456789012-abcdefghij"]),
        JOIN(["Authorization: Bea", "rer abcdef0123456789"]),
        JOIN(["ey", "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc_def-123"]),
        "postgres://mind:hunter22@db/truths",
        "password=hunter",
        "  password: hunter22",
        '"db_password": "hunter22"',
        "api_key = 'abcd1234'",
        "secret: correcthorse",
        "密码：hunter22",
        "口令是abc12345",
        "token=abcd",
        "x " + "aB3dE5gH7jK9mN1pQ2sT4vW6" + "yZ8",
    ],
)
def test_secrets_are_found_by_their_shape(line: str) -> None:
    found = find_secrets(f"first line\n{line}\nlast")
    assert [secret.line for secret in found] == [2]
    assert "hunter" not in found[0].kind


@pytest.mark.parametrize(
    "line",
    [
        "Keep confidences; never repeat secrets.",
        "token: a piece of a word",
        "the password is never written here",
        "api_key_env: OPENAI_API_KEY",
        "password: $DB_PASSWORD",
        "password: <yours>",
        "secret: KGAMMA_APPROVAL_SECRET",
        "token: null",
        "密码是由人来管理的",
        "sha256: 69d17bd0d29a55253b6f9e3310f34f97fa3121c88c40b356316a18f333e80a1e",
        "8f14e45f-ceea-467f-9575-6f2d3c1e2a90",
        "01JB6Z0V9Q8W7X6Y5T4S3R2P1N is an id",
        "see https://example.org/a/very/long/path/to/some/page/with/Words/And/Numbers/2026",
        "http://127.0.0.1:9120/api/truths",
        "uni_steady_core.json and KernelSkeletonConfigurationFile",
        "config/kernel_skeleton.yaml: gateway 9120",
        "",
    ],
)
def test_what_only_speaks_of_secrets_is_none(line: str) -> None:
    assert find_secrets(line) == []


@given(st.integers(0, 10**9))
def test_random_keys_are_found_wherever_they_stand(seed: int) -> None:
    chance = random.Random(seed)
    key = JOIN(chance.choices(string.ascii_letters + string.digits, k=43))
    if all(
        any(c in kind for c in key)
        for kind in (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    ):
        (secret,) = find_secrets(f"gateway {key}")
        assert key not in secret.kind


@given(st.text())
def test_any_text_can_be_scanned(text: str) -> None:
    lines = [secret.line for secret in find_secrets(text)]
    assert lines == sorted(set(lines))


def test_a_long_line_is_scanned_in_its_length() -> None:
    assert find_secrets("a" * 200_000) == []
    assert len(find_secrets("password:" * 20_000)) <= 1
