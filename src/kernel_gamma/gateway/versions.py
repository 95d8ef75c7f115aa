"""Versions over HTTP: ETag tells which one stands, If-Match and If-None-Match say which a request means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_gamma.contracts.truths import Truth
from kernel_gamma.gateway.problems import Refused

__all__ = ["ETAG", "PRECONDITIONS", "Preconditions", "etag", "is_named"]

ETAG = {"ETag": {"description": "The version, in quotes.", "schema": {"type": "string"}}}
_TAG = r'(?:W/)?"[!#-~]*"'
_TAGS = re.compile(_TAG)
_IF_MATCH = rf"(?:\*|{_TAG}(?: ?, ?{_TAG})*)"
_ONE_TAG = re.compile(r'"(\d{1,15})"')
PRECONDITIONS: list[dict[str, Any]] = [
    {
        "name": "If-Match",
        "in": "header",
        "required": False,
        "description": "The version this write follows, as in ETag; `*` for any. Several stand with commas.",
        "schema": {"type": "string"},
    },
    {
        "name": "If-None-Match",
        "in": "header",
        "required": False,
        "description": "`*`: there must be none yet.",
        "schema": {"type": "string"},
    },
]
"""The headers of a write, as the OpenAPI declares them."""


def etag(version: int) -> str:
    """The version as it stands in ETag."""
    return f'"{version}"'


def is_named(if_none_match: str, truth: Truth) -> bool:
    """Whether the header of a read names the version that stands."""
    tags = [tag.removeprefix("W/") for tag in _TAGS.findall(if_none_match)]
    return if_none_match.strip() == "*" or etag(truth.version) in tags


@dataclass(frozen=True, slots=True)
class Preconditions:
    """If-Match and If-None-Match of a write."""

    if_match: str | None = None
    if_none_match: str | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Preconditions:
        """Raises Refused 412 for an If-Match that is not written as one: it names no version that stands."""
        if_match = headers.get("if-match")
        if if_match is not None:
            if_match = if_match.strip()
            if not re.fullmatch(_IF_MATCH, if_match):
                said = 'must be the version in quotes, as ETag has it, like "3"; or * for any'
                wrong = {"errors": [{"field": "If-Match", "problem": said}]}
                raise Refused(412, f"If-Match: {said}", extra=wrong)
        return cls(if_match, headers.get("if-none-match"))

    @property
    def some(self) -> bool:
        """Whether there are any."""
        return self.if_match is not None or self.if_none_match is not None

    @property
    def pinned(self) -> bool:
        """Whether they name one version, or none: then another that stands is not to be followed."""
        return self.if_none_match is not None or bool(_ONE_TAG.fullmatch(self.if_match or ""))

    def expected(self, standing: Callable[[], int]) -> int | None:
        """The version the write follows, 0 = there is none yet, None = any. `standing` tells which stands.

        Raises Refused 412 when it cannot be met.
        """
        if self.if_none_match is not None:
            if self.if_none_match.strip() != "*":
                raise Refused(
                    412, "If-None-Match: only `*` has a meaning for a write: there must be none yet"
                )
            return 0
        if self.if_match is None:
            return None
        if (one := _ONE_TAG.fullmatch(self.if_match)) is not None and int(one[1]) > 0:
            return int(one[1])
        version = standing()
        if version and (self.if_match == "*" or etag(version) in _TAGS.findall(self.if_match)):
            return version
        raise Refused(412, "If-Match: no such version stands", extra={"version": version})
