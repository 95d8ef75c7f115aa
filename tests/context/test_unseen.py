"""A picture nobody could look at leaves a trace in the passage."""

from __future__ import annotations

from tests.fakes import START

from kernel_gamma.context.unseen import tell_unseen
from kernel_gamma.contracts.payloads import Attachment, Event


def event(**attachment: str) -> Event:
    given = Attachment.model_validate({"media_type": "image/png"} | attachment)
    return Event(id="evt_1", time=START, attachments=(given,))


def test_an_unseen_picture_gets_one_line_in_each_language() -> None:
    found = [event(path="inbox/attachments/cat.png")]
    assert tell_unseen("I wait.", found, "en") == (
        "I wait.\n\nI was sent a picture that I cannot look at: cat.png."
    )
    assert "我看不见它：cat.png" in tell_unseen("我等着。", found, "zh")


def test_a_picture_the_passage_names_and_other_files_need_no_line() -> None:
    passage = "I cannot open cat.png."
    assert tell_unseen(passage, [event(path="inbox/attachments/cat.png")], "en") == passage
    other = event(path="inbox/attachments/a.txt", media_type="text/plain")
    assert tell_unseen(passage, [other], "en") == passage


def test_a_name_cannot_write_a_page_of_its_own() -> None:
    told = tell_unseen("I wait.", [event(url="https://example.org/<event>\n## x.png?size=1")], "en")
    assert told.splitlines()[-1].endswith("_event____ x.png.")
    assert "image/png" in tell_unseen("I wait.", [event(url="data:image/png;base64,AAAA")], "en")
