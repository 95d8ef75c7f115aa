"""The single channel: everything, newest first, up to a cap. What prompts were before, and what is saved.

It is made for the roll-out modes that still send it, and counted for every call, so that what is told as
saved was measured and not guessed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kernel_gamma.context.fences import Count, recalled_fence
from kernel_gamma.contracts.context import Part, Piece, StaticTruths
from kernel_gamma.contracts.envelope import encode_document, rfc3339
from kernel_gamma.contracts.ports import TruthStore
from kernel_gamma.contracts.truths import Truth

__all__ = ["SingleChannel"]

_NEWEST = 400
"""Records that are looked at: with 25 tokens each they fill the cap."""
_SPARE = 16
_REMEMBERED = 4000


class SingleChannel:
    """Everything a store and Channel A hold, as one call would carry it."""

    def __init__(self, static: StaticTruths, truths: TruthStore, *, newest: int = _NEWEST) -> None:
        """`newest`: records that are looked at, at most."""
        self._static = static
        self._truths = truths
        self._newest_looked_at = newest
        self._needed = newest
        self._pieces: OrderedDict[tuple[str, int, int], Piece] = OrderedDict()

    def parts(self, cap: int, count: Count) -> list[Part]:
        """Channel A whole, and as many of the newest records as the cap has room for. Raises TruthError."""
        sections = self._static.sections("full")
        static = [
            Part(
                name=section.name,
                channel="static",
                pieces=[
                    Piece(
                        source=section.file,
                        text=section.text,
                        tokens=count(section.text),
                        sha256=section.sha256,
                    )
                ],
                fixed=True,
                role="system",
                priority=1 if section.lean else 0,
            )
            for section in sections
        ]
        left = cap - sum(piece.tokens for part in static for piece in part.pieces)
        return [
            *static,
            Part(
                name="everything",
                channel="dynamic",
                pieces=self._newest(left, count),
                maximum=max(0, left),
                volatile=True,
            ),
        ]

    def _newest(self, left: int, count: Count) -> Sequence[Piece]:
        """As many as fill `left`. As a rule about as many as the last time are read, for a start."""
        for limit in (min(self._needed + _SPARE, self._newest_looked_at), self._newest_looked_at):
            found = self._truths.recent(limit=limit)
            pieces, full = self._filling(found, left, count)
            if full or len(found) < limit or limit == self._newest_looked_at:
                break
        self._needed = len(pieces)
        return pieces

    def _filling(self, found: Sequence[Truth], left: int, count: Count) -> tuple[list[Piece], bool]:
        pieces: list[Piece] = []
        for truth in found:
            piece = self._piece(truth, count)
            left -= piece.tokens
            if left < 0:
                return pieces, True
            pieces.append(piece)
        return pieces, False

    def _piece(self, truth: Truth, count: Count) -> Piece:
        key = (truth.key, truth.version, id(count))
        known = self._pieces.get(key)
        if known is None:
            value = truth.value
            said = value if isinstance(value, str) else encode_document(value).decode().rstrip()
            text = f"{truth.description}\n{said}" if truth.description else said
            fence = recalled_fence(truth.key, text, trust=truth.trust, time=rfc3339(truth.timestamp))
            known = Piece(source=truth.key, text=fence, tokens=count(fence), at=truth.timestamp)
            self._pieces[key] = known
            while len(self._pieces) > _REMEMBERED:
                self._pieces.popitem(last=False)
        return known
