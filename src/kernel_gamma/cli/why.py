"""`kgamma why` and `kgamma tokens`: calls that were made, part by part, and what they came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from kernel_gamma.cli.assemblies import audit_table, calls_of, explained, totals_of
from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.memory import memory_file, open_memory
from kernel_gamma.cli.terminal import HomeOption, JsonOption, print_json, print_table, say
from kernel_gamma.contracts.truths import Truth
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def why(
    asked: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    about: Annotated[
        str | None,
        typer.Option("--about", metavar="X", help="Only pieces whose source holds this.", show_default=False),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Why the prompt of a call held what it held: each piece, its source and tokens, and the losers.

    ID is a trace, event, file or passage id, or the key of an account (assembly.…).
    """
    place = open_place(home)
    with open_memory(place, must_exist=True) as store:
        calls = calls_of(place, store, asked)
    audits = [(call.key, _only(call.audit, about)) for call in calls]
    if as_json:
        print_json([{"key": key, **audit} for key, audit in audits])
        return
    for key, audit in audits:
        model = f", {audit['model']}" if audit.get("model") else ""
        say(f"{key}  {audit['agent'] or 'asked by hand'}{model}, {audit['at']}", "bold")
        for line in explained(audit):
            say(line)
        audit_table(audit)
        for line in totals_of(audit):
            say(line)
        say()


@app.command()
def tokens(
    days: Annotated[int, typer.Option(metavar="N", min=1, max=366, help="So many days back.")] = 1,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tokens and cost of the calls: by agent, by task type, by section; saved share and prefix cache.

    Accounts are kept for 30 days (config/retention.yaml).
    """
    place = open_place(home)
    summary = _Summary()
    if memory_file(place).exists():
        since = place.clock.now() - timedelta(days=days)
        with open_memory(place) as store:
            _add_up(store, since, summary)
    if as_json:
        print_json(summary.as_json(days))
        return
    summary.show(days)


def _only(audit: Mapping[str, Any], about: str | None) -> Mapping[str, Any]:
    """Only the pieces whose source holds `about`."""
    if about is None:
        return audit
    return {**audit, "parts": [entry for entry in audit["parts"] if about in entry["source"]]}


def _add_up(store: SqliteTruths, since: datetime, summary: _Summary) -> None:
    for truth in store.each("assembly"):
        value = truth.value
        if isinstance(value, dict) and "parts" in value and truth.timestamp >= since:
            summary.add(truth, value)


class _Summary:
    """Sums over calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.prompt = 0
        self.completion = 0
        self.cached = 0
        self.cost = 0.0
        self.sent = 0
        self.everything = 0
        self.by_agent: dict[str, int] = defaultdict(int)
        self.by_type: dict[str, int] = defaultdict(int)
        self.by_section: dict[str, int] = defaultdict(int)

    def add(self, truth: Truth, audit: Mapping[str, Any]) -> None:
        """One call; an account that no call was made for (`kgamma context`) counts nothing."""
        usage = audit.get("usage")
        if not isinstance(usage, dict):
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
        return None if not self.everything else round(max(0.0, 1 - self.sent / self.everything), 4)

    @property
    def cached_share(self) -> float | None:
        return None if not self.prompt else round(self.cached / self.prompt, 4)

    def as_json(self, days: int) -> dict[str, Any]:
        return {
            "days": days,
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

    def show(self, days: int) -> None:
        when = "today's last 24 hours" if days == 1 else f"the last {days} days"
        if not self.calls:
            say(f"no call was made in {when}")
            return
        say(f"{self.calls} calls in {when}: {self.prompt} prompt + {self.completion} answer tokens")
        if self.cached_share is not None:
            say(f"read from the endpoint's prefix cache: {self.cached_share:.0%}")
        if self.saved_share is not None:
            say(f"everything would have been {self.everything} tokens: {self.saved_share:.0%} saved")
        say(f"cost {self.cost:.6g}")
        for title, sums in (
            ("agent", self.by_agent),
            ("task type", self.by_type),
            ("section", self.by_section),
        ):
            total = sum(sums.values()) or 1
            ordered = sorted(sums.items(), key=lambda item: -item[1])
            say()
            print_table(
                [title, "tokens", "share"],
                [[name or "—", str(count), f"{count / total:.0%}"] for name, count in ordered],
            )
