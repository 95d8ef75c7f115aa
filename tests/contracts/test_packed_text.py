from __future__ import annotations

import pytest

from kernel_gamma.contracts.packed_text import packed, unpacked


@pytest.mark.parametrize("text", ["", "short", "你好" * 5000, "half \ud800 " * 500])
def test_a_text_comes_back_as_it_was_and_a_long_one_is_smaller(text: str) -> None:
    column = packed(text)
    assert unpacked(column) == text
    assert isinstance(column, bytes) is (len(text) > 1000)
    assert not isinstance(column, bytes) or len(column) < len(text) / 10


def test_bytes_that_nobody_packed_are_no_text() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        unpacked(b"\x00nothing of ours")
