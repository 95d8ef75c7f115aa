"""Draws budgets.svg: what each part of a prompt may take, by task type.

python docs/images/make_budgets.py
"""

from __future__ import annotations

from pathlib import Path

from kernel_gamma.assembly import read_task_types
from kernel_gamma.configuration import Home
from kernel_gamma.settings import ContextSettings, InternalizerSettings

ROOT = Path(__file__).resolve().parents[2]
PICTURE = Path(__file__).with_name("budgets.svg")
SCALE = 0.1
"""Pixels a token."""
LEFT, TOP, ROW = 150, 56, 34
COLOURS = {"static": "#0f5c63", "dynamic": "#c77d1e", "self": "#5a6fb0"}


def draw() -> str:
    """The picture, the same for the same settings."""
    context, own = ContextSettings(), InternalizerSettings()
    past = context.persona_tokens + own.state_tokens + own.tail_tokens + own.memory_tokens
    rows = []
    types = read_task_types(Home(ROOT)).rules
    for number, rule in enumerate(types.values()):
        y = TOP + number * ROW
        static = context.static_tokens if rule.profile == "full" else context.lean_tokens
        static = min(static, rule.budget - rule.dynamic_budget)
        x = LEFT
        rows.append(f'<text x="{LEFT - 8}" y="{y + 16}" text-anchor="end">{rule.name}</text>')
        for name, tokens in (("static", static), ("dynamic", rule.dynamic_budget), ("self", past)):
            if tokens:
                width = tokens * SCALE
                rows.append(
                    f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="22" fill="{COLOURS[name]}"/>'
                    f'<text x="{x + width / 2:.0f}" y="{y + 15}" class="in">{tokens}</text>'
                )
                x += width
    legend = (
        ("static", "Channel A: static truths, never trimmed"),
        ("dynamic", "Channel B: records, trimmed first"),
        ("self", "the mind's own past"),
    )
    for number, (name, said) in enumerate(legend):
        x = 20 + number * 240
        rows.append(
            f'<rect x="{x}" y="18" width="14" height="14" fill="{COLOURS[name]}"/>'
            f'<text x="{x + 20}" y="30">{said}</text>'
        )
    height = TOP + len(types) * ROW + 10
    style = "text{font:13px sans-serif;fill:#444}.in{fill:#fff;text-anchor:middle;font-size:11px}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img" '
        f'aria-label="Most tokens of each part of a prompt, by task type"><style>{style}</style>'
        + "".join(rows)
        + "</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
