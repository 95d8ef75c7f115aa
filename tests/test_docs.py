"""The documentation is run: every command, every example, every link.

Commands in ```sh blocks run in order, page by page, in a temporary home without a language model. Where a
page says `python3 run.py ARGS` the test runs `kgamma ARGS`: the virtual environment is there already (what
run.py itself does is tested in test_run_py.py), and `python3 run.py test` is not run inside the tests. A
block below `<!-- not run: REASON -->` is skipped.

After a change of settings.py:  UPDATE_DOCS=1 python3 run.py test tests/test_docs.py
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from kernel_gamma.actions.builtin import BUILTINS
from kernel_gamma.actions.registry import build_registry
from kernel_gamma.bus.steps import STEPS
from kernel_gamma.cli import COMMANDS
from kernel_gamma.configuration import describe_settings, lay_out, load_settings, read_yaml
from kernel_gamma.topology import BUILT_IN, load_topology

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README, README_ZH = ROOT / "README.md", ROOT / "README.zh-CN.md"
PAGES = [README, README_ZH, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
SETTINGS_PAGE = DOCS / "settings.md"
WRITING_NODES = DOCS / "writing-nodes.md"

QUICK: Mapping[str, str] = {
    "KGAMMA_MODEL__MODE": "offline",
    "KGAMMA_BUS__DURABILITY": "process",
    "KGAMMA_BUS__SETTLE_SEC": "0.05",
    "KGAMMA_BUS__SETTLE_TIMEOUT_SEC": "0.3",
    "KGAMMA_PREPROCESSOR__DEBOUNCE_SEC": "0",
    "KGAMMA_GATEWAY__PORT": "0",
}


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    not_run: str
    """The reason in the comment above it; empty when it is run."""


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page in these languages, in order."""
    found: list[Block] = []
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    text = page.read_text(encoding="utf-8")
    for match in fence.finditer(text):
        above = re.search(r"<!-- not run: (.+?) -->\n+\Z", text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[1], match[2], line, above[1] if above else ""))
    return [block for block in found if block.language in languages]


def prose_of(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


# A home in which a page can be followed


PYTHON3 = """#!/bin/sh
# The docs say `python3 run.py ARGS`; here that is kgamma, installed already.
[ "$1" = run.py ] || exec {python} "$@"
shift
[ "$1" = test ] && exec {python} -m pytest --version
[ $# = 0 ] && set -- run
exec kgamma "$@"
"""
KGAMMA = """#!/bin/sh
# What runs until Ctrl+C is put into the background (the daemon), or ended after a moment.
case "$*" in
  run)
    {kgamma} run > {log} 2>&1 &
    for n in $(seq 300); do grep -q Ctrl+C {log} && exit 0; sleep 0.1; done
    cat {log}; exit 1 ;;
  *--follow*) timeout -s INT 3 {kgamma} "$@" || [ $? = 124 ] ;;
  *) exec {kgamma} "$@" ;;
esac
"""


class Follower:
    """Somebody who types what a page says, in a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        lay_out(self.home)
        self.log = folder / "daemon.log"
        programs = folder / "bin"
        programs.mkdir()
        kgamma = Path(sys.executable).with_name("kgamma")
        for name, text in (("python3", PYTHON3), ("kgamma", KGAMMA)):
            script = programs / name
            script.write_text(text.format(python=sys.executable, kgamma=kgamma, log=self.log))
            script.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KGAMMA_", "OPENAI_"))}
        self.environ = {**kept, **QUICK, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder)}

    def prepare(self, page: Path) -> None:
        """Put the files into the home that a page says to put there, and its nodes into topology.yaml."""
        for block in blocks_of(page, "python"):
            if (name := re.match(r'"""(\w+\.py): ', block.text)) is not None:
                (self.home / name[1]).write_text(block.text)
        for block in blocks_of(page, "yaml"):
            if block.text.startswith("  - id: "):
                with (self.home / "config/topology.yaml").open("a") as topology:
                    topology.write(block.text)

    def type_in(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run commands as bash does, stopping at the first that fails."""
        return subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", commands],
            cwd=self.home,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def kgamma(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """One command."""
        return subprocess.run(
            [sys.executable, "-m", "kernel_gamma", *arguments],
            cwd=self.home,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def stop_daemon(self) -> bool:
        """End the daemon the page has started; whether it ended in good order (True when there is none)."""
        held = self.home / "data/kernel/daemon.json"
        if not held.exists():
            return True
        pid = json.loads(held.read_text())["pid"]
        os.kill(pid, signal.SIGTERM)
        for _ in range(200):
            if not held.exists():
                return True
            time.sleep(0.1)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return False


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    found = Follower(tmp_path)
    yield found
    found.stop_daemon()


def pages_with_commands() -> list[Path]:
    """All but those with a test of their own, and the Chinese readme, which has the same commands."""
    others = [page for page in PAGES if page not in (README, README_ZH, WRITING_NODES)]
    return [page for page in others if any(not block.not_run for block in blocks_of(page, "sh"))]


def follow(follower: Follower, page: Path) -> str:
    """Do all a page says, in order; returns what was printed."""
    follower.prepare(page)
    done = follower.type_in("\n".join(block.text for block in blocks_of(page, "sh") if not block.not_run))
    log = follower.log.read_text() if follower.log.exists() else ""
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{done.stdout[-3000:]}\n{log[-2000:]}"
    assert "Traceback" not in done.stderr + log
    return done.stdout


@pytest.mark.parametrize("page", pages_with_commands(), ids=lambda page: page.name)
def test_every_command_of_a_page_runs(page: Path, follower: Follower) -> None:
    follow(follower, page)
    assert follower.stop_daemon()


def test_every_command_of_the_readme_runs_and_leaves_what_it_promises(follower: Follower) -> None:
    printed = follow(follower, README)
    self_dir = follower.home / "data/kernel/self"
    stream = (self_dir / "stream/now.md").read_text()
    for told in ("My name is Alice", "Somebody rang twice", "tomatoes", "Anna's birthday", "晚上好"):
        assert told in stream
    assert "it rained all day" in next((self_dir / "diary").iterdir()).read_text()
    assert "I like tea" in (self_dir / "memories/alice.md").read_text()
    assert "It is " in printed
    assert "is back in inbox/pending/broken.json" in printed
    assert follower.stop_daemon()


# The node of writing-nodes.md


def guests_of(follower: Follower, name: str) -> tuple[int, int]:
    """How often the page tells of somebody, and how often the bell was rung for them."""
    data = follower.home / "data/kernel"
    page = data / "self/memories/guests.md"
    told = page.read_text().count(f"{name} came to see me.") if page.exists() else 0
    rung = [json.loads(file.read_text()) for file in (data / "outbox/bell").glob("out_*.json")]
    return told, sum(document["payload"]["text"] == name for document in rung)


def open_commits(follower: Follower, node: str) -> int:
    """Commits of a node that are in the ledger and not carried out."""
    ledger = sqlite3.connect(follower.home / "data/kernel/ledger.db")
    query = "SELECT count(*) FROM commits WHERE node = ? AND applied = 0"
    found = ledger.execute(query, (node,)).fetchone()[0]
    ledger.close()
    return int(found)


def test_the_printed_node_is_twenty_lines() -> None:
    code = blocks_of(WRITING_NODES, "python")[0].text
    body = [line for line in code.splitlines() if line.strip() and not line.startswith('"""')]
    assert len(body) <= 20


def test_the_printed_node_does_what_the_page_says_also_when_it_is_killed(follower: Follower) -> None:
    printed = follow(follower, WRITING_NODES)
    assert "killed, as asked" in printed
    assert guests_of(follower, "alice") == (1, 1)
    assert guests_of(follower, "bob") == (1, 1)


def test_the_printed_node_acts_once_when_its_commit_was_cut_short(tmp_path: Path) -> None:
    for count in range(1, 20):  # the first ones are those of the start and of other nodes
        folder = tmp_path / str(count)
        folder.mkdir()
        follower = Follower(folder)
        follower.prepare(WRITING_NODES)
        follower.kgamma("say", "Anybody home?", "--from", "alice")
        killing = {"KGAMMA_DEBUG__ENABLED": "true", "KGAMMA_DEBUG__KILL_AT": f"commit.recorded:{count}"}
        assert follower.kgamma("run", "--once", **killing).returncode == -signal.SIGKILL
        if open_commits(follower, "guest_book"):
            break
    assert guests_of(follower, "alice") == (0, 0)
    done = follower.kgamma("run", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert guests_of(follower, "alice") == (1, 1)


def test_the_printed_test_passes(tmp_path: Path) -> None:
    node, test = (block.text for block in blocks_of(WRITING_NODES, "python"))
    (tmp_path / "guest_book.py").write_text(node)
    (tmp_path / "test_guest_book.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_guest_book.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


# Examples of configuration


def yaml_examples(file: str) -> list[tuple[Path, Block]]:
    found = [(p, b) for p in PAGES for b in blocks_of(p, "yaml") if b.text.startswith(f"# {file}\n")]
    assert found, file
    return found


def test_every_yaml_block_says_where_it_belongs() -> None:
    files = ("# config/kernel.yaml\n", "# config/tools.yaml\n", "# config/topology.yaml\n", "  - id: ")
    for page in PAGES:
        for block in blocks_of(page, "yaml"):
            assert block.text.startswith(files), f"{page.name}:{block.line}"


def test_printed_settings_are_accepted(tmp_path: Path) -> None:
    for number, (page, block) in enumerate(yaml_examples("config/kernel.yaml")):
        home = tmp_path / str(number)
        (home / "config").mkdir(parents=True)
        (home / "config/kernel.yaml").write_text(block.text)
        written = yaml.safe_load(block.text)
        settings = load_settings(home, {}).model_dump(mode="json")
        for section, keys in written.items():
            assert settings[section] != {}, f"{page.name}:{block.line}"
            for key in keys:
                assert key in settings[section]


def test_printed_topologies_and_tools_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in PAGES:
        for block in blocks_of(page, "python"):
            if (name := re.match(r'"""(\w+\.py): ', block.text)) is not None:
                (tmp_path / name[1]).write_text(block.text)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "example.yaml"
    for _, block in yaml_examples("config/topology.yaml"):
        file.write_text(block.text)
        assert load_topology(file, tmp_path)
    for _, block in yaml_examples("config/tools.yaml"):
        file.write_text(block.text)
        assert build_registry(BUILTINS, read_yaml(file))


def test_printed_json_is_json() -> None:
    for page in PAGES:
        for block in blocks_of(page, "json"):
            json.loads(block.text)


# What the pages must hold


GENERATED = "<!-- generated from settings.py -->\n"


def settings_page() -> str:
    """docs/settings.md as settings.py has it; what stands above the mark is written by hand."""
    lines: list[str] = []
    section = None
    for setting in describe_settings():
        above = setting.key.rpartition(".")[0]
        if above != section:
            section = above
            head = f"`{above}`" if above else "The mind"
            lines += ["", f"## {head}", "", "| setting | type | default | meaning |", "|---|---|---|---|"]
        kind = setting.type.replace("|", "\\|")
        lines.append(f"| `{setting.key}` | {kind} | `{setting.default}` | {setting.sentence} |")
    by_hand = SETTINGS_PAGE.read_text(encoding="utf-8").partition(GENERATED)[0]
    return by_hand + GENERATED + "\n".join(lines) + "\n"


def test_the_page_of_settings_is_what_settings_py_says() -> None:
    if os.environ.get("UPDATE_DOCS"):
        SETTINGS_PAGE.write_text(settings_page(), encoding="utf-8")
    assert SETTINGS_PAGE.read_text(encoding="utf-8") == settings_page(), (
        "stale: UPDATE_DOCS=1 python3 run.py test tests/test_docs.py"
    )


def test_every_setting_is_explained() -> None:
    assert [setting.key for setting in describe_settings() if not setting.sentence] == []


def is_module(name: str) -> bool:
    return "." in name and importlib.util.find_spec(f"kernel_gamma.{name}") is not None


def test_settings_that_pages_name_exist() -> None:
    known = {setting.key for setting in describe_settings()}
    sections = {key.rpartition(".")[0] for key in known}
    others = {*STEPS, "model.fast", "model.multimodal", "model.embedding", "rhythm.reminder"}
    for page in PAGES:
        for word in re.findall(r"`([a-z]+(?:\.[a-z_]+)+)(?::[^`]*)?`", prose_of(page)):
            if word.split(".")[0] in sections and not word.endswith((".yaml", ".md", ".json", ".py")):
                known_word = word in known | sections | others or is_module(word.rpartition(".")[0])
                assert known_word, f"{page.name}: {word}"


def test_every_command_is_shown() -> None:
    written = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for command in COMMANDS:
        assert re.search(rf"(?:kgamma|run\.py) {command}\b", written), command


def test_what_is_called_not_built_is_not_built() -> None:
    text = README.read_text(encoding="utf-8")
    section = text.split("## Not built yet")[1].split("\n## ")[0]
    named = set(re.findall(r"`kgamma ([a-z-]+)`", section))
    assert named
    assert not named & set(COMMANDS)


def test_commands_that_pages_name_exist_or_are_called_not_built() -> None:
    text = README.read_text(encoding="utf-8")
    planned = set(re.findall(r"`kgamma ([a-z-]+)`", text.split("## Not built yet")[1]))
    for page in PAGES:
        named = set(re.findall(r"(?:kgamma|run\.py) ([a-z][a-z-]+)", page.read_text(encoding="utf-8")))
        assert named <= {*COMMANDS, *planned, "test"}, page.name


def test_every_built_in_node_is_described_with_its_patterns() -> None:
    text = (DOCS / "nodes.md").read_text(encoding="utf-8")
    for name, node in BUILT_IN.items():
        assert name in text
        for pattern in (*node.watch, *node.emit):
            assert f"`{pattern}`" in text, f"{name}: {pattern}"


def test_every_built_in_tool_is_described() -> None:
    text = (DOCS / "nodes.md").read_text(encoding="utf-8")
    for tool in BUILTINS:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{tool.name}`"))
        for argument in tool.parameters["properties"]:
            assert f"`{argument}`" in row or f"`{argument}?`" in row, f"{tool.name}: {argument}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), f"{page.name}: {target}"
            if anchor:
                heads = re.findall(r"^#+ (.+)$", prose_of(found), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}, target


def test_no_page_names_a_place_of_one_machine() -> None:
    place = re.compile(r"(?<![\w.:/])/(?:home|root|Users|work|tmp|mnt|var)/\w")
    for page in (*PAGES, *(DOCS / "images").iterdir()):
        found = place.search(page.read_text(encoding="utf-8"))
        assert found is None, f"{page.name}: {found}"


def test_pictures_are_well_formed_and_draw_nothing_from_the_network() -> None:
    for picture in (DOCS / "images").glob("*.svg"):
        ElementTree.parse(picture)
        drawn = picture.read_text(encoding="utf-8")
        assert "url(http" not in drawn.replace('"', "")
        assert "CJK" in drawn or not re.search("[一-鿿]", drawn), f"{picture.name}: name a font for Chinese"


def test_the_picture_of_the_budgets_is_the_one_that_its_program_draws() -> None:
    program = DOCS / "images/make_budgets.py"
    spec = importlib.util.spec_from_file_location("make_budgets", program)
    assert spec is not None and spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    drawn = (DOCS / "images/budgets.svg").read_text(encoding="utf-8")
    assert drawn == drawing.draw(), "python docs/images/make_budgets.py draws it again"


# Two languages


def shape_of(page: Path) -> dict[str, object]:
    """What must be the same in both languages."""
    prose = prose_of(page)
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "links": [link for link in links if not link.startswith("README")],
        "commands": [_without_remarks(b.text) for b in blocks_of(page, "sh")],
        "examples": [_without_remarks(b.text) for b in blocks_of(page, "yaml", "ini", "json")],
        "list items": len(re.findall(r"^(?:- |\d+\. )", prose, re.MULTILINE)),
        "table rows": len(re.findall(r"^\|", prose, re.MULTILINE)),
        "commands named": sorted(re.findall(r"`(?:kgamma|python3 run\.py) [^`]*`", prose)),
    }


def _without_remarks(text: str) -> list[str]:
    """Lines of a block without remarks, which are in the language of the page."""
    return [re.sub(r"\s+# .*", "", line) for line in text.splitlines() if not line.startswith("# ")]


def test_both_readmes_say_the_same() -> None:
    english, chinese = shape_of(README), shape_of(README_ZH)
    for what, found in english.items():
        assert chinese[what] == found, what


# The glossary


def glossary() -> list[list[str]]:
    """Rows of the glossary: word, 中文, meaning, in code, not."""
    lines = (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] != "word"]


def test_every_word_of_the_glossary_is_used() -> None:
    others = "\n".join(prose_of(page).lower() for page in PAGES if page.name != "glossary.md")
    rows = glossary()
    assert len(rows) > 30
    for word, *_ in rows:
        assert re.search(rf"\b{re.escape(word.lower())}", others), word


def test_words_the_glossary_rules_out_are_not_used() -> None:
    for row in glossary():
        for other in filter(None, (part.strip() for part in row[4].split(","))):
            for page in PAGES:
                if page.name not in ("glossary.md", "settings.md"):
                    assert not re.search(rf"\b{re.escape(other)}s?\b", prose_of(page), re.IGNORECASE), (
                        f"{page.name} says {other}; the word is {row[0]}"
                    )


def test_names_the_glossary_gives_stand_in_the_code() -> None:
    for row in glossary():
        for name in re.findall(r"`([\w.]+)`", row[3]):
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(f"kernel_gamma.{module}"), attribute), name


def test_the_license_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
