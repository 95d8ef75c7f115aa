"""A small day of a mind in which every kind of effect happens, and the model that goes with it.

Messages of several sessions in two languages, a CloudEvent and its duplicate, an array, two files that
can never be accepted, tools that leave the folder (one may run again, one may not), two new state pages, an
answer that is usable only at the second attempt, one that never is, and an event that is no message.
The second and third wave are dropped while the first is being handled.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.crash.accounting import Account
from tests.crash.dropping import Dropper
from tests.scripted_server import Answer, ParsedRequest

from kernel_gamma.contracts.envelope import Json

__all__ = ["OLD_STATE", "WAVES", "Script", "expect", "furnish", "narrate", "read_presses", "translate"]

OLD_STATE = "I have just begun.\n"

WAVES: tuple[Mapping[str, Json | bytes], ...] = (
    {
        "hello.json": {"text": "hello there", "from": "alice"},
        "ni-hao.json": {"text": "你好，今天天气怎么样？", "from": "小明"},
        "group.json": {"text": "is anyone here?", "from": "carol", "session": "group:42", "channel": "lobby"},
        "cloud.json": {
            "specversion": "1.0", "id": "c-1", "source": "/garden", "type": "message",
            "data": {"text": "the gate is open", "from": "dave"},
        },
        "array.json": [
            {"text": "two things at once", "from": "erin"},
            {"type": "weather.changed", "text": "rain", "from": "station"},
        ],
        "half.json": b'{"text": "never fini',
        "once.json": {"text": "press the button once", "from": "alice"},
        "stumble.json": {"text": "stumble over this", "from": "hal"},
    },
    {
        "cloud-again.json": {
            "specversion": "1.0", "id": "c-1", "source": "/garden", "type": "message",
            "data": {"text": "the gate is open", "from": "dave"},
        },
        "empty.json": {"nothing": 1},
        "again.json": {"text": "press the bell again", "from": "bob"},
        "state.json": {"text": "renew your state", "from": "frank"},
        "never.json": {"text": "never understood", "from": "ivy"},
    },
    {
        "state-too.json": {"text": "renew your state", "from": "grace"},
        "tick.json": {"type": "tick", "text": "a minute has passed", "from": "clock"},
        "once-too.json": {"text": "按一次按钮 press the button once", "from": "小红"},
        "bye.json": {"text": "good night", "from": "alice"},
    },
)  # fmt: skip

_TOOLS = """
tools:
  press_once:
    class: "tests.crash.outside:press"
    description: {en: Press the button., zh: 按按钮。}
    parameters: {type: object, properties: {event: {type: string}}, required: [event]}
    idempotent: false
    min_trust: unknown
  press_again:
    class: "tests.crash.outside:press"
    description: {en: Press the bell., zh: 按铃。}
    parameters: {type: object, properties: {event: {type: string}}, required: [event]}
    idempotent: true
    min_trust: unknown
    outcome: note
"""

_DECIDED = re.compile(
    r"^(?:I decide to|我决定) (reply|press_once|press_again) for (\S+?)[.。]$", re.MULTILINE
)


def furnish(home: Path) -> None:
    """The tools and the first state page of this mind."""
    (home / "config/tools.yaml").write_text(_TOOLS)
    page = home / "data/kernel/self/state.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(OLD_STATE)


def narrate(request: ParsedRequest) -> str:
    """The internalizer's answer: names every event it was shown, decides what its words ask for."""
    events = request.events
    chinese = any(re.search("[一-鿿]", event["body"]) for event in events)
    ids = ", ".join(event["id"] for event in events)
    lines = [f"我看到了这些：{ids}。" if chinese else f"I notice what has come to me: {ids}."]
    for event in events:
        verbs = [
            verb
            for verb, mark in (("press_once", "button"), ("press_again", "bell"))
            if mark in event["body"]
        ]
        verbs += ["reply"] if event["type"] == "message" else []
        lines += [f"{'我决定' if chinese else 'I decide to'} {verb} for {event['id']}." for verb in verbs]
    told = "\n\n".join(lines)
    if any("renew your state" in event["body"] for event in events):
        told += f"\n\n```state\nI was asked to renew my state by {ids}.\n```"
    return told


def translate(request: ParsedRequest) -> str:
    """The externalizer's answer: the actions of the decisions in the passage, one thought for a greeting."""
    passage = request.passage or ""
    actions: list[dict[str, Json]] = []
    for verb, event in _DECIDED.findall(passage):
        if verb == "reply":
            actions.append({"tool": "send_message", "arguments": {"text": f"echo {event}"}})
        else:
            actions.append({"tool": verb, "arguments": {"event": event}})
    thought = "I would like to know what it is like out there." if "我看到了" in passage else ""
    return json.dumps({"thought": thought, "actions": actions}, ensure_ascii=False)


class Script:
    """The scripted model of one home; drops the later waves when it is first asked."""

    def __init__(self, dropper: Dropper, *, narrated: Callable[[], None] = lambda: None) -> None:
        self._dropper = dropper
        self._stumbled: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._narrated = narrated

    def __call__(self, request: ParsedRequest) -> Answer:
        if request.agent == "externalizer":
            self.drop(2)
            return Answer(translate(request))
        self.drop(1)
        self._narrated()
        return Answer(self._experience(request))

    def drop(self, wave: int) -> None:
        """Drop one wave, once."""
        for name, content in WAVES[wave].items():
            self._dropper.drop(name, content)

    def _experience(self, request: ParsedRequest) -> str:
        bodies = {event["id"]: event["body"] for event in request.events}
        if any("never understood" in body for body in bodies.values()):
            return ""
        with self._lock:
            for event, body in bodies.items():
                if "stumble" in body and self._stumbled[event] < 2:
                    self._stumbled[event] += 1
                    return ""
        return narrate(request)

    def drop_all(self) -> None:
        """Drop whatever has not been dropped yet."""
        for wave in range(len(WAVES)):
            self.drop(wave)


def read_presses(file: Path) -> dict[str, list[str]]:
    """Event → the idempotency key of each run of an outside tool for it."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        press = json.loads(line)
        found.setdefault(press["event"], []).append(press["key"])
    return found


def expect(account: Account, presses: Mapping[str, Sequence[str]]) -> None:
    """What must have come of the three waves, however often the process was killed meanwhile."""
    account.check()
    assert account.acks["cloud-again.json"]["duplicate"] is True
    assert account.ids_of("cloud.json") == account.ids_of("cloud-again.json") == ["c-1"]
    set_aside = [name for name in account.dead if not name.startswith("msg_")]
    assert sorted(set_aside) == ["empty.json", "half.json"]
    (never,) = account.ids_of("never.json")
    assert account.lost_words() == {never}
    answered = [
        account.ids_of(name)[0]
        for wave in WAVES
        for name in wave
        if name not in (*set_aside, "never.json", "cloud-again.json", "tick.json")
    ]
    assert set(account.replies) == {f"echo {event}" for event in answered}
    _expect_state(account)
    _expect_presses(account, presses)


def _expect_state(account: Account) -> None:
    """Both new pages took their turn, and the pages they replaced are kept, each once."""
    pages = [
        f"I was asked to renew my state by {account.ids_of(n)[0]}.\n"
        for n in ("state.json", "state-too.json")
    ]
    stands = account.page("state.md")
    assert stands in pages
    first = pages[1 - pages.index(stands)]
    kept = [p for p in (account.data / "self/.history").iterdir() if p.name.startswith("state.")]
    assert sorted(p.read_text() for p in kept) == sorted([OLD_STATE, first])


def _expect_presses(account: Account, presses: Mapping[str, Sequence[str]]) -> None:
    told = Counter(
        (document["payload"]["data"]["arguments"]["event"], document["payload"]["type"])
        for document in account.own_events().values()
    )
    for name in ("once.json", "once-too.json"):
        (event,) = account.ids_of(name)
        runs = len(presses.get(event, ()))
        done, unknown = told[event, "action.done"], told[event, "action.outcome_unknown"]
        assert runs <= 1, f"a tool that may run once ran {runs} times"
        assert done + unknown == 1, f"{event} must be told as done or as unknown, once: {told}"
        assert runs == 1 or unknown, f"{event} was told as done and never ran"
    (event,) = account.ids_of("again.json")
    assert len(set(presses[event])) == 1, "a repeated run must carry the same key"
