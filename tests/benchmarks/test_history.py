"""The history of the token benchmark: the same each time, in order of time, and what is asked about once."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from benchmarks.history import NOW, log_questions, logs_folder, planted, questions, truths

SESSIONS = {"0x14f05578bd80001": "10.10.34.11:1055", "0x14f05578bd80002": "10.10.34.12:1066"}
INSTANCE = "b9000564-fe1a-409b-b8cc-1e88b294cd1d"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Three small logs of the three kinds."""
    ssh = [
        f"Dec 10 06:55:4{n} LabSZ sshd[2420{n}]: Invalid user {user} from 173.234.31.18{n}"
        for n, user in enumerate(("webmaster", "admin", "admin"))
    ]
    ssh.append("Dec 10 06:56:01 LabSZ sshd[24210]: POSSIBLE BREAK-IN ATTEMPT from 5.36.59.76 port 42393")
    stack = [
        "nova-compute.log.1.2017-05-16 2017-05-16 00:00:04.500 2931 INFO nova.compute.manager [req-3ea4] "
        f"[instance: {INSTANCE}] Took 19.84 seconds to build instance."
    ]
    keeper = [
        f"2015-07-29 17:41:4{n},536 - INFO  [CommitProcessor:1:ZooKeeperServer@595] - Established session "
        f"{session} with negotiated timeout 10000 for client /{client}"
        for n, (session, client) in enumerate(SESSIONS.items())
    ]
    for name, lines in (("OpenSSH", ssh), ("OpenStack", stack), ("Zookeeper", keeper)):
        (tmp_path / f"{name}_2k.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_the_folder_of_the_logs_is_the_one_given_else_the_one_of_the_environment(
    logs: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    monkeypatch.delenv("KGAMMA_LOGS", raising=False)
    assert logs_folder(None) is None
    assert logs_folder(logs) == logs
    assert logs_folder(empty) is None
    monkeypatch.setenv("KGAMMA_LOGS", str(logs))
    assert logs_folder(None) == logs
    assert logs_folder(empty) is None


def test_at_least_sixty_questions_half_of_them_chinese_and_each_with_an_answer_in_the_planted_records() -> (
    None
):
    asked = questions()
    assert len(asked) >= 60
    assert 0.4 <= sum(one.language == "zh" for one in asked) / len(asked) <= 0.6
    said = [json.dumps([truth.description, truth.value], ensure_ascii=False) for truth in planted()]
    for one in asked:
        for words in one.evidence:
            assert any(words in text for text in said), one.task


def test_a_line_is_asked_about_when_what_it_names_stands_in_no_other(logs: Path) -> None:
    found = {one.subject: one.evidence for one in log_questions(logs)}
    assert found == {
        "webmaster": ("173.234.31.180",),
        INSTANCE: ("19.84",),
        **{session: (f"/{client}",) for session, client in SESSIONS.items()},
    }


def test_the_history_is_the_same_each_time_in_the_order_of_time_and_as_long_as_asked(logs: Path) -> None:
    first, again = list(truths(1_500, logs)), list(truths(1_500, logs))
    assert first == again
    assert len(first) == 1_500
    times = [truth.timestamp for truth in first]
    assert times == sorted(times)
    assert times[0] >= NOW - timedelta(days=30)
    assert times[-1] <= NOW
    assert [truth.value for truth in first] != [truth.value for truth in truths(1_500, logs, seed=8)]


def test_what_is_asked_about_has_happened_once_however_long_the_history_is(logs: Path) -> None:
    told = [str(truth.value) for truth in truths(2_000, logs)]
    for one in log_questions(logs):
        assert sum(one.subject in line and one.evidence[0] in line for line in told) == 1
        assert sum(one.subject in line for line in told) == 1


def test_no_planted_record_is_left_out_of_the_shortest_history(logs: Path) -> None:
    keys = {truth.key for truth in truths(1, logs) if truth.key}
    assert keys == {truth.key for truth in planted()}
