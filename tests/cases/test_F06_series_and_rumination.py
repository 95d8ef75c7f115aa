"""F06, the quieter loops: a source that says the same, a mind that thinks the same; with kills in between."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.crash.accounting import read_json, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home, until
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.cli.home import open_place
from kernel_gamma.cli.status import status_of

ALARM = {"en": "The disk is {n} % full.", "zh": "磁盘已经用了 {n} %。"}
WORRY = {
    "en": "I still do not know whether Bob has forgiven me; I should have called him on Monday.",
    "zh": "我还是不知道小林有没有原谅我，星期一我本来应该给他打电话的。",
}


@pytest.mark.parametrize("language", ALARM)
def test_F06_forty_alike_events_are_few_calls_and_all_counted_across_kills(
    tmp_path: Path, language: str
) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)
    shown: list[str] = []

    def mind(request: ParsedRequest) -> Answer:
        if request.agent == "externalizer":
            return Answer(json.dumps({"thought": "", "actions": []}))
        shown.extend(event["body"] for event in request.events)
        return Answer("I notice it. 我注意到了。")

    with ScriptedServer(mind) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_LOOP__FOLD_WINDOW_SEC": "3600"}
        for number in range(40):
            if number % 10 == 0:
                daemon = nursery.start(home, environ, once=False)
            name = f"alarm-{number:02}.json"
            alarm = {"type": "disk.alarm", "text": ALARM[language].format(n=number), "from": "web-01"}
            dropper.drop(name, alarm)
            ack = dropper.data / "inbox/acks" / name
            until(ack.exists)
            if number % 10 == 9:
                daemon.signal(signal.SIGKILL)
                daemon.wait()
        assert nursery.once(home, environ) == 0
        start = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
        later = {"KGAMMA_CLOCK__TRIAL": "true", "KGAMMA_CLOCK__START": start}
        folded = [read_json(dropper.data / f"inbox/acks/alarm-{n:02}.json").get("folded") for n in range(40)]
        assert folded[:3] == [None] * 3 and len(set(folded[3:])) == 2  # told at the tenth, the rest wait
        assert nursery.once(home, environ | later) == 0  # their time has come
    assert where_files_are(dropper.data, dropper.files)["done"] == 40
    assert sum("×10" in body for body in shown) == 1
    assert sum("×27" in body for body in shown) == 1
    assert server.count("internalizer") <= 5


@pytest.mark.parametrize("language", WORRY)
def test_F06_the_same_thought_is_not_written_a_third_time(tmp_path: Path, language: str) -> None:
    home = make_home(tmp_path)
    dropper = Dropper(home)

    def mind(request: ParsedRequest) -> Answer:
        if request.agent == "externalizer":
            return Answer(json.dumps({"thought": "", "actions": []}))
        return Answer(WORRY[language])

    with ScriptedServer(mind) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, "KGAMMA_LANGUAGE": language}
        for word in ("rain", "wind", "snow", "hail", "fog"):
            dropper.drop(f"{word}.json", {"type": f"weather.{word}", "text": word, "from": "station"})
            assert nursery.once(home, environ) == 0
        page = (dropper.data / "self/stream/now.md").read_text()
        state = (dropper.data / "self/state.md").read_text()
        assert page.count("\n" + WORRY[language]) == 2
        assert page.count("\n## ") + page.startswith("## ") == 5
        assert state.count(WORRY[language][:20]) == 1
        (loop,) = status_of(open_place(home))["open_loops"]
        assert (loop["kind"], loop["held"]) == ("rumination", 3)
        assert server.counters() == {"internalizer": 5, "externalizer": 2}
        dropper.drop("hello.json", {"text": "hello", "from": "alice"})  # words to her are never refused
        assert nursery.once(home, environ) == 0
        page = (dropper.data / "self/stream/now.md").read_text()
        assert page.count("\n" + WORRY[language]) == 3
