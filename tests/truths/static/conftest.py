"""A home with the shipped static truths, a real store, and what the channel told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FakeClock

from kernel_gamma.configuration import lay_out
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.changes import Changes
from kernel_gamma.truths.static.channel import StaticChannel
from kernel_gamma.truths.static.places import Places
from kernel_gamma.truths.store import SqliteTruths, open_truths

PLACES = Places(StaticPaths())


@cache
def counting() -> Callable[[str], int]:
    """The real tokenizer, its table loaded."""
    tokens = Tokens()
    tokens.load()
    return tokens.count


class Bench:
    """One home, and everything that looks at it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "家 home"
        lay_out(self.home)
        self.clock = FakeClock()
        self.told: list[tuple[str, str, Mapping[str, Any]]] = []
        self.database = folder / "memory.db"
        self.store = open_truths(self.database, self.clock)

    def channel(self, store: SqliteTruths | None = None) -> StaticChannel:
        return StaticChannel(
            self.home,
            StaticPaths(),
            store or self.store,
            self.clock,
            count=counting(),
            tell=lambda category, said, value: self.told.append((category, said, value)),
        )

    def changes(self, **more: Any) -> Changes:
        return Changes(self.home, StaticPaths(), self.store, self.clock, count=counting(), **more)

    def path(self, file: str) -> Path:
        return self.home / file

    def edit(self, file: str, old: str, new: str) -> str:
        """Put other words into a file in place; returns the whole new text."""
        path = self.path(file)
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        return text.replace(old, new)

    def approve(self, file: str, old: str, new: str) -> None:
        """Edit a file in place and have it approved."""
        self.edit(file, old, new)
        changes = self.changes()
        changes.approve(changes.propose(file, why="", by="alice").id, name="alice", now=self.clock.now())

    def lose_store(self) -> None:
        """memory.db is gone, and a new one begun."""
        self.store.close()
        for file in self.database.parent.glob("memory.db*"):
            file.unlink()
        self.store = open_truths(self.database, self.clock)

    def alerts(self) -> list[Mapping[str, Any]]:
        return [value for category, _, value in self.told if category == "alert.static_drift"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.store.close()
