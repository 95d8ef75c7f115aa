"""`kgamma backup` and `kgamma restore`: a mind in one file, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kernel_gamma.backup.archive import Manifest, read
from kernel_gamma.backup.restoring import restore as put_back
from kernel_gamma.backup.taking import take_backup
from kernel_gamma.cli.home import find_home, hint, open_place
from kernel_gamma.cli.terminal import (
    HomeOption,
    JsonOption,
    counted,
    note,
    print_json,
    say,
)

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]


@app.command()
def backup(
    file: FileArgument,
    verify: Annotated[bool, typer.Option("--verify", help="Only check a backup that is there.")] = False,
    data_only: Annotated[bool, typer.Option("--data-only", help="Without config/ and prompts/.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The whole mind in one file, also while it lives; read again and checked before it gets its name.

    With config/, prompts/ and the home's own modules; never .env, logs or what is being written.
    """
    target = file.expanduser().absolute()
    if verify:
        manifest = read(target)
    else:
        place = open_place(home)
        manifest = take_backup(
            place.home, place.settings, target, place.clock.now(), with_config=not data_only
        )
    _tell(file, manifest, as_json, "is whole" if verify else "is written and checked")


@app.command()
def restore(
    file: FileArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="Set aside, whole, what is there already.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the mind of a backup into a home. Exit 3 while a daemon lives there.

    Nothing is touched until the whole file was checked, nothing is deleted ever.
    """
    target = find_home(home)
    done = put_back(file.expanduser().absolute(), target, os.environ, replace=replace)
    if as_json:
        aside = [str(path) for path in done.set_aside]
        print_json({"home": str(target), "data": str(done.data), "set_aside": aside, **_words(done.manifest)})
        return
    for path in done.set_aside:
        note(f"what was there before is kept: {path}")
    _tell(file, done.manifest, False, f"stands in {target}")
    note(f"keys are in no backup: {target / '.env'} is yours to write; then {hint(target, 'run')}")


def _words(manifest: Manifest) -> dict[str, object]:
    size = sum(listed["size"] for listed in manifest.files.values())
    return {
        "mind": manifest.mind,
        "time": manifest.time,
        "version": manifest.version,
        "files": len(manifest.files),
        "bytes": size,
    }


def _tell(file: Path, manifest: Manifest, as_json: bool, what: str) -> None:
    words = _words(manifest)
    if as_json:
        print_json({"file": str(file), **words})
        return
    count = counted(len(manifest.files), "file")
    say(f"{file}: the mind {manifest.mind} as of {manifest.time}, {count}, {what}")
