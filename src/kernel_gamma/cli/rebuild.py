"""`kgamma rebuild`: the ledger and the index of the memory, from the files."""

from __future__ import annotations

from dataclasses import asdict

import typer

from kernel_gamma.backup.rebuilding import is_sound, rebuild_ledger
from kernel_gamma.bus.lock import hold, let_go
from kernel_gamma.bus.setting_aside import set_database_aside
from kernel_gamma.cli.home import Place, open_place
from kernel_gamma.cli.memory import memory_file, open_memory
from kernel_gamma.cli.terminal import (
    HomeOption,
    JsonOption,
    counted,
    note,
    print_json,
    say,
)
from kernel_gamma.daemon import set_up_logging
from kernel_gamma.errors import StoreDamaged
from kernel_gamma.self_stream.past import PastFiles
from kernel_gamma.topology import load_topology
from kernel_gamma.truths.self_index import SelfIndex

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_MISSING_TRUTHS = "all truths but the mind's own past: receipts, incidents, what others wrote"


@app.command()
def rebuild(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Make a lost or damaged ledger and memory index anew, as far as the files reach; says what is missing.

    Only while no daemon runs (exit 3). A sound ledger is left alone; a damaged file is kept aside.
    """
    place = open_place(home)
    lock = hold(place.data)
    try:
        set_up_logging(place.data, place.settings.log)
        ledger = _ledger(place)
        memory = _memory(place)
    finally:
        let_go(place.data, lock)
    if as_json:
        print_json({"ledger": ledger, "memory": memory})
        return
    _tell(ledger, memory)


def _ledger(place: Place) -> dict[str, object]:
    if is_sound(place.data / "ledger.db"):
        return {"state": "sound"}
    nodes = {declared.id: declared.watch for declared in load_topology(place.topology_file, place.home)}
    found = asdict(rebuild_ledger(place.data, place.settings, nodes, place.clock.now()))
    return {"state": "rebuilt", **found, "missing": list(found["missing"])}


def _memory(place: Place) -> dict[str, object]:
    file = memory_file(place)
    kept, lost = None, not file.exists()
    try:
        count = _reindex(place)
    except StoreDamaged:
        kept, lost = set_database_aside(file), True
        count = _reindex(place)
    return {"state": "rebuilt" if lost else "indexed", "truths": count, "kept": kept,
            "missing": [_MISSING_TRUTHS] if lost else []}  # fmt: skip


def _reindex(place: Place) -> int:
    with open_memory(place) as store:
        store.reindex()
        SelfIndex(store, PastFiles(place.self_dir, place.clock.zone), place.clock).rebuild()
        return sum(store.categories().values())


def _tell(ledger: dict[str, object], memory: dict[str, object]) -> None:
    if ledger["state"] == "sound":
        say("ledger.db is sound; it was left as it is")
    else:
        say(f"ledger.db is made anew: {counted(int(str(ledger['files'])), 'handled file')} in the books")
        for key, what in (
            ("told", "messages that were told already went to done/"),
            ("translated", "passages that were translated already went to done/"),
            ("adopted", "passages are taken up by the next start"),
            ("orders", "orders will be put before a person"),
        ):
            if ledger[key]:
                say(f"  {ledger[key]} {what}")
    say(f"memory.db is {memory['state']}: {memory['truths']} records")
    for source in (ledger, memory):
        missing = source.get("missing")
        for line in missing if isinstance(missing, list) else ():
            note(f"missing: {line}")
