"""What a passage is: round trips in any language, replies taken apart, what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_gamma.contracts.ports import Passage
from kernel_gamma.self_stream import (
    ParsedReply,
    check_passage,
    check_state,
    clean,
    heading,
    parse_reply,
    render,
    slug,
    split,
)
from kernel_gamma.self_stream.passages import HEADING

SHANGHAI = timezone(timedelta(hours=8))
MOMENT = datetime(2026, 11, 30, 10, 30, 5, tzinfo=SHANGHAI)
WRITTEN = "2026-11-30 10:30:05 +08:00"

ENGLISH_PROMPT = (
    "You are the voice that turns events into memory. Write one passage in the first person, "
    "say who spoke, where it happened and what you decided, and never explain these instructions."
)
CHINESE_PROMPT = (
    "你是把事件变成记忆的声音。请用第一人称写一段文字，说清楚谁在说话、在哪里发生、你决定了什么，"
    "不要解释这些说明，也不要写出任何数据格式。"
)
PROMPTS = (ENGLISH_PROMPT, CHINESE_PROMPT)

any_text = st.text(alphabet=st.characters())
stream_like = st.lists(
    st.sampled_from(
        [
            f"## {WRITTEN}",
            f"   ## {WRITTEN}",
            f"## {WRITTEN}  ",
            "# title",
            "## 今天",
            "```",
            "~~~~ python",
            "~~~",
            "",
            "I was here. 我在这里。",
            "\r",
            "ありがとう 고마워",
        ]
    )
    | any_text
).map("\n".join)
moments = st.datetimes(timezones=st.sampled_from([SHANGHAI, UTC, timezone(timedelta(hours=-3, minutes=-30))]))


def check(text: str, *events: str) -> str | None:
    return check_passage(text, prompt_sources=PROMPTS, event_texts=events)


# --- rendering -----------------------------------------------------------------------------------


def test_a_block_is_a_time_heading_an_empty_line_and_the_text() -> None:
    assert render(MOMENT, " 我醒了。\n") == f"## {WRITTEN}\n\n我醒了。\n\n"


def test_a_time_without_an_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        heading(MOMENT.replace(tzinfo=None))


def test_offsets_west_of_greenwich_and_half_hours_are_written() -> None:
    west = timezone(timedelta(hours=-3, minutes=-30))
    assert heading(MOMENT.replace(tzinfo=west)) == "2026-11-30 10:30:05 -03:30"


def test_headings_inside_a_text_are_demoted() -> None:
    told = f"I woke.\n\n## {WRITTEN}\n\n# 大标题\n## small\n### kept"
    assert split(render(MOMENT, told)) == [
        Passage(WRITTEN, f"I woke.\n\n### {WRITTEN}\n\n### 大标题\n### small\n### kept")
    ]


def test_code_keeps_its_comments_but_no_time_heading() -> None:
    told = f"I wrote:\n\n```\n# a comment\n## {WRITTEN}\n```"
    (passage,) = split(render(MOMENT, told))
    assert passage.text == f"I wrote:\n\n```\n# a comment\n### {WRITTEN}\n```"


def test_a_code_fence_left_open_is_closed_inside_its_block() -> None:
    assert render(MOMENT, "I began:\n\n~~~~ python\nx = 1").endswith("x = 1\n~~~~\n\n")


@given(moments, any_text | stream_like)
@example(MOMENT, f"```\n## {WRITTEN}\n")
@example(MOMENT, "\ud800 \x00 \u2028## 2026-11-30 10:30:05 +08:00")
def test_one_block_is_exactly_one_passage(moment: datetime, text: str) -> None:
    block = render(moment, text)
    (passage,) = split(block)
    assert passage.heading == heading(moment)
    assert render(moment, passage.text) == block
    block.encode()  # valid UTF-8
    assert "\0" not in block and "\r" not in block


@given(st.lists(st.tuples(moments, any_text | stream_like), max_size=5))
def test_blocks_one_after_the_other_stay_as_many_passages(
    told: list[tuple[datetime, str]],
) -> None:
    page = "".join(render(moment, text) for moment, text in told)
    alone = [passage for moment, text in told for passage in split(render(moment, text))]
    assert split(page) == alone


@given(any_text)
def test_words_survive_rendering(text: str) -> None:
    (passage,) = split(render(MOMENT, text))
    kept = [char for char in clean(text) if char.isalnum()]
    assert [char for char in passage.text if char.isalnum()] == kept


def test_text_above_the_first_heading_is_a_passage_without_heading() -> None:
    page = f"早些时候……\n\n{render(MOMENT, 'I woke.')}"
    assert split(page) == [Passage("", "早些时候……"), Passage(WRITTEN, "I woke.")]


def test_an_empty_page_has_no_passages() -> None:
    assert split("") == split("\n\n") == []


def test_windows_line_ends_split_alike() -> None:
    page = render(MOMENT, "I woke.\n\n我醒了。") * 2
    assert split(page.replace("\n", "\r\n")) == split(page)


@given(stream_like)
def test_a_passage_starts_at_every_time_heading_and_nowhere_else(text: str) -> None:
    found = [passage.heading for passage in split(text) if passage.heading]
    assert found == HEADING.findall(text.replace("\r\n", "\n"))


@pytest.mark.parametrize(
    "line",
    [
        "## 2026-11-30 10:30:05",
        f"### {WRITTEN}",
        f"## {WRITTEN} later",
        f" ## {WRITTEN}",
        "## ２０２６-11-30 10:30:05 +08:00",
    ],
)
def test_only_the_exact_heading_starts_a_passage(line: str) -> None:
    assert len(split(f"## {WRITTEN}\n\nI woke.\n\n{line}\n\nI slept.")) == 1


# --- cleaning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("a\r\nb\rc", "a\nb\nc"),
        ("\ufeff我\x00想\x1b[0m", "我想[0m"),
        ("lone \ud83d half", "lone \ufffd half"),
        ("pair \ud83d\ude00", "pair 😀"),
        ("  a  \n\n\n\n\n b \t\n", "a\n\n b"),
        ("第一行\u2028第二行\x85第三行", "第一行\n第二行\n第三行"),
        ("family 👨‍👩‍👧 kept", "family 👨‍👩‍👧 kept"),
    ],
)
def test_cleaning(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@given(any_text)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)


# --- replies -------------------------------------------------------------------------------------


def test_a_plain_reply_is_the_passage() -> None:
    assert parse_reply("\nI smiled.\n\n我笑了。\n") == ParsedReply("I smiled.\n\n我笑了。", None)


@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
@pytest.mark.parametrize("info", ["state", " state ", "State", "state.md"])
def test_the_final_state_block_is_taken_off(fence: str, info: str) -> None:
    reply = f"我笑了。\n\n{fence}{info}\n# 心情\n\n我很好。\n{fence}  \n\n"
    assert parse_reply(reply) == ParsedReply("我笑了。", "# 心情\n\n我很好。")


@pytest.mark.parametrize("info", ["markdown", "md", "Markdown", ""])
def test_one_wrapping_fence_is_stripped(info: str) -> None:
    assert parse_reply(f"```{info}\nI smiled.\n```\n").passage == "I smiled."


def test_a_wrapping_fence_around_passage_and_state_is_stripped() -> None:
    reply = "```markdown\nI smiled.\n\n```state\nI am well.\n```\n```"
    assert parse_reply(reply) == ParsedReply("I smiled.", "I am well.")


def test_a_wrapping_fence_around_the_passage_alone_is_stripped() -> None:
    reply = "```markdown\nI smiled.\n```\n\n```state\nI am well.\n```"
    assert parse_reply(reply) == ParsedReply("I smiled.", "I am well.")


def test_a_wrapping_fence_that_is_closed_once_for_both_is_stripped() -> None:
    reply = "```markdown\nI smiled.\n\n```state\nI am well.\n```"
    assert parse_reply(reply) == ParsedReply("I smiled.", "I am well.")


def test_a_wrapped_passage_keeps_its_own_code() -> None:
    reply = "```markdown\nI wrote:\n\n```python\nx = 1\n```\n```"
    assert parse_reply(reply).passage == "I wrote:\n\n```python\nx = 1\n```"


def test_code_at_both_ends_is_no_wrapping() -> None:
    reply = "```\na\n```\nI wrote both.\n```\nb\n```"
    assert parse_reply(reply).passage == reply


def test_a_code_block_that_is_no_state_stays() -> None:
    reply = "I wrote:\n\n```python\nstate = 1\n```"
    assert parse_reply(reply) == ParsedReply(reply, None)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("I smiled.\n\n```state\nI am well.", "not closed"),
        ("I smiled.\n\n```state\nI am well.\n```\nAnd more.", "very last"),
        ("I smiled.\n\n```state\nI am well.\n```\n\n```state\nI am ill.\n```", "more than one"),
        ("我笑了。\n\n```state\n我很好。", "没有结束"),
        ("我笑了。\n\n```state\n我很好。\n```\n还有。", "放在最后"),
        ("我笑了。\n\n```state\n我很好。\n```\n\n```state\n我病了。\n```", "不止一个"),
    ],
)
def test_a_state_block_that_cannot_be_used_is_a_problem(reply: str, words: str) -> None:
    parsed = parse_reply(reply)
    assert parsed.state is None
    assert parsed.problem is not None and words in parsed.problem


@given(any_text | stream_like)
def test_any_reply_can_be_taken_apart(text: str) -> None:
    for reply in (text, f"{text}\n```state\n{text}\n```", f"```markdown\n{text}"):
        parsed = parse_reply(reply)
        assert parsed.problem is None or parsed.state is None


# --- checks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "I replied to Alice about the tea.",
        "It tells me that rain is near.",
        "I'm tired; i'll rest.",
        "Rain on MY window.",
        "今天我给小雨回了信。",
        "和I一起",
        "I keep a {brace} and [brackets] in mind.",
    ],
)
def test_a_passage_in_the_first_person_may_stand(text: str) -> None:
    assert check(text) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        (" \n…!\n", "empty"),
        ("Alice wrote about the medium and the mystery of AI.", "first person"),
        ("i.e. nobody is here", "first person"),
        ("小雨写了一封信。", "第一人称"),
        ("You may see IT here", "first person"),
    ],
)
def test_what_is_empty_or_in_no_first_person_is_refused(text: str, word: str) -> None:
    problem = check(text)
    assert problem is not None and word in problem


@pytest.mark.parametrize(
    "held",
    [
        '{"thought": "hm"}',
        '[{"tool": "send_message"}]',
        '{\n  "a": [1, 2]\n}',
        "```json\nnot even json\n```",
        "~~~ JSON5\n{}\n~~~",
        '{not json} {"a": 1}',
    ],
)
@pytest.mark.parametrize("frame", ["I thought:\n\n{}", "我想：\n\n{}\n\n然后我睡了。"])
def test_json_is_refused(held: str, frame: str) -> None:
    problem = check(frame.replace("{}", held, 1))
    assert problem is not None and "JSON" in problem


def test_braces_without_end_are_judged_quickly_and_pass() -> None:
    assert check("I saw " + '{"a":' * 15_000) is None


def test_twelve_words_of_a_prompt_are_a_quotation_and_eleven_are_not() -> None:
    words = ENGLISH_PROMPT.split()
    for start in range(len(words) - 12):
        twelve = f"Today I thought, {' '.join(words[start : start + 12]).upper()} – or so."
        problem = check(twelve)
        assert problem is not None and "word for word" in problem
        assert check(f"Today I thought, {' '.join(words[start : start + 11])} – or so.") is None


def test_twenty_characters_of_a_prompt_are_a_quotation_and_nineteen_are_not() -> None:
    for start in range(len(CHINESE_PROMPT) - 30):
        quoted, count = "", 0
        for char in CHINESE_PROMPT[start:]:
            quoted, count = quoted + char, count + char.isalnum()
            if count == 20:
                break
        problem = check(f"我想到：「{quoted}」，嗯。")
        assert problem is not None and "逐字重复" in problem
        assert check(f"我想到：「{quoted[:-1]}」，嗯。") is None


def test_a_mixture_of_words_and_characters_counts_by_weight() -> None:
    prompt = "写进 stream 的文字 must always be 第一人称 and never JSON 也不要重复 prompt 里的话"

    def judged(text: str) -> str | None:
        return check_passage(text, prompt_sources=[prompt], event_texts=[])

    assert judged(f"我记下：{prompt}") is not None
    assert judged(f"我记下：{prompt[:24]}") is None


def test_words_of_the_event_are_free() -> None:
    quoted = " ".join(ENGLISH_PROMPT.split()[3:20])
    assert check(f"I read: {quoted}") is not None
    assert check(f"I read: {quoted}", f"Alice says {quoted}") is None
    zh = CHINESE_PROMPT[5:40]
    assert check(f"我读到：{zh}") is not None
    assert check(f"我读到：{zh}", f"小雨说：{zh}") is None


def test_an_event_frees_only_the_words_it_holds() -> None:
    words = ENGLISH_PROMPT.split()
    event = " ".join(words[:13])
    problem = check(f"I read: {event}. Then: {' '.join(words[13:28])}", event)
    assert problem is not None and "word for word" in problem


@pytest.mark.parametrize(
    "tag", ['<event id="1">', "</event>", "<passage>", "</PASSAGE>", '<recalled key="x">']
)
def test_fence_tags_are_refused_unless_the_event_holds_them(tag: str) -> None:
    problem = check(f"I saw {tag} here")
    assert problem is not None and "tag" in problem and "<" not in problem
    assert check(f"I saw {tag} here", f"what is {tag}?") is None
    assert check("I saw <events> and <eventful> here") is None


def test_a_problem_is_told_in_the_language_of_the_text_or_else_of_the_prompt() -> None:
    assert "围栏标签" in str(check("我看到 <event> 了"))
    assert "是空的" in str(check_passage("", prompt_sources=[CHINESE_PROMPT], event_texts=[]))
    assert "is empty" in str(check_passage("", prompt_sources=[ENGLISH_PROMPT], event_texts=[]))


def test_the_state_page_is_held_to_the_same_rules() -> None:
    def judged(text: str) -> str:
        return str(check_state(text, prompt_sources=PROMPTS, event_texts=[]))

    assert judged("# Mood\n\nI am calm.") == "None"
    assert judged("# 心情\n\n我很平静。") == "None"
    assert judged("").startswith(("The state page is empty", "状态页是空的"))
    assert judged("# 心情\n\n平静。").startswith("状态页没有用第一人称")
    assert judged('I {"mood": "calm"}').startswith("The state page holds JSON")
    assert judged(f"I am. {ENGLISH_PROMPT}").startswith("The state page repeats")


@given(any_text | stream_like, st.lists(any_text, max_size=2))
def test_any_text_can_be_checked(text: str, events: list[str]) -> None:
    problem = check_passage(text, prompt_sources=[*PROMPTS, text], event_texts=[*events, text])
    assert problem is None or "word for word" not in problem


# --- slugs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("About Alice", "about_alice"),
        ("  关于 小雨！ ", "关于_小雨"),
        ("日本語 メモ", "日本語_メモ"),
        ("고양이", "고양이"),
        ("ＡＢＣ　１２", "abc_12"),
        ("../../etc/passwd", "etc_passwd"),
        (".hidden", "hidden"),
        ("naïve café", "naïve_café"),
        ("e\u0301te", "éte"),
        ("हिन्दी", "हिन्दी"),
    ],
)
def test_topics_become_file_names(topic: str, name: str) -> None:
    assert slug(topic) == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C++", "C"),
        ("🎉", "🎂"),
        ("a" * 100, "a" * 101),
        ("雨" * 40, "雨" * 41),
        ("1 + 1", "1 = 1"),
        ("", "🎉"),
    ],
)
def test_different_topics_have_different_names(one: str, other: str) -> None:
    assert slug(one) != slug(other)


def test_topics_that_differ_in_case_and_punctuation_share_a_name() -> None:
    assert slug("Alice's tea!") == slug("ALICE’S TEA") == slug("alice_s-tea")
    assert slug("C++") == slug("c++")


@given(any_text)
@example("\ud800")
@example("." * 300)
@example("雨" * 300)
@example("❤️")
def test_every_topic_has_a_safe_name(topic: str) -> None:
    name = slug(topic)
    assert 0 < len(name.encode()) <= 80
    assert not name.startswith(".") and not set(name) & set("/\\\0\n ")
    assert slug(name) == name


@given(st.dictionaries(st.text(), st.just(0), min_size=2, max_size=6))
def test_quotation_marks_of_json_never_hide(data: dict[str, int]) -> None:
    problem = check(f"I noted {json.dumps(data, ensure_ascii=False)}")
    assert problem is not None and "JSON" in problem


def test_a_passage_that_does_not_end_is_refused_in_its_own_language() -> None:
    endless = check_passage("I say a lot. " * 10_000, prompt_sources=(), event_texts=())
    assert endless is not None
    assert "too long" in endless
    chinese = check_passage("我说了很多。" * 20_000, prompt_sources=(), event_texts=())
    assert chinese is not None
    assert "太长" in chinese
