"""How long files and the ledger's rows are kept: the section `files` of config/retention.yaml. Pure.

The shipped times are those of that file; a test holds both equal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.json_text import json_kind
from kernel_gamma.errors import SettingsError

__all__ = ["KeepTimes", "load_keep_times", "moment_before"]

_TIME = re.compile(r"([0-9]{1,6}) (hour|day)s?")
_MOST = timedelta(days=36_500)
_LEAST_OF_LEDGER = timedelta(days=1)
"""Nobody waits so long between a commit and its effects; a passage is put back within half an hour."""


@dataclass(frozen=True, slots=True)
class KeepTimes:
    """A time for each kind; None = for ever."""

    done: timedelta | None = timedelta(days=90)
    """`done/<day>/` of every queue."""
    acks: timedelta | None = timedelta(hours=24)
    """inbox/acks/: for producers that wait."""
    outbox_done: timedelta | None = timedelta(days=90)
    """What consumers have taken; what nobody took is never removed."""
    dead_letter: timedelta | None = None
    """Files that were set aside, and their reasons."""
    history: timedelta | None = timedelta(days=90)
    """Old pages in self/.history/; the newest of each page always stays."""
    ledger: timedelta | None = timedelta(days=90)
    """Rows of what is through: files, deliveries, commits, passages, tool runs."""
    model_calls: timedelta | None = timedelta(days=30)
    """The answers of models, as the ledger keeps them."""


def moment_before(now: datetime, keep: timedelta) -> datetime:
    """What is older may go: so many times 24 hours, whatever summer time does. `now` must be aware."""
    return (now.astimezone(UTC) - keep).astimezone(now.tzinfo)


def load_keep_times(document: Mapping[str, Json], file: str = "config/retention.yaml") -> KeepTimes:
    """The section `files` of a retention file; what it does not name is as shipped.

    Raises SettingsError for the first problem.
    """
    written = document.get("files")
    if written is None:
        return KeepTimes()
    if not isinstance(written, dict):
        problem = f"must be a section, is {json_kind(written)}"
        raise SettingsError(file, "files", problem, "write lines like `done: 90 days` below it")
    known = [field.name for field in fields(KeepTimes)]
    times: dict[str, timedelta | None] = {}
    for name, value in written.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            mend = f"did you mean {close[0]}?" if close else f"it may hold {', '.join(known)}"
            raise SettingsError(file, f"files.{name}", "unknown key", mend)
        times[name] = _time(value, f"files.{name}", file)
    ledger = times.get("ledger")
    if ledger is not None and ledger < _LEAST_OF_LEDGER:
        problem = "rows of less than a day may still be needed"
        raise SettingsError(file, "files.ledger", problem, "write 1 day or more")
    return KeepTimes(**times)


def _time(value: Json, key: str, file: str) -> timedelta | None:
    if value == "forever":
        return None
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    found = timedelta()
    if match is not None:
        found = timedelta(days=int(match[1])) if match[2] == "day" else timedelta(hours=int(match[1]))
    if not timedelta() < found <= _MOST:
        problem = f"is no time to keep a file: {value}"
        raise SettingsError(file, key, problem, "write forever, 90 days or 24 hours")
    return found
