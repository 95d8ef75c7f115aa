"""From the parts of a prompt to those that fit: ceilings, duplicates, budget. Pure.

Every piece that is handed in comes out once: kept, in its order, or lost, with the reason. Fixed parts are
never touched. What is over the limit is trimmed from the part of the lowest priority, first down to the
minimum of each, then below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_gamma.context.duplicates import Said
from kernel_gamma.context.fences import Count
from kernel_gamma.contracts.context import Channel, Part, Piece
from kernel_gamma.errors import TooLarge

__all__ = ["FOR_WANT_OF_ROOM", "Fitted", "Lost", "fit", "size_of"]

FOR_WANT_OF_ROOM = "over the "
"""How the reason of a piece begins that would have stood there with more tokens."""
_AUTHORITY: tuple[Channel, ...] = ("static", "agent", "self", "dynamic")
"""Of two that say the same, the one whose channel comes first here stays."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A piece that was considered and left out."""

    part: Part
    piece: Piece
    reason: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """What will stand in the prompt."""

    parts: Sequence[Part]
    """With the kept pieces only, in the order they were handed in; empty ones are gone."""
    lost: Sequence[Lost]
    tokens: int
    """Of all pieces and headings."""


def size_of(part: Part, count: Count) -> int:
    """Tokens of a part: its pieces, and its heading when there is a piece."""
    if not part.pieces:
        return 0
    return sum(piece.tokens for piece in part.pieces) + (count(part.heading) if part.heading else 0)


def fit(parts: Sequence[Part], *, limit: int, count: Count) -> Fitted:
    """Parts within their ceilings, without duplicates, within `limit` tokens in all.

    Raises TooLarge, with the numbers, when even what may not be trimmed is more than that.
    """
    lost: list[Lost] = []
    kept = _worth_saying(parts, lost)
    total = sum(size_of(part, count) for part in kept)
    for to_minimum in (True, False):
        for index in sorted(range(len(kept)), key=lambda at: kept[at].priority):
            if total <= limit:
                break
            before = size_of(kept[index], count)
            kept[index] = _trimmed(kept[index], total - limit, lost, count, to_minimum=to_minimum)
            total -= before - size_of(kept[index], count)
    if total > limit:
        sizes = ", ".join(f"{part.name} {size_of(part, count)}" for part in kept if part.pieces)
        raise TooLarge(f"the prompt needs {total} tokens and may have {limit}: {sizes}")
    return Fitted([part for part in kept if part.pieces], lost, total)


def _worth_saying(parts: Sequence[Part], lost: list[Lost]) -> list[Part]:
    """Each part without what stands there already, and within its own maximum.

    In the order of authority, so that what is dropped for a duplicate's sake has its twin kept, and no
    duplicate takes the room of something new.
    """
    said = Said()
    kept = list(parts)
    for index in sorted(range(len(parts)), key=lambda at: (not parts[at].fixed, _rank(parts[at]), at)):
        part = kept[index] = _capped(_without_duplicates(parts[index], said, lost), lost)
        for piece in part.pieces:
            said.add(part.name, _plain(piece))
    return kept


def _without_duplicates(part: Part, said: Said, lost: list[Lost]) -> Part:
    if part.fixed:
        return part
    own = Said()
    pieces = []
    for piece in reversed(part.pieces) if part.newest_last else part.pieces:
        plain = _plain(piece)
        where = said.where(plain) or own.where(plain)
        if where is None:
            pieces.append(piece)
            own.add(part.name, plain)
        else:
            lost.append(Lost(part, piece, f"a duplicate: {where} says it already"))
    return replace(part, pieces=pieces[::-1] if part.newest_last else pieces)


def _capped(part: Part, lost: list[Lost]) -> Part:
    """Within its own maximum: pieces are taken in the order of their worth while they fit."""
    if part.maximum is None or part.fixed:
        return part
    left = part.maximum
    taken: set[int] = set()
    order = range(len(part.pieces))
    full = False
    for index in reversed(order) if part.newest_last else order:
        piece = part.pieces[index]
        if piece.tokens <= left and not full:
            left -= piece.tokens
            taken.add(index)
            continue
        full = full or part.newest_last  # a stream with a hole in it would tell another story
        lost.append(Lost(part, piece, f"{FOR_WANT_OF_ROOM}{part.maximum} tokens of {part.name}"))
    return replace(part, pieces=[part.pieces[index] for index in order if index in taken])


def _plain(piece: Piece) -> str:
    return piece.text if piece.plain is None else piece.plain


def _rank(part: Part) -> int:
    return _AUTHORITY.index(part.channel)


def _trimmed(part: Part, excess: int, lost: list[Lost], count: Count, *, to_minimum: bool) -> Part:
    """Without as many of its least pieces as make up `excess` tokens."""
    if part.fixed:
        return part
    pieces = list(part.pieces)
    heading = count(part.heading) if part.heading else 0
    while pieces and excess > 0:
        index = 0 if part.newest_last else len(pieces) - 1
        piece = pieces[index]
        freed = piece.tokens + (heading if len(pieces) == 1 else 0)
        if to_minimum and sum(one.tokens for one in pieces) - piece.tokens < part.minimum:
            break
        del pieces[index]
        excess -= freed
        lost.append(Lost(part, piece, f"{FOR_WANT_OF_ROOM}budget of the whole prompt"))
    return replace(part, pieces=pieces)
