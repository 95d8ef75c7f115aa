"""Sums over calls: tokens by agent, task type and section, what was saved, what came from caches. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_gamma.contracts.envelope import Json

__all__ = ["Sums"]


def _counts() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass(slots=True)
class Sums:
    """Of the accounts of calls that were made; accounts that no call followed count nothing."""

    calls: int = 0
    prompt: int = 0
    """Prompt tokens as the endpoints reported them."""
    completion: int = 0
    cached: int = 0
    cost: float = 0.0
    sent: int = 0
    """Tokens of the prompts for which "everything" was counted too, as assembled."""
    everything: int = 0
    by_agent: defaultdict[str, int] = field(default_factory=_counts)
    by_type: defaultdict[str, int] = field(default_factory=_counts)
    by_section: defaultdict[str, int] = field(default_factory=_counts)
    """`<channel>/<part>`."""

    def add(self, audit: Mapping[str, Any]) -> None:
        """One account (context.audit) with what its call came to."""
        usage = audit.get("usage")
        if not isinstance(usage, Mapping):
            return
        self.calls += 1
        self.prompt += usage.get("prompt_tokens", 0)
        self.completion += usage.get("completion_tokens", 0)
        self.cached += usage.get("cached_tokens", 0)
        self.cost += usage.get("cost", 0.0)
        total = audit["total_tokens"]
        self.by_agent[audit["agent"]] += total
        self.by_type[audit["task_type"]] += total
        for entry in audit["parts"]:
            if entry["kept"]:
                self.by_section[f"{entry['channel']}/{entry['name']}"] += entry["tokens"]
        if audit.get("single_tokens") is not None:
            self.sent += total
            self.everything += audit["single_tokens"]

    @property
    def saved_share(self) -> float | None:
        """Of the tokens that sending everything would have taken; None before the first call."""
        return None if not self.everything else round(max(0.0, 1 - self.sent / self.everything), 4)

    @property
    def cached_share(self) -> float | None:
        """Of the prompt tokens, what the endpoints read from their caches; None where none were reported."""
        return None if not self.prompt else round(self.cached / self.prompt, 4)

    def as_json(self) -> dict[str, Json]:
        """As `kgamma tokens --json` and `kgamma status --json` print it."""
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "cached_tokens": self.cached,
            "cached_share": self.cached_share,
            "cost": round(self.cost, 6),
            "assembled_tokens": sum(self.by_agent.values()),
            "single_tokens": self.everything,
            "saved_share": self.saved_share,
            "by_agent": dict(self.by_agent),
            "by_type": dict(self.by_type),
            "by_section": dict(self.by_section),
        }
