"""`kgamma context`: what the assembler would send for a task, and the account of every piece of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from kernel_gamma.assembly import Assembly, Counting
from kernel_gamma.cli.assemblies import audit_table, calls_of, explained, totals_of
from kernel_gamma.cli.home import Place, open_place
from kernel_gamma.cli.memory import open_memory
from kernel_gamma.cli.status import status_of
from kernel_gamma.cli.terminal import Failed, HomeOption, JsonOption, Usage, print_json, say
from kernel_gamma.configuration import Home
from kernel_gamma.context.audit import refitted
from kernel_gamma.contracts.context import TaskRequest
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Role
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.errors import TooLarge, TruthError
from kernel_gamma.model.roles import Roles
from kernel_gamma.model.tokens import Tokens, encoding_for
from kernel_gamma.self_stream.stream import SelfStream
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["app", "assembly_over", "open_assembly"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def context(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", show_default=False)] = None,
    task_type: Annotated[
        str | None,
        typer.Option("--task-type", metavar="T", help="Instead of what the words tell.", show_default=False),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            min=1,
            help="Of static truths and records together; else the task type's.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        str,
        typer.Option(metavar="NODE", help="As if it asked, e.g. internalizer.", show_default=False),
    ] = "",
    explain: Annotated[bool, typer.Option("--explain", help="The account instead of the prompt.")] = False,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="CALL",
            help="A call that was made (its trace, or the key of its audit), fitted again under --budget.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """What would be sent to a model for a task; --explain says what stands in it, what does not, and why.

    No model is asked. The account is kept like that of any call, for `kgamma why`.
    """
    place = open_place(home)
    if replay is not None:
        if task is not None or task_type is not None or agent:
            raise Usage("context: --replay takes no task, --task-type or --agent beside it")
        _replay(place, replay, budget, as_json=as_json)
        return
    if task is None or not task.strip():
        raise Usage('context: which task? e.g. kgamma context "why did the service stop?" --explain')
    with open_assembly(place) as assembly:
        try:
            asked = TaskRequest(task=task, task_type=task_type, agent=agent, budget=budget)
            assembled, key = assembly.asked(asked)
        except TooLarge as error:
            raise Failed(f"context: {error}; give it more with --budget") from None
        except ValueError as error:
            raise Usage(f"context: {error}") from None
    if as_json:
        turns = [{"role": turn.role, "text": turn.text} for turn in assembled.turns]
        print_json({**assembled.audit, "audit_key": key, "turns": turns})
    elif explain:
        _show(assembled.audit, key)
    else:
        for turn in assembled.turns:
            say(f"--- {turn.role}", "dim")
            say(turn.text)


@contextmanager
def open_assembly(place: Place) -> Iterator[Assembly]:
    """The assembler of a home, also while a daemon runs. Raises SettingsError, TruthError."""
    with open_memory(place) as store:
        yield assembly_over(place, store)


def assembly_over(place: Place, store: SqliteTruths) -> Assembly:
    """The assembler of a home over its open store. Raises SettingsError."""
    tokens = Tokens()
    roles = Roles(place.settings.model, place.environ)

    def count(role: Role, text: str) -> int:
        encoding = encoding_for(roles.settings_of(role).model)[0]
        tokens.load(encoding)  # short texts are estimated until then, and the sums would not add up
        return tokens.count(text, encoding)

    def breaker() -> str:
        return str(status_of(place)["model"].get("breaker", "closed"))

    return Assembly(
        Home(place.home),
        place.settings,
        store,
        SelfStream(place.self_dir),
        place.clock,
        Counting(count, lambda role: roles.settings_of(role).window),
        tell=_teller(store),
        breaker=breaker,
    )


def _teller(store: SqliteTruths) -> Any:
    def tell(category: str, description: str, value: Mapping[str, Json]) -> None:
        try:
            store.upsert(
                NewTruth(category=category, description=description, value=dict(value), trust="owner")
            )
        except TruthError as error:
            say(f"a truth was not written: {error}", "dim")

    return tell


def _show(audit: Mapping[str, Any], key: str | None) -> None:
    for line in explained(audit):
        say(line)
    audit_table(audit)
    for line in totals_of(audit):
        say(line)
    if key:
        say(f"kept as {key}", "dim")


def _replay(place: Place, asked: str, budget: int | None, *, as_json: bool) -> None:
    with open_memory(place, must_exist=True) as store:
        calls = calls_of(place, store, asked)
    audit = calls[-1].audit
    limit = audit["budget"] if budget is None else budget
    try:
        fitted = refitted(audit, budget=limit)
    except TooLarge as error:
        raise Failed(f"context: {error}") from None
    kept: list[dict[str, Any]] = [
        {"name": part.name, "channel": part.channel, "source": piece.source, "tokens": piece.tokens}
        for part in fitted.parts
        for piece in part.pieces
    ]
    lost = [
        {
            "name": lost.part.name,
            "channel": lost.part.channel,
            "source": lost.piece.source,
            "tokens": lost.piece.tokens,
            "kept": False,
            "reason": lost.reason,
        }
        for lost in fitted.lost
    ]
    joins = sum(entry["tokens"] for entry in audit["parts"] if entry["name"] == "joins")
    parts = [*({**entry, "kept": True, "reason": ""} for entry in kept), *lost]
    sums = {
        f"{channel}_tokens": sum(e["tokens"] for e in kept if e["channel"] == channel)
        for channel in ("static", "self", "dynamic", "agent")
    }
    replayed = {
        "replay_of": calls[-1].key,
        "task_type": audit["task_type"],
        "task_why": audit["task_why"],
        "task": audit["task"],
        **sums,
        "total_tokens": fitted.tokens + joins,
        "was_tokens": audit["total_tokens"],
        "budget": limit,
        "limits": audit["limits"],
        "prefix_hash": audit["prefix_hash"],
        "parts": parts,
    }
    if as_json:
        print_json(replayed)
        return
    say(f"{calls[-1].key} again, with {limit} tokens for static truths and records")
    audit_table(replayed)
    say(f"{replayed['total_tokens']} tokens; {audit['total_tokens']} were sent then")
