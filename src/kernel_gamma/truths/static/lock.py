"""config/static.lock.json: who approved which bytes of which file, and when."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.errors import SettingsError
from kernel_gamma.truths.static.places import LOCK_FILE, MOST_BYTES

__all__ = ["Approval", "Lock", "alone", "parse_lock", "put_file", "read_lock", "read_static", "write_lock"]

_MEND = "put it back from its last version, or remove it: the memory store restores it"


@dataclass(frozen=True, slots=True)
class Approval:
    """Bytes that a person approved."""

    sha256: str
    approved_by: str
    approved_at: str
    """RFC 3339."""

    @classmethod
    def of(cls, sha256: str, name: str, now: datetime) -> Approval:
        """Approved by `name` now (aware)."""
        return cls(sha256, name, rfc3339(now))


@dataclass(frozen=True, slots=True)
class Lock:
    """All approvals that stand, by file (relative to the home)."""

    files: Mapping[str, Approval]

    def with_file(self, file: str, approval: Approval | None) -> Lock:
        """The lock after an approval; None takes the file out."""
        files = {**self.files}
        files.pop(file, None)
        if approval is not None:
            files[file] = approval
        return replace(self, files=files)

    def as_json(self) -> dict[str, Json]:
        """As it stands in the file, in the order of names."""
        return {
            "version": 1,
            "files": {
                file: {
                    "sha256": one.sha256,
                    "approved_by": one.approved_by,
                    "approved_at": one.approved_at,
                }
                for file, one in sorted(self.files.items())
            },
        }


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    approved_by: str
    approved_at: str


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    version: Literal[1]
    files: dict[str, _Entry]


def parse_lock(document: Json, file: str = LOCK_FILE) -> Lock:
    """The lock a document describes. Raises SettingsError."""
    try:
        found = _Document.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "file"
        raise SettingsError(file, key, first["msg"].replace("Input should", "must"), _MEND) from None
    return Lock({name: Approval(**dict(entry)) for name, entry in found.files.items()})


def read_lock(home: Path) -> Lock | None:
    """The lock of a home; None when there is none. Raises SettingsError when it cannot be understood."""
    path = home / LOCK_FILE
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(LOCK_FILE, "file", f"cannot be read: {error.strerror}", _MEND) from None
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise SettingsError(LOCK_FILE, "file", f"is no JSON: {error}", _MEND) from None
    return parse_lock(document)


def write_lock(home: Path, lock: Lock) -> None:
    """Write it whole: a reader sees the old one or the new one."""
    text = json.dumps(lock.as_json(), ensure_ascii=False, indent=2)
    put_file(home / LOCK_FILE, text.encode("utf-8", "backslashreplace") + b"\n")


def put_file(path: Path, raw: bytes) -> None:
    """Replace or make a file by rename, durably; who may read the old one may read the new one."""
    target = Path(os.path.realpath(path))  # a link stays a link
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}.tmp")
    with half.open("wb") as file:
        with suppress(FileNotFoundError):
            os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    half.rename(target)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_static(path: Path) -> bytes | None:
    """The bytes of a file; None when it cannot be read or is none of ours. Raises FileNotFoundError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(str(path)) from None
    except OSError:
        return None
    try:
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            raw = file.read(MOST_BYTES + 1)
    except OSError:  # a folder cannot be opened as a file
        return None
    return raw if len(raw) <= MOST_BYTES else None


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """No other process changes approvals of this home within the block."""
    try:
        folder = os.open(home / "config", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # a folder that is not there holds nothing that could be changed
        yield
        return
    try:
        flock(folder, LOCK_EX)
        yield
    finally:
        os.close(folder)
