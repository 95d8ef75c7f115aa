"""Sums over calls add up, and count only calls that were made."""

from __future__ import annotations

from typing import Any

from kernel_gamma.context.sums import Sums


def audit(agent: str = "internalizer", **more: Any) -> dict[str, Any]:
    return {
        "agent": agent,
        "task_type": "ops_debug",
        "total_tokens": 30,
        "single_tokens": 100,
        "parts": [
            {"name": "meta_axioms", "channel": "static", "tokens": 10, "kept": True},
            {"name": "dynamic", "channel": "dynamic", "tokens": 20, "kept": True},
            {"name": "dynamic", "channel": "dynamic", "tokens": 99, "kept": False},
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 5, "cached_tokens": 10, "cost": 0.5},
    } | more


def test_calls_add_up_by_agent_type_and_section() -> None:
    sums = Sums()
    sums.add(audit())
    sums.add(audit("externalizer"))
    told = sums.as_json()
    assert told["calls"] == 2 and told["assembled_tokens"] == 60
    assert told["by_agent"] == {"internalizer": 30, "externalizer": 30}
    assert told["by_section"] == {"static/meta_axioms": 20, "dynamic/dynamic": 40}
    assert (told["saved_share"], told["cached_share"], told["cost"]) == (0.7, 0.25, 1.0)


def test_what_was_only_assembled_and_never_sent_counts_nothing() -> None:
    sums = Sums()
    asked = audit()
    del asked["usage"]
    sums.add(asked)
    assert sums.calls == 0 and sums.saved_share is None and sums.cached_share is None


def test_a_call_whose_everything_could_not_be_counted_says_nothing_of_savings() -> None:
    sums = Sums()
    sums.add(audit(single_tokens=None))
    assert sums.calls == 1 and sums.saved_share is None
