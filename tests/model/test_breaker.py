from __future__ import annotations

from datetime import datetime, timedelta

from tests.fakes import START

from kernel_gamma.model.breaker import Breaker


def breaker() -> Breaker:
    return Breaker(failures=3, pause_sec=30, max_pause_sec=100)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def opened() -> Breaker:
    made = breaker()
    for _ in range(3):
        made.failed(START)
    return made


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    made = breaker()
    made.failed(START)
    made.failed(START)
    assert made.state == "closed"
    assert made.admit(START)
    made.failed(START)
    assert made.state == "open"
    assert made.until == after(30)
    assert not made.admit(after(29))
    assert made.wait_until(after(29)) == after(30)


def test_a_success_in_between_starts_the_count_anew() -> None:
    made = breaker()
    for _ in range(5):
        made.failed(START)
        made.failed(START)
        made.succeeded()
    assert made.state == "closed"


def test_while_closed_a_failure_is_waited_for_a_little() -> None:
    made = breaker()
    made.failed(START)
    assert START < made.wait_until(START) < after(30)


def test_half_open_lets_one_probe_through() -> None:
    made = opened()
    assert made.admit(after(30))
    assert made.state == "half_open"
    assert not made.admit(after(31))
    assert after(31) < made.wait_until(after(31)) < after(60)
    made.succeeded()
    assert made.state == "closed"
    assert made.until is None
    assert made.admit(after(31))
    assert made.admit(after(31))


def test_each_failed_probe_doubles_the_pause_up_to_the_longest() -> None:
    made = opened()
    moment, pauses = after(30), []
    for _ in range(4):
        assert made.admit(moment)
        made.failed(moment)
        assert made.until is not None
        pauses.append((made.until - moment).total_seconds())
        moment = made.until
    assert pauses == [60, 100, 100, 100]
    assert made.admit(moment)
    made.succeeded()
    for _ in range(3):
        made.failed(moment)
    assert made.until == moment + timedelta(seconds=30)


def test_a_named_deadline_opens_at_once_and_is_kept_to() -> None:
    made = breaker()
    made.failed(START, retry_at=after(21_600))
    assert made.state == "open"
    assert made.until == after(21_600)
    assert not made.admit(after(21_599))
    assert made.admit(after(21_600))


def test_a_lasting_refusal_opens_at_once() -> None:
    made = breaker()
    made.failed(START, lasting=True)
    assert made.until == after(30)


def test_calls_of_the_same_outage_that_end_later_do_not_lengthen_it() -> None:
    made = opened()
    made.failed(after(5))
    made.failed(after(10))
    assert made.until == after(30)
    made.failed(after(11), retry_at=after(90))
    assert made.until == after(90)


def test_a_cancelled_probe_lets_the_next_call_probe() -> None:
    made = opened()
    assert made.admit(after(30))
    made.abandoned()
    assert made.state == "open"
    assert made.admit(after(31))


def test_a_clock_set_back_does_not_lengthen_the_pause() -> None:
    made = opened()
    hours_back = START - timedelta(hours=5)
    assert not made.admit(hours_back)
    assert made.until == hours_back + timedelta(seconds=30)
    assert made.admit(hours_back + timedelta(seconds=30))
