"""`kgamma memories NAME --history | --restore N`: earlier versions of a memory page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kernel_gamma.bus.plan import history_stem
from kernel_gamma.cli.home import Place
from kernel_gamma.cli.terminal import Failed, print_json, print_table, say
from kernel_gamma.self_stream import PageFiles
from kernel_gamma.self_stream.stream import SelfStream

__all__ = ["restore", "show_history"]

_REST = re.compile(r"\..+\.[0-9]+\.md(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class _Kept:
    """One earlier version."""

    path: Path
    written_at: datetime
    text: str


def show_history(place: Place, name: str, *, as_json: bool) -> None:
    """The earlier versions, the newest first, numbered as `--restore` takes them."""
    kept = _versions(place, name)
    if as_json:
        found = [
            {"number": n, "written_at": one.written_at.isoformat(), "file": one.path.name, "text": one.text}
            for n, one in enumerate(kept, 1)
        ]
        print_json({"name": name, "history": found})
    elif not kept:
        say(f"there is no earlier version of {name}")
    else:
        rows = [
            [str(n), f"{one.written_at:%Y-%m-%d %H:%M:%S}", str(len(one.text)), _first_words(one.text)]
            for n, one in enumerate(kept, 1)
        ]
        print_table(["version", "written", "characters", "begins"], rows)


def restore(place: Place, name: str, number: int) -> None:
    """Put an earlier version in the place of the page that stands, which becomes an earlier one itself."""
    kept = _versions(place, name)
    if not 1 <= number <= len(kept):
        known = f"it has {len(kept)}" if kept else "it has none"
        raise Failed(f"{name} has no earlier version {number}; {known} (--history lists them)")
    page = _page(name)
    stands = SelfStream(place.self_dir).page(page).sha256
    history = f"{history_stem(page)}.restored_{place.clock.now():%Y%m%dT%H%M%S}.0.md"
    chosen = kept[number - 1]
    if not PageFiles(place.self_dir).replace(page, chosen.path.read_bytes(), expect=stands, history=history):
        raise Failed(f"{page} was changed just now; look at it and try again")
    say(f"{page} is as it was on {chosen.written_at:%Y-%m-%d %H:%M:%S}; the page that stood there is kept")


def _versions(place: Place, name: str) -> list[_Kept]:
    stem, zone = history_stem(_page(name)), place.clock.zone
    found = []
    for path in (place.self_dir / ".history").glob("memories_*"):
        if path.name.startswith(stem) and _REST.fullmatch(path.name[len(stem) :]) and path.is_file():
            at = datetime.fromtimestamp(path.stat().st_mtime, zone)
            found.append(_Kept(path, at, path.read_text(encoding="utf-8", errors="replace")))
    return sorted(found, key=lambda one: (one.written_at, one.path.name), reverse=True)


def _page(name: str) -> str:
    return f"memories/{name}.md"


def _first_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return lines[0][:60] if lines else ""
