"""`kgamma static`: the static truths, and how a change of them is proposed, seen and approved."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kernel_gamma.cli.home import Place, hint, open_place
from kernel_gamma.cli.memory import open_memory
from kernel_gamma.cli.terminal import Failed, HomeOption, JsonOption, Usage, print_json, print_table, say
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.truths.static.changes import ChangeRefused, Changes, FileState, Proposal
from kernel_gamma.truths.static.webhook import MOST_TRIES, Webhook, approval_problem, telling_of
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)
static = typer.Typer(
    help="What every prompt carries, and who approved it: status, diff, propose, approve, reject.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(static, name="static")

IdArgument = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", "--by", metavar="NAME", help="Who does it; else the login name.", show_default=False
    ),
]


@static.command()
def status(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Every file: as approved or not, by whom and when, its tokens and budget; then open proposals."""
    place = open_place(home)
    with _changes(place) as (changes, store):
        files, proposals = changes.status(), changes.proposals()
        tellings = {one.id: telling_of(store, one.id) for one in proposals}
    problem = approval_problem(place.settings.static, place.environ)
    if as_json:
        drift = [state.file for state in files if state.state != "approved"]
        print_json(
            {
                "files": [asdict(state) for state in files],
                "proposals": [asdict(proposal) for proposal in proposals],
                "drift": drift,
                "approval": place.settings.static.approval,
                "approval_problem": problem and problem[0],
                "telling": {name: asdict(told) for name, told in tellings.items() if told is not None},
            }
        )
        return
    print_table(["file", "state", "tokens", "approved by", "at", "sha256"], [_row(state) for state in files])
    if proposals:
        say()
        rows = [[p.id, p.file, p.by, p.proposed_at, p.why] for p in proposals]
        print_table(["open proposal", "file", "by", "at", "why"], rows)
    for name, told in tellings.items():
        if told is not None and told.error:
            say(
                f"{name} was not told: {told.error}; try {told.tries} of {MOST_TRIES}, {told.state}", "yellow"
            )
    if problem is not None:
        say(f"{problem[0]}; {problem[1]}", "yellow")


@static.command()
def diff(
    what: Annotated[str | None, typer.Argument(metavar="[FILE|ID]", show_default=False)] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a file as it stands, or a proposal, changes; without an argument all files that were edited."""
    place = open_place(home)
    with _changes(place) as (changes, _):
        named = changes.drifted() if what is None else [_id_or_file(place, what)]
        found = {name: changes.diff(name) for name in named}
    if as_json:
        print_json([{"what": name, "diff": text} for name, text in found.items()])
        return
    for text in found.values():
        say(text.removesuffix("\n")) if text else None
    if not any(found.values()):
        say("everything is as it was approved" if what is None else f"{what}: no difference")


@static.command()
def propose(
    file: Annotated[str, typer.Argument(metavar="FILE", show_default=False)],
    why: Annotated[str, typer.Option("--why", metavar="W", help="The reason.", show_default=False)] = "",
    name: NameOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a file that was edited in place, and record the change as a proposal.

    A file that was removed is proposed to go. Nothing of it is served until it is approved.
    """
    place = open_place(home)
    by = _name_from(name)
    with _changes(place) as (changes, _):
        proposal = changes.propose(_id_or_file(place, file), why=why, by=by)
    _show(proposal, as_json)
    if not as_json:
        say(f"look: {hint(place.home, f'static diff {proposal.id}')}")
        say(f"next: {hint(place.home, f'static approve {proposal.id}')}", "bold")


@static.command()
def approve(
    proposal_id: IdArgument, name: NameOption = None, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Make a proposal true, in your name; a running mind serves it from its next prompt on."""
    place = open_place(home)
    by = _name_from(name)
    with _changes(place) as (changes, _):
        proposal = changes.approve(proposal_id, name=by, now=place.clock.now())
    _show(proposal, as_json)


@static.command()
def reject(
    proposal_id: IdArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="Why not.", show_default=False)] = "",
    name: NameOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close a proposal; an edited file stays edited, and what was approved is served."""
    place = open_place(home)
    by = _name_from(name)
    with _changes(place) as (changes, _):
        proposal = changes.reject(proposal_id, name=by, reason=reason, now=place.clock.now())
    _show(proposal, as_json)


@contextmanager
def _changes(place: Place) -> Iterator[tuple[Changes, SqliteTruths]]:
    tokens = Tokens()
    tokens.load()  # short texts would be estimated without it, and a budget is no estimate
    with open_memory(place) as store:
        try:
            yield _changes_over(place, store, tokens), store
        except ChangeRefused as error:
            raise Failed(str(error)) from None


def _changes_over(place: Place, store: SqliteTruths, tokens: Tokens) -> Changes:
    """A proposal made here is told at once; a running mind tries again what did not arrive."""
    settings = place.settings.static

    def told(proposal: Proposal) -> None:
        Webhook(settings, place.environ, store, place.clock, diff=changes.diff).tell(proposal)

    changes = Changes(place.home, settings.paths, store, place.clock, count=tokens.count, told=told)
    return changes


def _name_from(name: str | None) -> str:
    """Who does it. Raises Usage where nobody is known."""
    if name is None:
        try:
            name = getpass.getuser()
        except (OSError, KeyError, ImportError):
            name = ""
    if not name.strip():
        raise Usage("a change is made in somebody's name, and there is no login name: say --name NAME")
    return name


def _id_or_file(place: Place, what: str) -> str:
    """A file is named as it is found from here, or as it stands in the home; an id is left as it is."""
    if os.path.lexists(place.home / what):
        return os.path.relpath(os.path.normpath(place.home / what), place.home)
    here = Path(os.path.normpath(Path.cwd() / what))
    if "/" not in what and "." not in what.removeprefix("proposal.") and not here.exists():
        return what
    for inside, home in ((here, place.home), (here.parent.resolve() / here.name, place.home.resolve())):
        if inside.is_relative_to(home):
            return inside.relative_to(home).as_posix()
    return os.path.normpath(what)


def _row(state: FileState) -> list[str]:
    tokens = f"{'-' if state.tokens is None else state.tokens}/{state.budget}"
    approved = (state.approved_by or "", state.approved_at or "", (state.approved_sha256 or "")[:12])
    return [state.file, state.state, tokens, *approved]


def _show(proposal: Proposal, as_json: bool) -> None:
    if as_json:
        print_json(asdict(proposal))
        return
    does = "to go" if proposal.text is None else "changed"
    by = "" if proposal.decided_by is None else f" by {proposal.decided_by}"
    say(f"{proposal.id}: {proposal.file} {does}: {proposal.state}{by}")
