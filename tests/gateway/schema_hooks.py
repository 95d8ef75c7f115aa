"""For the run of schemathesis: what JSON Schema cannot say of a request."""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import ZoneInfo

import schemathesis

from kernel_gamma.gateway.forms import aware, last_moment

_ZONE = ZoneInfo("Asia/Shanghai")
_DOTTED = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A category that is given beside a key is the key's own; a time range does not run backwards."""
    body = case.body
    if case.path.endswith("/truth/search") and isinstance(body, dict):
        _forwards(body)
    if case.path.endswith("/truth/upsert") and isinstance(body, dict):
        many = body.get("truths")
        for truth in many if isinstance(many, list) else [body]:
            if (
                isinstance(truth, dict)
                and _valid(truth.get("key"), 200)
                and _valid(truth.get("category"), 150)
            ):
                truth["category"] = truth["key"]  # never longer than it may be, unless the key is
                if len(truth["key"]) > 150:
                    del truth["category"]


def _forwards(body: dict[str, Any]) -> None:
    try:
        start, end = aware(body["start_time"], _ZONE), last_moment(body["end_time"], _ZONE)
    except (KeyError, TypeError, ValueError, AttributeError):  # absent, or wrong in another way
        return
    if end < start:
        body["end_time"] = body["start_time"]


def _valid(name: object, longest: int) -> bool:
    return isinstance(name, str) and len(name) <= longest and _DOTTED.fullmatch(name) is not None
