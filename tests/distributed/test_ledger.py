"""The thread that owns a connection."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import LedgerError
from scrapy_gp4c.distributed.ledger import CALLS_PER_LEASE, LedgerThread


def test_work_is_done_in_order_by_one_thread(connect: Callable[..., Connection]) -> None:
    """Who posts does not wait."""
    begun, go_on = threading.Event(), threading.Event()
    seen: list[tuple[int, int]] = []

    def note(tx: Transaction, number: int) -> int:
        if number == 0:
            begun.set()
            go_on.wait()
        seen.append((number, threading.get_ident()))
        return number

    with LedgerThread(connect()) as thread:
        done = [thread.post(note, number) for number in range(5)]
        begun.wait()
        assert seen == []
        go_on.set()
        assert [one.result() for one in done] == list(range(5))
    assert [number for number, _ in seen] == list(range(5))
    assert {ident for _, ident in seen} - {threading.get_ident()} == {ident for _, ident in seen}
    assert len({ident for _, ident in seen}) == 1


def test_errors_come_with_the_answer(connect: Callable[..., Connection]) -> None:
    """To callbacks, and to threads that wait."""
    told: list[BaseException | None] = []
    with LedgerThread(connect()) as thread:
        done = thread.post(leases.drain, "nobody")
        done.add_done_callback(lambda one: told.append(one.exception()))
        with pytest.raises(LedgerError, match="nobody"):
            thread.call(leases.drain, "nobody")
    assert isinstance(told[0], LedgerError)


def test_what_is_not_begun_is_forgotten_when_it_closes(connect: Callable[..., Connection]) -> None:
    """What is under way is waited for."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(tx: Transaction) -> None:
        begun.set()
        go_on.wait()

    thread = LedgerThread(connect())
    first, second = thread.post(wait), thread.post(wait)
    begun.wait()
    threading.Timer(0.1, go_on.set).start()
    thread.close()
    assert first.result() is None
    assert second.cancelled()


def test_a_call_takes_a_third_of_the_lease(connect: Callable[..., Connection]) -> None:
    """So that a renewal that fails can be made again before the end."""
    assert connect(30.0).call_s * CALLS_PER_LEASE == 30.0
