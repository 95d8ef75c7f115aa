"""Tells `static.approval_webhook` of every proposal. A webhook that fails holds nothing up: it is logged and
tried again, a bounded number of times; how it went stands in truths `proposal.told.<id>`.

Several processes of one home may tell (the daemon, `kgamma static propose`): whoever writes the next version
of that truth first does it, the others leave it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import httpx2

from kernel_gamma.contracts.envelope import Json, encode_document, rfc3339
from kernel_gamma.contracts.ports import Clock, TruthStore
from kernel_gamma.contracts.truths import NewTruth
from kernel_gamma.errors import TruthError, TruthLocked, VersionConflict
from kernel_gamma.settings import StaticSettings
from kernel_gamma.truths.static.approvals import written_by_us
from kernel_gamma.truths.static.messages import feishu_message, webhook_message
from kernel_gamma.truths.static.proposals import Proposal, proposals_in
from kernel_gamma.truths.static.signing import signed_headers

__all__ = ["MOST_TRIES", "Telling", "Webhook", "approval_problem", "secret_of", "telling_of"]

log = logging.getLogger(__name__)

MOST_TRIES: Final = 8
_FIRST_PAUSE_SEC = 30.0
"""Before the second try; twice as long before each later one: an hour in all."""
_UNDER_WAY_SEC = 60.0
"""A try that has not ended by then died with its process."""
_TIMEOUT_SEC = 10.0
_LOOK_EVERY_SEC = 30.0
_SOON_SEC, _SOON_TIMES = 1.0, 30
"""What a commit records stands in the store only a little later than it is heard of."""
_ANSWER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Telling:
    """How far the telling of one proposal has come."""

    state: str
    """`trying`, `told`, `failed` (to be tried again) or `given up`."""
    tries: int
    at: str
    """RFC 3339: of the newest try."""
    error: str = ""
    version: int = 0


def secret_of(settings: StaticSettings, environ: Mapping[str, str]) -> str | None:
    """The shared secret; None when it is not set."""
    return environ.get(settings.approval_secret_env, "").strip() or None


def approval_problem(settings: StaticSettings, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """(what keeps approval from elsewhere from working, how to mend it); None if nothing does."""
    if settings.approval == "cli":
        return None
    said = f"static.approval is {settings.approval}, but"
    address = (settings.approval_webhook or "").strip()
    if not address:
        return (
            f"{said} static.approval_webhook is not set: nobody is told",
            "set the address, or approval: cli",
        )
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{said} static.approval_webhook is no http address", "write it like https://host/path"
    if secret_of(settings, environ) is None:
        name = settings.approval_secret_env
        return f"{said} {name} is not set: nothing can be signed", f"put {name}=… into .env"
    return None


def telling_of(store: TruthStore, proposal_id: str) -> Telling | None:
    """None when nobody has begun to tell it."""
    truth = store.get(f"proposal.told.{proposal_id}")
    if truth is None or not written_by_us(truth) or not isinstance(truth.value, dict):
        return None
    value = truth.value
    tries = value.get("tries")
    return Telling(
        str(value.get("state")),
        tries if isinstance(tries, int) else 0,
        str(value.get("at")),
        str(value.get("error") or ""),
        truth.version,
    )


class Webhook:
    """The address of one home. `tell` and `sweep` may be called from any thread and raise nothing."""

    def __init__(
        self,
        settings: StaticSettings,
        environ: Mapping[str, str],
        store: TruthStore,
        clock: Clock,
        *,
        diff: Callable[[str], str],
    ) -> None:
        """`diff` shows what a proposal changes, by its id; it may raise."""
        self._settings = settings
        self._secret = secret_of(settings, environ) or ""
        self._store = store
        self._clock = clock
        self._diff = diff
        self._wanted = settings.approval != "cli" and approval_problem(settings, environ) is None
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._soon = 0

    # A thread of its own, in the daemon

    def start(self) -> None:
        """Tell what was not told yet, now and whenever `wake` is called, and try again what failed."""
        if self._wanted and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Something new stands, or will in a moment."""
        self._soon = _SOON_TIMES
        self._woken.set()

    def stop(self) -> None:
        """No further try begins; one that runs is waited for."""
        self._ending.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT_SEC + 5.0)

    def _run(self) -> None:
        while not self._ending.is_set():
            self.sweep()
            self._woken.wait(_SOON_SEC if self._soon else _LOOK_EVERY_SEC)
            self._woken.clear()
            self._soon = max(self._soon - 1, 0)

    # Telling

    def sweep(self) -> None:
        """Tell every open proposal that is due."""
        if not self._wanted:
            return
        try:
            waiting = [one for one in proposals_in(self._store) if one.state == "open"]
        except TruthError as error:
            log.warning("proposals could not be looked at: %s", error)
            return
        for proposal in reversed(waiting):
            if not self._ending.is_set():
                self.tell(proposal)

    def tell(self, proposal: Proposal) -> None:
        """One try, if one is due."""
        if not self._wanted:
            return
        try:
            before = telling_of(self._store, proposal.id)
            now = self._clock.now()
            if before is not None and not _is_due(before, now):
                return
            tries = 1 if before is None else before.tries + 1
            claimed = self._write(proposal, Telling("trying", tries, rfc3339(now)), before)
            problem = self._send(proposal)
            state = "told" if not problem else "given up" if tries >= MOST_TRIES else "failed"
            self._write(proposal, Telling(state, tries, rfc3339(self._clock.now()), problem), claimed)
        except (VersionConflict, TruthLocked):
            return  # another process tells it
        except TruthError as error:
            log.warning("how the telling of proposal %s went was not kept: %s", proposal.id, error)
            return
        if problem:
            log.warning("proposal %s was not told: %s; try %d, %s", proposal.id, problem, tries, state)

    def _write(self, proposal: Proposal, telling: Telling, before: Telling | None) -> Telling:
        value: dict[str, Json] = {
            "proposal": proposal.id,
            "state": telling.state,
            "tries": telling.tries,
            "at": telling.at,
            "error": telling.error,
        }
        new = NewTruth(
            key=f"proposal.told.{proposal.id}",
            value=value,
            description=f"telling of a proposed change of {proposal.file}: {telling.state}",
            expect_version=0 if before is None else before.version,
            trust="owner",
        )
        version = self._store.upsert(new).version
        return Telling(telling.state, telling.tries, telling.at, telling.error, version)

    def _send(self, proposal: Proposal) -> str:
        """ "" when it was taken, else why not: never the address, which may hold a token."""
        try:
            diff = self._diff(proposal.id)
        except Exception as error:  # noqa: BLE001 - that it is told counts more than that it is shown
            diff = f"(the change cannot be shown: {type(error).__name__})"
        moment = int(self._clock.now().timestamp())
        if self._settings.approval == "feishu":
            body = encode_document(feishu_message(proposal, diff, secret=self._secret, timestamp=moment))
            headers = {}
        else:
            body = encode_document(webhook_message(proposal, diff))
            headers = signed_headers(self._secret, moment, body)
        try:
            with httpx2.Client(timeout=_TIMEOUT_SEC, follow_redirects=False) as client:
                answer = client.post(
                    self._settings.approval_webhook or "",
                    content=body,
                    headers={"Content-Type": "application/json", **headers},
                )
        except Exception as error:  # noqa: BLE001 - whatever the network or the address does, it is told
            return f"the address did not answer ({type(error).__name__})"
        if not answer.is_success:
            return f"the address answered {answer.status_code}"
        return _feishu_problem(answer) if self._settings.approval == "feishu" else ""


def _is_due(before: Telling, now: datetime) -> bool:
    if before.state == "told" or before.tries >= MOST_TRIES:
        return False
    try:
        since = now - datetime.fromisoformat(before.at)
    except (ValueError, TypeError):
        return True
    pause = _UNDER_WAY_SEC if before.state == "trying" else _FIRST_PAUSE_SEC * 2 ** (before.tries - 1)
    return since >= timedelta(seconds=pause)


def _feishu_problem(answer: httpx2.Response) -> str:
    """Feishu answers 200 to what it refuses, with a code of its own."""
    try:
        document = answer.json() if len(answer.content) <= _ANSWER_BYTES else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return "the bot answered something else than JSON"
    code = document.get("code", document.get("StatusCode"))
    return "" if code == 0 else f"the bot refused it with code {str(code)[:20]}"
