"""Thirty days of a busy house as truths: public system logs, hourly inspections, receipts, planted records.

The planted records and most questions stand in token_questions.yaml; the questions on log lines are made from
the lines themselves, so that no line is copied into the project. Everything follows from a seed.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import yaml

from kernel_gamma.contracts.truths import NewTruth

__all__ = ["NOW", "Question", "log_questions", "logs_folder", "planted", "questions", "truths"]

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=ZoneInfo("Asia/Shanghai"))
DAYS = 30
_FILE = Path(__file__).with_name("token_questions.yaml")
_LOGS = ("OpenSSH_2k.log", "OpenStack_2k.log", "Zookeeper_2k.log")
_HEADS = (
    re.compile(r"^\w{3} +\d+ [\d:]+ (\S+) "),
    re.compile(r"^\S+ \d{4}-\d\d-\d\d [\d:.]+ \d+ \w+ "),
    re.compile(r"^\d{4}-\d\d-\d\d [\d:,]+ - "),
)
_ALARMING = re.compile(r"BREAK-IN|Too many|ERROR|FATAL", re.IGNORECASE)
_WRONG = re.compile(r"fail|invalid|WARN|exception|refused|broken|timed? ?out|disconnect|error", re.IGNORECASE)
_CHANGING = re.compile(r"(?<=\[)\d{3,5}(?=\])|(?<=port )\d+|(?<=:)\d{4,5}\b|(?<=\.)\d{1,3}\b(?!\.)")
_REPORTS = (
    "Hourly inspection {n}: line {line} runs, pressure {a} bar, {b} degrees, queue {c}, no alarm.",
    "第 {n} 次每小时巡检：{line} 号产线运行正常，压力 {a} 巴，温度 {b} 度，队列 {c}，无报警。",
)
_RECEIPTS = (
    "Job {n} on worker-{line} done in {a} ms, {c} rows written.",
    "任务 {n} 在 worker-{line} 上完成，耗时 {a} 毫秒，写入 {c} 行。",
)


@dataclass(frozen=True)
class Question:
    """A task whose answer is known."""

    task: str
    language: Literal["en", "zh"]
    evidence: tuple[str, ...]
    """All of these must stand in the context; empty: it needs none of the records."""
    kind: str
    subject: str = ""
    """Of a question on a log line: what it names."""


def logs_folder(given: Path | None) -> Path | None:
    """`given`, else what KGAMMA_LOGS names; None: neither, or the three logs are not there."""
    named = os.environ.get("KGAMMA_LOGS")
    folder = given or (Path(named) if named else None)
    if folder is None or not all((folder / name).is_file() for name in _LOGS):
        return None
    return folder


def planted() -> list[NewTruth]:
    """Incidents, deploys, decisions, risks, specifications and texts, each of them once."""
    found = []
    for key, hours, title, said, *fix in _document()["planted"]:
        value = {"cause": said, "fix": fix[0]} if fix else said
        at = NOW - timedelta(hours=hours)
        found.append(NewTruth(key=key, value=value, description=title, timestamp=at))
    return found


def questions(logs: Path | None = None) -> list[Question]:
    """Those of the file and, with `logs`, those on log lines."""
    written = [
        Question(one["task"], one["language"], tuple(one.get("evidence", ())), one["kind"])
        for one in _document()["questions"]
    ]
    return [*written, *(log_questions(logs) if logs is not None else [])]


def log_questions(logs: Path) -> list[Question]:
    """Two dozen on facts of single log lines, by turns in English and Chinese."""
    lines = _lines(logs)
    found: list[Question] = []
    for en, zh, pattern in (
        (
            "From which address did somebody try to log in as the invalid user {0}?",
            "有人用不存在的用户 {0} 尝试登录，来自哪个地址？",
            re.compile(r"Invalid user ([a-z]\w{3,}) from (\S+)"),
        ),
        (
            "How many seconds did it take to build instance {0}?",
            "构建实例 {0} 用了多少秒（build instance）？",
            re.compile(r"instance: ([0-9a-f-]{36})\] Took (\S+) seconds to build instance"),
        ),
        (
            "Which client got the established session {0}?",
            "会话 {0} 是哪个客户端建立的（client session established）？",
            re.compile(r"Established session (0x\w+) with negotiated timeout \d+ for client (\S+)"),
        ),
    ):
        matches = [match for line in lines if (match := pattern.search(line))]
        once = Counter(match[1] for match in matches)
        single = [match for match in matches if once[match[1]] == 1]
        for number, match in enumerate(single[:: max(1, len(single) // 8)][:8]):
            language: Literal["en", "zh"] = "zh" if number % 2 else "en"
            task = (zh if number % 2 else en).format(match[1])
            found.append(Question(task, language, (match[2],), "ops_debug", subject=match[1]))
    return found


def truths(records: int, logs: Path, seed: int = 7) -> Iterator[NewTruth]:
    """In the order of time, `records` in all; never fewer than the planted ones and the lines asked about."""
    rng = random.Random(seed)
    lines = _lines(logs)
    on_lines = log_questions(logs)
    asked = [line for line in lines if any(_answers(line, one) for one in on_lines)]
    # what is asked about has happened once: its variants would tell something else of it
    subjects = [one.subject for one in on_lines]
    lines = [line for line in lines if not any(subject in line for subject in subjects)]
    essential = [*planted(), *(_of_line(line, _moment(rng), None) for line in asked)]
    hours = DAYS * 24
    essential.sort(key=_time_of)
    fill = max(0, records - len(essential))
    reports = min(hours, fill // 3)
    receipts = min(400, fill // 6)
    traffic = fill - reports - receipts
    routine = [_report(n, NOW - timedelta(hours=hours * (reports - n) / reports)) for n in range(reports)]
    routine += [_receipt(n, rng) for n in range(receipts)]
    fixed = sorted([*essential, *routine], key=_time_of)
    begin, step = NOW - timedelta(days=DAYS), timedelta(days=DAYS) / max(traffic, 1)
    standing = iter(fixed)
    waiting = next(standing, None)
    for number in range(traffic):
        at = begin + step * number
        while waiting is not None and _time_of(waiting) <= at:
            yield waiting
            waiting = next(standing, None)
        yield _of_line(rng.choice(lines), at, rng)
    while waiting is not None:
        yield waiting
        waiting = next(standing, None)


def _document() -> dict[str, list]:  # type: ignore[type-arg]
    found: dict[str, list] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))  # type: ignore[type-arg]
    return found


def _lines(logs: Path) -> list[str]:
    """Every line of the three logs without its own date."""
    found = []
    for name, head in zip(_LOGS, _HEADS, strict=True):
        for line in (logs / name).read_text(encoding="utf-8", errors="replace").splitlines():
            if said := head.sub("", line).strip():
                found.append(said)
    return found


def _answers(line: str, question: Question) -> bool:
    """Whether a line is the one that a question on log lines was made from."""
    return question.evidence[0] in line and question.subject in line


def _of_line(line: str, at: datetime, rng: random.Random | None) -> NewTruth:
    """With `rng` its ports, processes and last octets are others: one more line of the same kind."""
    if rng is not None:
        line = _CHANGING.sub(lambda match: str(rng.randint(1, 254)), line)
    if _ALARMING.search(line):
        category = "alert"
    elif _WRONG.search(line):
        category = "error"
    else:
        category = "metrics" if " seconds" in line and rng is not None else "operation"
    return NewTruth(category=category, value=line, timestamp=at)


def _report(n: int, at: datetime) -> NewTruth:
    numbers = {"n": n, "line": n % 4 + 1, "a": 3 + n % 5 / 10, "b": 40 + n % 9, "c": n % 7}
    return NewTruth(category="inspection", value=_REPORTS[n % 2].format(**numbers), timestamp=at)


def _receipt(n: int, rng: random.Random) -> NewTruth:
    numbers = {"n": n, "line": rng.randint(1, 9), "a": rng.randint(20, 900), "c": rng.randint(1, 5000)}
    category = "task" if n % 3 else "result"
    return NewTruth(category=category, value=_RECEIPTS[n % 2].format(**numbers), timestamp=_moment(rng))


def _moment(rng: random.Random) -> datetime:
    return NOW - timedelta(minutes=rng.randint(30, DAYS * 24 * 60))


def _time_of(truth: NewTruth) -> datetime:
    assert truth.timestamp is not None
    return truth.timestamp
