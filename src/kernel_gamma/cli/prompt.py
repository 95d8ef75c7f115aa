"""A line that somebody types while other lines are printed above it; readline edits it where there is one."""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any

from rich.cells import cell_len

from kernel_gamma.cli.terminal import width

__all__ = ["Prompt", "without_escapes"]

_ESCAPES = re.compile(
    "\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # arrows and the like, colours
    "|O."  # function keys
    "|[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # titles, links
    "|.)?"
)
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def without_escapes(line: str) -> str:
    """What was typed, without the signs of keys that nothing has edited away."""
    return _CONTROL.sub("", _ESCAPES.sub("", line))


class Prompt:
    """Reads lines on one thread; others print through `above`. Without a terminal it only reads."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.RLock()
        self._typing = False
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._readline: Any = None
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="backslashreplace")  # a byte that is no UTF-8 ends no chat
        if self.interactive:
            with suppress(ImportError):  # input() edits with it from now on
                self._readline = importlib.import_module("readline")
        self._cursor = _cursor_of(self._readline)

    def read(self) -> str:
        """The next line. Raises EOFError and KeyboardInterrupt, then on a line of their own."""
        if not self.interactive:
            return without_escapes(input())
        self._typing = True
        try:
            return without_escapes(input(self._text))
        except (EOFError, KeyboardInterrupt):
            sys.stdout.write("\n")
            raise
        finally:
            with self._lock:
                self._typing = False

    @contextmanager
    def above(self) -> Iterator[None]:
        """What is printed in the block stands above the line that is being typed, which is drawn again."""
        with self._lock:
            if self._typing:
                self._clear()
            try:
                yield
            finally:
                if self._typing:
                    self._draw()

    def _clear(self) -> None:
        if self._readline is None:  # what is typed is known to the terminal alone: leave it where it stands
            sys.stdout.write("\n")
        else:
            rows = cell_len(self._text + self._typed()[0]) // width()
            sys.stdout.write("\r" + "\x1b[A" * rows + "\x1b[J")
        sys.stdout.flush()

    def _draw(self) -> None:
        before, after = self._typed()
        sys.stdout.write(self._text + before + after)
        if after:
            columns = width()
            here, end = cell_len(self._text + before), cell_len(self._text + before + after)
            sys.stdout.write("\r" + "\x1b[A" * (end // columns - here // columns))
            sys.stdout.write(f"\x1b[{here % columns}C" if here % columns else "")
        sys.stdout.flush()

    def _typed(self) -> tuple[str, str]:
        """The line as it stands, up to the cursor and behind it."""
        if self._readline is None:
            return "", ""
        line: str = self._readline.get_line_buffer()
        raw = line.encode(errors="surrogateescape")
        place = len(raw) if self._cursor is None else self._cursor.value
        return raw[:place].decode(errors="replace"), raw[place:].decode(errors="replace")


def _cursor_of(readline: Any) -> ctypes.c_int | None:
    """Where in its line, in bytes, readline has the cursor; the module itself does not tell."""
    with suppress(AttributeError, OSError, ValueError):
        return ctypes.c_int.in_dll(ctypes.CDLL(readline.__file__), "rl_point")
    return None
