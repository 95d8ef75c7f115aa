"""The file a backup is: a gzipped tar of plain files under `home/` and `data/`, and last a manifest.

manifest.json: `{"format": 1, "version", "mind", "time", "ledger_schema", "files": {path: {"sha256", "size",
"mtime_ns"}}}`. A file without it was cut short. Nothing in it is a link, and no path leads out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kernel_gamma.errors import KernelError

__all__ = ["MANIFEST", "BadBackup", "Manifest", "PackedFile", "pack", "read"]

MANIFEST = "manifest.json"
FORMAT = 1
_PIECE = 1 << 20
_LARGEST_MANIFEST = 512 << 20


class BadBackup(KernelError):
    """The file is no whole backup; `str()` says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file to be packed."""

    path: str
    """In the archive."""
    source: Path
    may_vanish: bool = False
    """Retention may remove it before its turn comes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds."""

    version: str
    mind: str
    time: str
    ledger_schema: int
    files: dict[str, dict[str, Any]]


def pack(target: Path, files: Iterator[PackedFile], head: dict[str, Any]) -> int:
    """Write the archive at `target`, which must not be there, and sync it; returns the number of files."""
    listed: dict[str, dict[str, Any]] = {}
    with target.open("xb") as raw:
        with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=5, format=tarfile.PAX_FORMAT) as tar:
            for file in files:
                try:
                    listed[file.path] = _add(tar, file)
                except FileNotFoundError:
                    if not file.may_vanish:
                        raise
            text = json.dumps({"format": FORMAT, **head, "files": listed}).encode()
            info = tarfile.TarInfo(MANIFEST)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
        raw.flush()
        os.fsync(raw.fileno())
    return len(listed)


def _add(tar: tarfile.TarFile, file: PackedFile) -> dict[str, Any]:
    """As many bytes as the file has now: what is appended meanwhile is left out."""
    fd = os.open(file.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb") as source:
        status = os.fstat(fd)
        info = tarfile.TarInfo(file.path)
        info.size, info.mtime, info.mode = status.st_size, int(status.st_mtime), 0o600
        hashing = _Hashing(source)
        tar.addfile(info, hashing)
    return {"sha256": hashing.digest.hexdigest(), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


class _Hashing:
    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.digest.update(data)
        return data


def read(file: Path, place: Callable[[str], BinaryIO] | None = None) -> Manifest:
    """Read the whole archive and check every file against the manifest; `place(path)` opens where it goes.

    Raises BadBackup. With `place` what was written until then is there; throw it away.
    """
    seen: dict[str, tuple[str, int]] = {}
    manifest: Manifest | None = None
    with _told(file), tarfile.open(file, "r:gz") as tar:
        for member in tar:
            if manifest is not None:
                raise BadBackup(f"{file}: something follows its manifest; it was tampered with")
            if not member.isfile() or not _harmless(member.name) or member.name in seen:
                raise BadBackup(f"{file}: holds {member.name!r}, which no backup of ours does")
            source = tar.extractfile(member)
            assert source is not None
            if member.name == MANIFEST:
                manifest = _manifest(file, source.read(_LARGEST_MANIFEST))
                continue
            seen[member.name] = _take(source, None if place is None else place(member.name))
    if manifest is None:
        raise BadBackup(f"{file}: has no manifest: it was cut short, or is no backup of a mind")
    _compare(file, manifest, seen)
    return manifest


@contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise BadBackup(f"{file}: there is no such file") from None
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.filename and str(error.filename) != str(file):
            raise
        raise BadBackup(f"{file}: is damaged or no backup of a mind: {error}") from error
    except Exception as error:
        if type(error).__module__ != "zlib":
            raise
        raise BadBackup(f"{file}: is damaged: {error}") from error


def _take(source: Any, out: BinaryIO | None) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    try:
        while piece := source.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            if out is not None:
                out.write(piece)
    finally:
        if out is not None:
            out.close()
    return digest.hexdigest(), size


def _harmless(path: str) -> bool:
    if path == MANIFEST:
        return True
    parts = path.split("/")
    return (
        parts[0] in ("home", "data")
        and len(parts) > 1
        and not {"", ".", ".."} & set(parts)
        and "\0" not in path
    )


def _manifest(file: Path, raw: bytes) -> Manifest:
    found = json.loads(raw)
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise BadBackup(f"{file}: its manifest is none")
    if found.get("format") != FORMAT:
        raise BadBackup(f"{file}: was made by another kernel-gamma (format {found.get('format')}); upgrade")
    names = ("version", "mind", "time", "ledger_schema", "files")
    if any(name not in found for name in names):
        raise BadBackup(f"{file}: its manifest is not whole")
    return Manifest(**{name: found[name] for name in names})


def _compare(file: Path, manifest: Manifest, seen: dict[str, tuple[str, int]]) -> None:
    for path, (sha256, size) in seen.items():
        listed = manifest.files.get(path)
        if listed is None or (listed["sha256"], listed["size"]) != (sha256, size):
            raise BadBackup(f"{file}: {path!r} is not what its manifest says; the file is damaged")
    missing = sorted(manifest.files.keys() - seen.keys())
    if missing:
        raise BadBackup(f"{file}: {missing[0]!r} and {len(missing) - 1} more of its manifest are not in it")
