"""Vectors held in memory, and which of them point where a question's does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kernel_gamma.truths.encoders import numpy_module

__all__ = ["VectorMatrix"]

_EXACT = 8192
"""As many vectors are compared whole; of more, those whose signs agree best."""
_REFINED = 4000
_FIRST_ROOM = 1024
_GONE = -1


class VectorMatrix:
    """Index rows by id, each with the number of its folder and a vector of signed bytes.

    A vector of 512 takes 0.6 kB. Not safe to use from several threads at once.
    """

    def __init__(self, dimension: int) -> None:
        self._numpy: Any = numpy_module()
        self.dimension = dimension
        self._words = -(-dimension // 64)
        self._count = 0
        self._ids: Any
        self._folders: Any
        self._vectors: Any
        self._lengths: Any
        self._signs: Any
        self._make_room(_FIRST_ROOM)

    def __len__(self) -> int:
        return self._count

    def add(self, ids: Sequence[int], folders: Sequence[int], vectors: Sequence[bytes]) -> None:
        """Take in rows; those of known ids take the place of what was there."""
        numpy = self._numpy
        if not ids:
            return
        start, end = self._count, self._count + len(ids)
        if end > len(self._ids):
            self._make_room(max(end, 2 * len(self._ids)))
        fresh = numpy.frombuffer(b"".join(vectors), dtype=numpy.int8).reshape(len(ids), self.dimension)
        numbers = numpy.array(ids, dtype=numpy.int64)
        known = self._ids[:start]
        known[numpy.isin(known, numbers)] = _GONE
        self._ids[start:end] = numbers
        self._folders[start:end] = folders
        self._vectors[start:end] = fresh
        self._lengths[start:end] = numpy.maximum(
            numpy.sqrt(numpy.einsum("ij,ij->i", fresh, fresh, dtype=numpy.float32)), 1.0
        )
        self._signs[start:end] = self._signs_of(fresh)
        self._count = end

    def nearest(
        self,
        query: bytes,
        count: int,
        *,
        first: int,
        last: int,
        only: Collection[int] | None = None,
        without: Collection[int] = (),
    ) -> list[tuple[int, float]]:
        """At most `count` (id, cosine), the nearest first, of ids and folders within the bounds."""
        numpy = self._numpy
        rows = self._within(first, last, only, without)
        asked = numpy.frombuffer(query, dtype=numpy.int8).reshape(1, -1)
        if len(rows) > _EXACT:
            # of 100,000 signs are compared in 7 ms, whole vectors in 40
            signs = self._signs[: self._count] if len(rows) == self._count else self._signs[rows]
            differing = numpy.bitwise_count(signs ^ self._signs_of(asked)).sum(axis=1, dtype=numpy.uint16)
            rows = rows[numpy.argpartition(differing, _REFINED)[:_REFINED]]
        vector = asked[0].astype(numpy.float32)
        vector /= max(float(numpy.linalg.norm(vector)), 1.0)
        cosines = (self._vectors[rows].astype(numpy.float32) @ vector) / self._lengths[rows]
        best = numpy.argsort(-cosines, kind="stable")[:count]
        return [(int(self._ids[rows[at]]), float(cosines[at])) for at in best]

    def _within(self, first: int, last: int, only: Collection[int] | None, without: Collection[int]) -> Any:
        numpy = self._numpy
        ids, folders = self._ids[: self._count], self._folders[: self._count]
        inside = (ids >= max(first, 0)) & (ids <= last)
        if only is not None:
            inside &= numpy.isin(folders, list(only))
        elif without:
            inside &= ~numpy.isin(folders, list(without))
        return numpy.flatnonzero(inside)

    def _signs_of(self, vectors: Any) -> Any:
        numpy = self._numpy
        packed = numpy.zeros((len(vectors), 8 * self._words), dtype=numpy.uint8)
        bits = numpy.packbits(vectors > 0, axis=1)
        packed[:, : bits.shape[1]] = bits
        return packed.view(numpy.uint64)

    def _make_room(self, rows: int) -> None:
        numpy, kept = self._numpy, self._count
        for name, fresh in (
            ("_ids", numpy.full(rows, _GONE, dtype=numpy.int64)),
            ("_folders", numpy.zeros(rows, dtype=numpy.int64)),
            ("_vectors", numpy.zeros((rows, self.dimension), dtype=numpy.int8)),
            ("_lengths", numpy.ones(rows, dtype=numpy.float32)),
            ("_signs", numpy.zeros((rows, self._words), dtype=numpy.uint64)),
        ):
            if kept:
                fresh[:kept] = getattr(self, name)[:kept]
            setattr(self, name, fresh)
