"""How well the right records are found, beside FTS5's defaults and bm25s, in one run.

    python benchmarks/retrieval.py --squad FILE [FILE ...]
    python benchmarks/retrieval.py --jsonl CORPUS QUERIES
    python benchmarks/retrieval.py --squad FILE --hidden-among 100000   # among as many other rows
    python benchmarks/retrieval.py --cross QUESTIONS PARAGRAPHS --encoder   # two SQuAD files of one content

SQuAD-style files in any language, or JSONL: see benchmarks/question_sets.py. Printed for each set: recall
at 5, 10 and 20 rows, mean reciprocal rank, and recall within 500, 1,000 and 2,000 tokens of text, which is
what a prompt cares for. bm25s is left out when it is not installed. --encoder measures with vectors too: it
needs the extra `encoder`.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.question_sets import Document, QuestionSet, load_cross, load_jsonl, load_squad
from kernel_gamma.contracts.truths import NewTruth, Search
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.rhythm.clock import SystemClock
from kernel_gamma.truths.encoders import EmbeddedEncoder
from kernel_gamma.truths.store import SqliteTruths, open_truths
from kernel_gamma.truths.vectors import Vectors

Engine = Callable[[str], list[str]]
DEPTH = 50
BUDGETS = (500, 1000, 2000)
COLUMNS = ("R@5", "R@10", "R@20", "MRR", *(f"in {budget}" for budget in BUDGETS), "ms p50")


def store_of(documents: Sequence[Document], folder: Path, *, encoder: bool) -> SqliteTruths:
    """Our store with the documents in it, and a vector for each row where an encoder is wanted."""
    vectors = Vectors(EmbeddedEncoder()) if encoder else None
    store = open_truths(folder / "memory.db", SystemClock("UTC"), semantic=vectors)
    for start in range(0, len(documents), 2000):
        store.upsert_many(
            [
                NewTruth(
                    key=one.key,
                    value={"text": one.text, **({"speaker": one.speaker} if one.speaker else {})},
                    timestamp=one.timestamp,
                )
                for one in documents[start : start + 2000]
            ]
        )
    while vectors is not None and vectors.fill(store.database, 256):
        pass
    return store


def ours(store: SqliteTruths, documents: Sequence[Document]) -> Engine:
    ids = {one.key: one.id for one in documents}

    def find(query: str) -> list[str]:
        found = store.search(Search(query=query, limit=DEPTH, fold=False))
        return [ids[one.truth.key] for one in found.results]

    return find


def fts5(documents: Sequence[Document], tokenizer: str) -> Engine:
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5 (text, tokenize = '{tokenizer}')")
    db.executemany("INSERT INTO t VALUES (?)", [(one.text,) for one in documents])

    def find(query: str) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        if not words:
            return []
        rows = db.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT ?", (words, DEPTH))
        return [documents[row[0] - 1].id for row in rows]

    return find


def bm25s_engine(documents: Sequence[Document]) -> Engine | None:
    if importlib.util.find_spec("bm25s") is None:
        return None
    bm25s = importlib.import_module("bm25s")
    index = bm25s.BM25()
    index.index(bm25s.tokenize([one.text for one in documents], show_progress=False), show_progress=False)

    def find(query: str) -> list[str]:
        tokens = bm25s.tokenize([query], show_progress=False)
        rows, scores = index.retrieve(tokens, k=min(DEPTH, len(documents)), show_progress=False)
        return [documents[int(n)].id for n, s in zip(rows[0], scores[0], strict=True) if s > 0]

    return find


def measure(engine: Engine, questions: QuestionSet, texts: dict[str, int], sample: int) -> tuple[float, ...]:
    """The columns of one engine; recall = the share of a question's rows that are found."""
    rng = random.Random(1)
    asked = questions.questions
    if sample and len(asked) > sample:
        asked = rng.sample(asked, sample)
    sums = [0.0] * 7
    times: list[float] = []
    for question in asked:
        start = time.perf_counter()
        found = engine(question.query)
        times.append((time.perf_counter() - start) * 1000)
        wanted = question.relevant
        for column, depth in enumerate((5, 10, 20)):
            sums[column] += len(wanted & set(found[:depth])) / len(wanted)
        first = next((place for place, id_ in enumerate(found, 1) if id_ in wanted), 0)
        sums[3] += 1 / first if first else 0
        for column, budget in enumerate(BUDGETS, 4):
            left, held = budget, set()
            for id_ in found:
                left -= texts[id_]
                if left < 0:
                    break
                held.add(id_)
            sums[column] += len(wanted & held) / len(wanted)
    shares = [100 * value / len(asked) for value in sums]
    return (*shares, statistics.median(times))


def hidden_among(questions: QuestionSet, count: int) -> list[Document]:
    """The set's rows hidden among others made of the same words, shuffled line by line."""
    rng = random.Random(2)
    words = [word for one in questions.documents for word in one.text.split()]
    if sum(map(len, words)) / len(words) > 30:  # a language without spaces: pieces of ten signs
        text = "".join(one.text for one in questions.documents)
        words = [text[i : i + 3] for i in range(0, len(text), 3)]
    base = questions.documents[-1].timestamp
    return [
        Document(
            f"noise{n}",
            f"noise.r{n}",
            " ".join(rng.choice(words) for _ in range(rng.randint(8, 40))),
            base.replace(microsecond=n % 1_000_000),
        )
        for n in range(count)
    ]


def report(questions: QuestionSet, *, noise: int, sample: int, encoder: bool) -> None:
    documents = [*questions.documents, *(hidden_among(questions, noise) if noise else [])]
    tokens = Tokens()
    tokens.load()
    texts = {one.id: tokens.count(one.text) for one in documents}
    print(f"\n{questions.name}: {len(documents):,} rows, {len(questions.questions):,} questions")
    print("| engine | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * len(COLUMNS))
    engines: list[tuple[str, Engine | None]] = [
        ("FTS5 unicode61", fts5(documents, "unicode61")),
        ("FTS5 porter", fts5(documents, "porter unicode61")),
        ("FTS5 trigram", fts5(documents, "trigram")),
        ("bm25s", bm25s_engine(documents)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(documents, Path(folder), encoder=False)
        engines.append(("ours, words alone", ours(store, documents)))
        for name, engine in engines:
            if engine is not None:
                *shares, milliseconds = measure(engine, questions, texts, sample)
                print(f"| {name} | " + " | ".join(f"{x:.1f}" for x in shares) + f" | {milliseconds:.1f} |")
        store.close()
    if encoder:
        with tempfile.TemporaryDirectory() as folder:
            store = store_of(documents, Path(folder), encoder=True)
            *shares, milliseconds = measure(ours(store, documents), questions, texts, sample)
            print(
                "| ours with the encoder | "
                + " | ".join(f"{x:.1f}" for x in shares)
                + f" | {milliseconds:.1f} |"
            )
            store.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--squad", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument(
        "--jsonl", nargs=2, type=Path, action="append", default=[], metavar=("CORPUS", "QUERIES")
    )
    parser.add_argument(
        "--cross",
        nargs=2,
        type=Path,
        action="append",
        default=[],
        metavar=("QUESTIONS", "PARAGRAPHS"),
        help="the questions of one SQuAD file on the paragraphs of another, in the same order",
    )
    parser.add_argument("--hidden-among", type=int, default=0, metavar="N")
    parser.add_argument("--sample", type=int, default=0, help="ask so many questions of each set; 0 = all")
    parser.add_argument("--encoder", action="store_true", help="with the embedded encoder too (an extra)")
    options = parser.parse_args()
    sets = [load_squad(path) for path in options.squad] + [load_jsonl(*pair) for pair in options.jsonl]
    sets += [load_cross(*pair) for pair in options.cross]
    if not sets:
        parser.error("give --squad, --jsonl or --cross with their files: no set is shipped with the project")
    for questions in sets:
        report(questions, noise=options.hidden_among, sample=options.sample, encoder=options.encoder)


if __name__ == "__main__":
    main()
