"""ULIDs as text: 48 bits of milliseconds, 80 bits of anything, in Crockford's base 32."""

from __future__ import annotations

__all__ = ["encode_ulid"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)


def encode_ulid(milliseconds: int, randomness: bytes) -> str:
    """26 characters that sort by `milliseconds` (since 1970); `randomness` is 10 bytes."""
    number = (milliseconds << 80) | int.from_bytes(randomness, "big")
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])
