"""Approved bytes → the text of Channel A, section by section, within their budgets. Pure.

The same forms give the same text, whatever the order of keys in their files. Lean is the beginning of full.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernel_gamma.contracts.context import Profile, Section
from kernel_gamma.errors import SettingsError
from kernel_gamma.truths.static.forms import (
    Axioms,
    F,
    Identity,
    Metalaw,
    Operator,
    Operators,
    Skeleton,
    SteadyCore,
    read_form,
    read_text,
    with_dependencies,
)
from kernel_gamma.truths.static.places import (
    BUDGETS,
    ELASTIC,
    LEAN_BUDGET,
    TOTAL_BUDGET,
    Places,
    SectionName,
)

__all__ = ["Block", "Count", "build", "joined", "operators_section"]

Count = Callable[[str], int]
"""Tokens of a text."""

_FEWEST_METALAWS, _MOST_METALAWS = 3, 5


@dataclass(frozen=True, slots=True)
class Block:
    """All that was approved, rendered."""

    lean: tuple[Section, ...]
    rest: tuple[Section, ...]
    """What `full` holds beyond lean."""
    operators: Mapping[str, Operator]
    operators_file: str
    operators_sha256: str
    truths: Mapping[str, Section]
    """Architecture truths by name (their file's name without `.md`)."""
    tokens: Mapping[str, int]
    """Of each file of one section; of metalaws the whole section stands under their folder."""
    skeleton: Skeleton

    def sections(self, profile: Profile) -> tuple[Section, ...]:
        """What stands in every prompt of a profile."""
        return self.lean if profile == "lean" else (*self.lean, *self.rest)


def joined(sections: Iterable[Section]) -> str:
    """Sections as they stand in a prompt."""
    return "\n\n".join(section.text for section in sections)


def build(files: Mapping[str, bytes], places: Places, count: Count) -> Block:
    """Render approved bytes (by file, relative to the home).

    Raises SettingsError for a file that is missing, not in its form, or over its budget (with the tokens it
    takes): nothing is cut.
    """
    making = _Making(files, places, count)
    axioms = making.forced("meta_axioms", _axioms_text(making.form("meta_axioms", Axioms)), lean=True)
    identity = making.forced("identity", _identity_text(making.form("identity", Identity)), lean=True)
    titles, texts = making.metalaws()
    core = making.forced("steady_core", _core_text(making.form("steady_core", SteadyCore)))
    skeleton = making.form("kernel_skeleton", Skeleton)
    body = making.forced("kernel_skeleton", _skeleton_text(skeleton))
    registry_file = places.paths["operators"]
    raw = files.get(registry_file)
    registry = {} if raw is None else read_form(registry_file, raw, Operators).by_id()
    block = Block(
        lean=(axioms, identity, titles),
        rest=(texts, core, body),
        operators=registry,
        operators_file=registry_file,
        operators_sha256="" if raw is None else _sha256(raw),
        truths=making.truths(),
        tokens=making.tokens,
        skeleton=skeleton,
    )
    making.check_operators(block)
    making.check_total(block)
    return block


def operators_section(block: Block, ids: Iterable[str]) -> Section:
    """The section that holds these operators, in this order."""
    lines = [_operator_line(block.operators[name]) for name in ids]
    return Section(
        name="operators",
        file=block.operators_file,
        text="\n".join(["## Operators", *lines]),
        budget=ELASTIC,
        sha256=block.operators_sha256,
        forced=False,
    )


class _Making:
    """One rendering on its way."""

    def __init__(self, files: Mapping[str, bytes], places: Places, count: Count) -> None:
        self.files = files
        self.places = places
        self.count = count
        self.tokens: dict[str, int] = {}

    def form(self, name: SectionName, form: type[F]) -> F:
        file = self.places.paths[name]
        return read_form(file, self._raw(file), form)

    def _raw(self, file: str) -> bytes:
        raw = self.files.get(file)
        if raw is None:
            mend = "`kgamma init` lays it out; then `kgamma static propose` and `kgamma static approve` it"
            raise SettingsError(file, "file", "there is no such approved file", mend)
        return raw

    def forced(self, name: SectionName, text: str, *, lean: bool = False) -> Section:
        file = self.places.paths[name]
        self.fits(file, text, BUDGETS[name])
        return Section(
            name=name, file=file, text=text, budget=BUDGETS[name], sha256=_sha256(self.files[file]), lean=lean
        )

    def fits(self, file: str, text: str, budget: int) -> None:
        """Raises SettingsError unless it does."""
        found = self.count(text)
        self.tokens[file] = found
        if found > budget:
            problem = f"takes {found} tokens of the prompt, {budget} are allowed"
            raise SettingsError(file, "budget", problem, f"shorten it by {found - budget} tokens")

    def of_folder(self, name: SectionName) -> list[str]:
        return sorted(file for file in self.files if self.places.section_of(file) == name)

    def metalaws(self) -> tuple[Section, Section]:
        folder, budget = self.places.paths["metalaws"], BUDGETS["metalaws"]
        found = self.of_folder("metalaws")
        if not _FEWEST_METALAWS <= len(found) <= _MOST_METALAWS:
            problem = f"there are {len(found)} approved metalaws"
            mend = f"keep {_FEWEST_METALAWS} to {_MOST_METALAWS}, one in each file"
            raise SettingsError(folder, "metalaws", problem, mend)
        laws = [read_form(file, self.files[file], Metalaw) for file in found]
        for number, law in enumerate(laws):
            if law.id in {other.id for other in laws[:number]}:
                raise SettingsError(found[number], "id", f"another metalaw has the id {law.id}", "rename one")
        titles = _numbered("## Metalaws", [law.title for law in laws])
        texts = _numbered("## Metalaws in full", [law.text for law in laws])
        self.fits(folder, f"{titles}\n\n{texts}", budget)
        marks = "".join(f"{file}\0{_sha256(self.files[file])}\n" for file in found)
        sha256 = _sha256(marks.encode("utf-8", "surrogateescape"))
        return (
            Section(name="metalaws", file=folder, text=titles, budget=budget, sha256=sha256, lean=True),
            Section(name="metalaw_texts", file=folder, text=texts, budget=budget, sha256=sha256),
        )

    def truths(self) -> dict[str, Section]:
        found: dict[str, Section] = {}
        for file in self.of_folder("truths"):
            text = read_text(file, self.files[file]).strip()
            self.fits(file, text, ELASTIC)
            name = file.rpartition("/")[2].removesuffix(".md")
            found[name] = Section(
                name=f"truth.{name}",
                file=file,
                text=re.sub(r"\n{3,}", "\n\n", text),
                budget=ELASTIC,
                sha256=_sha256(self.files[file]),
                forced=False,
            )
        return found

    def check_operators(self, block: Block) -> None:
        """Each operator fits with all it depends on."""
        most = 0
        for name in block.operators:
            needed = with_dependencies([name], block.operators)
            found = self.count(operators_section(block, needed).text)
            most = max(most, found)
            if found > ELASTIC:
                problem = f"takes {found} tokens with what it depends on, {ELASTIC} are allowed"
                mend = f"shorten it by {found - ELASTIC} tokens"
                raise SettingsError(block.operators_file, f"operators.{name}", problem, mend)
        if block.operators:
            self.tokens[block.operators_file] = most

    def check_total(self, block: Block) -> None:
        for profile, budget in (("lean", LEAN_BUDGET), ("full", TOTAL_BUDGET)):
            sections = block.lean if profile == "lean" else (*block.lean, *block.rest)
            found = self.count(joined(sections))
            if found > budget:
                largest = max(sections, key=lambda section: self.count(section.text))
                problem = f"the profile {profile} takes {found} tokens, {budget} are allowed"
                raise SettingsError(largest.file, "budget", problem, "shorten it: it is the largest section")


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _line(text: str) -> str:
    return " ".join(text.split())


def _numbered(head: str, lines: Sequence[str]) -> str:
    return "\n".join([head, *(f"{number}. {_line(text)}" for number, text in enumerate(lines, 1))])


def _axioms_text(axioms: Axioms) -> str:
    head = f"## Axioms\nConstitution: {_line(axioms.constitution.short)}"
    return _numbered(head, [axiom.short for axiom in axioms.axioms])


def _identity_text(identity: Identity) -> str:
    named = (("DID", identity.did), ("System", identity.system_id), ("Provenance", identity.provenance))
    return "\n".join(["## Identity", *(f"{name}: {_line(text)}" for name, text in named)])


def _core_text(core: SteadyCore) -> str:
    ordered = sorted(core.weights.items(), key=lambda item: (-item[1], item[0]))
    weights = ", ".join(f"{name} {weight:g}" for name, weight in ordered)
    return f"## {core.id} {_line(core.version)}\nA decision is weighed by {weights}."


def _skeleton_text(skeleton: Skeleton) -> str:
    ports = ", ".join(f"{name} {port}" for name, port in sorted(skeleton.ports.items()))
    lines = ["## Kernel skeleton", f"Ports: {ports or 'none'}"]
    if skeleton.services:
        lines += ["Services:", *(f"- {n}: {_line(does)}" for n, does in sorted(skeleton.services.items()))]
    if skeleton.nodes:
        lines += ["Nodes:", *(f"- {_line(node.id)}: {_line(node.does)}" for node in skeleton.nodes)]
    return "\n".join(lines)


def _operator_line(operator: Operator) -> str:
    taken = ", ".join(map(_line, operator.inputs))
    given = ", ".join(map(_line, operator.outputs))
    needs = f" Needs {', '.join(operator.depends_on)}." if operator.depends_on else ""
    return f"- {operator.id}({taken}) → {given or 'nothing'}: {_line(operator.definition)}{needs}"
