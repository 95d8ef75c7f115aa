"""`kgamma why` and `kgamma tokens`: calls that were made, part by part, and what they came to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

from kernel_gamma.cli.assemblies import audit_table, calls_of, explained, totals_of
from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.memory import memory_file, open_memory
from kernel_gamma.cli.terminal import HomeOption, JsonOption, print_json, print_table, say
from kernel_gamma.context.sums import Sums

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
    sums = Sums()
    if memory_file(place).exists():
        since = place.clock.now() - timedelta(days=days)
        with open_memory(place) as store:
            for truth in store.each("assembly"):
                value = truth.value
                if isinstance(value, dict) and "parts" in value and truth.timestamp >= since:
                    sums.add(value)
    if as_json:
        print_json({"days": days, **sums.as_json()})
    else:
        _show(sums, days)


def _only(audit: Mapping[str, Any], about: str | None) -> Mapping[str, Any]:
    """Only the pieces whose source holds `about`."""
    if about is None:
        return audit
    return {**audit, "parts": [entry for entry in audit["parts"] if about in entry["source"]]}


def _show(sums: Sums, days: int) -> None:
    when = "the last 24 hours" if days == 1 else f"the last {days} days"
    if not sums.calls:
        say(f"no call was made in {when}")
        return
    say(f"{sums.calls} calls in {when}: {sums.prompt} prompt + {sums.completion} answer tokens")
    if sums.cached_share is not None:
        say(f"read from the endpoint's prefix cache: {sums.cached_share:.0%}")
    if sums.saved_share is not None:
        say(f"everything would have been {sums.everything} tokens: {sums.saved_share:.0%} saved")
    say(f"cost {sums.cost:.6g}")
    for title, counts in (
        ("agent", sums.by_agent),
        ("task type", sums.by_type),
        ("section", sums.by_section),
    ):
        total = sum(counts.values()) or 1
        ordered = sorted(counts.items(), key=lambda item: -item[1])
        say()
        print_table(
            [title, "tokens", "share"],
            [[name or "—", str(count), f"{count / total:.0%}"] for name, count in ordered],
        )
