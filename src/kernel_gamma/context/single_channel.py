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
        self._counted: Sequence[tuple[str, int]] = ()
        """(key, tokens) of what `size` counted last, the newest first."""
        self._pieces: OrderedDict[tuple[str, int, int], Piece] = OrderedDict()

    def parts(self, cap: int, count: Count) -> list[Part]:
        """Channel A whole, and as many of the newest records as the cap has room for. Raises TruthError."""
        static = self._static_parts(count)
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

    def size(self, cap: int, count: Count) -> int:
        """Tokens of `parts`, for a call that sends something else.

        What was counted the last time is counted on from: only records that came since are read. A record
        written anew counts where it stood. Raises TruthError.
        """
        static = sum(piece.tokens for part in self._static_parts(count) for piece in part.pieces)
        before = self._counted  # several threads may count at once: each goes on from what stood then
        since = self._sizes_since(before, count)
        if since is None:
            counted = [(piece.source, piece.tokens) for piece in self._newest(cap - static, count)]
        else:
            counted = [*since, *before]
        total, kept = static, 0
        for _, tokens in counted:
            if total + tokens > cap:
                break
            total += tokens
            kept += 1
        self._counted = counted[:kept]
        return total

    def _sizes_since(self, before: Sequence[tuple[str, int]], count: Count) -> list[tuple[str, int]] | None:
        """(key, tokens) of the records that are newer than what was counted; None: count all of them."""
        if not before:
            return None
        newest = self._truths.recent(limit=_SPARE)
        known = before[0][0]
        for index, truth in enumerate(newest):
            if truth.key == known:
                return [(one.key, self._piece(one, count).tokens) for one in newest[:index]]
        return None

    def _static_parts(self, count: Count) -> list[Part]:
        return [
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
            for section in self._static.sections("full")
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
