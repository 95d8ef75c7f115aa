"""How a loop is told: to the mind once, in the first person; to the store as an incident. Fixed words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from kernel_gamma.contracts.effects import Record
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.language import Language

__all__ = ["incident", "notice", "over"]

_NOTICES: Mapping[str, Mapping[Language, str]] = {
    "echo": {
        "en": "My own words keep coming back to me from {source}. I do not answer them until {until}.",
        "zh": "我自己的话不断从 {source} 那里传回来。到 {until} 之前，我不再理会它们。",
    },
    "turns": {
        "en": "{source} and I keep setting each other off. I rest from it until {until}; "
        "what comes meanwhile waits.",
        "zh": "我和 {source} 一直在互相牵动。我先停一停，到 {until} 为止；这期间来的都会等着。",
    },
}


def notice(circuit: Mapping[str, Json], language: Language, now: datetime) -> str:
    """The line for the stream when a circuit opens for the first time."""
    until = datetime.fromtimestamp(float(circuit["until"]), now.tzinfo)
    clock = f"{until:%H:%M:%S}" if until.date() == now.date() else f"{until:%Y-%m-%d %H:%M}"
    source = " ".join(str(circuit["source"]).split())[:80]
    return _NOTICES[str(circuit["kind"])][language].format(source=source, until=clock)


def incident(circuit: Mapping[str, Json], now: datetime) -> Record:
    """`incident.loop_<kind>`: a circuit opened."""
    until = rfc3339(datetime.fromtimestamp(float(circuit["until"]), now.tzinfo))
    return _record(circuit, f"opened until {until}", {"state": "open", "until": until})


def over(circuit: Mapping[str, Json]) -> Record:
    """The same circuit after its pause: a record of its own, which closes the first."""
    return _record(circuit, "closed", {"state": "closed"})


def _record(circuit: Mapping[str, Json], what: str, value: Mapping[str, Json]) -> Record:
    kind, source, session = circuit["kind"], circuit["source"], circuit["session"]
    return Record(
        category=f"incident.loop_{kind}",
        description=f"{kind} loop with {source} in {session}: the circuit {what}",
        value={
            "circuit": circuit["key"], "trip": circuit["trip"], "kind": kind, "source": source,
            "session_key": session, "held": circuit["held"], **value,
        },
        trust="unknown",
    )  # fmt: skip
