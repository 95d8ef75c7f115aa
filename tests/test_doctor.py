from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.configuration import lay_out
from kernel_gamma.doctor import Finding, examine

OFFLINE = {"KGAMMA_MODEL__MODE": "offline", "KGAMMA_CLOCK__ZONE": "UTC"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    lay_out(tmp_path)
    return tmp_path


def found(home: Path, environ: Mapping[str, str] = OFFLINE, *, check: str = "") -> list[Finding]:
    return [finding for finding in examine(home, environ) if check in ("", finding.check)]


def failed(home: Path, environ: Mapping[str, str] = OFFLINE) -> list[Finding]:
    return [finding for finding in found(home, environ) if finding.level == "fail"]


def test_a_fresh_home_has_nothing_wrong_and_nothing_is_made(home: Path) -> None:
    assert [finding for finding in found(home) if finding.level != "ok"] == []
    assert not (home / "data/kernel").exists()
    assert [path.name for path in (home / "data").iterdir()] == ["README.md"]


def test_every_wrong_setting_is_a_finding_of_its_own(home: Path) -> None:
    (home / "config/kernel.yaml").write_text("bus:\n  setle_sec: 1\n")
    first, second = failed(home, {"KGAMMA_NO": "1"})
    assert {first.check, second.check} == {"settings"}
    assert "KGAMMA_NO" in first.text + second.text
    assert "bus.setle_sec" in first.text + second.text


def test_no_home_at_all(tmp_path: Path) -> None:
    (finding,) = failed(tmp_path / "nowhere", {})
    assert "kgamma init" in finding.text


def test_a_wrong_tool_is_named_with_its_file(home: Path) -> None:
    (home / "config/tools.yaml").write_text("tools:\n  sendmessage: {permission: free}\n")
    (finding,) = failed(home)
    assert finding.check == "tools"
    assert str(home / "config/tools.yaml") in finding.text
    assert "send_message" in finding.mend


def test_a_missing_prompt_is_named(home: Path) -> None:
    (home / "prompts/zh/SOUL.md").unlink()
    (finding,) = failed(home)
    assert finding.check == "prompts"
    assert "SOUL" in finding.text


def test_a_node_that_nothing_feeds_is_a_warning(home: Path) -> None:
    (home / "config/topology.yaml").write_text("nodes:\n  - {id: acts, class: CommandDispatcher}\n")
    (finding,) = found(home, check="topology")
    assert (finding.level, "action_queue" in finding.text) == ("warn", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_is_not_writable_is_named(home: Path) -> None:
    (home / "data/kernel").mkdir()
    (home / "data/kernel").chmod(0o500)
    (finding,) = failed(home)
    assert "cannot be written" in finding.text


def test_a_ledger_that_is_no_database(home: Path) -> None:
    (home / "data/kernel").mkdir()
    (home / "data/kernel/ledger.db").write_bytes(b"garbage" * 1000)
    (finding,) = failed(home)
    assert (finding.check, "move ledger.db aside" in finding.mend) == ("ledger", True)


def test_a_ledger_with_a_broken_page(home: Path) -> None:
    path = home / "data/kernel/ledger.db"
    path.parent.mkdir()
    ledger = Ledger.open(path)
    for number in range(2000):
        ledger.run("set_meta", f"key {number}", "x" * 100)
    ledger.close()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 3000] = b"\xff" * 3000
    path.write_bytes(raw)
    assert [finding.check for finding in failed(home)] == ["ledger"]


@pytest.mark.parametrize("left", [None, b""])
def test_a_log_without_its_ledger(home: Path, left: bytes | None) -> None:
    data = home / "data/kernel"
    data.mkdir()
    if left is not None:
        (data / "ledger.db").write_bytes(left)
    (data / "ledger.db-wal").write_bytes(b"what was done last")
    (finding,) = found(home, check="ledger")
    assert finding.level == "warn" and "ledger.db-wal" in finding.text


def test_a_ledger_of_a_newer_version(home: Path) -> None:
    path = home / "data/kernel/ledger.db"
    path.parent.mkdir()
    ledger = Ledger.open(path)
    ledger._db.execute("PRAGMA user_version = 99")
    ledger.close()
    (finding,) = failed(home)
    assert "newer kernel-gamma" in finding.text


def test_a_clock_that_was_set_back_is_noticed_in_the_ledger(home: Path) -> None:
    path = home / "data/kernel/ledger.db"
    path.parent.mkdir()
    ledger = Ledger.open(path)
    ledger.run("add_commit", 1, "b", "n", "t", 4e9, None, "[]", "[]", "[]", "[]")
    ledger.close()
    warnings = [finding for finding in found(home, check="clock") if finding.level == "warn"]
    assert len(warnings) == 1
    assert "2096" in warnings[0].text


def test_polling_by_choice_is_fine(home: Path) -> None:
    (finding,) = found(home, {**OFFLINE, "KGAMMA_BUS__WATCHER": "polling"}, check="watching")
    assert (finding.level, "listed every 1 s" in finding.text) == ("ok", True)


def test_a_trial_clock_is_a_warning(home: Path) -> None:
    (finding,) = found(home, {**OFFLINE, "KGAMMA_CLOCK__TRIAL": "true"}, check="clock")
    assert finding.level == "warn"


def test_no_model_is_a_warning_that_says_how_to_get_one(home: Path) -> None:
    (finding,) = found(home, {}, check="model")
    assert (finding.level, "OPENAI_API_KEY" in finding.mend) == ("warn", True)


def test_online_without_key_or_address_fails(home: Path) -> None:
    (finding,) = failed(home, {"KGAMMA_MODEL__MODE": "online"})
    assert "neither a key nor a base URL" in finding.text


class Models(http.server.BaseHTTPRequestHandler):
    """GET /v1/models, as endpoints answer it."""

    status: ClassVar[int] = 200
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers["Authorization"])
        body = json.dumps({"data": [{"id": "gpt-4.1-mini"}, {"id": "other"}]}).encode()
        self.send_response(self.status if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def endpoint(status: int = 200) -> Iterator[dict[str, str]]:
    handler = type("Handler", (Models,), {"status": status, "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    base = f"http://user:secret@127.0.0.1:{server.server_port}/v1"
    try:
        yield {"OPENAI_BASE_URL": base, "OPENAI_API_KEY": "sk-secret"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert handler.asked == ["Bearer sk-secret"]  # type: ignore[attr-defined]


def test_an_endpoint_that_knows_the_model(home: Path) -> None:
    with endpoint() as environ:
        (finding,) = found(home, environ, check="model")
    assert finding.level == "ok"
    assert "quality: gpt-4.1-mini" in finding.text


def test_an_endpoint_that_does_not_list_the_model(home: Path) -> None:
    with endpoint() as environ:
        (finding,) = found(home, {**environ, "KGAMMA_MODEL__QUALITY__MODEL": "mistake"}, check="model")
    assert finding.level == "warn"
    assert "does not list mistake" in finding.text
    assert "gpt-4.1-mini, other" in finding.mend


@pytest.mark.parametrize(("status", "level"), [(401, "fail"), (404, "ok"), (500, "warn")])
def test_what_an_endpoint_refuses_with(home: Path, status: int, level: str) -> None:
    with endpoint(status) as environ:
        (finding,) = found(home, environ, check="model")
    assert finding.level == level
    assert "secret" not in finding.text + finding.mend


def test_nobody_at_the_address(home: Path) -> None:
    (finding,) = found(home, {"OPENAI_BASE_URL": "http://me:secret@127.0.0.1:9/v1"}, check="model")
    assert finding.level == "fail"
    assert "127.0.0.1:9/v1/models cannot be reached" in finding.text
    assert "secret" not in finding.text


def test_who_holds_the_mind_is_asked_of_the_caller(home: Path) -> None:
    (home / "data/kernel").mkdir()
    *_, last = examine(home, OFFLINE, holder=lambda data: {"pid": 42})
    assert last == Finding("daemon", "ok", "running, process 42")


# Static truths


def test_an_edited_static_truth_is_told_with_the_way_to_approve_it(home: Path) -> None:
    file = home / "config/identity.json"
    file.write_text(file.read_text().replace("kernel-gamma", "mine"))
    (finding,) = found(home, check="static")
    assert finding.level == "warn"
    assert "config/identity.json was changed" in finding.text
    assert "kgamma static propose config/identity.json" in finding.mend


def test_a_static_truth_over_its_budget_fails_with_its_tokens(home: Path) -> None:
    file = home / "config/identity.json"
    file.write_text(file.read_text().replace("shipped default", "word " * 200))
    (home / "config/static.lock.json").unlink()
    levels = {finding.level: finding.text for finding in found(home, check="static")}
    assert "config/identity.json: budget: takes" in levels["fail"]
    assert "100 are allowed" in levels["fail"]
    assert "static.lock.json is not there" in levels["warn"]


def test_a_skeleton_that_is_not_true_of_this_home_is_told(home: Path) -> None:
    (finding,) = found(home, {**OFFLINE, "KGAMMA_GATEWAY__PORT": "9999"}, check="static")[:1]
    assert finding.level == "warn"
    assert "it says port 9120 for gateway, the settings say 9999" in finding.text
    topology = home / "config/topology.yaml"
    topology.write_text(topology.read_text().partition("  - id: command_dispatcher")[0])
    texts = [finding.text for finding in found(home, check="static")]
    assert any("names the node command_dispatcher, which is not in the topology" in text for text in texts)


def test_a_lock_that_cannot_be_understood_fails(home: Path) -> None:
    (home / "config/static.lock.json").write_text("{nope")
    (finding,) = failed(home)
    assert finding.check == "static"


def test_times_that_keep_less_than_is_shipped_are_told(home: Path) -> None:
    file = home / "config/retention.yaml"
    file.write_text(
        "classes: [{prefixes: [incident.], keep: 9 days, chain: false}]\nfiles: {dead_letter: 30 days}\n"
    )
    ok, *warned = found(home, check="retention")
    assert ok.level == "ok" and [finding.level for finding in warned] == ["warn", "warn"]
    assert "incident." in warned[0].text and "30 days" in warned[1].text
    file.write_text("files: {dead_leter: 30 days}\n")
    (finding,) = failed(home)
    assert "dead_letter" in finding.mend
