"""What had to hold, and whether it did."""

from __future__ import annotations

import platform
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.life.days import ZONE, Calendar, expected_slots
from benchmarks.life.living import Account
from kernel_gamma.contracts.truths import Search
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.truths.self_index import SelfIndex
from kernel_gamma.truths.store import SqliteTruths, open_truths

__all__ = ["Finding", "judge", "table"]

_LIMIT = 65_536
"""Bytes of now.md, as shipped."""
_FLAT = 1.3
"""The most the last third may have over the first."""


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    what: str
    seen: str
    wanted: str
    holds: bool


def judge(account: Account, calendar: Calendar) -> list[Finding]:
    """All findings."""
    return [
        *_pages(account),
        *_counts(account, calendar),
        *_flat(account),
        _idle(account, calendar),
        *_slots(account),
        *_found(account, calendar),
        Finding("exit code", str(account.exit_code), "0", account.exit_code == 0),
    ]


def table(account: Account, calendar: Calendar, findings: Sequence[Finding]) -> str:
    """Markdown."""
    assert account.endpoint is not None
    head = (
        f"{len(calendar.days)} days, {account.dropped:,} events, {account.kills} kills, "
        f"{sum(1 for day in calendar.days if day.model_away)} outages of six hours, lived in "
        f"{account.lasted_sec / 60:.0f} minutes; Python {platform.python_version()}. "
        f"Calls: {dict(account.endpoint.agents)}; refused: {account.endpoint.refused}."
    )
    rows = [f"| {f.what} | {f.seen} | {f.wanted} | {'yes' if f.holds else '**no**'} |" for f in findings]
    return "\n".join([head, "", "| | seen | wanted | holds |", "|---|---|---|---|", *rows])


def _pages(account: Account) -> list[Finding]:
    now, state = account.largest.get("stream/now.md", 0), account.largest.get("state.md", 0)
    return [
        Finding("now.md at its largest", f"{now:,} bytes", f"{_LIMIT:,}", 0 < now <= _LIMIT),
        Finding("state.md at its largest", f"{state:,} bytes", "8,192", state <= 8192),
    ]


def _counts(account: Account, calendar: Calendar) -> list[Finding]:
    data = account.data
    done = Counter(path.name for path in (data / "inbox/pending/done").rglob("e*.json"))
    dead = [p for p in (data / "dead_letter").rglob("e*.json") if not p.name.endswith(".reason.json")]
    accounted = sum(done.values()) + len(dead)
    replies = [p for p in (data / "outbox").rglob("out_*.json")]
    people = sum(1 for event in calendar.events if event.word)
    return [
        Finding(
            "dropped = done + dead", f"{accounted:,}", f"{account.dropped:,}", accounted == account.dropped
        ),
        Finding("dead letters", str(len(dead)), "0", not dead),
        Finding(
            "still waiting at the end", str(sum(account.left.values())), "0", not any(account.left.values())
        ),
        Finding("replies to people", f"{len(replies):,}", f"{people:,}", len(replies) == people),
    ]


def _flat(account: Account) -> list[Finding]:
    endpoint = account.endpoint
    assert endpoint is not None
    per_call = {d: endpoint.tokens[d] / n for d, n in endpoint.calls.items() if n and account.events.get(d)}
    per_event = {d: endpoint.tokens[d] / account.events[d] for d in per_call}
    starts = dict(account.starts)
    growth = _growth(account)
    return [
        _ratio("tokens of a prompt", per_call, "{:.0f}"),
        _ratio("tokens per event", per_event, "{:.0f}"),
        _ratio("seconds until it serves", starts, "{:.2f}", slack=2.0),
        Finding("largest prompt", f"{endpoint.largest:,} tokens", "12,000", endpoint.largest <= 12_000),
        Finding("disk per event", f"{growth / 1024:.1f} kB", "reported", True),
    ]


def _ratio(what: str, by_day: Mapping[int, float], form: str, slack: float = _FLAT) -> Finding:
    """The first third beside the last; the first day, when everything is empty, does not count."""
    days = sorted(day for day in by_day if day > 0)
    third = max(1, len(days) // 3)
    if len(days) < 2:
        return Finding(what, "too few days", f"x {slack}", True)
    early = statistics.median(by_day[day] for day in days[:third])
    late = statistics.median(by_day[day] for day in days[-third:])
    seen = f"{form.format(early)} → {form.format(late)} (x {late / early:.2f})"
    return Finding(what, seen, f"x {slack}", late <= early * slack)


def _growth(account: Account) -> float:
    sizes, events = dict(account.sizes), account.events
    first, last = min(sizes), max(sizes)
    return (sizes[last] - sizes[first]) / max(1, sum(n for day, n in events.items() if day > first))


def _idle(account: Account, calendar: Calendar) -> Finding:
    endpoint = account.endpoint
    assert endpoint is not None
    quiet = {number for number, day in enumerate(calendar.days) if day.quite_idle}
    calls = [agent for number, agent in endpoint.asked if number in quiet]
    seen = f"{len(calls)} calls on {len(quiet)} days {dict(Counter(calls)) or ''}".strip()
    return Finding("days on which nothing happens", seen, "0 calls", not calls)


def _slots(account: Account) -> list[Finding]:
    fired: dict[str, Counter[str]] = {}
    for path in (account.data / "rhythm/triggers").rglob("*_*.json"):
        rule, _, slot = path.stem.rpartition("_")
        fired.setdefault(rule, Counter())[slot] += 1
    found = []
    for rule, expected in expected_slots(account.first, account.last).items():
        seen = fired.get(rule, Counter())
        late = set(expected[-2:])  # the last ones may be due just as it ends
        missing = [slot for slot in expected if slot not in seen and slot not in late]
        doubled = [slot for slot, count in seen.items() if count > 1]
        strange = [slot for slot in seen if slot not in expected]
        told = (
            f"{len(seen)} of {len(expected)}, {len(missing)} missed, {len(doubled)} twice, {len(strange)} odd"
        )
        found.append(Finding(f"slots of {rule}", told, "each once", not (missing or doubled or strange)))
    return found


def _found(account: Account, calendar: Calendar) -> list[Finding]:
    """Every message by its word, in the index of the self as it stands at the end."""
    clock = SystemClock(str(ZONE))
    words = [event.word for event in calendar.events if event.word]
    store = open_truths(account.data / "memory.db", clock)
    try:
        SelfIndex(store, PastFiles(account.data / "self", ZONE), clock).refresh()
        missing = [word for word in words if not _hits(store, word)]
    finally:
        store.close()
    seen = f"{len(words) - len(missing):,} of {len(words):,}"
    return [Finding("messages found by search", seen, "all", not missing)]


def _hits(store: SqliteTruths, word: str) -> bool:
    found = store.search(Search(query=word, limit=5))
    return any(word in str(result.truth.value) for result in found.results)
