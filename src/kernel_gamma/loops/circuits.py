"""A circuit for one source in one session: open, it keeps a loop from going round. Pure.

    closed ──trip──▶ open ──`until`──▶ half open ──quiet──▶ forgotten
                      ▲                    │ what waited, or one echo, passes
                      └──── trip again ────┘   (the pause doubles)

Its state is a claim in the ledger, written in the commit that opens it, so it survives whatever is killed.
Only the message_preprocessor writes it. Times are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from kernel_gamma.contracts.effects import Claim
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.loops.keys import digest
from kernel_gamma.settings import LoopSettings

__all__ = [
    "CIRCUITS",
    "LOOPS",
    "WORRIES",
    "Kind",
    "acted_key",
    "circuit_key",
    "held",
    "is_open",
    "open_loops",
    "run_key",
    "tripped",
    "turns_of",
]

Kind = Literal["echo", "turns"]

LOOPS = "loop."
"""All keys of this package begin so."""
CIRCUITS = "loop.circuit:"
WORRIES = "loop.worry:"


def circuit_key(kind: Kind, session: str, source: str) -> str:
    """Where the circuit of a source in a session is kept."""
    return CIRCUITS + digest(kind, session, source)


def run_key(session: str, source: str) -> str:
    """Where the echoes in a row from a source in a session are counted."""
    return "loop.run:" + digest(session, source)


def acted_key(session: str) -> str:
    """Where it is kept when she last acted for a session, and for whom."""
    return "loop.acted:" + digest(session)


def is_open(circuit: Mapping[str, Json] | None, now: datetime) -> bool:
    """Whether nothing passes now."""
    return circuit is not None and now.timestamp() < float(circuit["until"])


def tripped(
    before: Mapping[str, Json] | None,
    *,
    kind: Kind,
    session: str,
    source: str,
    now: datetime,
    rules: LoopSettings,
) -> Claim:
    """The circuit opens, for twice as long as the last time it did."""
    trip = int(before["trip"]) + 1 if before else 1
    pause = min(rules.circuit_max_sec, rules.circuit_sec * 2.0 ** min(trip - 1, 32))
    return _claim(
        {
            "key": circuit_key(kind, session, source),
            "kind": kind,
            "session": session,
            "source": source,
            "since": before["since"] if before else now.timestamp(),
            "until": now.timestamp() + pause,
            "pause": pause,
            "trip": trip,
            "held": int(before["held"]) if before else 0,
            "passed": False,
        },
        now,
        rules,
    )


def held(circuit: Mapping[str, Json], now: datetime, rules: LoopSettings, *, passed: bool = False) -> Claim:
    """One more event was kept back by it, or (`passed`) let through now that it is half open."""
    if passed:
        return _claim({**circuit, "passed": True}, now, rules)
    return _claim({**circuit, "held": int(circuit["held"]) + 1}, now, rules)


def _claim(circuit: Mapping[str, Json], now: datetime, rules: LoopSettings) -> Claim:
    """Remembered past its end for as long as it was open, at least for the window in which loops count."""
    end = max(now.timestamp(), float(circuit["until"])) + max(rules.window_sec, float(circuit["pause"]))
    hours = (end - now.timestamp()) / 3600
    return Claim(key=str(circuit["key"]), value=circuit, hours=hours, renew=True)


def turns_of(acted: Mapping[str, Json] | None, source: str, now: datetime, window_sec: float) -> int:
    """How often in a row, up to now, she acted for `source` alone within the window."""
    count = 0
    for at, who in reversed(acted["turns"] if acted else []):
        if who != source or now.timestamp() - float(at) > window_sec:
            break
        count += 1
    return count


def open_loops(kept: Mapping[str, Mapping[str, Json]], now: datetime) -> list[dict[str, Json]]:
    """For status: circuits that are open or half open, then worries that keep coming back."""
    found: list[dict[str, Json]] = []
    for key, value in kept.items():
        if key.startswith(CIRCUITS):
            found.append(
                {
                    "kind": value["kind"],
                    "source": value["source"],
                    "session": value["session"],
                    "state": "open" if is_open(value, now) else "half-open",
                    "since": _moment(value["since"], now),
                    "until": _moment(value["until"], now),
                    "opened": value["trip"],
                    "held": value["held"],
                }
            )
        elif key.startswith(WORRIES) and not value.get("closed"):
            found.append(
                {
                    "kind": "rumination",
                    "source": "self",
                    "session": value["session"],
                    "state": "open",
                    "since": _moment(value["since"], now),
                    "until": _moment(value["until"], now),
                    "opened": 1,
                    "held": value["count"],
                    "text": value["line"],
                }
            )
    return found


def _moment(epoch: Json, now: datetime) -> str:
    return rfc3339(datetime.fromtimestamp(float(epoch), now.tzinfo))
