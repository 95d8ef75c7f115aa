"""Jobs that coincide share a transaction; one that fails takes nobody with it."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_gamma.bus.ledger import Ledger
from kernel_gamma.bus.writer import Writer, is_disk_full


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path / "ledger.db")
    opened.take_over()
    yield opened
    opened.close()


@pytest.fixture(params=[False, True], ids=["process", "full"])
def writer(request: pytest.FixtureRequest, ledger: Ledger) -> Iterator[Writer]:
    made = Writer(ledger, full=request.param, step=lambda name: None)
    yield made
    made.close()


def put(key: str) -> object:
    return lambda ledger: ledger.run("set_meta", key, "x")


async def test_jobs_submitted_together_share_one_transaction(writer: Writer, ledger: Ledger) -> None:
    before = ledger.serial
    serials = await asyncio.gather(*(writer.submit(lambda ledger: ledger.serial) for _ in range(20)))
    assert len(set(serials)) <= 2
    assert ledger.serial - before <= 2


async def test_a_job_that_raises_fails_alone(writer: Writer, ledger: Ledger) -> None:
    def bad(ledger: Ledger) -> None:
        ledger.run("set_meta", "bad", "x")
        raise ValueError("no")

    results = await asyncio.gather(
        writer.submit(put("one")),  # type: ignore[arg-type]
        writer.submit(bad),
        writer.submit(put("two")),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    assert isinstance(results[1], ValueError)
    assert [ledger.one("get_meta", key) for key in ("one", "bad", "two")] == [("x",), None, ("x",)]


async def test_what_follows_runs_once_after_the_commit_and_in_order(writer: Writer) -> None:
    order: list[int] = []
    await asyncio.gather(
        *(writer.submit(lambda _, n=n: n, after=order.append) for n in range(10))  # type: ignore[misc]
    )
    assert order == list(range(10))


async def test_an_error_in_what_follows_reaches_its_waiter_and_the_job_stands(
    writer: Writer, ledger: Ledger
) -> None:
    def after(_: object) -> None:
        raise OSError(errno.EIO, "no")

    with pytest.raises(OSError):
        await writer.submit(put("kept"), after=after, durable=True)  # type: ignore[arg-type]
    assert ledger.one("get_meta", "kept") == ("x",)


async def test_a_waiter_that_was_cancelled_leaves_its_job_to_run(writer: Writer, ledger: Ledger) -> None:
    task = asyncio.create_task(writer.submit(put("kept")))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await writer.drain()
    assert ledger.one("get_meta", "kept") == ("x",)


async def test_draining_waits_for_everything_even_what_fails(writer: Writer, ledger: Ledger) -> None:
    writer.submit_soon(put("soon"))  # type: ignore[arg-type]
    writer.submit_soon(lambda ledger: ledger.run("no such statement"))
    await writer.drain()
    assert ledger.one("get_meta", "soon") == ("x",)


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EACCES, "x"), False),
        (sqlite3.OperationalError("database or disk is full"), True),
        (sqlite3.OperationalError("no such table"), False),
        (ValueError("full"), False),
    ],
)
def test_only_a_full_disk_is_a_full_disk(error: Exception, full: bool) -> None:
    assert is_disk_full(error) is full
