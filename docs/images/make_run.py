"""Draws run.svg: what `kgamma run` prints while somebody talks to a new mind. Real output, no model.

    .venv/bin/python docs/images/make_run.py

Run it again when the live view changes. The home is a temporary folder; its path is shown as `mind`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

TARGET = Path(__file__).with_name("run.svg")
SAID = (
    ("alice", "Good morning! Write in your diary that Alice came to visit."),
    ("小明", "记住：我每天早上喝绿茶"),
)
WIDTH = 108
FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "Noto Sans Mono CJK SC", "Sarasa Mono SC",
  "PingFang SC", "Microsoft YaHei", "WenQuanYi Zen Hei Mono", monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}"
  height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Rich's own frame without its fonts from the network."""


def kgamma(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kernel_gamma", *arguments]


def record(home: Path) -> str:
    """What the daemon prints, colours included."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
    environ |= {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TZ": "UTC"}
    said = home / "said.txt"
    with said.open("wb") as output:
        daemon = subprocess.Popen(kgamma("run"), cwd=home, env=environ, stdout=output)
        try:
            _until(lambda: b"stop" in said.read_bytes())
            for number, (sender, text) in enumerate(SAID, start=1):
                words = kgamma("say", text, "--from", sender, "--home", str(home))
                subprocess.run(words, env=environ, check=True, stdout=subprocess.DEVNULL)
                _until(lambda number=number: said.read_text().count("said ") == number)
        finally:
            daemon.terminate()
            daemon.wait(30)
    return said.read_text().replace(f"{home}/", "mind/").replace(str(home), "mind")


def _until(condition: object) -> None:
    for _ in range(200):
        if callable(condition) and condition():
            return
        time.sleep(0.1)
    raise SystemExit("the daemon did not do what was waited for")


def draw(output: str) -> str:
    """The recorded text as SVG, long lines wrapped."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, highlight=False)
        console.print(Text("$ kgamma run", "bold"))
        console.print(Text.from_ansi(output.rstrip()))
        svg = console.export_svg(title="kgamma run", theme=MONOKAI, code_format=FRAME, unique_id="run")
    return re.sub(r"[ \t]+\n", "\n", svg)


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="kgamma-picture-"))
    try:
        subprocess.run(kgamma("init", str(home)), check=True, stdout=subprocess.DEVNULL)
        TARGET.write_text(draw(record(home)), encoding="utf-8")
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
