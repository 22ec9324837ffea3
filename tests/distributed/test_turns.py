"""Turns of a run: those that are due, and those that are asked for."""

from __future__ import annotations

import pytest_twisted

from scrapy_gp4c.distributed.link import sleep
from scrapy_gp4c.distributed.turns import FLUSH_S, SOON_S, Turns


@pytest_twisted.ensureDeferred
async def test_a_turn_comes_sooner_once_for_all_who_ask() -> None:
    """And again for who asks after it; one that is due comes whoever asks."""
    taken: list[bool] = []
    turns = Turns(taken.append)
    turns.soon()
    turns.soon()
    while not taken:
        await sleep(SOON_S / 4)
    assert taken == [False]
    while True not in taken:
        await sleep(SOON_S / 4)
    assert taken == [False, True]
    turns.soon()
    while len(taken) < 3:
        await sleep(SOON_S / 4)
    assert taken[2] is False
    turns.stop()


@pytest_twisted.ensureDeferred
async def test_nothing_is_called_after_the_end() -> None:
    """Neither what was asked for before it, nor what is asked for after it."""
    taken: list[bool] = []
    turns = Turns(taken.append)
    turns.soon()
    turns.stop()
    turns.soon()
    await sleep(2 * SOON_S)
    assert taken == []


@pytest_twisted.ensureDeferred
async def test_a_turn_that_is_due_comes_later_where_its_flush_was_sent() -> None:
    """One that is not comes soon, whatever is postponed; after the end neither does."""
    taken: list[bool] = []
    turns = Turns(taken.append)
    for _ in range(4):
        await sleep(0.6 * FLUSH_S)
        turns.postpone()
    assert True not in taken
    assert taken.count(False) >= 3
    while True not in taken:
        await sleep(SOON_S / 4)
    turns.stop()
    count = len(taken)
    turns.postpone()
    await sleep(2 * SOON_S)
    assert len(taken) == count
