"""`kgamma topology`: the circuit as declared and as wired by its patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.terminal import HomeOption, JsonOption, complain, print_json, print_table, say
from kernel_gamma.topology import Declared, Edge, load_topology, wiring, wiring_warnings

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_OUTSIDE = "(outside)"


@app.command()
def topology(
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The circuit as declared and as wired; warns of nodes that nothing feeds."""
    place = open_place(home)
    declared = load_topology(place.topology_file, place.home)
    edges, warnings = wiring(declared), wiring_warnings(declared)
    if as_json:
        print_json(_document(declared, edges, warnings))
    elif mermaid:
        say("\n".join(_mermaid(declared, edges)))
    else:
        for node in declared:
            _show(node)
        say()
        print_table(
            ["from", "through", "to"],
            [[e.source or _OUTSIDE, e.directory, e.target or _OUTSIDE] for e in edges],
        )
    if not as_json:
        for warning in warnings:
            complain(f"warning: {warning}")


def _show(node: Declared) -> None:
    """One line for each pattern: side by side they are wider than a terminal."""
    say(node.id, "bold")
    say(f"  class    {node.spec.class_name}")
    for label, patterns in (("watches", node.watch), ("emits", node.emit)):
        for number, pattern in enumerate(patterns):
            say(f"  {label if number == 0 else '':<8} {pattern}")
    say(f"  at once  {node.concurrency}")


def _document(
    declared: Sequence[Declared], edges: Sequence[Edge], warnings: Sequence[str]
) -> dict[str, object]:
    return {
        "nodes": [
            {
                "id": node.id,
                "class": node.spec.class_name,
                "role": node.spec.role,
                "watch": list(node.watch),
                "emit": list(node.emit),
                "concurrency": node.concurrency,
                "config": node.config,
            }
            for node in declared
        ],
        "edges": [{"from": e.source, "directory": e.directory, "to": e.target} for e in edges],
        "warnings": list(warnings),
    }


def _mermaid(declared: Sequence[Declared], edges: Sequence[Edge]) -> list[str]:
    lines = ["flowchart LR", *(f"    {node.id}[{node.id}]" for node in declared)]
    for number, edge in enumerate(edges):
        source, target = edge.source, edge.target
        if source is None:
            source = f"from{number}"
            lines.append(f'    {source}(["{edge.directory}"])')
        if target is None:
            target = f"to{number}"
            lines.append(f'    {target}(["{edge.directory}"])')
        label = f'|"{edge.directory}"|' if edge.source and edge.target else ""
        lines.append(f"    {source} -->{label} {target}")
    return lines
