"""The last part of the keys under which loops are remembered. Pure."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["digest"]


def digest(*parts: str) -> str:
    """Sixteen hexadecimal digits for these texts in this order."""
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()
