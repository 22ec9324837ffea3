"""Stores whose commands are killed, whose power is cut, whose disk is full, or that several open at once."""

import os
import random
import resource
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.trouble.counting import NO_ROOM, PAGE, TRACEBACK, Count, patience
from scrapy_gp4c.errors import StoreError, StoreFullError, StoreInUseError
from scrapy_gp4c.store.lmdb_store.backup import backup, compact, restore_backup
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_environment import read_all, varied
from tests.store.test_store_kill import CYCLES, SMALL, build, content, crawl, in_child, uninterrupted, wait


def killed_commands(times: int, numbers: random.Random, directory: Path) -> Count:
    """Kill backup, restore, compact and repair by SIGKILL: each store is the old one or the finished one."""
    path = varied(directory / "store")
    before, lost, kills, hangs = list(read_all(path)), 0, 0, []
    backup(path, directory / "first", None)
    (copy,) = (directory / "first").iterdir()
    keys = {}
    with Store(path, readonly=True) as store:
        keys = {store.request(page)["url"]: store.page(page).key for page in range(store.pages)}
    works: list[Callable[[], object]] = [
        lambda: backup(path, directory / "backups", 2),
        lambda: restore_backup(path, copy),
        lambda: compact(path),
        lambda: recover(path, SMALL, lambda request: keys[request["url"]]),
    ]
    while kills < times:
        work = numbers.choice(works)
        pid = in_child(lambda work=work: work())
        time.sleep(numbers.uniform(0.0, 0.08))
        os.kill(pid, signal.SIGKILL)
        with patience(pid, hangs):
            kills += wait(pid) == -signal.SIGKILL
        lost += check(path) != [] or list(read_all(path)) != before
        for aside in directory.glob("store.*-*"):
            shutil.rmtree(aside)
        for made in (directory / "backups").glob("store-*[0-9]"):
            lost += check(made) != []
    return Count(kills, lost, hangs=len(hangs))


def power_cuts(times: int, numbers: random.Random, directory: Path) -> Count:
    """Read a store's file as a power cut may leave it: with all synced writes, and any of the later ones.

    LMDB syncs the pages of a transaction before it writes the header that makes it count, and that header
    with the next one: the newest header may be missing, and any pages of the next transaction be there.
    """
    path, snapshots = directory / "store", []
    build(path)
    commit = Environment.transaction

    @contextmanager
    def noted(self: Environment, *, write: bool = False, buffers: bool = False) -> Iterator[Any]:
        with commit(self, write=write, buffers=buffers) as txn:
            yield txn
        if write:
            snapshots.append((path / "data.mdb").read_bytes())

    Environment.transaction = noted
    try:
        with Store(path, sizes=SMALL) as store:
            crawl(store, lambda cycle, count: None)
    finally:
        Environment.transaction = commit

    def visits_of(data: bytes) -> int:
        (directory / "read").mkdir(exist_ok=True)
        (directory / "read" / "data.mdb").write_bytes(data)
        with Store(directory / "read", readonly=True) as store:
            folded = sum(len(rows) for _, rows in store.visits())
            return folded + (0 if store.is_folding else len(store.open_visits()))

    lost = ends = 0
    for number in range(times):
        at = numbers.randrange(2, len(snapshots) - 1)
        before, now, after = (snapshots[at + step] for step in (-1, 0, 1))
        disk = bytearray(now.ljust(len(after), b"\0"))
        for page in range(2, len(after) // PAGE):
            page_bytes = slice(page * PAGE, (page + 1) * PAGE)
            if after[page_bytes] != now[page_bytes] and numbers.random() < 0.5:
                disk[page_bytes] = after[page_bytes]
        if numbers.random() < 0.5:
            for page_bytes in (slice(0, PAGE), slice(PAGE, 2 * PAGE)):
                disk[page_bytes] = before[page_bytes]
        cut = directory / str(number)
        cut.mkdir()
        (cut / "data.mdb").write_bytes(disk)
        try:
            with Store(cut, sizes=SMALL) as store:
                visits = sum(len(rows) for _, rows in store.visits()) + len(store.open_visits())
                lost += bool(store.verify()) or visits < visits_of(before)
                crawl(store, lambda cycle, count: None)
        except StoreError:
            ends += 1
        shutil.rmtree(cut)
    return Count(times, lost, ends=ends, note="at most the last commit")


def disk_faults(times: int, numbers: random.Random, directory: Path) -> Count:
    """Write stores whose file cannot grow: an error says so, and the next crawl goes on."""
    expected = uninterrupted(directory / "whole")
    size = (directory / "whole" / "data.mdb").stat().st_size
    path, lost, ends, full = directory / "store", 0, 0, 0
    build(path)
    for _ in range(times):
        limit = numbers.randrange((path / "data.mdb").stat().st_size // 2, size + PAGE)

        def work(limit: int = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                with Store(path, sizes=SMALL) as store:
                    crawl(store, lambda cycle, count: None)
            except StoreFullError:
                os._exit(NO_ROOM)
            except BaseException:
                os._exit(TRACEBACK)

        status = wait(in_child(work))
        full += status == NO_ROOM
        ends += status not in (0, NO_ROOM)
        with Store(path, sizes=SMALL) as store:
            lost += bool(store.verify())
            finished = store.last_cycle == CYCLES
        if finished:
            lost += content(path) != expected
            shutil.rmtree(path)
            build(path)
    return Count(times, lost, ends=ends, note=f"{full} met no room")


def two_writers(times: int, numbers: random.Random, directory: Path) -> Count:
    """Open a store in several processes at once: one writes, the others get an error."""
    path = directory / "store"
    build(path)
    lost = ends = 0
    for _ in range(times):

        def work() -> None:
            try:
                with Store(path, sizes=SMALL) as store:
                    store.begin_cycle({}) if store.open_cycle is None else None
                    time.sleep(0.02)
                    store.finish_cycle({})
            except StoreInUseError:
                os._exit(NO_ROOM)
            except BaseException:
                os._exit(TRACEBACK)

        with Store(path, readonly=True) as store:
            cycle = store.last_cycle
        statuses = [wait(pid) for pid in [in_child(work) for _ in range(4)]]
        ends += sum(status not in (0, NO_ROOM) for status in statuses)
        with Store(path, readonly=True) as store:
            lost += store.last_cycle - cycle != statuses.count(0) or bool(store.verify())
    return Count(times, lost, ends=ends)


def retention(cycles: int, numbers: random.Random, directory: Path) -> Count:
    """Measure how size, memory, descriptors and time grow over cycles that keep the visits of eight."""
    path = directory / "store"
    times_s, sizes, memory, files = [], [], [], []
    with Store(path) as store:
        store.add_pages((key, {"url": f"http://h{key % 50}/{key}"}) for key in range(1, 10_001))
        for _ in range(cycles):
            start = time.perf_counter()
            store.begin_cycle({"started": time.time()})
            for page in numbers.sample(range(10_000), 1_000):
                store.record(NewVisit(page, "changed" if page % 7 == 0 else "first", 1.0, fingerprint=page))
            store.finish_cycle({"finished": time.time(), "visited": 1_000})
            store.keep_visits(8)
            times_s.append(time.perf_counter() - start)
            sizes.append((path / "data.mdb").stat().st_size)
            memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
            files.append(len(os.listdir("/proc/self/fd")))
    early, late = slice(cycles // 8, cycles // 4), slice(-cycles // 8, None)
    said = ", ".join(
        f"{name} {statistics.median(values[late]) / statistics.median(values[early]):.2f}"
        for name, values in (("size", sizes), ("memory", memory), ("files", files), ("time", times_s))
    )
    return Count(cycles, int(bool(check(path, deep=True))), note=f"late by early: {said}")
