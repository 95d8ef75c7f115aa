"""Calls that were made, found again by any of their ids, and how their accounts are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from kernel_gamma.cli.home import Place
from kernel_gamma.cli.terminal import Failed, cut, print_wide, shown
from kernel_gamma.cli.trace import journey_of
from kernel_gamma.contracts.truths import Search, Truth
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["Call", "audit_table", "calls_of", "explained", "totals_of"]

_MOST_CALLS = 50
_CHANNELS = {"static": "A", "dynamic": "B", "self": "self", "agent": "agent"}


@dataclass(frozen=True, slots=True)
class Call:
    """One assembly that was kept."""

    key: str
    audit: Mapping[str, Any]


def calls_of(place: Place, store: SqliteTruths, asked: str) -> Sequence[Call]:
    """The calls of a trace, event, file, passage or audit key, oldest first. Raises Failed."""
    if asked.startswith("assembly."):
        truth = store.get(asked)
        found = [] if truth is None else [_call(truth)]
    else:
        found = _of_traces(store, [asked])
        if not found:
            try:
                traces = journey_of(place, asked).traces
            except Failed:
                traces = []
            found = _of_traces(store, traces)
    if not found:
        raise Failed(
            f"{asked}: no call is kept for it: either no model was asked, or it is more than 30 days ago "
            "(`kgamma trace ID` tells what happened; `kgamma truths recent --category assembly` lists calls)"
        )
    return found


def _of_traces(store: SqliteTruths, traces: Sequence[str]) -> list[Call]:
    calls: dict[str, Call] = {}
    for trace in traces:
        asked = Search(query=trace, categories=("assembly",), limit=_MOST_CALLS, fold=False)
        for found in store.search(asked).results:
            value = found.truth.value
            if isinstance(value, dict) and value.get("trace_id") == trace:
                calls.setdefault(found.truth.key, _call(found.truth))
    return sorted(calls.values(), key=lambda call: call.key)


def _call(truth: Truth) -> Call:
    if not isinstance(truth.value, dict) or "parts" not in truth.value:
        raise Failed(f"{truth.key}: this is no account of a call")
    return Call(truth.key, truth.value)


def explained(audit: Mapping[str, Any]) -> Iterator[str]:
    """What kind of task it was taken for, and what the records were asked."""
    yield f"{audit['task_type']} ({audit['profile']}): {audit['task_why']}"
    if audit.get("tied"):
        yield f"as likely: {', '.join(audit['tied'])}"
    for query in audit.get("queries", ()):
        where = ", ".join(query["categories"]) or "all that come unasked"
        when = " to ".join(part for part in (query["start"], query["end"]) if part)
        asked = f"“{query['query']}”" if query["query"] else "the newest"
        came = query.get("error") or f"{query['hits']} match, {query['kept']} kept, {query['tokens']} tokens"
        yield f"asked for {asked} in {where}{f', {when}' if when else ''}: {came}"
    if audit.get("static_drift"):
        yield f"changed without approval, and not served: {', '.join(audit['static_drift'])}"


def audit_table(audit: Mapping[str, Any]) -> None:
    """Piece by piece: what stands in the prompt, then what does not, and why."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (
        ("part", "left"),
        ("channel", "left"),
        ("tokens", "right"),
        ("rank", "right"),
        ("source", "left"),
        ("", "left"),
    ):
        table.add_column(column, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for entry in _together(audit["parts"]):
        style = "" if entry["kept"] else "dim"
        rank = str(entry["rank"]) if entry.get("rank") else ""
        score = "" if entry.get("score") is None else f"similarity {entry['score']:.2f}"
        times = f"×{entry['count']}" if entry.get("count", 1) > 1 else ""
        said = [f"left out: {entry['reason']}"] if not entry["kept"] else []
        cells = (
            entry["name"],
            _CHANNELS[entry["channel"]],
            str(entry["tokens"]) if entry["kept"] or entry["tokens"] else "",
            rank,
            cut(entry["source"], 70),
            ", ".join(part for part in (score, times, *said) if part),
        )
        table.add_row(*(Text(shown(cell), style) for cell in cells))
    print_wide(table)


def _together(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pieces of one page that stand side by side in one row."""
    rows: list[dict[str, Any]] = []
    for entry in entries:
        before = rows[-1] if rows else {}
        if not entry.get("rank") and all(
            before.get(name) == entry[name] for name in ("name", "source", "kept", "reason")
        ):
            before["tokens"] += entry["tokens"]
        else:
            rows.append(dict(entry))
    return rows


def totals_of(audit: Mapping[str, Any]) -> Iterator[str]:
    """The sums, and what they were measured against."""
    yield (
        f"{audit['total_tokens']} tokens = Channel A {audit['static_tokens']} + self {audit['self_tokens']}"
        f" + Channel B {audit['dynamic_tokens']} + agent {audit['agent_tokens']}"
    )
    limits = audit["limits"]
    yield (
        f"budget {audit['budget']} for Channel A and B, {limits['own']} for the rest;"
        f" {limits['total']} in all, of a window share of {limits['window']}"
    )
    yield f"stable prefix: {audit['prefix_tokens']} tokens, {audit['prefix_hash'][:12]}"
    if audit.get("single_tokens") is not None:
        yield (
            f"everything would be {audit['single_tokens']} tokens: {audit['saved_share']:.0%} saved"
            f" (mode {audit['mode']}, sent {audit['sent']})"
        )
