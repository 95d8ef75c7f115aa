"""Commands of `kgamma truths` that look for something."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, get_args

import typer
from rich.text import Text

from kernel_gamma.cli.home import Place, open_place
from kernel_gamma.cli.memory import open_memory
from kernel_gamma.cli.records import (
    KeyArgument,
    category_from,
    key_from,
    line_of,
    local_time,
    no_truth,
    truth_dict,
)
from kernel_gamma.cli.terminal import (
    HomeOption,
    JsonOption,
    Usage,
    console,
    note,
    print_json,
    print_table,
    say,
    shown,
)
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.truths import Finding, Found, Search, TaskType
from kernel_gamma.gateway.forms import aware, found_form, last_moment
from kernel_gamma.truths.excerpts import marks

__all__ = ["COMMANDS"]

_MOST = 1000
_AGE = re.compile(r"(\d{1,6})\s*(min|h|d)")
_AGE_UNITS = {"min": "minutes", "h": "hours", "d": "days"}

CategoryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--category", metavar="C", help="Only this category or longer key prefix; may be repeated.",
        show_default=False,
    ),
]  # fmt: skip
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="T", help="From this time on: 2026-11-30T08:00, or an age like 24h, 7d, 30min.",
                 show_default=False),
]  # fmt: skip
UntilOption = Annotated[
    str | None,
    typer.Option(metavar="T", help="Up to this time; a date is its whole day.", show_default=False),
]
LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=_MOST, help="How many at most.")]


def search(  # noqa: PLR0913 - each is an option
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUERY]...", help="Words; quotes may be left out.", show_default=False),
    ] = None,
    category: CategoryOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 10,
    min_similarity: Annotated[
        float, typer.Option(metavar="X", min=0, max=1, help="Only what fits as well, 0 to 1.")
    ] = 0.0,
    task_type: Annotated[
        str | None,
        typer.Option(metavar="T", help=f"Weigh for it: {', '.join(get_args(TaskType))}.", show_default=False),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", min=1, help="Cut the results to fit together.", show_default=False),
    ] = None,
    no_fold: Annotated[
        bool, typer.Option("--no-fold", help="Show records that differ only in times and numbers one by one.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search by words, category and time.

    Words are English or Chinese; words for a time such as "yesterday" or 昨天 count as the time. A standard
    word for a category, such as errors, alerts, 报警 or 巡检, asks for its records: they come first when only
    a time stands beside it, and count more beside other words. Without a QUERY the newest come. A QUERY that
    begins with a dash stands after --. What comes only when asked for (metrics, performance, debug, temp,
    assembly, tombstone) needs --category.
    """
    place = open_place(home)
    asked = Search(
        query=" ".join(query or ()),
        categories=[category_from(name) for name in category or ()],
        start=_since(since, place),
        end=_until(until, place),
        limit=limit,
        min_similarity=min_similarity,
        task_type=_task_type(task_type),
        token_budget=budget,
        fold=not no_fold,
    )
    with open_memory(place) as store:
        finding = store.search(asked)
    if as_json:
        print_json(_finding_dict(asked, finding))
    else:
        _show_finding(finding)


def recent(
    category: Annotated[
        str | None, typer.Option(metavar="C", help="Of this category or key prefix.", show_default=False)
    ] = None,
    limit: LimitOption = 10,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The newest truths.

    Without --category none of those that come only when asked for (metrics, debug, …).
    """
    with open_memory(open_place(home)) as store:
        found = store.recent(limit=limit, category=None if category is None else category_from(category))
    if as_json:
        print_json([truth_dict(truth) for truth in found])
    elif found:
        print_table(
            ["time", "key", "what"],
            [[local_time(truth.timestamp), truth.key, line_of(truth)] for truth in found],
        )
    else:
        say("nothing is stored yet" if category is None else f"nothing is stored under {category}")


def categories(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Every category and how many truths it holds."""
    with open_memory(open_place(home)) as store:
        found = store.categories()
    if as_json:
        listed = [{"category": name, "count": count} for name, count in found.items()]
        print_json({"total": len(listed), "categories": listed})
    elif found:
        print_table(["category", "truths"], [[name, str(count)] for name, count in found.items()])
    else:
        say("nothing is stored yet")


def feedback(
    key: KeyArgument,
    query: Annotated[str, typer.Option("--query", metavar="Q", help="What was asked.", show_default=False)],
    relevant: Annotated[
        bool | None,
        typer.Option("--relevant/--irrelevant", help="Whether it answered that.", show_default=False),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a truth answered a query; it weighs later."""
    if relevant is None:
        raise Usage("feedback: say --relevant or --irrelevant")
    if not query.strip():
        raise Usage("feedback: --query is empty")
    with open_memory(open_place(home)) as store:
        if not store.feedback(key_from(key), query, relevant=relevant, by="owner"):
            raise no_truth(key)
    if as_json:
        print_json({"key": key, "relevant": relevant})
    else:
        say(f"{key} is {'' if relevant else 'ir'}relevant for that: noted")


COMMANDS: Mapping[str, Callable[..., None]] = {
    "search": search,
    "recent": recent,
    "categories": categories,
    "feedback": feedback,
}


# What was typed


def _task_type(name: str | None) -> Any:
    if name is not None and name not in get_args(TaskType):
        raise Usage(f"--task-type {name}: there are {', '.join(get_args(TaskType))}")
    return name


def _since(text: str | None, place: Place) -> datetime | None:
    if text is None:
        return None
    return _ago(text, place) or _moment("--since", text, place, aware)


def _until(text: str | None, place: Place) -> datetime | None:
    if text is None:
        return None
    return _ago(text, place) or _moment("--until", text, place, last_moment)


def _ago(text: str, place: Place) -> datetime | None:
    age = _AGE.fullmatch(text.strip())
    if age is None:
        return None
    try:
        return place.clock.now() - timedelta(**{_AGE_UNITS[age[2]]: int(age[1])})
    except OverflowError:
        return datetime.min.replace(tzinfo=place.clock.zone)


def _moment(option: str, text: str, place: Place, read: Any) -> datetime:
    try:
        found: datetime = read(text.strip(), place.clock.zone)
    except ValueError:
        raise Usage(
            f"{option} {text}: is no time; write 2026-11-30, 2026-11-30T08:00 or an age like 24h"
        ) from None
    return found


# What is shown


def _finding_dict(asked: Search, finding: Finding) -> dict[str, Json]:
    results: list[Json] = []
    for found in finding.results:
        form = found_form(found, include_value=True)
        form["why"] = {name: round(share, 4) for name, share in found.why.items()}
        if asked.token_budget is not None:
            form["tokens"] = found.tokens
        results.append(form)
    return {
        "total": finding.total,
        "returned": len(results),
        "bounded": finding.bounded,
        "terms": list(finding.terms),
        "categories": list(finding.categories),
        "start_time": rfc3339(finding.start) if finding.start else None,
        "end_time": rfc3339(finding.end) if finding.end else None,
        "results": results,
        "left_out": [{"key": key, "reason": reason} for key, reason in finding.left_out],
    }


def _show_finding(finding: Finding) -> None:
    if finding.start or finding.end:
        start = local_time(finding.start) if finding.start else "the beginning"
        note(f"from {start} to {local_time(finding.end) if finding.end else 'now'}")
    if finding.categories:
        note(f"the query names {', '.join(finding.categories)}: such records come first or count more")
    if not finding.results:
        say("nothing was found")
        return
    for found in finding.results:
        _show_found(found, finding.terms)
    at_least = "at least " if finding.bounded else ""
    note(f"{len(finding.results)} shown, {at_least}{finding.total} match")


def _show_found(found: Found, words: Sequence[str]) -> None:
    truth = found.truth
    many = ""
    if found.count > 1:
        first, last = found.first or truth.timestamp, found.last or truth.timestamp
        many = f"  ×{found.count} {local_time(first)} … {local_time(last)}"
    say(f"{truth.key}  {local_time(truth.timestamp)}  {found.similarity:.2f}{many}", "bold")
    for line in found.excerpt.splitlines():
        told = Text("    ")
        end = 0
        for start, after in marks(line, words):
            told.append(shown(line[end:start]))
            told.append(shown(line[start:after]), "bold")
            end = after
        told.append(shown(line[end:]))
        console().print(told, soft_wrap=True)
