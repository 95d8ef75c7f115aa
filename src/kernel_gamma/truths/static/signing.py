"""How both sides of an approval sign: with one shared secret, and a time. Pure.

Ours, in both directions: HMAC-SHA256 over `<unix seconds>.<body>`, in hexadecimal. A Feishu bot is told by
its own scheme, and a Feishu card that was clicked is signed by another one, also its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

__all__ = [
    "SIGNATURE",
    "TIMESTAMP",
    "WINDOW_SEC",
    "BadSignature",
    "check_signature",
    "feishu_bot_sign",
    "feishu_card_signature",
    "signature_of",
    "signed_headers",
]

TIMESTAMP, SIGNATURE = "X-Kgamma-Timestamp", "X-Kgamma-Signature"
_LARK_TIMESTAMP, _LARK_NONCE, _LARK_SIGNATURE = (
    "X-Lark-Request-Timestamp",
    "X-Lark-Request-Nonce",
    "X-Lark-Signature",
)
WINDOW_SEC = 300
"""So far may the time of a signed request be from ours, in either direction."""
_MOST_DIGITS = 12
_PREFIX = "sha256="


class BadSignature(Exception):
    """A request that is not signed as it must be; `str()` says why, never what would be right."""


def signature_of(secret: str, timestamp: int, body: bytes) -> str:
    """As it stands in X-Kgamma-Signature; `timestamp` in seconds since 1970."""
    signed = f"{timestamp}.".encode() + body
    return _PREFIX + hmac.new(secret.encode("utf-8", "surrogateescape"), signed, hashlib.sha256).hexdigest()


def signed_headers(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a signed request."""
    return {TIMESTAMP: str(timestamp), SIGNATURE: signature_of(secret, timestamp, body)}


def check_signature(secret: str, headers: Mapping[str, str], body: bytes, *, now: float, feishu: bool) -> str:
    """What names this request among all of the window: the same request again has the same.

    `headers` are asked for without regard to case; `now` in seconds since 1970. With `feishu` a signature of
    a Feishu card is taken too. Raises BadSignature.
    """
    if feishu and headers.get(_LARK_SIGNATURE):
        written, given = headers.get(_LARK_TIMESTAMP, ""), headers.get(_LARK_SIGNATURE, "")
        timestamp = _time_in(written, _LARK_TIMESTAMP)
        right = feishu_card_signature(secret, written, headers.get(_LARK_NONCE, ""), body)
    else:
        written, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
        if not written or not given:
            raise BadSignature(f"an answer is signed: the headers {TIMESTAMP} and {SIGNATURE} are missing")
        timestamp = _time_in(written, TIMESTAMP)
        right = signature_of(secret, timestamp, body)
    if not hmac.compare_digest(right.encode(), given.strip().encode("utf-8", "replace")):
        raise BadSignature("the signature is not that of this body, this time and the shared secret")
    if abs(now - timestamp) > WINDOW_SEC:
        raise BadSignature(f"the time of the signature is more than {WINDOW_SEC} seconds from ours")
    return right


def feishu_bot_sign(secret: str, timestamp: int) -> str:
    """The `sign` of a message to a Feishu custom bot."""
    key = f"{timestamp}\n{secret}".encode("utf-8", "surrogateescape")
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


def feishu_card_signature(secret: str, timestamp: str, nonce: str, body: bytes) -> str:
    """X-Lark-Signature of a click on a card; `secret` is the app's Encrypt Key."""
    begun = f"{timestamp}{nonce}{secret}".encode("utf-8", "surrogateescape")
    return hashlib.sha256(begun + body).hexdigest()


def _time_in(written: str, header: str) -> int:
    if not (written.isascii() and written.isdigit() and len(written) <= _MOST_DIGITS):
        raise BadSignature(f"{header} must be a time in whole seconds since 1970")
    return int(written)
