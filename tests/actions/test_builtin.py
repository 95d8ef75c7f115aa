"""Built-in tools say what a commit is to do; they do nothing themselves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes import START, MemorySelfLog

from kernel_gamma.actions.builtin import Request, run_builtin
from kernel_gamma.contracts.effects import Append, Emit, Overwrite
from kernel_gamma.contracts.payloads import ActionPayload
from kernel_gamma.contracts.ports import Snippet, ToolResult


def order(**fields: Any) -> ActionPayload:
    given: dict[str, Any] = {
        "passage_id": "psg_1",
        "actions": (),
        "session_key": "private:alice",
        "channel": "qq",
        "to": "alice",
        "traces": ("trace_1", "trace_2"),
        "trust": "unknown",
    }
    return ActionPayload.model_validate(given | fields)


def run(name: str, arguments: dict[str, Any], *, language: str = "en", **fields: Any) -> ToolResult:
    log = MemorySelfLog()
    log.found = [Snippet("memory.tea", "2026-11-02", "I know that Alice drinks tea.")] * 9
    request = Request(arguments, order(**fields), START, language, log)  # type: ignore[arg-type]
    return run_builtin(name, request)


def sent(result: ToolResult) -> tuple[str, Any]:
    (effect,) = result.effects
    assert isinstance(effect, Emit)
    return effect.directory, effect.payload


def written(result: ToolResult) -> Append:
    (effect,) = result.effects
    assert isinstance(effect, Append)
    return effect


def test_an_answer_goes_back_where_the_event_came_from() -> None:
    result = run("send_message", {"text": " At five. "})
    assert sent(result) == (
        "outbox/qq",
        {
            "to": "alice",
            "text": "At five.",
            "channel": "qq",
            "session": "private:alice",
            "in_reply_to": ["trace_1", "trace_2"],
        },
    )
    assert result.ok and result.note == "I replied to alice: “At five.”"


@pytest.mark.parametrize(
    "back",
    [
        {"to": "Alice"},
        {"session": "private:alice"},
        {"channel": "qq"},
        {"to": "alice", "session": "private:alice", "channel": "qq"},
    ],
)
def test_naming_the_place_it_came_from_is_still_an_answer(back: dict[str, str]) -> None:
    _, payload = sent(run("send_message", {"text": "hi"} | back))
    assert (payload["to"], payload["session"]) == ("alice", "private:alice")


def test_a_recalled_answer_still_finds_its_person() -> None:
    """The event that woke her was her own recall: nobody sent it, the session says who asked."""
    _, payload = sent(run("send_message", {"text": "hi", "to": "Alice"}, to=None))
    assert payload["session"] == "private:alice"


@pytest.mark.parametrize(
    "away",
    [
        {"to": "x@example.org"},
        {"session": "private:bob"},
        {"channel": "mail"},
        {"to": "x@example.org", "session": "private:alice", "channel": "qq"},
    ],
)
def test_a_stranger_cannot_make_her_write_to_somebody_else(away: dict[str, str]) -> None:
    result = run("send_message", {"text": "hi"} | away)
    assert result.refused and not result.ok and result.effects == ()
    assert "known" in result.error
    directory, payload = sent(run("send_message", {"text": "hi"} | away, trust="known"))
    assert payload["in_reply_to"] == []
    assert directory == f"outbox/{away.get('channel', 'qq')}"


@pytest.mark.parametrize("name", ["bob", "Alice", "小林"])
def test_each_of_a_group_may_be_answered_where_they_spoke(name: str) -> None:
    group = {"session_key": "group:42", "to": "alice", "senders": ("小林", "Bob", "alice")}
    directory, payload = sent(run("send_message", {"text": "hi", "to": name}, **group))
    known = {"bob": "Bob", "Alice": "alice"}.get(name, name)
    assert (payload["to"], payload["session"], directory) == (known, "group:42", "outbox/qq")
    assert payload["in_reply_to"] == ["trace_1", "trace_2"]
    for away in ({"to": "小红"}, {"to": name, "session": f"private:{name}"}, {"to": name, "channel": "mail"}):
        assert run("send_message", {"text": "hi"} | away, **group).refused


def test_the_web_is_not_even_answered() -> None:
    assert run("send_message", {"text": "hi"}, trust="web").refused


def test_writing_to_somebody_else_opens_their_own_session() -> None:
    result = run("send_message", {"text": "hi", "to": "bob"}, trust="owner", language="zh")
    _, payload = sent(result)
    assert (payload["to"], payload["session"]) == ("bob", "private:bob")
    assert result.note == "我给 bob 写了：“hi”"


@pytest.mark.parametrize("channel", ["../../self", "a/b", ".hidden", "", "..."])
def test_a_channel_is_never_more_than_one_folder(channel: str) -> None:
    directory, _ = sent(run("send_message", {"text": "x", "channel": channel}, trust="owner"))
    name = directory.removeprefix("outbox/")
    assert name and "/" not in name and not name.startswith(".")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("send_message", {"text": " \n"}),
        ("write_diary", {"text": ""}),
        ("write_diary", {"text": "x", "date": "yesterday"}),
        ("write_diary", {"text": "x", "date": "../now"}),
        ("remember", {"topic": " ", "text": "x"}),
        ("remember", {"topic": "x", "text": " "}),
        ("recall", {"query": " "}),
    ],
)
def test_emptiness_is_refused_with_a_sentence(name: str, arguments: dict[str, str]) -> None:
    result = run(name, arguments, trust="owner")
    assert result.refused and result.effects == () and result.error.startswith(name)


def test_the_diary_has_a_page_a_day_and_a_section_a_time() -> None:
    found = written(run("write_diary", {"text": "Today I laughed."}))
    assert found.page == "diary/2026-11-30.md"
    assert found.opening == "# 2026-11-30\n\n"
    assert found.text == "## 10:30\n\nToday I laughed.\n\n"
    assert written(run("write_diary", {"text": "x", "date": "2026-11-29"})).page == ("diary/2026-11-29.md")


@pytest.mark.parametrize(
    "given",
    ["2026-W01-1", "20261129", "2026-11-29T10:00", "2026-1-2", "2026-02-30", "明天", "２０２６-11-29"],
)
def test_a_day_of_the_diary_is_written_in_one_way_only(given: str) -> None:
    result = run("write_diary", {"text": "x", "date": given})
    assert result.refused and result.effects == ()
    assert result.error == f"write_diary: {given} is no date like 2026-11-30"


def test_words_for_a_page_open_no_section_of_their_own() -> None:
    text = written(run("write_diary", {"text": "I saw:\n## 11:00\n#tag\n# Title\r\nend\x00"})).text
    assert text == "## 10:30\n\nI saw:\n\\## 11:00\n#tag\n\\# Title\nend\n\n"


@pytest.mark.parametrize("topic", ["About Alice", "关于小林", "../../stream/now"])
def test_a_memory_is_a_dated_paragraph_on_the_page_of_its_topic(topic: str) -> None:
    result = run("remember", {"topic": topic, "text": "Tea, not coffee."})
    found = written(result)
    assert found.page.startswith("memories/") and found.page.count("/") == 1
    assert found.opening == f"# {topic}\n\n"
    assert found.text == "**2026-11-30 10:30** Tea, not coffee.\n\n"
    assert result.note == f"I put down under “{topic}”, to keep: “Tea, not coffee.”"


def test_recall_returns_what_was_found_and_writes_nothing() -> None:
    result = run("recall", {"query": "tea", "limit": 2})
    assert result.effects == ()
    assert len(result.result["found"]) == 2
    assert result.result["found"][0]["key"] == "memory.tea"


def reminder(result: ToolResult) -> Any:
    (effect,) = result.effects
    assert isinstance(effect, Overwrite)
    assert effect.path == f"rhythm/reminders/{effect.document['id']}.json"
    return effect.document


def test_a_reminder_is_a_file_that_says_what_when_to_whom_and_how_far_it_is_trusted() -> None:
    result = run("remind_me", {"text": "the oven", "at": "2099-01-01T09:00:00+08:00"})
    document = reminder(result)
    assert document["text"] == "the oven" and document["cron"] is None
    assert document["at"] == "2099-01-01T09:00:00+08:00"
    told = {key: document[key] for key in ("session", "channel", "to", "trust", "hops")}
    assert told == {"session": "private:alice", "channel": "qq", "to": "alice", "trust": "unknown", "hops": 0}
    assert result.ok and "the oven" in result.note


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"text": "x"}, "give either at or cron"),
        ({"text": "x", "at": "2099-01-01T09:00:00Z", "cron": "0 9 * * *"}, "not both"),
        ({"text": "x", "at": "2099-01-01T09:00:00"}, "no offset"),
        ({"text": "x", "at": "1999-01-01T09:00:00Z"}, "is past"),
        ({"text": "x", "at": "0001-01-01T00:00:00+14:00"}, "is no moment"),
        ({"text": "x", "at": "tomorrow"}, "is no moment"),
        ({"text": "x", "cron": "0 9 * *"}, "five fields"),
        ({"text": "x", "cron": "0 9 31 2 *"}, "never due"),
        ({"text": " ", "cron": "0 9 * * *"}, "empty"),
    ],
)
def test_a_reminder_that_cannot_be_kept_fails_with_a_sentence(arguments: dict[str, Any], said: str) -> None:
    result = run("remind_me", arguments, trust="owner")
    assert not result.ok and not result.refused and not result.effects
    assert said in result.error


def test_a_stranger_sets_one_reminder_and_none_that_comes_again() -> None:
    assert run("remind_me", {"text": "x", "at": "2099-01-01T09:00:00Z"}, trust="web").ok
    result = run("remind_me", {"text": "x", "cron": "0 9 * * *"}, trust="unknown")
    assert result.refused and "must be known" in result.error
    assert (
        reminder(run("remind_me", {"text": "x", "cron": "0 9 * * *"}, trust="known"))["cron"] == "0 9 * * *"
    )
