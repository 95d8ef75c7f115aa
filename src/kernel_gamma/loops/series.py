"""Near-identical events of one source, folded: the first few are perceived, the rest told as one. Pure.

Events are alike when they have the same source, session, type and trust, and the same text and data but for
times, numbers and ids. The count of a series is a claim in the ledger, written in the commit that finishes
the folded file, so a killed process counts nothing twice and forgets nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kernel_gamma.contracts.effects import Claim
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.language import language_of
from kernel_gamma.contracts.payloads import Event
from kernel_gamma.loops.keys import digest
from kernel_gamma.settings import LoopSettings
from kernel_gamma.truths.folding import mask, names_joined

__all__ = ["SERIES", "Came", "due_at", "foldable", "series_key", "taken_in", "told"]

SERIES = "loop.series:"
_NEVER = ("message", "rhythm.", "action.", "page.", "loop.")
"""Types that are never folded: words addressed to her, the clock, what she did herself."""
_KEPT_CHARS = 2000
_UNTOLD_HOURS = 24.0 * 365
"""While something is folded and not told, the count must not be forgotten."""


@dataclass(frozen=True, slots=True)
class Came:
    """What one more event of a series comes to."""

    claim: Claim
    """The series as it stands now."""
    into: str | None
    """The event it was folded into; None: it is perceived itself."""
    due: bool = False
    """So many are folded that they are to be told at once."""


def foldable(event: Event) -> bool:
    """Whether an event may be folded at all."""
    return not (event.is_message or event.type.startswith(_NEVER) or event.attachments)


def series_key(event: Event) -> str:
    """The same for events that are alike."""
    data = json.dumps(event.data, sort_keys=True, ensure_ascii=False, default=str) if event.data else ""
    looks = [mask(names_joined(text)) for text in (event.text, data)]
    whose = [event.session, event.from_, event.type, event.trust, *looks]
    return SERIES + digest(*whose)


def taken_in(
    before: Mapping[str, Json] | None,
    event: Event,
    *,
    now: datetime,
    rules: LoopSettings,
    new_ids: tuple[str, str],
) -> Came:
    """One more event; `new_ids` are an event id and a trace id for what it may be folded into."""
    at = now.timestamp()
    series: dict[str, Json] = dict(before) if before else {"seen": 0, "folded": 0, "total": 0}
    series["key"] = series_key(event)
    if series["seen"] < rules.fold_after and not series["folded"]:
        series["seen"] += 1
        return Came(_claim(series, rules), None)
    if not series["folded"]:
        window = min(rules.fold_max_sec, float(series.get("window", rules.fold_window_sec / 2)) * 2)
        event_id, trace_id = new_ids
        series |= {"since": at, "window": window, "due": at + window, "id": event_id, "trace_id": trace_id}
        series |= {
            "session": event.session, "from": event.from_, "type": event.type, "channel": event.channel,
            "trust": event.trust,
        }  # fmt: skip
    series["folded"] += 1
    series["total"] += 1
    series["last"] = event.text[:_KEPT_CHARS]
    series["last_at"] = at
    return Came(_claim(series, rules), str(series["id"]), _is_round(series["total"]) or at >= series["due"])


def due_at(series: Mapping[str, Json]) -> float | None:
    """When what is folded is to be told, in epoch seconds; None when nothing is."""
    return float(series["due"]) if series["folded"] else None


def told(series: Mapping[str, Json], now: datetime, rules: LoopSettings) -> tuple[Event, Claim]:
    """The one event that tells all that are folded, and the series after it."""
    since = datetime.fromtimestamp(float(series["since"]), now.tzinfo)
    clock = f"{since:%H:%M}" if since.date() == now.date() else f"{since:%Y-%m-%d %H:%M}"
    last = str(series["last"])
    chinese = language_of(last) == "zh"
    counted = f"自 {clock} 起 ×{series['folded']}" if chinese else f"×{series['folded']} since {clock}"
    text = f"{counted}{'：' if chinese else ': '}{last}" if last else counted
    folded = {"count": series["folded"], "since": since.isoformat(), "total": series["total"]}
    event = Event.model_validate(
        {
            "id": series["id"], "type": series["type"], "text": text, "from": series["from"],
            "session": series["session"], "channel": series["channel"], "time": now,
            "data": {"folded": folded}, "trust": series["trust"], "trace_id": series["trace_id"],
        }
    )  # fmt: skip
    return event, _claim({**series, "folded": 0}, rules)


def _claim(series: Mapping[str, Json], rules: LoopSettings) -> Claim:
    window = float(series.get("window", rules.fold_window_sec))
    hours = _UNTOLD_HOURS if series["folded"] else window / 3600
    return Claim(key=str(series["key"]), value=series, hours=hours, renew=True)


def _is_round(total: int) -> bool:
    """10, 100, 1000, …: what comes that often is worth a word before its time."""
    return total >= 10 and str(total).strip("0") == "1"
