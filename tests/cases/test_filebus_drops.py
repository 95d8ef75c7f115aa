"""What is dropped, good and bad: cases B07, B09, B10, B12 to B16 and F01 of the field."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.harness import Rig, forward, node_class

FORWARD = node_class(forward, emit=("outbox/out/out_*.json",), batch=64)


@pytest.fixture(params=["auto", "polling"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """With notifications and without: they may only make a difference in time."""
    made = Rig(
        tmp_path / "mind",
        {"a": FORWARD},
        settings={"inbox": {"max_bytes": 100_000}},
        watcher=request.param,
        poll_sec=0.02,
    )
    await made.start()
    yield made
    await made.stop()


ODD_NAMES = [
    "with space.json",
    "-leading dash.json",
    " leading space.json",
    "new\nline.json",
    "quote'\"`$(x).json",
    "表情😀.json",
    "a" * 250 + ".json",
    "字" * 83 + ".json",
    "UPPER.JSON",
    b"\xff\xfe.json",
    b"half\xc3.json",
]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_B07_any_file_name_is_delivered_and_filed_under_it(rig: Rig, name: str | bytes) -> None:
    rig.drop(name, {"text": "said"})
    rig.drop("after.json", {"text": "after"})
    await rig.drained()
    assert sorted(rig.said()) == ["after", "said"]
    assert sorted(rig.names("inbox/pending/done")) == sorted(["after.json", os.fsdecode(name)])


@pytest.mark.parametrize("name", ["new\nline.json", "a" * 250 + ".json", b"\xff\xfe.json", "UPPER.JSON"])
async def test_B07_any_file_name_is_set_aside_with_its_reason(rig: Rig, name: str | bytes) -> None:
    rig.drop(name, b"{nope")
    await rig.drained()
    names = rig.names("dead_letter")
    assert os.fsdecode(name) in names
    (reason,) = [n for n in names if n.endswith(".reason.json")]
    (path,) = (rig.root / "dead_letter").glob("*/*.reason.json")
    assert path.name == reason
    assert json.loads(path.read_bytes())["error"] == "not_json"


async def test_a_name_in_capitals_makes_the_bus_deaf_to_no_other(rig: Rig) -> None:
    for name in ("UPPER.JSON", "lower.json", "a_B.JSON", "a_b.json"):
        rig.drop(name, {"text": name})
        await rig.drained()
    assert sorted(rig.said()) == ["UPPER.JSON", "a_B.JSON", "a_b.json", "lower.json"]


TEMPORARY = [
    ".e.json",
    ".e.json.tmp",
    "e.tmp",
    "e.json.part",
    "e.filepart",
    "e.json~",
    "e.swp",
    "e.txt",
    "e.json.swp",
]


@pytest.mark.parametrize("name", TEMPORARY)
async def test_B10_temporary_names_of_other_programs_are_never_read(rig: Rig, name: str) -> None:
    path = rig.drop("x.tmp", {"text": "unfinished"}).rename(rig.root / "inbox/pending" / name)
    await rig.drained()
    assert path.exists()
    assert rig.heard == []
    path.rename(path.with_name("final.json"))  # the rename is the drop
    await rig.drained()
    assert rig.said() == ["unfinished"]


BAD = {
    "empty": (b"", "empty"),
    "blank": (b" \n\t ", "empty"),
    "bom only": (b"\xef\xbb\xbf", "empty"),
    "half": (b'{"text": "he', "not_json"),
    "nan": (b'{"text": NaN}', "not_json"),
    "huge number": (b'{"text": 1e999}', "not_json"),
    "not utf-8": (b'{"text": "\xff"}', "not_json"),
    "utf-16": ('{"text": "a"}'.encode("utf-16"), "not_json"),
    "nul bytes": (b"\0" * 512, "not_json"),
    "scalar": (b"42", "not_an_object"),
    "string": (b'"hello"', "not_an_object"),
    "null": (b"null", "not_an_object"),
    "array of scalars": (b"[1, 2]", "not_an_object"),
    "empty array": (b"[]", "not_an_object"),
    "deep": (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep"),
    "brackets": (b"[" * 90_000, "too_deep"),
    "too large": (b'{"text": "' + b"x" * 100_000 + b'"}', "too_large"),
}


@pytest.mark.parametrize("case", BAD)
async def test_B12_B13_what_is_no_event_goes_to_dead_letter_untouched(rig: Rig, case: str) -> None:
    data, kind = BAD[case]
    rig.drop("bad.json", data)
    rig.drop("good.json", {"text": "good"})
    await rig.drained()
    (kept,) = (rig.root / "dead_letter").glob("*/bad.json")
    assert kept.read_bytes() == data
    reason = rig.reason("bad.json")
    assert (reason["path"], reason["error"], reason["node"]) == ("inbox/pending/bad.json", kind, "bus")
    assert reason["detail"] and reason["time"]
    ack = json.loads((rig.root / "inbox/acks/bad.json").read_bytes())
    assert ack["ok"] is False and kind in ack["error"]
    assert rig.said() == ["good"]


async def test_B13_a_bom_and_equal_keys_are_tolerated(rig: Rig) -> None:
    rig.drop("bom.json", b'\xef\xbb\xbf{"text": "first", "text": "last"}')
    await rig.drained()
    assert rig.said() == ["last"]


async def test_B12_an_empty_file_that_gets_its_content_later_is_delivered(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": FORWARD}, settle_timeout_sec=5.0) as rig:
        path = rig.root / "inbox/pending/e.json"
        path.touch()
        await asyncio.sleep(0.2)
        path.write_text('{"text": "here now"}')
        await rig.drained()
        assert rig.said() == ["here now"]
        assert rig.names("dead_letter") == []


async def test_F01_B09_a_file_written_slowly_in_place_is_delivered_once_and_whole(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": FORWARD}, settle_timeout_sec=5.0) as rig:
        text = '{"text": "one and whole"}'
        with (rig.root / "inbox/pending/e1.json").open("w") as file:
            file.write(text[:12])
            file.flush()
            await asyncio.sleep(0.3)
            assert rig.heard == []
            file.write(text[12:])
        await rig.drained()
        assert rig.said() == ["one and whole"]
        assert rig.names("dead_letter") == []


async def test_F01_a_file_that_never_becomes_valid_is_set_aside_after_its_time(rig: Rig) -> None:
    (rig.root / "inbox/pending/e2.json").write_text('{"text": "never')
    await rig.drained()
    assert rig.names("dead_letter") == ["e2.json", "e2.json.reason.json"]


async def test_B09_a_writer_that_never_closes_is_read_once_the_file_stands_still(rig: Rig) -> None:
    with (rig.root / "inbox/pending/open.json").open("w") as file:
        file.write('{"text": "left open"}')
        file.flush()
        await rig.drained()
        assert rig.said() == ["left open"]


async def test_a_file_rewritten_while_it_waits_is_told_as_it_is_at_last(tmp_path: Path) -> None:
    async with Rig(tmp_path, {"a": FORWARD}, settle_sec=0.3, watcher="polling", poll_sec=0.02) as rig:
        path = rig.drop("e.json", {"text": "draft"})
        await asyncio.sleep(0.1)
        path.write_text('{"text": "final"}')
        await rig.drained()
        assert rig.said() == ["final"]


async def test_B14_what_is_no_regular_file_hangs_and_kills_nothing(rig: Rig) -> None:
    pending = rig.root / "inbox/pending"
    with (pending / "big.json").open("wb") as sparse:
        sparse.truncate(5_000_000_000)
    os.mkfifo(pending / "pipe.json")
    (pending / "folder.json").mkdir()
    (pending / "folder.json/inside.txt").write_text("kept")
    rig.drop("small.json", {"text": "small"})
    await rig.drained()
    assert rig.said() == ["small"]
    kinds = {n: rig.reason(n)["error"] for n in ("big.json", "pipe.json", "folder.json")}
    assert kinds == {"big.json": "too_large", "pipe.json": "not_a_file", "folder.json": "not_a_file"}
    (inside,) = (rig.root / "dead_letter").glob("*/folder.json/inside.txt")
    assert inside.read_text() == "kept"


async def test_B16_links_are_not_followed_and_their_targets_untouched(rig: Rig, tmp_path: Path) -> None:
    pending = rig.root / "inbox/pending"
    secret = tmp_path / "secret.json"
    secret.write_text('{"text": "secret"}')
    (pending / "out.json").symlink_to(secret)
    (pending / "passwd.json").symlink_to("/etc/passwd")
    (pending / "loop.json").symlink_to("..")
    (pending / "self.json").symlink_to("self.json")
    (pending / "broken.json").symlink_to("nowhere")
    await rig.drained()
    assert rig.said() == []
    assert secret.read_text() == '{"text": "secret"}'
    for name in ("out", "passwd", "loop", "self", "broken"):
        assert rig.reason(f"{name}.json")["error"] == "symlink"
        (link,) = [p for p in (rig.root / "dead_letter").glob("*/*") if p.name == f"{name}.json"]
        assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_that_may_not_be_read_is_set_aside(rig: Rig) -> None:
    rig.drop("e.tmp", {"text": "mine"}).chmod(0)
    (rig.root / "inbox/pending/e.tmp").rename(rig.root / "inbox/pending/e.json")
    await rig.drained()
    assert rig.reason("e.json")["error"] == "unreadable"


async def test_B15_three_drops_of_one_name_are_three_events_and_done_is_never_overwritten(rig: Rig) -> None:
    for number in range(3):
        rig.drop("e.json", {"text": str(number)})
        await rig.drained()
    assert sorted(rig.said()) == ["0", "1", "2"]
    kept = (rig.root / "inbox/pending/done").glob("*/*")
    assert sorted(json.loads(p.read_bytes())["text"] for p in kept) == ["0", "1", "2"]


async def test_B15_bad_files_of_one_name_are_all_kept(rig: Rig) -> None:
    for number in range(3):
        rig.drop("e.json", b"bad %d" % number)
        await rig.drained()
    kept = [p for p in (rig.root / "dead_letter").glob("*/*") if not p.name.endswith(".reason.json")]
    assert sorted(p.read_bytes() for p in kept) == [b"bad 0", b"bad 1", b"bad 2"]
    assert len(rig.names("dead_letter")) == 6


async def test_a_file_named_like_the_reason_of_another_overwrites_nothing(rig: Rig) -> None:
    rig.drop("e.json.reason.json", b"not a reason")
    await rig.drained()
    rig.drop("e.json", b"bad")
    await rig.drained()
    kept = [p.read_bytes() for p in (rig.root / "dead_letter").glob("*/*")]
    assert b"not a reason" in kept and b"bad" in kept


async def test_a_burst_of_a_thousand_from_several_writers_is_told_once_each(rig: Rig) -> None:
    def write(writer: int) -> None:
        for number in range(250):
            rig.drop(f"{writer}_{number}.json", {"text": f"{writer}_{number}"})

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [t.join() for t in threads])
    await rig.drained()
    assert sorted(rig.said()) == sorted(f"{w}_{n}" for w in range(4) for n in range(250))
    assert len(rig.names("inbox/pending/done")) == 1000


async def test_the_inbox_deleted_while_running_comes_back_and_works_on(rig: Rig) -> None:
    pending = rig.root / "inbox/pending"
    rig.drop("before.json", {"text": "before"})
    await rig.drained()
    pending.rename(rig.root / "aside")
    await rig.until(pending.is_dir)
    rig.drop("after.json", {"text": "after"})
    await rig.drained()
    assert sorted(rig.said()) == ["after", "before"]


async def test_a_file_in_the_place_of_the_inbox_is_endured_until_it_is_gone(rig: Rig) -> None:
    pending = rig.root / "inbox/pending"
    pending.rename(rig.root / "aside")
    try:
        pending.touch(exist_ok=False)
    except FileExistsError:
        pytest.skip("it was made anew at once")
    await asyncio.sleep(0.1)
    pending.unlink()
    await rig.bus.settle()
    rig.drop("after.json", {"text": "after"})
    await rig.drained()
    assert rig.said() == ["after"]


async def test_files_from_a_future_after_the_clock_was_set_back_are_delivered(rig: Rig) -> None:
    path = rig.root / "inbox/pending/future.tmp"
    path.write_text('{"text": "from tomorrow"}')
    os.utime(path, (time.time() + 86_400, time.time() + 86_400))
    path.rename(path.with_suffix(".json"))
    await rig.drained()
    assert rig.said() == ["from tomorrow"]


async def test_files_meant_for_no_node_are_left_alone_and_not_looked_at_again(tmp_path: Path) -> None:
    node = node_class(forward, watch=("q/msg_*.json",), emit=("outbox/out/out_*.json",))
    async with Rig(tmp_path, {"a": node}) as rig:
        rig.drop("other.json", {"text": "not for it"}, "q")
        rig.drop("msg_1.json", {"text": "for it"}, "q")
        await rig.drained()
        assert rig.said() == ["for it"]
        assert rig.names("q/done") == ["msg_1.json"]
        assert (rig.root / "q/other.json").exists()
