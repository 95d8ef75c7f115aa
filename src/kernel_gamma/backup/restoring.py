"""A backup put back: unpacked beside, checked whole, then moved into place. What was there is set aside."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernel_gamma.backup.archive import BadBackup, Manifest, read
from kernel_gamma.backup.taking import DATABASES
from kernel_gamma.bus.ledger import MIGRATIONS
from kernel_gamma.bus.lock import hold, let_go
from kernel_gamma.configuration import Home, load_environment, load_settings

__all__ = ["Restored", "restore"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done."""

    manifest: Manifest
    data: Path
    set_aside: tuple[Path, ...]
    """What stood there before, under its new names."""


def restore(file: Path, home: Path, environ: Mapping[str, str], *, replace: bool = False) -> Restored:
    """Put the mind of `file` into `home`. Raises BadBackup, Held when a daemon lives there, OSError.

    What stands there already is refused; with `replace` it is renamed, whole, and nothing is deleted. Until
    the backup was found whole nothing is touched.
    """
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=home) as folder:
        unpacked = Path(folder)
        manifest = read(file, lambda path: _new_file(unpacked, path))
        _check(file, unpacked, manifest)
        source = unpacked / "home" if (unpacked / "home/config").is_dir() else home
        settings = load_settings(source, load_environment(home, environ))
        data = Home(home).data_dir(settings)
        lock = hold(data) if data.is_dir() else None
        try:
            moves = [(unpacked / "data", data)]
            moves += [(path, home / path.name) for path in sorted((unpacked / "home").glob("*"))]
            standing = [target for _, target in moves if _holds_anything(target)]
            if standing and not replace:
                names = ", ".join(str(path) for path in standing)
                raise BadBackup(
                    f"{home}: something is there already: {names}; restore with --home DIR elsewhere, or with"
                    " --replace, which sets it aside whole"
                )
            aside = tuple(_set_aside(target) for _, target in moves if os.path.lexists(target))
            for path, target in moves:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
        finally:
            if lock is not None:
                let_go(data, lock)
    return Restored(manifest, data, tuple(path for path in aside if path.exists()))


def _new_file(root: Path, path: str) -> BinaryIO:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.open("xb")


def _check(file: Path, unpacked: Path, manifest: Manifest) -> None:
    """Times as they were, since they are the order of what waits; and sound databases we can read."""
    if manifest.ledger_schema > len(MIGRATIONS):
        raise BadBackup(
            f"{file}: was made by kernel-gamma {manifest.version}, which is newer than this; upgrade first"
        )
    (unpacked / "data").mkdir(exist_ok=True)
    (unpacked / "home").mkdir(exist_ok=True)
    for path, listed in manifest.files.items():
        os.utime(unpacked / path, ns=(listed["mtime_ns"], listed["mtime_ns"]))
    for name in DATABASES:
        if not (unpacked / "data" / name).exists():
            continue
        with closing(sqlite3.connect(unpacked / "data" / name)) as db:
            try:
                (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.DatabaseError as error:
                said = str(error)
        if said != "ok":
            raise BadBackup(f"{file}: {name} in it is damaged: {said}")


def _holds_anything(path: Path) -> bool:
    if not path.is_dir():
        return os.path.lexists(path)
    return any(names for _, _, names in os.walk(path) if set(names) - {"daemon.lock", "daemon.json"})


def _set_aside(path: Path) -> Path:
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.replaced-{number}")):
        number += 1
    path.rename(aside)
    return aside
