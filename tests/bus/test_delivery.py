"""The window of one node: order, keys, batches, retries and the debounce, against a plain model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernel_gamma.bus.delivery import Entry, Hold, Limits, Mailbox, backoff_sec


def entry(seq: int, key: str = "a", group: str = "", **fields: object) -> Entry[str]:
    return Entry(seq=seq, key=key, group=group or key, item=f"{key}{seq}", **fields)  # type: ignore[arg-type]


def mailbox(count: int = 1, weight: int | None = None, hold: Hold | None = None) -> Mailbox[str]:
    return Mailbox(Limits(count, weight), hold)


def seqs(batch: Sequence[Entry[str]]) -> list[int]:
    return [e.seq for e in batch]


def test_one_key_is_handed_over_in_order_and_one_batch_at_a_time() -> None:
    box = mailbox()
    for seq in (1, 2):
        box.push(entry(seq), 0)
    assert seqs(box.take(0)) == [1]
    assert box.take(0) == []
    box.done("a", 0)
    assert seqs(box.take(0)) == [2]


def test_between_keys_the_oldest_head_goes_first() -> None:
    box = mailbox()
    for seq, key in ((3, "c"), (1, "a"), (2, "b")):
        box.push(entry(seq, key), 0)
    assert [seqs(box.take(0)) for _ in range(3)] == [[1], [2], [3]]


def test_an_entry_that_comes_late_takes_its_place_by_number() -> None:
    box = mailbox()
    for seq in (5, 2, 9, 3):
        box.push(entry(seq), 0)
    taken = []
    while batch := box.take(0):
        taken += seqs(batch)
        box.done("a", 0)
    assert taken == [2, 3, 5, 9]


def test_a_batch_takes_neighbours_of_its_group_only() -> None:
    box = mailbox(count=9)
    for seq, group in ((1, "x"), (2, "x"), (3, "y"), (4, "x")):
        box.push(entry(seq, group=group), 0)
    assert seqs(box.take(0)) == [1, 2]


def test_a_batch_stops_at_its_weight_but_holds_one_at_least() -> None:
    box = mailbox(count=9, weight=10)
    for seq, weight in ((1, 50), (2, 4), (3, 6), (4, 1)):
        box.push(entry(seq, weight=weight), 0)
    assert seqs(box.take(0)) == [1]
    box.done("a", 0)
    assert seqs(box.take(0)) == [2, 3]


def test_a_solo_entry_shares_its_batch_with_nobody() -> None:
    box = mailbox(count=9)
    for seq in (1, 2, 3):
        box.push(entry(seq, solo=seq == 2), 0)
    taken = []
    while batch := box.take(0):
        taken.append(seqs(batch))
        box.done("a", 0)
    assert taken == [[1], [2], [3]]


def test_while_one_waits_for_its_retry_later_ones_of_its_key_wait_and_others_flow() -> None:
    box = mailbox()
    for seq, key in ((1, "a"), (2, "a"), (3, "b")):
        box.push(entry(seq, key), 0)
    (first,) = box.take(0)
    first.not_before = 5.0
    box.give_back([first], 0)
    assert seqs(box.take(0)) == [3]
    assert box.take(4.9) == []
    assert box.wake_at() == 5.0
    assert seqs(box.take(5.0)) == [1]


def test_a_stale_note_does_not_shorten_a_retry() -> None:
    box = mailbox()
    box.push(entry(5), 0)
    box.push(entry(2), 0)
    box.push(entry(1), 0)  # each late one has noted the key again
    (first,) = box.take(0)
    first.not_before = 9.0
    box.give_back([first], 0)
    assert box.take(8.9) == []
    assert seqs(box.take(9.0)) == [1]


def test_a_batch_that_comes_back_goes_out_again_unchanged() -> None:
    box = mailbox(count=2)
    for seq in (1, 2):
        box.push(entry(seq), 0)
    batch = box.take(0)
    for one in batch:
        one.batch = "batch_1"
    box.push(entry(3), 0)
    box.give_back(batch, 0)
    assert seqs(box.take(0)) == [1, 2]
    box.done("a", 0)
    assert seqs(box.take(0)) == [3]


def test_members_of_a_stored_batch_stay_together_past_the_limits() -> None:
    box = mailbox(count=1)
    for seq in (1, 2, 3):
        box.push(entry(seq, batch="batch_1" if seq < 3 else None), 0)
    assert seqs(box.take(0)) == [1, 2]


def test_what_comes_back_stands_behind_an_older_one_that_came_meanwhile() -> None:
    box = mailbox()
    box.push(entry(4), 0)
    taken = box.take(0)
    box.push(entry(2), 0)
    box.give_back(taken, 0)
    assert seqs(box.take(0)) == [2]


def test_the_first_after_a_quiet_spell_is_not_held() -> None:
    box = mailbox(count=9, hold=Hold(2.0, 10.0))
    box.push(entry(1), 100.0)
    assert seqs(box.take(100.0)) == [1]


def test_those_of_a_busy_key_are_held_until_it_is_quiet_and_told_together() -> None:
    box = mailbox(count=9, hold=Hold(2.0, 10.0))
    box.push(entry(1), 0.0)
    assert seqs(box.take(0.0)) == [1]
    box.done("a", 0.0)
    box.push(entry(2), 1.0)
    box.push(entry(3), 2.5)
    assert box.take(4.4) == []
    assert seqs(box.take(4.5)) == [2, 3]


def test_a_key_that_never_rests_is_held_no_longer_than_the_longest_time() -> None:
    box = mailbox(count=99, hold=Hold(2.0, 10.0))
    now = 0.0
    box.push(entry(1), now)
    box.take(now)
    box.done("a", now)
    for seq in range(2, 40):
        now += 1.0
        box.push(entry(seq), now)
        if batch := box.take(now):
            assert now == 11.0
            assert seqs(batch) == list(range(2, 13))
            return
    pytest.fail("held for ever")


def test_holding_one_key_holds_no_other() -> None:
    box = mailbox(hold=Hold(2.0, 10.0))
    box.push(entry(1), 0.0)
    box.take(0.0)
    box.done("a", 0.0)
    box.push(entry(2), 0.5)
    box.push(entry(3, "b"), 0.5)
    assert seqs(box.take(0.5)) == [3]


@given(st.integers(1, 60), st.floats(0, 1))
def test_the_pause_doubles_up_to_the_longest_and_varies_by_a_fifth(attempt: int, chance: float) -> None:
    pause = backoff_sec(attempt, first=1.0, longest=300.0, jitter=lambda: chance)
    plain = min(300.0, 2.0 ** (attempt - 1))
    assert 0.8 * plain <= pause <= 1.2 * plain + 1e-9


Moves = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(
            st.sampled_from(["done", "retry", "release", "split"]), st.integers(0, 5), st.integers(0, 9)
        ),
        st.tuples(st.just("wait"), st.integers(0, 20), st.just(0)),
    ),
    max_size=80,
)


@given(Moves, st.integers(1, 4))
@hypothesis_settings(max_examples=300, deadline=None)
def test_every_entry_is_handed_over_until_done_in_order_and_never_twice_at_once(
    moves: list[tuple[str, int, int]], count: int
) -> None:
    box, now, number = mailbox(count=count), 0.0, 0
    waiting: dict[int, Entry[str]] = {}
    running: list[list[Entry[str]]] = []
    finished: dict[str, list[int]] = {}

    def take() -> bool:
        batch = box.take(now)
        if not batch:
            return False
        key = batch[0].key
        assert all(e.key == key for e in batch) and len({e.group for e in batch}) == 1
        assert all(key != other[0].key for other in running), "a key is with one handler at a time"
        lane = sorted(s for s, e in waiting.items() if e.key == key)
        assert seqs(batch) == lane[: len(batch)], "the oldest of its key, without gaps"
        assert all(e.not_before <= now for e in batch)
        stored = {e.batch for e in batch}
        if stored == {None}:
            assert len(batch) <= count
            assert len(batch) == 1 or not any(e.solo for e in batch)
        else:
            assert len(stored) == 1
            assert all(waiting[s].batch not in stored for s in lane[len(batch) :]), "the whole stored batch"
        ready = [s for s, e in waiting.items() if e.not_before <= now]
        heads = {e.key: min(s for s in waiting if waiting[s].key == e.key) for e in waiting.values()}
        busy = {other[0].key for other in running}
        free = [s for k, s in heads.items() if k not in busy and s in ready]
        assert batch[0].seq == min(free), "the oldest head that may go"
        for e in batch:
            del waiting[e.seq]
        running.append(batch)
        return True

    for what, first, second in moves:
        if what == "push":
            number += 1
            made = entry(number, "abcd"[first], f"{first}{second}")
            waiting[number] = made
            box.push(made, now)
        elif what == "wait":
            now += first
        elif what == "take":
            take()
        elif running:
            batch = running.pop(first % len(running))
            key = batch[0].key
            if what == "done":
                finished.setdefault(key, []).extend(seqs(batch))
                box.done(key, now)
                continue
            for e in batch:
                e.batch = f"b{batch[0].seq}" if what == "release" else None
                e.solo = e.solo or what in ("split", "retry")
                e.not_before = now + second if what == "retry" else e.not_before
                waiting[e.seq] = e
            box.give_back(batch, now)
    while waiting or running:
        while running:
            batch = running.pop()
            finished.setdefault(batch[0].key, []).extend(seqs(batch))
            box.done(batch[0].key, now)
        if not take():
            at = box.wake_at()
            assert not waiting or at is not None, "something waits and nobody would wake for it"
            now = max(now, at or now)
    assert all(done == sorted(done) for done in finished.values())
    assert sorted(s for done in finished.values() for s in done) == list(range(1, number + 1))
    assert box.size == 0
