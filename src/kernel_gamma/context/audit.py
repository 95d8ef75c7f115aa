"""What an assembly came to, piece by piece: what stands in the prompt, what does not, and why. Pure.

The audit holds hashes of what stands in files and texts of what was retrieved, so that the same call can be
fitted again under other limits (`refitted`) without a model and without the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kernel_gamma.context.fences import Count
from kernel_gamma.context.fitting import FOR_WANT_OF_ROOM, Fitted, Lost, fit, size_of
from kernel_gamma.contracts.context import Channel, Guess, Part, Piece
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.ports import Turn
from kernel_gamma.errors import TooLarge

__all__ = ["Limits", "audit_of", "check_forced", "prefix_of", "refitted", "summary_of", "text_of"]

_CHANNELS: tuple[Channel, ...] = ("static", "self", "dynamic", "agent")
_JOINS = "joins"
"""The blank lines between the pieces, and what the tokenizer makes of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What this prompt could take, in tokens."""

    budget: int
    """Channel A and Channel B together: the task type's, or the one that was asked for."""
    own: int
    """What the agent and the mind's own past bring, within their ceilings."""
    window: int
    """The share of the model's window."""

    @property
    def total(self) -> int:
        """What all of it must fit into."""
        return min(self.budget + self.own, self.window)


def audit_of(
    parts: Sequence[Part],
    fitted: Fitted,
    turns: Sequence[Turn],
    *,
    guess: Guess,
    limits: Limits,
    count: Count,
    about: Mapping[str, Json],
) -> dict[str, Json]:
    """The value of an `assembly.` truth. `about`: what else is known (agent, trace, queries …)."""
    entries: list[dict[str, Json]] = []
    for part in fitted.parts:
        if part.heading:
            entries.append(_heading(part, count))
        entries += [_entry(part, piece, kept=True, reason="") for piece in part.pieces]
    total = sum(count(turn.text) for turn in turns)
    joins = total - fitted.tokens
    entries.append(_line(_JOINS, "agent", "between the pieces", joins))
    entries += [_entry(lost.part, lost.piece, kept=False, reason=lost.reason) for lost in fitted.lost]
    sums: dict[str, int] = dict.fromkeys(_CHANNELS, 0)
    for entry in entries:
        if entry["kept"]:
            sums[entry["channel"]] += entry["tokens"]
    prefix = prefix_of(turns, fitted.parts)
    return {
        **about,
        "task_type": guess.rule.name,
        "task_why": guess.why,
        "tied": list(guess.tied),
        "profile": guess.rule.profile,
        **{f"{channel}_tokens": sums[channel] for channel in _CHANNELS},
        "total_tokens": total,
        "budget": limits.budget,
        "limits": {"own": limits.own, "window": limits.window, "total": limits.total},
        "prefix_hash": hashlib.sha256(prefix.encode("utf-8", "replace")).hexdigest(),
        "prefix_tokens": count(prefix) if prefix else 0,
        "prefix_chars": len(prefix),
        "parts": entries,
        "layout": [_layout(part, count) for part in parts],
    }


def prefix_of(turns: Sequence[Turn], parts: Sequence[Part]) -> str:
    """The text up to the first volatile part: what a provider can keep in its cache from call to call."""
    texts: list[str] = []
    for role in ("system", "user"):
        of_turn = [part for part in parts if part.role == role]
        steady: list[str] = []
        for part in of_turn:
            if part.volatile:
                texts.append("\n\n".join(steady))
                return "\n\n".join(text for text in texts if text)
            steady += text_of(part)
        texts.append("\n\n".join(steady))
    return "\n\n".join(text for text in texts if text)


def text_of(part: Part) -> list[str]:
    """The blocks a part puts into its turn."""
    if not part.pieces:
        return []
    return [*([part.heading] if part.heading else []), *(piece.text for piece in part.pieces)]


def check_forced(parts: Sequence[Part], budget: int, count: Count, of: str) -> int:
    """Tokens that Channel A and the core alerts take whatever is trimmed. Raises TooLarge over the budget."""
    forced = sum(size_of(part, count) for part in parts if part.channel == "static" and part.fixed)
    always = sum(size_of(part, count) for part in parts if part.channel == "dynamic" and part.fixed)
    if forced + always > budget:
        raise TooLarge(
            f"static truths ({forced} tokens) and core alerts ({always}) are never trimmed, and may have"
            f" {budget} tokens together ({of})"
        )
    return forced + always


def summary_of(audit: Mapping[str, Any]) -> list[dict[str, Json]]:
    """(name, tokens) of each part that was sent, in its order, for the record of the call."""
    sizes: dict[str, int] = {}
    for entry in audit["parts"]:
        if entry["kept"]:
            sizes[entry["name"]] = sizes.get(entry["name"], 0) + entry["tokens"]
    return [{"name": name, "tokens": tokens} for name, tokens in sizes.items()]


def refitted(audit: Mapping[str, Any], *, budget: int) -> Fitted:
    """The same pieces under another budget of Channel A and Channel B. Raises TooLarge as `fit` does.

    What was left out for anything but want of room stays out. Texts that the audit does not hold are given by
    their hash.
    """
    layouts = {layout["name"]: layout for layout in audit["layout"]}
    by_name: dict[str, list[Piece]] = {name: [] for name in layouts}
    lost: list[Lost] = []
    for entry in sorted(audit["parts"], key=lambda entry: entry.get("rank", 0)):
        if entry["name"] not in layouts or entry["source"] == _HEADING:
            continue
        if entry["kept"] or entry["reason"].startswith(FOR_WANT_OF_ROOM):
            by_name[entry["name"]].append(_piece(entry))
        else:
            lost.append(Lost(_part(layouts[entry["name"]], []), _piece(entry), entry["reason"]))
    parts = [_part(layout, by_name[name]) for name, layout in layouts.items()]
    parts = [_within(part, budget, parts) if part.name == "dynamic" else part for part in parts]

    def count(heading: str) -> int:
        tokens: int = layouts[heading]["heading_tokens"]  # a heading is given by the name of its part
        return tokens

    check_forced(parts, budget, count, audit["task_type"])
    limit = min(budget + audit["limits"]["own"], audit["limits"]["window"])
    fitted = fit(parts, limit=limit, count=count)
    return Fitted(fitted.parts, [*fitted.lost, *lost], fitted.tokens)


_HEADING = "heading"


def _heading(part: Part, count: Count) -> dict[str, Json]:
    return _line(part.name, part.channel, _HEADING, count(part.heading))


def _line(name: str, channel: Channel, source: str, tokens: int) -> dict[str, Json]:
    return {
        "name": name,
        "channel": channel,
        "source": source,
        "tokens": tokens,
        "kept": True,
        "reason": "",
    }


def _entry(part: Part, piece: Piece, *, kept: bool, reason: str) -> dict[str, Json]:
    found = {
        **_line(part.name, part.channel, piece.source, piece.tokens),
        "kept": kept,
        "reason": reason,
        "sha256": piece.sha256 or hashlib.sha256(piece.text.encode("utf-8", "replace")).hexdigest(),
    }
    if piece.rank:
        found |= {"rank": piece.rank, "score": piece.score}
    if piece.at is not None:
        found["at"] = rfc3339(piece.at)
    if piece.count > 1:
        found["count"] = piece.count
    if piece.rank:
        found["text"] = piece.text
    return found


def _layout(part: Part, count: Count) -> dict[str, Json]:
    return {
        "name": part.name,
        "channel": part.channel,
        "heading_tokens": count(part.heading) if part.heading else 0,
        "priority": part.priority,
        "minimum": part.minimum,
        "maximum": part.maximum,
        "fixed": part.fixed,
        "newest_last": part.newest_last,
        "volatile": part.volatile,
        "role": part.role,
        "tokens": size_of(part, count),
        "order": [piece.source for piece in part.pieces],
    }


def _piece(entry: Mapping[str, Any]) -> Piece:
    return Piece(
        source=entry["source"],
        text=entry.get("text", entry["sha256"]),
        tokens=entry["tokens"],
        rank=entry.get("rank", 0),
        score=entry.get("score"),
        at=datetime.fromisoformat(entry["at"]) if "at" in entry else None,
        count=entry.get("count", 1),
        sha256=entry["sha256"],
    )


def _part(layout: Mapping[str, Any], pieces: Sequence[Piece]) -> Part:
    order = {source: place for place, source in enumerate(layout["order"])}
    return Part(
        name=layout["name"],
        channel=layout["channel"],
        pieces=sorted(pieces, key=lambda piece: order.get(piece.source, len(order))),
        heading=layout["name"] if layout["heading_tokens"] else "",
        priority=layout["priority"],
        minimum=layout["minimum"],
        maximum=layout["maximum"],
        fixed=layout["fixed"],
        newest_last=layout["newest_last"],
        volatile=layout["volatile"],
        role=layout["role"],
    )


def _within(part: Part, budget: int, parts: Sequence[Part]) -> Part:
    """Channel B under another budget: what Channel A and the core alerts leave of it."""
    taken = sum(
        piece.tokens
        for other in parts
        if other.channel == "static" or other.name == "core_alerts"
        for piece in other.pieces
    )
    most = max(0, budget - taken)
    return replace(part, maximum=most if part.maximum is None else min(part.maximum, most))
