"""ULIDs as text: 48 bits of milliseconds, 80 bits of anything, in Crockford's base 32."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["encode_ulid", "ulid_milliseconds", "ulid_of"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_FORTY = (1 << 40) - 1


def encode_ulid(milliseconds: int, randomness: bytes) -> str:
    """26 characters that sort by `milliseconds` (since 1970); `randomness` is 10 bytes."""
    return ulid_of(milliseconds, int.from_bytes(randomness, "big"))


def ulid_of(milliseconds: int, randomness: int, pairs: tuple[str, ...] = _PAIRS) -> str:
    """The same, `randomness` as a number of 80 bits."""
    # every file and every call has an id: the time is written once a millisecond, the rest in two halves,
    # because numbers of more than 60 bits are slow to shift
    high, low = randomness >> 40, randomness & _FORTY
    return (
        f"{_time(milliseconds)}"
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def ulid_milliseconds(ulid: str) -> int:
    """The time in a ULID, in milliseconds since 1970. Raises ValueError for a sign that is none of one."""
    milliseconds = 0
    for sign in ulid[:10]:
        milliseconds = milliseconds << 5 | _ALPHABET.index(sign)
    return milliseconds


@lru_cache(maxsize=8)
def _time(milliseconds: int) -> str:
    return "".join([_PAIRS[milliseconds >> shift & 1023] for shift in range(40, -1, -10)])
