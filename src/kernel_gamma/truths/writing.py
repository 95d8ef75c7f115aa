"""One write transaction of the store: versions, locks, the hash chain, the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.truths import (
    SELF_CATEGORIES,
    Level,
    NewTruth,
    category_of,
    check_category,
    check_key,
)
from kernel_gamma.errors import BadTruth, TruthLocked, VersionConflict
from kernel_gamma.truths.chain import GENESIS, link_of
from kernel_gamma.truths.database import Connection, Row
from kernel_gamma.truths.excerpts import cut_snippets
from kernel_gamma.truths.keys import key_of_second, prefixes_of
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.rows import (
    FIRST_MICROS,
    LAST_MICROS,
    SPAN,
    decode_value,
    encode_value,
    fold_key,
    foldable,
    found_by,
    micros,
    packed_value,
    row_id,
    who_of,
)
from kernel_gamma.truths.terms import index_terms, word_count

__all__ = ["CUT", "ENCODER", "PLACE_BITS", "ROWS", "RUNG", "Limits", "Writing", "row_texts"]

PLACE_BITS = 36
"""A place is a folder's number and, in so many bits, the number of the row within it."""
_PAUSE_MS = 6 * 3600 * 1000
"""Rows of one folder further apart in time are no neighbours: one has nothing to say about the other."""
_PAUSE_STEP = 8
_OWN_BYTES = 1 << 21
"""Bounds a piece of the mind's own pages, which no setting for writers from outside may keep out."""
_ANY_TIME = "20000101T000000Z.0"
_LONG_WORDS = 150
"""A longer text is cut into snippets, each a row of the index."""
_ID_MASK = (1 << SPAN) - 1
RUNG = 1024
"""Of as many index rows one is remembered by its id: the ladder tells how many rows lie behind an id."""
ROWS = "index rows"
CUT = "cut truths"
ENCODER = "encoder"
"""Facts about the store: how many index rows were ever made; whether any truth has more than one; whose
vectors it holds, if rows are to get vectors at all."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a store takes."""

    value_bytes: int = 1_048_576
    description_chars: int = 2000


@dataclass(slots=True)
class _Folder:
    """A key prefix as this transaction sees it."""

    id: int
    truths: int
    last_seq: int
    last_ms: int


class Writing:
    """What one transaction has read and is about to write. Not kept after it."""

    def __init__(
        self,
        connection: Connection,
        *,
        now: int,
        retention: Retention,
        new_ulid: Callable[[], str],
        limits: Limits,
    ) -> None:
        """`now` in microseconds since 1970."""
        self._db = connection
        self._now = now
        self._retention = retention
        self._new_ulid = new_ulid
        self._limits = limits
        self._folders: dict[str, _Folder] = {}
        self._chained: dict[str, bool] = {}
        self._filed: dict[tuple[str, Level | None], str] = {}
        self._made: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Of keys that are made here: category as given -> as checked, and the folders they lie in."""
        self._next_in_ms: dict[int, int] = {}
        (newest,) = connection.one("last_id", 0, 1 << 62) or (0,)
        self._newest_id: int = newest
        self._link: int | None = None
        self._sha256 = GENESIS
        self._truths: list[Row] = []
        self._links: list[Row] = []
        self._snippets: list[Row] = []
        self._words: list[Row] = []
        self._rungs: list[Row] = []
        self._awaited: list[Row] = []
        encoding = connection.one("get_meta", ENCODER) is not None
        self._unencoded = retention.asked_only() if encoding else None
        self._waiting: set[str] = set()
        self._rows = int((connection.one("get_meta", ROWS) or (0,))[0])
        self._cut = False

    def put(
        self, new: NewTruth, *, own: bool = False, keep_versions: bool = True, receipt: bool = False
    ) -> str:
        """Write one truth; returns its key. `own`: the mind's index of its own past may be written.

        Raises BadTruth, TruthLocked, VersionConflict; the transaction is then to be given up.
        """
        at = self._now if new.timestamp is None else micros(new.timestamp)
        if not FIRST_MICROS <= at <= LAST_MICROS:
            raise BadTruth(f"{new.timestamp}: a timestamp lies between the years 1 and 9999 in UTC")
        key = self._key_of(new, at)
        if category_of(key) in SELF_CATEGORIES and not own:
            raise BadTruth(
                f"{key}: {category_of(key)}. is the index of the mind's own pages; write to the pages"
            )
        description = new.description[: self._limits.description_chars]
        if not description.isascii():
            description = description.encode("utf-8", "replace").decode()
        # what the mind records itself is no request: a bound for those must not hold its commits up
        most = max(_OWN_BYTES, self._limits.value_bytes) if own or receipt else self._limits.value_bytes
        value = encode_value(new.value, most)
        version, locked = 1, bool(new.locked)
        if new.key is not None:
            version, locked = self._standing(new, key, locked, keep_versions)
        self._add(key, description, value, at, version, locked, new)
        return key

    def _key_of(self, new: NewTruth, at: int) -> str:
        try:
            if new.key is not None:
                key = check_key(new.key)
                if new.category is not None and not f"{key}.".startswith(f"{check_category(new.category)}."):
                    raise BadTruth(f"{key}: its category is {category_of(key)}, not {new.category}")
                return key
            if new.category is None:
                raise BadTruth("a truth needs a key or a category")
            if (made := self._made.get(new.category)) is None:
                category = check_category(new.category)
                if len(category) > 150:
                    raise BadTruth("a category is at most 150 characters")
                made = self._made[new.category] = category, prefixes_of(f"{category}.{_ANY_TIME}")
        except ValueError as error:
            raise BadTruth(str(error)) from error
        return key_of_second(made[0], at // 1_000_000, self._new_ulid())

    def _standing(self, new: NewTruth, key: str, locked: bool, keep_versions: bool) -> tuple[int, bool]:
        if key in self._waiting:
            self.flush()
        row = self._db.one("standing", key)
        if row is None:
            if new.expect_version:
                raise VersionConflict(f"{key}: there is no version yet", version=0)
            return 1, locked
        version: int = row[1]
        if new.expect_version is not None and new.expect_version != version:
            raise VersionConflict(f"{key}: version {version} stands", version=version)
        if row[2]:
            raise TruthLocked(f"{key} is locked; `kgamma truths unlock {key}` takes the lock off")
        if keep_versions:
            self._db.run("supersede", row[0])
        self._take_out(key, row)
        return version + 1, locked

    def knows(self, key: str) -> bool:
        """Whether a key stands, or is about to."""
        return key in self._waiting or self._db.one("standing", key) is not None

    def remove(self, key: str) -> bool:
        """Take a truth and its old versions out of the store; False when there is none."""
        if key in self._waiting:
            self.flush()
        row = self._db.one("standing", key)
        if row is None:
            return False
        self._take_out(key, row)
        self._db.run("drop_versions", key)
        return True

    def _take_out(self, key: str, row: Row) -> None:
        first, _, _, _, description, value, *_, snippets = row
        content = decode_value(key, value)
        text = found_by(key, description, content)
        rows = self._index_rows(prefixes_of(key), text, content, level=row[9], most=snippets)
        for number, words in enumerate(rows):
            self._db.run("drop_words", first + number, *words[:3])
        self._rows -= snippets
        rows_of_it = first, first + snippets - 1
        self._db.run("drop_snippets", *rows_of_it)
        self._db.run("drop_vectors", *rows_of_it)
        self._db.run("await_rows_within_no_more", *rows_of_it)
        self._db.run("drop_truth", first)
        for name in prefixes_of(key):
            self._folder(name).truths -= 1

    def _add(
        self, key: str, description: str, value: str, at: int, version: int, locked: bool, new: NewTruth
    ) -> None:
        text = found_by(key, description, new.value)
        made = self._made[new.category] if new.key is None and new.category is not None else None
        names = made[1] if made else prefixes_of(key)
        rows = self._index_rows(names, text, new.value, level=new.level)
        first = self._take_ids(at, len(rows))
        link = None
        if self._is_chained(key, made[0] if made else key.rpartition(".")[0] or key):
            link = self._link_to(key, version, description, at, value, first)
        folder = self._folder(names[-1])
        self._seat(folder, at // 1000)
        self._index(first, rows, folder, names)
        self._count_in(names)
        category = self._folders[names[0]].id
        self._truths.append(
            (
                first, key, category, description, packed_value(key, value), at, self._now, version,
                int(locked), new.trust, new.level, link, len(rows), self._fold(key, text, rows, names[-1]),
            )
        )  # fmt: skip
        self._waiting.add(key)

    def _fold(self, key: str, text: str, rows: Sequence[tuple[str, str, str, int]], family: str) -> int:
        compared = foldable(key, text)
        if compared is text:
            return fold_key(" ".join(row[0] for row in rows), family)
        return fold_key(" ".join(index_terms(compared)), family)

    def _index(
        self, first: int, rows: Sequence[tuple[str, str, str, int]], folder: _Folder, names: Sequence[str]
    ) -> None:
        if self._unencoded is not None and self._unencoded.isdisjoint(names):
            self._awaited.extend((first + part,) for part in range(len(rows)))
        for part, (text, who, cat, length) in enumerate(rows):
            folder.last_seq += 1
            self._snippets.append((first + part, folder.id << PLACE_BITS | folder.last_seq, part, length))
            self._words.append((first + part, text, who, cat))
            self._rows += 1
            if self._rows % RUNG == 0:
                self._rungs.append((first + part,))

    def _index_rows(
        self, names: Sequence[str], text: str, value: Json, *, level: Level | None, most: int = _ID_MASK
    ) -> list[tuple[str, str, str, int]]:
        """(text terms, who terms, folder and level terms, length) of every row by which a truth is found.

        There are ids for `most` of them: what is beyond is one long last row.
        """
        pieces = row_texts(text, most)
        self._cut = self._cut or len(pieces) > 1
        who = who_of(value)
        said = " ".join(index_terms(who)) if who else ""
        folders = self._filed.get((names[-1], level))
        if folders is None:
            folders = " ".join(f"c{self._folder(name).id}" for name in names)
            if level is not None:
                folders += f" {level}"
            self._filed[names[-1], level] = folders
        return [(" ".join(index_terms(piece)), said, folders, word_count(piece)) for piece in pieces]

    def _seat(self, folder: _Folder, ms: int) -> None:
        if abs(ms - folder.last_ms) > _PAUSE_MS:
            folder.last_seq += _PAUSE_STEP
        folder.last_ms = ms

    def _take_ids(self, at: int, count: int) -> int:
        """The first of `count` ids in a row that are free, in the millisecond of `at` or soon after it."""
        start = row_id(at)
        while True:
            after = self._next_in_ms.get(start)
            if after is None:
                after = start
                if start <= self._newest_id:
                    (last,) = self._db.one("last_id", start, start | _ID_MASK) or (0,)
                    after = max(start, last + 1)
            if after + count <= start + _ID_MASK + 1:
                break
            start += _ID_MASK + 1
        self._next_in_ms[start] = after + count
        return after

    def _is_chained(self, key: str, folder: str) -> bool:
        """`folder`: what the key lies in; one answer holds for all its keys."""
        chained = self._chained.get(folder)
        if chained is None:
            chained = self._chained[folder] = self._retention.is_chained(key)
        return chained

    def _link_to(self, key: str, version: int, description: str, at: int, value: str, first: int) -> int:
        if self._link is None:
            self._link, self._sha256 = self._db.one("last_link") or (0, GENESIS)
        self._link += 1
        self._sha256 = link_of(self._sha256, key, version, category_of(key), description, at, value)
        self._links.append((self._link, first, self._sha256))
        return self._link

    def _count_in(self, names: Sequence[str]) -> None:
        for name in names:
            self._folder(name).truths += 1

    def _folder(self, name: str) -> _Folder:
        folder = self._folders.get(name)
        if folder is None:
            row = self._db.one("prefix_by_name", name)
            folder = _Folder(*row) if row else _Folder(self._db.run("add_prefix", name), 0, 0, 0)
            self._folders[name] = folder
        return folder

    def flush(self) -> None:
        """Hand what was put to the database. Index rows go in time order: FTS5 likes no other."""
        self._truths.sort()
        self._words.sort()
        self._snippets.sort()
        self._db.run_many("add_truth", self._truths)
        self._db.run_many("add_link", self._links)
        self._db.run_many("add_snippet", self._snippets)
        self._db.run_many("add_words", self._words)
        self._db.run_many("add_rung", self._rungs)
        self._db.run_many("await_row", self._awaited)
        lists = (self._truths, self._links, self._snippets, self._words, self._rungs, self._awaited)
        for waiting in lists:
            waiting.clear()
        self._waiting.clear()

    def finish(self) -> None:
        """The last act before the commit."""
        self.flush()
        self._db.run("set_meta", ROWS, str(self._rows))
        if self._cut:
            self._db.run("set_meta", CUT, "1")
        for folder in self._folders.values():
            self._db.run("save_prefix", folder.id, folder.truths, folder.last_seq, folder.last_ms)

    def index_again(self) -> int:
        """Forget the whole index and make it anew from the standing truths; returns how many there are.

        Rows keep their ids where their text is cut as before, and take their seats anew.
        """
        self._db.run("clear_words")
        self._db.run("clear_snippets")
        self._db.run("clear_prefixes")
        self._db.run("clear_ladder")
        self._db.run("clear_vectors")
        self._db.run("clear_awaited")
        self._rows = 0
        self._folders.clear()
        done, after = 0, -1
        while rows := self._db.all("each", after, 1000):
            for row in rows:
                self._index_standing(row)
            self.flush()
            after = rows[-1][0]
            done += len(rows)
        self.finish()
        return done

    def _index_standing(self, row: Row) -> None:
        first, key, _, description, value, at, *_ = row
        ids: int = row[12]
        content = decode_value(key, value)
        text = found_by(key, description, content)
        names = prefixes_of(key)
        rows = self._index_rows(names, text, content, level=row[10], most=ids)
        folder = self._folder(names[-1])
        self._seat(folder, at // 1000)
        self._index(first, rows, folder, names)
        self._count_in(names)


def row_texts(text: str, most: int = _ID_MASK) -> Sequence[str]:
    """What each index row of a truth says, of the text by which it is found: a long one is cut.

    There are ids for `most` of them: what is beyond is one long last row.
    """
    pieces: Sequence[str] = (text,)
    if len(text) > 2 * _LONG_WORDS and word_count(text) > _LONG_WORDS:
        pieces = cut_snippets(text) or pieces
    if len(pieces) > most:
        pieces = [*pieces[: most - 1], "\n".join(pieces[most - 1 :])]
    return pieces
