"""Commands of `kgamma truths` that look after the whole store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.memory import open_memory
from kernel_gamma.cli.terminal import (
    EXIT_FAILED,
    Failed,
    HomeOption,
    JsonOption,
    complain,
    counted,
    note,
    print_json,
    print_table,
    say,
)
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.truths import transfer
from kernel_gamma.truths.pruning import prune as prune_store
from kernel_gamma.truths.self_index import SelfIndex
from kernel_gamma.truths.transfer import ImportReport

__all__ = ["COMMANDS"]

_SHOWN = 20

FileArgument = Annotated[str, typer.Argument(metavar="FILE|-", show_default=False)]


def verify(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Prove that no permanent record was altered or lost.

    Walks the hash chain from its first link; exit 1 and the first record that does not fit. A forgotten
    record left a tombstone, which counts in its place.
    """
    with open_memory(open_place(home), must_exist=True) as store:
        report = store.verify()
    if as_json:
        print_json(
            {
                "ok": report.ok,
                "links": report.links,
                "broken_key": report.broken_key,
                "broken_link": report.broken_link,
                "reason": report.reason or None,
                "forgotten": report.forgotten,
            }
        )
    elif report.ok:
        say(f"the chain holds: {counted(report.links, 'link')}{_forgotten(report.forgotten)}")
    else:
        record = report.broken_key or "a record that is gone"
        complain(f"the chain breaks at link {report.broken_link}, {record}: {report.reason}")
        note(f"before it fit: {counted(report.links, 'link')}")
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what config/retention.yaml keeps no longer.

    The daemon and the gateway do so daily. Never what is locked, nor what stands in the hash chain.
    """
    place = open_place(home)
    with open_memory(place) as store:
        gone = prune_store(store, store.retention, place.clock.now(), dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "deleted": gone})
    elif gone:
        heading = "would go" if dry_run else "gone"
        print_table(["prefix", heading], [[f"{prefix}.", str(count)] for prefix, count in gone.items()])
    else:
        say("nothing is due")


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a checked copy of memory.db, also while it is in use.

    It never takes the place of a file that is there.
    """
    with open_memory(open_place(home), must_exist=True) as store:
        checked = transfer.backup(store, file.expanduser().absolute())
    if as_json:
        print_json(
            {
                "file": str(file),
                "truths": checked.truths,
                "links": checked.links,
                "forgotten": checked.forgotten,
            }
        )
    else:
        links = f"{counted(checked.links, 'link')}{_forgotten(checked.forgotten)}"
        say(f"{file}: {counted(checked.truths, 'truth')}; the chain holds: {links}")


def export(
    file: FileArgument,
    with_versions: Annotated[bool, typer.Option("--versions", help="With the older versions.")] = False,
    home: HomeOption = None,
) -> None:
    """Write every truth as a line of JSON; - writes to stdout.

    The oldest come first. The index of the mind's own pages (stream, diary, memory) stays out: the pages
    are the original.
    """
    with open_memory(open_place(home), must_exist=True) as store:
        if file == "-":
            transfer.export_jsonl(store, sys.stdout.buffer, versions=with_versions)
            sys.stdout.buffer.flush()
            return
        with _new_file(Path(file)) as out:
            count = transfer.export_jsonl(store, out, versions=with_versions)
    say(f"{file}: {counted(count, 'truth')}")


def import_(file: FileArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Take in lines as `export` writes them; - reads stdin.

    Each needs a key and a value at least. What is there already is skipped, what stands with another
    content is left and told. Exit 1 when lines were bad or in conflict; the others are in.
    """
    place = open_place(home)
    lines = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed by the with below
    with lines, open_memory(place) as store:
        report = transfer.import_jsonl(store, lines, zone=place.clock.zone)
    if as_json:
        print_json(
            {
                "added": report.added,
                "same": report.same,
                "own_past": report.own_past,
                "conflicts": [{"line": line, "key": key} for line, key in report.conflicts],
                "bad": [{"line": line, "reason": reason} for line, reason in report.bad],
            }
        )
    else:
        _tell(file, report)
    if report.bad_count or report.conflict_count:
        raise typer.Exit(EXIT_FAILED)


def reindex(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Build the search index anew: from the truths, and from the pages of the self."""
    place = open_place(home)
    with open_memory(place) as store:
        store.reindex()
        SelfIndex(store, PastFiles(place.self_dir, place.clock.zone), place.clock).rebuild()
        count = sum(store.categories().values())
    if as_json:
        print_json({"truths": count})
    else:
        say(f"indexed anew: {counted(count, 'truth')}")


COMMANDS: Mapping[str, Callable[..., None]] = {
    "verify": verify,
    "prune": prune,
    "backup": backup,
    "export": export,
    "import": import_,
    "reindex": reindex,
}


def _forgotten(count: int) -> str:
    return f", {count} of forgotten records (list them with --category tombstone)" if count else ""


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole. Raises Failed when there is one of that name."""
    if path.exists() or path.is_symlink():
        raise Failed(f"{path}: is there already; name another file")
    half = path.with_name(f".{path.name}.tmp")
    try:
        with half.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        half.rename(path)
    finally:
        half.unlink(missing_ok=True)


def _tell(file: str, report: ImportReport) -> None:
    own = f", {report.own_past} of the mind's own past left out" if report.own_past else ""
    say(f"{report.added} added, {report.same} were there{own}")
    for line, key in report.conflicts[:_SHOWN]:
        complain(f"{file}, line {line}: {key} stands with another content; it was left as it is")
    for line, reason in report.bad[:_SHOWN]:
        complain(f"{file}, line {line}: {reason}")
    rest = max(0, report.conflict_count - _SHOWN) + max(0, report.bad_count - _SHOWN)
    if rest:
        complain(f"and {counted(rest, 'line')} more (--json lists up to a thousand of each)")
