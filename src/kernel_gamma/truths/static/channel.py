"""Channel A as the assembler reads it: approved bytes, rendered. An unapproved edit is told, not served."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from kernel_gamma.contracts.context import Drift, Profile, Section
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock, TruthStore
from kernel_gamma.errors import SettingsError, TruthError
from kernel_gamma.settings import StaticPaths
from kernel_gamma.truths.static.approvals import Approvals, Settled, drift_between
from kernel_gamma.truths.static.forms import with_dependencies
from kernel_gamma.truths.static.lock import Lock
from kernel_gamma.truths.static.nearness import nearest
from kernel_gamma.truths.static.places import ELASTIC, LOCK_FILE, TOTAL_BUDGET, Places
from kernel_gamma.truths.static.rendering import Block, Count, build, joined, operators_section

__all__ = ["StaticChannel", "Tell"]

log = structlog.get_logger(__name__)

Tell = Callable[[str, str, Mapping[str, Json]], None]
"""(category, description, value): write a truth of our own."""

_SAID: Mapping[str, str] = {
    "changed": "was changed without approval; what was approved is served",
    "missing": "is gone without approval; what was approved is served",
    "new": "is new and not approved; it is not served",
    "unreadable": "cannot be read; what was approved is served",
}


@dataclass(frozen=True, slots=True)
class _Served:
    """What is served until a file or the lock changes."""

    signs: tuple[object, ...] | None
    """None: look again at the next call."""
    lock: Lock
    block: Block
    files: Mapping[str, bytes]
    drift: tuple[Drift, ...]
    elastic: int
    """Tokens left for what is loaded on demand."""
    names: re.Pattern[str] | None
    """Finds the ids of operators in a text."""


class StaticChannel:
    """The StaticTruths of one home. Safe to call from any thread."""

    def __init__(
        self, home: Path, paths: StaticPaths, store: TruthStore, clock: Clock, *, count: Count, tell: Tell
    ) -> None:
        """`count` gives the tokens of a text; `tell` writes a truth of our own (alerts of drift).

        Nothing is read before the first call. Raises SettingsError for paths that cannot be.
        """
        self._places = Places(paths)
        self._approvals = Approvals(home, self._places, store, clock)
        self._count = count
        self._tell = tell
        self._served: _Served | None = None
        self._told: set[Drift | str] = set()
        self._lock = threading.Lock()

    def sections(
        self, profile: Profile, *, named: Sequence[str] = (), operators: Sequence[str] = ()
    ) -> Sequence[Section]:
        """In the order in which they stand; what stands in lean comes first.

        Of the operators (with those they depend on) and architecture truths those are loaded that fit whole
        into the 400 elastic tokens, operators first, in the order in which they were named.

        Raises SettingsError while there is nothing approved to serve.
        """
        served = self._look()
        return (*served.block.sections(profile), *self._on_demand(served, named, operators))

    def operators_in(self, text: str) -> Sequence[str]:
        """Ids of registered operators that `text` names, each behind those it depends on."""
        served = self._look()
        if served.names is None:
            return ()
        by_lower = {name.lower(): name for name in served.block.operators}
        named = dict.fromkeys(by_lower[match[0].lower()] for match in served.names.finditer(text))
        return with_dependencies(named, served.block.operators)

    def truths_in(self, text: str) -> Sequence[str]:
        """Names of architecture truths that `text` touches, the nearest first."""
        truths = self._look().block.truths
        return nearest(text, {name: section.text for name, section in truths.items()})

    def drift(self) -> Sequence[Drift]:
        """Files that differ from what was approved; served are the approved bytes."""
        return self._look().drift

    def tokens(self, profile: Profile) -> int:
        """Of what stands in every prompt of a profile."""
        return self._count(joined(self._look().block.sections(profile)))

    def _on_demand(self, served: _Served, named: Sequence[str], operators: Sequence[str]) -> list[Section]:
        block, left = served.block, served.elastic
        sections: list[Section] = []
        loaded: list[str] = []
        for name in operators:
            wider = with_dependencies([*loaded, name], block.operators)
            if wider and self._count(operators_section(block, wider).text) <= left:
                loaded = wider
        if loaded:
            sections.append(operators_section(block, loaded))
            left -= self._count(sections[0].text)
        for name in dict.fromkeys(named):
            section = block.truths.get(name)
            if section is not None and (cost := self._count(section.text)) <= left:
                sections.append(section)
                left -= cost
        return sections

    # Looking

    def _look(self) -> _Served:
        """What is served now; files are read only when one of them or the lock changed."""
        served, signs = self._served, self._approvals.signs()
        if served is not None and served.signs == signs:
            return served
        with self._lock:
            served, signs = self._served, self._approvals.signs()
            if served is None:
                self._served = served = self._read(signs, None)
            elif served.signs != signs:
                self._served = served = self._read_again(signs, served)
        return served

    def _read(self, signs: tuple[object, ...], before: _Served | None) -> _Served:
        settled = self._approvals.settle(lambda files: build(files, self._places, self._count))
        found = self._approvals.on_disk()
        files = self._approvals.approved(settled.lock, found, before.files if before else None)
        block = build(files, self._places, self._count)
        kept: tuple[object, ...] | None = signs
        try:
            self._approvals.keep(settled.lock, files)
        except TruthError as error:
            log.warning("approved static truths were not kept in the store", error=str(error))
            kept = None
        drift = tuple(drift_between(settled.lock, found, self._places))
        self._tell_how(settled)
        self._tell_drift(drift)
        full = self._count(joined(block.sections("full")))
        elastic = min(ELASTIC, TOTAL_BUDGET - full)
        return _Served(kept, settled.lock, block, files, drift, elastic, _names_of(block))

    def _read_again(self, signs: tuple[object, ...], served: _Served) -> _Served:
        """A mind that runs goes on with what it has, whatever becomes of the files."""
        try:
            again = self._read(signs, served)
        except (SettingsError, TruthError) as error:
            file = getattr(error, "file", LOCK_FILE)
            said = f"the static truths cannot be read again: {error}; what was approved before is served"
            value: dict[str, Json] = {"file": file, "kind": "unusable", "error": str(error)}
            self._tell_once(str(error), "alert.static_drift", said, value)
            drift = drift_between(served.lock, self._approvals.on_disk(), self._places)
            if file == LOCK_FILE or not drift:
                unusable = Drift(file=file, kind="unreadable", approved_sha256=None, found_sha256=None)
                drift = [unusable, *drift]
            retried = None if isinstance(error, TruthError) else signs
            return replace(served, signs=retried, drift=tuple(drift))
        self._told = {told for told in self._told if isinstance(told, Drift)}
        return again

    # Telling

    def _tell_how(self, settled: Settled) -> None:
        files = sorted(settled.lock.files)
        if settled.how == "restored":
            said = f"{LOCK_FILE} was gone; it was restored from the memory store"
            self._tell("alert.static_drift", said, {"file": LOCK_FILE, "kind": "restored"})
        elif settled.how != "file":
            said = f"the static truths were approved as they stood at the first start ({len(files)} files)"
            approved: dict[str, Json] = {file: settled.lock.files[file].sha256 for file in files}
            self._tell("operation.static_change", said, {"approved_by": settled.how, "files": approved})

    def _tell_drift(self, drift: tuple[Drift, ...]) -> None:
        self._told = {told for told in self._told if isinstance(told, str) or told in drift}
        for one in drift:
            self._tell_once(
                one,
                "alert.static_drift",
                f"{one.file} {_SAID[one.kind]}",
                {
                    "file": one.file,
                    "kind": one.kind,
                    "approved_sha256": one.approved_sha256,
                    "found_sha256": one.found_sha256,
                    "mend": f"see kgamma static diff {one.file}, then propose it or put it back",
                },
            )

    def _tell_once(self, what: Drift | str, category: str, said: str, value: Mapping[str, Json]) -> None:
        if what not in self._told:
            self._told.add(what)
            self._tell(category, said, value)


def _names_of(block: Block) -> re.Pattern[str] | None:
    """Longer ids first; Chinese may stand right beside an id, letters and digits may not."""
    if not block.operators:
        return None
    ids = "|".join(re.escape(name) for name in sorted(block.operators, key=len, reverse=True))
    return re.compile(
        rf"(?<![A-Za-z0-9_-])(?:{ids})(?![A-Za-z0-9_-]|\.[A-Za-z0-9_])", re.IGNORECASE | re.ASCII
    )
