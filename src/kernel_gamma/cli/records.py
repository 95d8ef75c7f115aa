"""How commands take a key and a category, and how they show a truth."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

import typer

from kernel_gamma.cli.terminal import Failed, Usage, cut
from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.truths import Truth, check_category, check_key
from kernel_gamma.gateway.forms import truth_form

__all__ = ["KeyArgument", "category_from", "key_from", "line_of", "local_time", "no_truth", "truth_dict"]

_LINE_COLUMNS = 100

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", show_default=False)]


def key_from(key: str) -> str:
    """The key itself. Raises Usage for what cannot be one."""
    try:
        return check_key(key)
    except ValueError as error:
        raise Usage(f"{key}: {error}") from None


def category_from(name: str) -> str:
    """A category or key prefix, without the dot at its end. Raises Usage."""
    try:
        return check_category(name)
    except ValueError as error:
        raise Usage(f"--category {name}: {error}") from None


def no_truth(key: str) -> Failed:
    """What to say of a key that nobody wrote."""
    return Failed(f"there is no truth {key}")


def local_time(moment: datetime) -> str:
    """As headings of the stream have it: local, with its offset."""
    zone = f"{moment:%z}"
    return f"{moment:%Y-%m-%d %H:%M:%S} {zone[:3]}:{zone[3:5]}"


def line_of(truth: Truth) -> str:
    """What a truth says, in a line."""
    value = truth.value if isinstance(truth.value, str) else json.dumps(truth.value, ensure_ascii=False)
    return cut(" ".join((truth.description or value).split()), _LINE_COLUMNS)


def truth_dict(truth: Truth) -> dict[str, Json]:
    """A truth as `--json` prints it: as over HTTP, with what only the owner needs to see."""
    return {
        **truth_form(truth),
        "trust": truth.trust,
        "level": truth.level,
        "written_at": rfc3339(truth.written_at),
    }
