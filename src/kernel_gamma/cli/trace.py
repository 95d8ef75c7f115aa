"""`kgamma trace`: one event's whole journey."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from kernel_gamma.bus.folders import DEAD_LETTER
from kernel_gamma.bus.trace import Handling, Journey, Step, TracedFile, journey
from kernel_gamma.cli.home import Place, open_place, read_ledger
from kernel_gamma.cli.letters import Letter, letters_in
from kernel_gamma.cli.terminal import Failed, HomeOption, JsonOption, ago, print_json, print_wide, shown

__all__ = ["app", "journey_of", "show_journey"]

app = typer.Typer(rich_markup_mode=None)

_STATUS_STYLES = {"finished": "green", "dead": "red", "retry": "yellow", "running": "cyan"}


@app.command()
def trace(
    asked: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The whole journey of one event: files, nodes, waits, model calls, passages, actions, errors.

    ID is an event, trace, file (msg_…, int_…, act_…, out_…) or passage id, or the name of a dropped file.
    """
    place = open_place(home)
    found = journey_of(place, asked)
    if as_json:
        print_json(found.as_json())
    else:
        show_journey(found)


def journey_of(place: Place, asked: str) -> Journey:
    """What the ledger tells; of a file set aside before this ledger began, its reason file.

    Raises Failed when nothing is known of `asked`.
    """
    with read_ledger(place.data) as ledger:
        found = journey(ledger, os.fsencode(place.data), asked, place.clock.zone) if ledger else None
    found = found or _of_a_letter(place, asked)
    if found is not None:
        return found
    if ledger is None:
        raise Failed(f"{place.data}: this mind has no ledger yet; nothing has happened here")
    raise Failed(
        f"{asked}: nothing is known of it; a file that still lies in inbox/pending has no journey yet"
    )


def _of_a_letter(place: Place, asked: str) -> Journey | None:
    for letter in letters_in(place.data / DEAD_LETTER):
        path = f"{DEAD_LETTER}/{letter.day}/{letter.name}"
        if asked in (letter.name, f"{letter.day}/{letter.name}", path):
            return Journey(asked, files=[_set_aside(letter, path)])
    return None


def _set_aside(letter: Letter, path: str) -> TracedFile:
    told = letter.reason
    return TracedFile(
        seq=0,
        queue=letter.origin[0],
        name=letter.name,
        path=path,
        exists=True,
        state="gone",
        outcome="dead",
        origin="dropped",
        trust="unknown",
        file_id=None,
        trace_id=told.get("trace_id"),
        session_key=None,
        accepted_at=str(told.get("time", "")),
        parents=(),
        reason=told or None,
        handled=(),
    )


def show_journey(found: Journey) -> None:
    """A tree: a file hangs below the file it was made from."""
    tree = Tree(
        Text(shown(f"{found.asked}  {', '.join(t for t in found.traces if t != found.asked)}"), "bold")
    )
    branches: dict[int, Tree] = {}
    for file in found.files:
        above = next((branches[seq] for seq in file.parents if seq in branches), tree)
        branches[file.seq] = above.add(_headline(file))
        for line in _details(file):
            branches[file.seq].add(line)
    if found.cut:
        tree.add(Text("… and more; ask for one of the ids above", "dim"))
    print_wide(tree)


def _headline(file: TracedFile) -> Text:
    state = file.outcome or ("waits" if file.state == "live" else file.state)
    style = "red" if state == "dead" else "green" if state == "done" else "yellow"
    missing = "" if file.exists else "  (no longer there)"
    at = file.accepted_at[11:19]
    return Text.assemble(
        (f"{at}  ", "dim"), (shown(file.path), "bold"), "  ", (shown(state), style), (missing, "dim")
    )


def _details(file: TracedFile) -> Iterator[Text]:
    if isinstance(file.reason, dict):
        yield Text(shown(f"set aside: {file.reason.get('error')}: {file.reason.get('detail')}"), "red")
    elif file.outcome == "dead":
        yield Text("set aside; its .reason.json is gone", "red")
    for handled in file.handled:
        yield _handled(handled)
        for step in handled.steps:
            yield Text(shown(f"    {_step(step)}"), "magenta")
        for passage in handled.passages:
            place = f"self/{passage.page} at byte {passage.offset}, {passage.heading}"
            yield Text(shown(f"    {passage.kind} {passage.passage_id}: {place}"), "cyan")
        told = {f"self/{passage.page}" for passage in handled.passages}
        for output in handled.outputs:
            if output.path not in told and not output.path.startswith("pipeline/"):
                gone = "" if output.exists else " (no longer there)"
                yield Text(shown(f"    wrote {output.path}{gone}"), "green")
        if handled.company:
            yield Text(shown(f"    together with {', '.join(handled.company)}"), "dim")


def _handled(handled: Handling) -> Text:
    parts = [f"{handled.node}: "]
    facts = []
    if handled.wait_sec is not None:
        facts.append(f"waited {ago(handled.wait_sec)}")
    if handled.handling_sec is not None:
        facts.append(f"took {ago(handled.handling_sec)}")
    if handled.attempts > 1:
        facts.append(f"{handled.attempts} attempts")
    if handled.deaths:
        facts.append(f"{handled.deaths} times in flight when the process died")
    if handled.next_try:
        facts.append(f"next try {handled.next_try}")
    if handled.batch_id:
        facts.append(handled.batch_id)
    if handled.error:
        facts.append(f"last error: {handled.error}")
    style = _STATUS_STYLES.get(handled.status, "default")
    return Text.assemble(
        shown(parts[0]), (handled.status, style), shown("".join(f", {fact}" for fact in facts))
    )


def _step(step: Step) -> str:
    took = f", {ago(step.duration_sec)}" if step.duration_sec is not None else ", left no result"
    if step.kind == "tool":
        return f"tool run {step.step}{took}" + (f", failed: {step.failed}" if step.failed else "")
    tokens = f"{step.prompt_tokens or 0} + {step.completion_tokens or 0} tokens"
    cached = f" ({step.cached_tokens} cached)" if step.cached_tokens else ""
    cost = f", cost {step.cost:.6g}" if step.cost else ""
    return f"asked {step.model or '?'} as {step.role or '?'}: {tokens}{cached}{took}{cost}"
