"""`kgamma rhythm` shows reminders and cancels them."""

from __future__ import annotations

import json
from typing import Any


def test_a_reminder_that_waits_is_listed_and_can_be_cancelled(kgamma: Any) -> None:
    home = kgamma.home
    folder = home / "data/kernel/rhythm/reminders"
    folder.mkdir(parents=True)
    told = {
        "text": "the oven",
        "at": "2099-01-01T09:00:00+08:00",
        "session": "private:alice",
        "trust": "known",
    }
    (folder / "rem_1.json").write_text(json.dumps(told), encoding="utf-8")
    assert "the oven" in kgamma("rhythm", "list").stdout
    listed = json.loads(kgamma("rhythm", "list", "--json").stdout)
    (one,) = [entry for entry in listed if entry["rule"] == "reminder"]
    assert (one["reminder"], one["at"]) == ("rem_1", "20990101T010000Z")
    assert "cancelled rem_1" in kgamma("rhythm", "cancel", "rem_1").stdout
    assert not (folder / "rem_1.json").exists() and list((folder / "done").rglob("rem_1.json"))
    again = kgamma("rhythm", "cancel", "rem_1")
    assert again.exit_code == 1 and "there is no reminder rem_1" in again.stderr
