"""Whose a file is that stands in a queue and is not in the books: ours, come back, or anybody's.

A name proves nothing, anyone can give a file any name. What the bus set aside or drops itself is known by
its bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from kernel_gamma.bus.files import sha_of
from kernel_gamma.bus.folders import INBOX
from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.contracts.trust import Trust

__all__ = ["Provenance", "announce", "keep_sha", "provenance"]

_ANNOUNCED = timedelta(days=30)
"""How long the bus's own drop may lie in the inbox before it is taken for anyone's."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a file comes from, and what follows."""

    origin: Literal["bus", "dropped"] = "dropped"
    trust: Trust = "unknown"
    gave_up: frozenset[str] = frozenset()
    """Only these nodes try it again: the others have finished with it. Empty: it is new to all."""


def provenance(ledger: Ledger, root: bytes, queue: str, name: str, at: float) -> Provenance:
    """Look a file up that stands at `queue`/`name`; `at` in epoch seconds.

    A file of ours that was set aside and has been put back is ours again, and trusted as it was: if it is
    the newest of its name, gone from where it was set aside, and byte for byte the same.
    """
    row = ledger.one("newest_of_name", os.fsencode(name), queue)
    if row is not None:
        seq, origin, state, outcome, trust, final, sha256 = row
        given_up = (origin, state, outcome) == ("bus", "left", "dead") and sha256 is not None
        gone = given_up and not os.path.lexists(os.path.join(root, final))
        if gone and sha256 == _sha(root, queue, name):
            return Provenance("bus", trust, frozenset(node for (node,) in ledger.all("gave_up", seq)))
    if queue == INBOX and _announced(ledger, root, name, at):
        return Provenance("bus")
    return Provenance()


def keep_sha(ledger: Ledger, root: bytes, seq: int, path: str) -> None:
    """A file of the bus is about to be set aside: its bytes are noted."""
    ledger.run("keep_sha", sha_of(os.path.join(root, os.fsencode(path))), seq)


def announce(ledger: Ledger, name: str, data: bytes, now: datetime) -> None:
    """The bus itself is about to drop `data` into the inbox under this name."""
    sha256 = hashlib.sha256(data).hexdigest()
    until = (now + _ANNOUNCED).timestamp()
    ledger.run("add_claim", _claim(name), json.dumps({"sha256": sha256}), until, now.timestamp())


def _announced(ledger: Ledger, root: bytes, name: str, at: float) -> bool:
    """Whether the bus dropped this very file. Good for one time."""
    row = ledger.one("claim", _claim(name), at) if name.isprintable() else None
    if row is None or json.loads(row[0])["sha256"] != _sha(root, INBOX, name):
        return False
    ledger.run("drop_claim", _claim(name))
    return True


def _claim(name: str) -> str:
    return f"own_drop:{name}"


def _sha(root: bytes, queue: str, name: str) -> str | None:
    return sha_of(os.path.join(root, os.fsencode(f"{queue}/{name}")))
