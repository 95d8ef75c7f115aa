"""The meaning of index rows as vectors: made in the background, kept in memory.db, compared with a question.

The vector of a row is its own and, for a part, that of the row before it in its folder: what a reply means
lies partly in its question. Rows of folders that come only when asked for get none, and of the others the
newest 100,000: searches of what is older go by words.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from kernel_gamma.errors import ModelDown, TruthError
from kernel_gamma.truths.candidates import Scope
from kernel_gamma.truths.database import Connection, Database, Row
from kernel_gamma.truths.encoders import Encoder, numpy_module
from kernel_gamma.truths.nearest import VectorMatrix
from kernel_gamma.truths.rows import decode_value, found_by
from kernel_gamma.truths.writing import ENCODER, PLACE_BITS, row_texts

__all__ = ["Vectors", "VectorsFiller", "forget_vectors"]

log = structlog.get_logger(__name__)

_MOST_ROWS = 100_000
_PORTION = 32
_NEAREST = 200
_BEFORE = 0.4
"""How much the row before weighs in a row's vector; from 0.2 to 0.5 searches find the same."""
_QUESTIONS_KEPT = 256
_KNOWN: tuple[tuple[str, str], ...] = (
    ("Why did the backup fail last night?", "The backup job stopped because the disk was full."),
    ("Who likes green tea?", "Alice said she drinks tea, the green kind, every morning."),
    ("When does the library open?", "The reading room can be visited from nine o'clock."),
    ("数据库为什么连不上？", "连接池已经用完，新的请求都在排队。"),
    ("她为什么难过？", "小猫走丢了，她哭了一整天。"),
    ("会议在哪里开？", "大家下午在三楼的大房间讨论计划。"),
)
"""Questions with what answers them: how near these lie, and all others, is the measure of an encoder."""
_LEAST_SPAN = 0.04


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A row that has no vector yet."""

    id: int
    text: str
    before: str
    """The row before it; empty when there is none."""
    stands: tuple[int, str, int, int]
    """By this it is seen whether it was written again while it was encoded."""


class Vectors:
    """The Semantic signal over one memory.db. Until the first `fill` there are no meanings, only words.

    Safe to use from several threads.
    """

    def __init__(self, encoder: Encoder, *, skipped: Iterable[str] = (), most_rows: int = _MOST_ROWS) -> None:
        """`skipped`: key prefixes whose rows get no vector: those that come only when asked for.

        `most_rows`: of the others as many of the newest do.
        """
        self._encoder = encoder
        self._skipped = tuple(skipped)
        self._most_rows = most_rows
        self._lock = threading.Lock()
        self._filling = threading.Lock()
        self._matrix: VectorMatrix | None = None
        self._mark = ""
        self._taken_in = 0
        self._measure = (0.1, 0.6)
        self._questions: OrderedDict[str, bytes] = OrderedDict()
        self._down = False

    # ---- searching

    def near(self, connection: Connection, query: str, scope: Scope) -> Mapping[int, float]:
        """See Semantic. Empty while there is no encoder to be had, which is logged once."""
        if self._matrix is None or not query.strip() or scope.only == () or not self._ours(connection):
            return {}
        question = self._question(query)
        if question is None:
            return {}
        only = None if scope.only is None else self._folders(connection, scope.only)
        without = self._folders(connection, scope.without)
        with self._lock:
            self._take_in(connection)
            best = self._matrix.nearest(
                question, _NEAREST, first=scope.first, last=scope.last, only=only, without=without
            )
        shares = {id_: share for id_, cosine in best if (share := self._share(cosine)) > 0}
        rows = connection.all("encoded_rows", json.dumps(list(shares)))
        found: dict[int, float] = {}
        for id_, truth in rows:
            found[truth] = max(found.get(truth, 0.0), shares[id_])
        if len(rows) < len(shares) / 2:  # most of what is held is gone from the store
            with self._lock:
                self._let_go()
        return found

    def _question(self, query: str) -> bytes | None:
        known = self._questions.get(query)
        if known is None:
            encoded = self._encode([query], hurry=True)
            if encoded is None:
                return None
            known = self._questions[query] = encoded[0]
            while len(self._questions) > _QUESTIONS_KEPT:
                self._questions.popitem(last=False)
        return known

    def _share(self, cosine: float) -> float:
        unlike, alike = self._measure
        return min(1.0, max(0.0, (cosine - unlike) / (alike - unlike)))

    def _folders(self, connection: Connection, numbers: Sequence[int]) -> set[int]:
        return {row[0] for row in connection.all("folders_under", json.dumps(numbers))} if numbers else set()

    def _ours(self, connection: Connection) -> bool:
        """Whether the vectors in the store are this encoder's; another process may have set up another."""
        return connection.one("get_meta", ENCODER) == (self._mark,)

    def _take_in(self, connection: Connection) -> None:
        """Hold what was encoded since the last time."""
        assert self._matrix is not None
        if len(self._matrix) > 1.25 * self._most_rows + _PORTION:
            self._let_go()
        rows = connection.all("vectors_after", self._taken_in)
        if rows:
            self._matrix.add(
                [row[1] for row in rows], [row[2] >> PLACE_BITS for row in rows], [row[3] for row in rows]
            )
            self._taken_in = rows[-1][0]

    def _let_go(self) -> None:
        """Hold nothing: the next look takes in all that stands."""
        assert self._matrix is not None
        self._matrix, self._taken_in = VectorMatrix(self._matrix.dimension), 0

    # ---- filling

    def fill(self, database: Database, most: int = _PORTION) -> int:
        """Encode at most so many rows that have no vector yet, the newest first; returns how many.

        Called again until it returns 0 it leaves none, unless the encoder is down. Loads the encoder when
        there is anything to encode. Raises TruthError.
        """
        with self._filling:
            if self._matrix is None and not self._prepare(database):
                return 0
            with database.read() as connection:
                waiting = _waiting_rows(connection, most) if self._ours(connection) else []
            vectors = self._vectors_of(waiting) if waiting else None
            if vectors is None:
                return 0
            with database.write() as connection:
                self._keep(connection, waiting, vectors)
            with database.read() as connection, self._lock:
                self._take_in(connection)
            return len(waiting)

    def _prepare(self, database: Database) -> bool:
        """Load the encoder, measure it, and claim the store for its vectors; False when that must wait."""
        with database.read() as connection:
            if connection.one("last_id", 0, 1 << 62) == (0,):
                return False
        encoded = self._encode([text for pair in _KNOWN for text in pair])
        if encoded is None:
            return False
        dimension = len(encoded[0])
        self._measure = _measured(encoded)
        self._mark = f"{self._encoder.name} {dimension}"
        with database.write() as connection:
            if not self._ours(connection):
                _clear(connection)
                skipped = (connection.one("prefix_by_name", name) for name in self._skipped)
                numbers = self._folders(connection, [row[0] for row in skipped if row])
                connection.run("await_rows", json.dumps(sorted(numbers)), self._most_rows)
                connection.run("set_meta", ENCODER, self._mark)
        with database.read() as connection, self._lock:
            self._matrix = VectorMatrix(dimension)
            self._take_in(connection)
        return True

    def _vectors_of(self, waiting: Sequence[_Waiting]) -> list[bytes] | None:
        assert self._matrix is not None
        texts = list(dict.fromkeys(text for row in waiting for text in (row.text, row.before) if text))
        encoded = self._encode(texts) if texts else []
        if encoded is None:
            return None
        known = dict(zip(texts, encoded, strict=True))
        nothing = bytes(self._matrix.dimension)
        return [_joined(known.get(row.text, nothing), known.get(row.before)) for row in waiting]

    def _keep(self, connection: Connection, waiting: Sequence[_Waiting], vectors: Sequence[bytes]) -> None:
        if not self._ours(connection):
            return
        numbers = json.dumps([row.id for row in waiting])
        standing = {row[0]: tuple(row[1:]) for row in connection.all("rows_awaited", numbers)}
        kept = [
            (row.id, vector)
            for row, vector in zip(waiting, vectors, strict=True)
            if standing.get(row.id) == row.stands
        ]
        connection.run_many("add_vector", kept)
        connection.run_many("await_row_no_more", [(id_,) for id_, _ in kept])
        oldest = connection.one("newest_vector", self._most_rows - 1)
        if oldest is not None:
            connection.run("drop_vectors_before", oldest[0])
            connection.run("await_rows_no_more_before", oldest[0])

    def _encode(self, texts: Sequence[str], *, hurry: bool = False) -> list[bytes] | None:
        """None while the encoder is down, which is logged when it begins and when it ends."""
        problem = ""
        found: list[bytes] = []
        try:
            found = self._encoder.encode(texts, hurry=hurry)
        except ModelDown as error:
            problem = str(error)
        if found and self._matrix is not None and len(found[0]) != self._matrix.dimension:
            problem = f"{self._encoder.name}: its vectors have another length than before"
        if problem and not self._down:
            log.warning("searches go by words alone: the encoder gives no vectors", error=problem)
        if self._down and not problem:
            log.info("the encoder gives vectors again")
        self._down = bool(problem)
        return None if problem else found


class VectorsFiller:
    """A thread that gives every row its vector soon after it was written, and sleeps when all have one."""

    def __init__(
        self, vectors: Vectors, database: Database, *, every_sec: float = 2.0, rest_sec: float = 0.1
    ) -> None:
        """`every_sec`: between looks; `rest_sec`: after each portion, so that others get their turn."""
        self._vectors = vectors
        self._database = database
        self._every_sec = every_sec
        self._rest_sec = rest_sec
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kgamma-vectors", daemon=True)

    def start(self) -> None:
        """Begin; the encoder is loaded in the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after the portion at hand. Call it before the store is closed."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        failed = False
        while not self._stopped.is_set():
            try:
                pause_sec = self._rest_sec if self._vectors.fill(self._database) else self._every_sec
                failed = False
            except TruthError as error:
                if not failed:
                    log.warning("vectors of the memory could not be kept", error=str(error))
                failed, pause_sec = True, 30 * self._every_sec
            self._stopped.wait(pause_sec)


def forget_vectors(database: Database) -> bool:
    """Drop all vectors and let no row wait for one: the encoder was switched off. False if none was on."""
    with database.read() as connection:
        if connection.one("get_meta", ENCODER) is None:
            return False
    with database.write() as connection:
        _clear(connection)
        connection.run("drop_meta", ENCODER)
    return True


def _clear(connection: Connection) -> None:
    connection.run("clear_vectors")
    connection.run("clear_awaited")


def _waiting_rows(connection: Connection, most: int) -> list[_Waiting]:
    rows = connection.all("awaited_rows", most)
    places = json.dumps([row[1] - 1 for row in rows])
    before = {row[0]: row[1:] for row in connection.all("texts_at_places", places)}
    cut: dict[int, Sequence[str]] = {}

    def text_of(row: Row) -> str:
        """`row`: part, number of the truth, its key, description, value, and how many rows it has."""
        part, truth, key, description, value, count = row
        if truth not in cut:
            cut[truth] = row_texts(found_by(key, description, decode_value(key, value)), count)
        return cut[truth][part] if part < len(cut[truth]) else ""

    found = []
    for id_, place, *said, version, written in rows:
        previous = before.get(place - 1)
        found.append(
            _Waiting(
                id=id_,
                text=text_of(tuple(said)),
                before=text_of(previous) if previous else "",
                stands=(said[1], said[2], version, written),
            )
        )
    return found


def _joined(own: bytes, before: bytes | None) -> bytes:
    if before is None:
        return own
    numpy = numpy_module()
    both = _direction(own) + _BEFORE * _direction(before)
    found = numpy.rint(both * (127 / max(float(numpy.abs(both).max()), 1e-9))).astype(numpy.int8)
    return bytes(found.tobytes())


def _direction(vector: bytes) -> Any:
    numpy = numpy_module()
    found = numpy.frombuffer(vector, dtype=numpy.int8).astype(numpy.float32)
    return found / max(float(numpy.linalg.norm(found)), 1.0)


def _measured(encoded: Sequence[bytes]) -> tuple[float, float]:
    """(the cosine that says nothing, the one that says it all), by what is known to belong together."""
    numpy = numpy_module()
    directions = numpy.stack([_direction(vector) for vector in encoded])
    cosines = directions[0::2] @ directions[1::2].T
    count = len(cosines)
    alike = float(numpy.trace(cosines)) / count
    unlike = (float(cosines.sum()) - alike * count) / (count * (count - 1))
    span = alike - unlike
    if span < _LEAST_SPAN:  # it tells none of these apart: only what is all but the same counts
        span = (1 - unlike) / 2
    return unlike + span / 4, unlike + span * 2
