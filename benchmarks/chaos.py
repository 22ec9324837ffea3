"""Crawls, commands and stores under kill -9, power cuts, full disks, flipped bits and lost ends.

Prints the table of docs/reliability.md. All random choices come from ``--seed``. What a crawl fetched is told
by the log of its server, what it had committed by a file that it appends to after each commit.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.common import machine
from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError, StoreInUseError
from scrapy_gp4c.store.lmdb_store.care import backup, bring_back, compact
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.repair import repair
from scrapy_gp4c.store.lmdb_store.sizes import USUAL
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.store import test_repair
from tests.store.test_sealed import flipped, read_all, varied
from tests.store.test_store_kill import CYCLES, SMALL, build, content, crawl, in_child, uninterrupted, wait
from tests.support.killing import PAGES, WORKER, Recorded, Web, Worker

PAGE: Final = 4096
PATIENCE_S: Final = 60.0
"""What takes longer hangs."""
DAMAGED, TRACEBACK, DIFFERENT, NO_ROOM = 3, 5, 6, 7
"""Exit statuses of children."""


class Count(NamedTuple):
    """What came of one kind of trouble."""

    times: int
    lost: int = 0
    """Committed visits, or pages, that were not there afterwards though nothing said so."""
    doubled: int = 0
    silent: int = 0
    """Stores whose content was another, without an error."""
    hangs: int = 0
    ends: int = 0
    """Tracebacks, and processes that ended by a signal other than ours."""
    note: str = ""


@contextmanager
def patience(pid: int, hangs: list[int]) -> Iterator[None]:
    """Kill a process that takes too long, and note it."""

    def end() -> None:
        hangs.append(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(PATIENCE_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def crawls(directory: Path) -> Iterator[tuple[Web, Worker]]:
    """A site, and what runs crawls of it in processes of their own."""
    web = Web()
    environment = {**os.environ, "PYTHONPATH": str(WORKER.parents[2])}
    command = [sys.executable, str(WORKER)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield web, Worker(process, web.url, directory)
        finally:
            web.close()
            process.kill()


def killed_crawls(times: int, numbers: random.Random, directory: Path, *, jobdir: bool = False) -> Count:
    """Kill -9 of crawls at any moment, each of which goes on where the one before was."""
    state: Recorded | None = None
    lost = doubled = kills = 0
    hangs: list[int] = []
    with crawls(directory) as (web, worker):
        more = {"JOBDIR": str(directory / "job")} if jobdir else None
        while kills < times:
            web.log.clear()
            pid = worker.begin(more) if kills % 6 else worker.begin(more, kill_in_fold=numbers.randrange(4))
            with patience(pid, hangs):
                if kills % 6:
                    requests, delay_s = numbers.randrange(PAGES // 2), numbers.uniform(0.0, 0.05)
                    with suppress(ProcessLookupError):
                        while len(web.log) < requests:
                            os.kill(pid, 0)
                            time.sleep(0.001)
                        time.sleep(delay_s)
                        os.kill(pid, signal.SIGKILL)
                kills += worker.wait() == -signal.SIGKILL
            before, fetched = state, set(web.log)
            if not worker.store.exists():
                continue
            try:
                state = Recorded(worker.store)
                state.has_kept(before)
                state.has_committed(worker.commits)
            except AssertionError:
                lost += 1
            if before is not None and before.open_cycle == (
                state.open_cycle or state.last_cycle if state else 0
            ):
                doubled += len(fetched & before.visited_paths)
        visits = len(state.visits) if state is not None else 0
        tracebacks = worker.log.read_text().split("Traceback")[1:]
    # A kill may tear the file in which Scrapy keeps `spider.state`, with this add-on or without.
    own = sum("spiderstate.py" not in text[:2000] for text in tracebacks)
    note = f"{visits:,} visits compared"
    if own < len(tracebacks):
        note += f"; {len(tracebacks) - own} tracebacks of Scrapy's own state file"
    return Count(kills, lost, doubled, hangs=len(hangs), ends=own, note=note)


def killed_commands(times: int, numbers: random.Random, directory: Path) -> Count:
    """Kill -9 of backup, restore, compact and repair: the store is what it was, or what it is to be."""
    path = varied(directory / "store")
    before, lost, kills, hangs = list(read_all(path)), 0, 0, []
    backup(path, directory / "first", None, SMALL)
    (copy,) = (directory / "first").iterdir()
    keys = {}
    with Store(path, readonly=True) as store:
        keys = {store.request(page)["url"]: store.page(page).key for page in range(store.pages)}
    works: list[Callable[[], object]] = [
        lambda: backup(path, directory / "backups", 2, SMALL),
        lambda: bring_back(path, copy, SMALL),
        lambda: compact(path, SMALL),
        lambda: repair(path, SMALL, lambda request: keys[request["url"]]),
    ]
    while kills < times:
        work = numbers.choice(works)
        pid = in_child(lambda work=work: work())
        time.sleep(numbers.uniform(0.0, 0.08))
        os.kill(pid, signal.SIGKILL)
        with patience(pid, hangs):
            kills += wait(pid) == -signal.SIGKILL
        lost += check(path, SMALL) != [] or list(read_all(path)) != before
        for aside in directory.glob("store.*-*"):
            shutil.rmtree(aside)
        for made in (directory / "backups").glob("store-*[0-9]"):
            lost += check(made, SMALL) != []
    return Count(kills, lost, hangs=len(hangs))


def power_cuts(times: int, numbers: random.Random, directory: Path) -> Count:
    """What a disk may have after a power cut: all that was synced, and any of what was written since.

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
            place = slice(page * PAGE, (page + 1) * PAGE)
            if after[place] != now[place] and numbers.random() < 0.5:
                disk[place] = after[place]
        if numbers.random() < 0.5:
            for place in (slice(0, PAGE), slice(PAGE, 2 * PAGE)):
                disk[place] = before[place]
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
    """A file that cannot grow beyond some size: an error that says so, and the next run goes on."""
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


def damage(times: int, numbers: random.Random, directory: Path, change: Callable[..., bytes]) -> Count:
    """Read all of a store whose file was changed: it is as it was, or an error says what is damaged."""
    path = varied(directory / "store")
    sound, data = list(read_all(path)), (path / "data.mdb").read_bytes()
    ends: list[int] = []
    hangs: list[int] = []
    for number in range(times):
        target = directory / str(number)
        target.mkdir()
        (target / "data.mdb").write_bytes(change(data, numbers))

        def work(target: Path = target) -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                found = list(read_all(target))
            except StoreDamagedError:
                os._exit(DAMAGED)
            except BaseException:
                os._exit(TRACEBACK)
            os._exit(0 if found == sound else DIFFERENT)

        pid = in_child(work)
        with patience(pid, hangs):
            ends.append(wait(pid))
        shutil.rmtree(target)
    bad = sum(status not in (0, DAMAGED, DIFFERENT) for status in ends)
    note = f"{ends.count(DAMAGED)} told, {ends.count(0)} without effect"
    return Count(times, silent=ends.count(DIFFERENT), hangs=len(hangs), ends=bad, note=note)


def flip(data: bytes, numbers: random.Random) -> bytes:
    """A bit anywhere."""
    return flipped(data, numbers.randrange(8 * len(data)))


def wipe(data: bytes, numbers: random.Random) -> bytes:
    """A page of zeros."""
    at = numbers.randrange(len(data) // PAGE) * PAGE
    return data[:at] + bytes(PAGE) + data[at + PAGE :]


def truncate(data: bytes, numbers: random.Random) -> bytes:
    """A lost end."""
    return data[: numbers.randrange(1, len(data))]


def repairs(times: int, numbers: random.Random, directory: Path) -> Count:
    """Repair damaged stores: sound afterwards, and what is missing is what was said."""
    test_repair.build(directory / "store")
    data, before = (
        (directory / "store" / "data.mdb").read_bytes(),
        test_repair.Content.of(directory / "store"),
    )
    silent = ends = whole = 0
    for number in range(times):
        damaged = bytearray(data)
        for _ in range(numbers.choice((1, 1, 2, 5))):
            at = numbers.randrange(2, len(data) // PAGE) * PAGE
            if numbers.random() < 0.4:
                damaged[at : at + PAGE] = bytes(PAGE)
            for _ in range(numbers.choice((1, 30))):
                damaged[at + numbers.randrange(PAGE)] ^= 1 << numbers.randrange(8)
        if numbers.random() < 0.15:
            del damaged[numbers.randrange(len(data) // 2, len(data)) :]
        try:
            done = test_repair.repaired(directory / str(number), bytes(damaged), before)
        except (StoreError, AssertionError):
            ends += 1
            continue
        now = test_repair.Content.of(directory / str(number))
        missing = len(before.pages.keys() - now.pages.keys())
        silent += not now.visits.items() <= before.visits.items()
        said = test_repair.said(done, "pages, with", "pages found in the cycle")
        silent += missing != said and not test_repair.said(done, "cannot be told")
        whole += not done.lost
    return Count(times, silent=silent, ends=ends, note=f"{whole} lost nothing")


def two_writers(times: int, numbers: random.Random, directory: Path) -> Count:
    """Processes that open a store at the same moment: one writes, the others are told so."""
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
        found = [wait(pid) for pid in [in_child(work) for _ in range(4)]]
        ends += sum(status not in (0, NO_ROOM) for status in found)
        with Store(path, readonly=True) as store:
            lost += store.last_cycle - cycle != found.count(0) or bool(store.verify())
    return Count(times, lost, ends=ends)


def retention(cycles: int, numbers: random.Random, directory: Path) -> Count:
    """Cycles that nobody attends, with visits of the last eight kept: size, memory, descriptors, time."""
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
    return Count(cycles, int(bool(check(path, USUAL, deep=True))), note=f"late by early: {said}")


TROUBLE: Final[dict[str, tuple[int, Callable[..., Count]]]] = {
    "kill -9 of crawls": (1000, killed_crawls),
    "kill -9 of crawls with a JOBDIR": (60, lambda *given: killed_crawls(*given, jobdir=True)),
    "kill -9 of backup, restore, compact, repair": (200, killed_commands),
    "power cuts": (300, power_cuts),
    "disks without room": (200, disk_faults),
    "flipped bits": (1000, lambda *given: damage(*given, flip)),
    "pages of zeros": (200, lambda *given: damage(*given, wipe)),
    "lost ends": (200, lambda *given: damage(*given, truncate)),
    "repairs": (100, repairs),
    "four writers at once": (30, two_writers),
    "cycles with GP4C_KEEP_CYCLES": (400, retention),
}
"""Trouble -> how often, and how."""
HEADER: Final = ("trouble", "times", "lost", "doubled", "silent", "hangs", "tracebacks, signals", "")


def run(share: float, seed: int, only: str = "") -> dict[str, Count]:
    """Make trouble, a share of its usual times; ``only``: that whose name has this."""
    found = {}
    for number, (name, (times, trouble)) in enumerate(TROUBLE.items()):
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as place:
            start = time.perf_counter()
            numbers = random.Random(seed * 1000 + number)
            count = trouble(max(1, round(times * share)), numbers, Path(place))
            found[name] = count
        print(f"{name}: {tuple(count)} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Print the table; 1 if anything was lost, doubled, silent, or hung, or ended badly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the usual times (default: 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="trouble whose name has this (default: all)")
    options = parser.parse_args()
    print(machine())
    print(f"python -m benchmarks.chaos {' '.join(sys.argv[1:])}\n")
    found = run(options.share, options.seed, options.only)
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for name, count in found.items():
        print(f"| {name} | {' | '.join(map(str, count))} |")
    return int(any(any(count[1:6]) for count in found.values()))


if __name__ == "__main__":
    sys.exit(main())
