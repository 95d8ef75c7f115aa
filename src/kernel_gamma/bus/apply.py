"""Carrying out a plan on the file system. Every operation may be done again after a crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime

from kernel_gamma.bus.files import move, write_whole
from kernel_gamma.bus.folders import INBOX, OUTBOX
from kernel_gamma.bus.plan import Operation, rotation_of
from kernel_gamma.contracts.effects import MovePrefix
from kernel_gamma.contracts.ports import PageStore, Recorder
from kernel_gamma.contracts.truths import NewTruth

__all__ = ["Applier"]


class _NoRecorder:
    def record(self, truth: NewTruth) -> None:
        """There is no store."""

    def flush(self) -> None:
        """Nothing waits."""


class Applier:
    """Knows the data directory and the pages; used by one thread at a time."""

    def __init__(
        self,
        root: str,
        pages: PageStore,
        *,
        step: Callable[[str], None],
        on_conflict: Callable[[str, str], None],
        on_rotated: Callable[[MovePrefix], None] = lambda move: None,
        recorder: Recorder | None = None,
    ) -> None:
        """`step(name)` marks the named moments; `on_conflict(page, kept)` hears of refused pages,
        `on_rotated(move)` of a page that was shortened to make room for an append.

        Without a recorder what a plan records goes nowhere.
        """
        self._recorder = recorder or _NoRecorder()
        self._root = os.fsencode(root)
        self._pages = pages
        self._step = step
        self._on_conflict = on_conflict
        self._on_rotated = on_rotated
        self.before_moving: Callable[[], None] = lambda: None
        """Called before passages move: earlier commits must not be carried out again after it."""

    def apply(
        self,
        operations: list[Operation],
        *,
        redo: bool,
        left: Callable[[str, str], bool] | None = None,
    ) -> None:
        """Carry out all operations in order. Raises OSError with the operation's path.

        `redo`: some may already stand; `left(directory, name)` says that every subscriber has finished
        an emitted file, which then is not written again.
        """
        for operation in operations:
            match operation:
                case ("append", page, text, opening, occurrence):
                    self._append(page, text, opening, occurrence, redo)
                case ("replace", page, text, expect, history):
                    data = text.encode("utf-8", "replace")
                    if not self._pages.replace(page, data, expect=expect, history=history):
                        self._on_conflict(page, history)
                case ("rotate", *_):
                    self.before_moving()
                    self._pages.move_prefix(rotation_of(operation))
                case ("write", directory, name, text, kind):
                    if redo and kind == "emit" and self._taken(directory, name, left):
                        continue
                    self._step(f"apply.{kind}.before")
                    write_whole(self._path(directory), os.fsencode(name), text.encode())
                    self._step(f"apply.{kind}.after")
                case ("record", key, description, value, trust, time):
                    at = datetime.fromisoformat(time)
                    self._recorder.record(
                        NewTruth(key=key, description=description, value=value, trust=trust, timestamp=at)
                    )
                case ("move", source, target):
                    self._step("apply.move.before")
                    move(self._path(source), self._path(target))
                    self._step("apply.move.after")

    def flush_records(self) -> None:
        """What was recorded by the plans carried out so far stands when this returns. Raises TruthError."""
        self._recorder.flush()

    def drop_event(self, name: str, event: bytes) -> None:
        """Put an event of the bus itself into the inbox, as anyone would."""
        write_whole(self._path(INBOX), os.fsencode(name), event)

    def _append(self, page: str, text: str, opening: str, occurrence: int, redo: bool) -> None:
        data = text.encode("utf-8", "replace")
        if (move := self._pages.room_for(page, len(data))) is not None:
            self.before_moving()
            if self._pages.move_prefix(move):
                self._on_rotated(move)
        self._pages.append(
            page, data, opening=opening.encode("utf-8", "replace"), redo=redo, occurrence=occurrence
        )

    def _taken(self, directory: str, name: str, left: Callable[[str, str], bool] | None) -> bool:
        """Whether a consumer already has this file."""
        if directory.startswith(OUTBOX + "/"):
            return os.path.lexists(self._path(f"{directory}/done/{name}"))
        if left is None or not left(directory, name):
            return False
        # One that still stands may have lost its bytes to a power cut; a later commit moves it away.
        return not os.path.lexists(self._path(f"{directory}/{name}"))

    def _path(self, relative: str) -> bytes:
        return os.path.join(self._root, os.fsencode(relative))
