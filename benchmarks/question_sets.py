"""Question sets for the retrieval benchmark: SQuAD-style JSON, or two JSONL files.

    corpus:   {"id": ..., "text": ..., "timestamp"?: ISO 8601, "speaker"?: ...}
    queries:  {"query": ..., "relevant_ids": [...]}

Rows of a corpus are neighbours of each other in the order of the file, within one folder: the id's part
before its last separator (`:` `/` `#` `.`) where it has one, else the whole file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

__all__ = ["Document", "Question", "QuestionSet", "load_cross", "load_jsonl", "load_squad"]


@dataclass(frozen=True)
class Document:
    """One row that may answer."""

    id: str
    key: str
    text: str
    timestamp: datetime
    speaker: str = ""


@dataclass(frozen=True)
class Question:
    """A question and the rows that answer it."""

    query: str
    relevant: frozenset[str]


@dataclass(frozen=True)
class QuestionSet:
    """A corpus with its questions."""

    name: str
    documents: list[Document] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


_START = datetime(2026, 1, 1, tzinfo=UTC)
_SEPARATOR = re.compile(r"[:/#.]")


def load_squad(path: Path) -> QuestionSet:
    """Paragraphs are rows, an article's paragraphs are neighbours; each question has one paragraph."""
    found = QuestionSet(path.stem)
    content = json.loads(path.read_text(encoding="utf-8"))
    for article, entry in enumerate(content["data"]):
        for number, paragraph in enumerate(entry["paragraphs"]):
            id_ = f"a{article}.p{number}"
            at = _START + timedelta(minutes=len(found.documents))
            found.documents.append(Document(id_, f"text.{id_}", paragraph["context"], at))
            for question in paragraph["qas"]:
                found.questions.append(Question(question["question"], frozenset([id_])))
    return found


def load_cross(questions: Path, paragraphs: Path) -> QuestionSet:
    """The questions of one SQuAD-style file on the paragraphs of another that says the same in its language.

    ValueError when they do not go together.
    """
    asked, answering = load_squad(questions), load_squad(paragraphs)
    if [one.id for one in asked.documents] != [one.id for one in answering.documents]:
        raise ValueError(f"{questions} and {paragraphs} have other articles or paragraphs")
    return QuestionSet(f"{asked.name} on {answering.name}", answering.documents, asked.questions)


def load_jsonl(corpus: Path, queries: Path) -> QuestionSet:
    """Any set as two JSONL files; rows without a timestamp get one a minute apart."""
    found = QuestionSet(corpus.stem)
    for number, line in enumerate(filter(None, corpus.read_text(encoding="utf-8").splitlines())):
        row = json.loads(line)
        id_ = str(row["id"])
        at = _START + timedelta(minutes=number)
        if row.get("timestamp"):
            at = datetime.fromisoformat(str(row["timestamp"]))
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
        *folder, _ = _SEPARATOR.split(id_)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(folder)) or "all"
        found.documents.append(
            Document(id_, f"text.{name[:80]}.r{number}", row["text"], at, str(row.get("speaker") or ""))
        )
    for line in filter(None, queries.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        found.questions.append(Question(row["query"], frozenset(map(str, row["relevant_ids"]))))
    return found
