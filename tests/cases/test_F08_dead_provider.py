"""F08 dead provider: 429 for six simulated hours while 50 events arrive."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.accounting import Account, read_json, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import narrate, translate
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

EVENTS = 50
OUTAGE_HOURS = 6
OUTAGE_SEC = 4.0

SIX_HOURS = {
    "KGAMMA_CLOCK__TRIAL": "true",
    "KGAMMA_CLOCK__START": "2026-11-30T08:00:00+08:00",
    "KGAMMA_CLOCK__RATE": str(OUTAGE_HOURS * 3600 / OUTAGE_SEC),
}
"""A trial clock on which the outage lasts that long."""

SHORT_PAUSES = {
    "KGAMMA_MODEL__BREAKER_SEC": "0.2",
    "KGAMMA_MODEL__BREAKER_MAX_SEC": "1",
    "KGAMMA_MODEL__RETRIES": "0",
}
"""Where the mind chooses the pauses itself, they and the outage are shortened alike: 30 s → 0.2 s."""


class _Provider:
    """Refuses every call during the outage, naming the pause it wants (None: naming none)."""

    def __init__(self, retry_after: int | None) -> None:
        self.out = True
        self._headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    def __call__(self, request: ParsedRequest) -> Answer:
        if self.out:
            return Answer("You have sent too many requests", status=429, headers=self._headers)
        return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


def _until(true: Callable[[], bool]) -> None:
    """Wait for something that must come true; a minute is plenty."""
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came true")


@pytest.mark.parametrize(
    ("retry_after", "environ", "most_calls"),
    [
        pytest.param(OUTAGE_HOURS * 3600, SIX_HOURS, 3, id="until-the-end"),
        pytest.param(1800, SIX_HOURS, 20, id="half-an-hour-each"),
        pytest.param(None, SHORT_PAUSES, 16, id="says-nothing"),
    ],
)
def test_F08_a_long_outage_costs_few_calls_and_no_event(
    tmp_path: Path, retry_after: int | None, environ: dict[str, str], most_calls: int
) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    provider = _Provider(retry_after)
    status_file = dropper.data / "metrics/status.json"

    def parked() -> bool:
        status = read_json(status_file) if status_file.exists() else {"nodes": {}}
        node = status["nodes"].get("internalizer", {})
        return node.get("status") == "parked" and bool(node["until"]) and bool(status["model"]["until"])

    def answered() -> bool:
        return sum(Account(dropper.data, dropper.files).replies.values()) >= EVENTS

    with ScriptedServer(provider) as server, Nursery() as nursery:
        environ = {
            "OPENAI_BASE_URL": server.base_url,
            "KGAMMA_ACTIONS__MAX_PER_PASSAGE": str(EVENTS),
            **environ,
        }
        with nursery.start(home, environ, once=False) as daemon:
            end = time.monotonic() + OUTAGE_SEC
            for number in range(EVENTS):
                text = f"are you there? 你在吗？ {number}"
                dropper.drop(f"event-{number:02}.json", {"text": text, "from": f"person-{number % 7}"})
                time.sleep(0.02)
            _until(parked)
            time.sleep(max(0.0, end - time.monotonic()))
            assert server.count() <= most_calls
            assert not Account(dropper.data, dropper.files).dead
            provider.out = False
            _until(answered)
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
        assert nursery.once(home, environ) == 0
    account = Account(dropper.data, dropper.files)
    account.check()
    assert not account.dead
    assert where_files_are(dropper.data, dropper.files)["done"] == EVENTS
    assert set(account.replies) == {f"echo {account.ids_of(name)[0]}" for name in dropper.files}
