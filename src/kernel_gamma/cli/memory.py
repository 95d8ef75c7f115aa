"""memory.db of a home, opened for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_gamma.cli.home import Place
from kernel_gamma.cli.terminal import Failed
from kernel_gamma.configuration import Home
from kernel_gamma.meanings import Meanings
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.truths.retention_file import read_retention
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.writing import Limits

__all__ = ["memory_file", "open_memory"]


def memory_file(place: Place) -> Path:
    """Where the truths lie; maybe not there yet."""
    return place.data / "memory.db"


@contextmanager
def open_memory(
    place: Place, *, must_exist: bool = False, by_meaning: bool = False
) -> Iterator[SqliteTruths]:
    """The store, also while a daemon or a gateway has it open; made when there is none.

    With `must_exist` a missing file is Failed. `by_meaning`: searches go by meaning too, as gateway.encoder
    says; what serves the store pays for the encoder, not a command that is over at once. Raises
    SettingsError, StoreDamaged, StoreFull.
    """
    path = memory_file(place)
    if must_exist and not path.exists():
        raise Failed(f"{path}: there is no such file: nothing was stored yet (`kgamma truths put` does)")
    retention = read_retention(Home(place.home).config_dir)
    place.data.mkdir(parents=True, exist_ok=True)
    meanings = Meanings(place.settings, place.environ, place.clock, retention) if by_meaning else None
    store = open_truths(
        path,
        place.clock,
        retention=retention,
        full=place.settings.bus.durability == "full",
        limits=Limits(value_bytes=place.settings.gateway.max_bytes),
        semantic=None if meanings is None else meanings.vectors,
        count_tokens=Tokens().count,
    )
    try:
        if meanings is not None:
            meanings.start(store)
        yield store
    finally:
        if meanings is not None:
            meanings.stop()
        store.close()
