"""Real ``kill -9`` of a crawling process: nothing committed is lost or doubled, every fold is resumed."""

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.page_state.columns import COLUMNS
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.records import NewVisit

PAGES = 60
NEW_PER_CYCLE = 7
CYCLES = 4
ROUNDS = 2
SMALL = Sizes(
    block_rows=4,
    commit_visits=10,
    visits_per_chunk=5,
    plan_rows=16,
    chunks_per_transaction=2,
    blocks_per_transaction=2,
    pages_per_transaction=3,
)


def key(number: int) -> int:
    """A well-mixed key for page `number`."""
    return (number + 1) * 0x9E3779B97F4A7C15 % 2**64


def outcome(page: int, cycle: int) -> str:
    """A fixed outcome for every page and cycle."""
    return OUTCOMES[(page * 7 + cycle * 3) % len(OUTCOMES)]


def crawl(store: Store, committed: Callable[[int, int], object]) -> None:
    """Run, or go on with, cycles 1..CYCLES; a pure function of the store's state."""
    while store.last_cycle < CYCLES:
        cycle = store.open_cycle or store.begin_cycle({"started": 1.0})
        for number in range(len(store.rounds()), ROUNDS + 1):
            for page in store.plan()["page"].tolist():
                if not store.visited(page):
                    visit = NewVisit(page, outcome(page, cycle), float(cycle), "other", page * 1000 + cycle)
                    store.put_value("copies", page, b"%d" % (page * 1000 + cycle))
                    store.note(page, "weight", (page * cycle) % 4 / 2)
                    store.record(visit)
                    if page % 5 == 0:
                        store.commit()
                        committed(cycle, len(store.open_visits()))
            if number < ROUNDS:
                rows = np.zeros(len(range(number, store.pages, ROUNDS)), PLAN)
                rows["page"] = range(number, store.pages, ROUNDS)
                store.add_round(rows, seen=len(store.open_visits()))
        for number in range(NEW_PER_CYCLE):
            new = key(PAGES + cycle * NEW_PER_CYCLE + number)
            if store.find(new) is None:
                page = store.add_page(new, {"url": f"http://h{number % 2}/new/{cycle}/{number}"})
                store.record(NewVisit(page, "first", time=float(cycle), fingerprint=page))
        store.finish_cycle({"finished": 2.0})
        committed(cycle, -1)


def content(path: Path) -> dict[str, Any]:
    """All that a store holds but its id."""
    with Store(path, sizes=SMALL) as store:
        assert store.verify() == []
        return {
            "blocks": [
                (first, {name: block[name].tobytes() for name in COLUMNS}) for first, block in store.blocks()
            ],
            "visits": [(cycle, visits.tobytes()) for cycle, visits in store.visits()],
            "cycles": store.cycles(),
            "directories": store.directories().tobytes(),
            "group_visits": [store.group_visits(cycle).tobytes() for cycle in range(store.last_cycle + 2)],
            "requests": store.requests(range(store.pages)),
            "copies": [store.value("copies", page) for page in range(store.pages)],
            "weights": [store.weight(page) for page in range(store.pages)],
            "ids": [store.find(key(number)) for number in range(PAGES + (CYCLES + 1) * NEW_PER_CYCLE)],
        }


def build(path: Path) -> None:
    """Create a store with PAGES pages."""
    with Store(path, sizes=SMALL) as store:
        store.add_pages((key(number), {"url": f"http://h/{number % 7}/{number}"}) for number in range(PAGES))


def in_child(work: Callable[[], None]) -> int:
    """Start `work` in a process of its own; returns its id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def crawl_and_confirm(path: Path, parent: socket.socket) -> None:
    """Crawl; after each commit say to `parent` its cycle and visits (-1: finished), and wait for leave."""

    def committed(cycle: int, count: int) -> None:
        parent.sendall(f"{cycle} {count}\n".encode())
        parent.recv(1)

    with Store(path, sizes=SMALL) as store:
        crawl(store, committed)


def wait(child: int) -> int:
    """Return the exit status of a child: minus the signal that ended it, if one did."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def uninterrupted(path: Path) -> dict[str, Any]:
    """The content of a store whose crawl was never killed."""
    build(path)
    with Store(path, sizes=SMALL) as store:
        crawl(store, lambda cycle, count: None)
    return content(path)


@contextmanager
def kill_at(transactions: int, after_commit: bool) -> Iterator[None]:
    """Kill this process in its n-th write transaction: just before its commit, or just after."""
    original = Environment.transaction
    remaining = transactions

    @contextmanager
    def transaction(self: Environment, *, write: bool = False, buffers: bool = False) -> Iterator[Any]:
        nonlocal remaining
        remaining -= write
        with original(self, write=write, buffers=buffers) as txn:
            yield txn
            if write and remaining == 0 and not after_commit:
                os.kill(os.getpid(), signal.SIGKILL)
        if write and remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Environment.transaction = transaction  # type: ignore[method-assign]
    yield


@pytest.mark.slow
@pytest.mark.parametrize("after_commit", [False, True])
def test_a_kill_in_any_transaction_changes_nothing(tmp_path: Path, after_commit: bool) -> None:
    """Killed in its every n-th write transaction, folds included, the crawl ends as if never killed."""
    expected = uninterrupted(tmp_path / "whole")
    killed = tmp_path / "killed"
    build(killed)

    def work(transactions: int) -> None:
        with kill_at(transactions, after_commit), Store(killed, sizes=SMALL) as store:
            crawl(store, lambda cycle, count: None)

    kills = 0
    numbers = random.Random(7)
    while True:
        transactions = numbers.choice((1, 2, 3, 5, 8, 21))
        status = wait(in_child(partial(work, transactions)))
        if status != -signal.SIGKILL:
            break
        kills += 1
        assert kills < 500
    assert status == 0
    assert kills > 30
    assert content(killed) == expected


@pytest.mark.slow
def test_a_kill_at_any_time_loses_no_committed_visit(tmp_path: Path) -> None:
    """Killed from outside at random moments: what a commit confirmed is there once; nothing else changes."""
    expected = uninterrupted(tmp_path / "whole")
    killed = tmp_path / "killed"
    build(killed)
    moments = random.Random(11)
    kills = 0
    while True:
        here, there = socket.socketpair()
        child = in_child(partial(crawl_and_confirm, killed, there))
        there.close()
        with here, here.makefile("r") as confirmed:
            lines = []
            for _ in range(moments.randrange(4)):
                lines += [line] if (line := confirmed.readline()) else []
                with suppress(BrokenPipeError):
                    here.send(b"+")
            time.sleep(moments.uniform(0.0, 0.005))
            os.kill(child, signal.SIGKILL)
            status = wait(child)
            with suppress(ConnectionResetError):  # it died before it had read the last leave
                lines.extend(confirmed)
        with Store(killed, readonly=True) as store:
            if lines:
                cycle, count = map(int, lines[-1].split())
                if count < 0:
                    assert store.last_cycle >= cycle
                elif store.last_cycle < cycle:
                    assert store.open_cycle == cycle
                    assert len(store.open_visits()) >= count
            finished = store.last_cycle == CYCLES and not store.is_folding
        with Store(killed, sizes=SMALL) as store:
            assert store.verify() == []
        kills += status == -signal.SIGKILL
        if finished:
            break
        assert kills < 500
    assert kills > 15
    assert content(killed) == expected
