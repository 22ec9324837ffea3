"""Server-bound crawls, watched from outside: pages, CPU time, statements and turns of the reactor.

What `benchmarks.workers_growth` measures; its documentation says how.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, Final, NamedTuple

from benchmarks.server import Pace
from scrapy_gp4c.store.shards.placing import shard_of
from tests.support.postgres import Server

SHARDS: Final = 8
REQUESTS, DELAY_S = 4, 0.4
"""At a time and worker, and until each is answered: 10 pages/s."""
WINDOW: Final = (0.05, 0.95)
"""Part of a cycle's pages during which is measured."""
NOTED_S: Final = 0.005
"""Turns that are shorter are not kept."""


class Turn(NamedTuple):
    """One callback of the event loop."""

    ended: float
    cpu_s: float
    name: str


class Reading(NamedTuple):
    """What was counted until a moment."""

    at: float
    pages: int
    workers_s: float
    """CPU time of all crawling processes."""
    postgres_s: float
    """CPU time of the workers' connections."""
    others_s: float
    """CPU time of the server's own processes."""
    statements: int


class Measured(NamedTuple):
    """One cycle."""

    pages: int
    seconds: float
    workers_s: float
    postgres_s: float
    others_s: float
    statements: int
    longest: Turn
    whole_s: float
    """From the start of the processes to their end."""


def crawl(given: dict[str, Any], starts: Sequence[str], log: str, turns: Connection) -> None:
    """Crawl once, in a process of its own; sends its turns."""
    with Path(log).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    import scrapy
    from scrapy.crawler import AsyncCrawlerProcess

    noted: list[Turn] = []
    collected = [0.0, 0.0]  # when the last garbage collection began; and how long all took
    run = asyncio.Handle._run

    def collecting(phase: str, _: dict[str, int]) -> None:
        if threading.current_thread() is threading.main_thread():
            now = thread_time()
            if phase == "start":
                collected[0] = now
            else:
                collected[1] += now - collected[0]

    def timed(self: asyncio.Handle) -> None:
        begun = thread_time() - collected[1]
        run(self)
        taken = thread_time() - collected[1] - begun
        if taken > NOTED_S:
            noted.append(Turn(perf_counter(), taken, repr(self)[:200]))

    gc.callbacks.append(collecting)
    asyncio.Handle._run = timed  # type: ignore[method-assign] # every turn of the loop is timed

    class PageSpider(scrapy.Spider):
        name = "pages"

        async def start(self) -> AsyncIterator[Any]:
            for url in starts:
                yield scrapy.Request(url)

        def parse(self, response: Any) -> Iterator[Any]:
            yield {"url": response.url}
            for href in response.css("a::attr(href)").getall():
                yield response.follow(href, callback=self.parse)
            site, _, number = response.url.rpartition("/")
            if int(number) % 4 == 1:
                other = starts[(starts.index(f"{site}/0") + 1 + int(number)) % len(starts)]
                yield response.follow(f"{other[:-1]}{number}", callback=self.parse)

    process = AsyncCrawlerProcess(given)
    process.crawl(PageSpider)
    process.start()
    turns.send(noted)


def settings(store: Path, **given: Any) -> dict[str, Any]:
    """Settings of a crawl."""
    return {
        "ADDONS": {"scrapy_gp4c.Addon": 500},
        "GP4C_STORE": str(store),
        "GP4C_BUDGET": 1.0,
        "GP4C_WARMUP_VISITS": 0,
        "CONCURRENT_REQUESTS": REQUESTS,
        "CONCURRENT_REQUESTS_PER_DOMAIN": REQUESTS,
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
        **given,
    }


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process until now, s: to the nanosecond, where ``stat`` has hundredths."""
    found = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            found += int((thread / "schedstat").read_text().split()[0])
    return found / 1e9


def cpu_of_server_s(pid: int) -> tuple[float, float]:
    """CPU time of a PostgreSQL's processes: of those that serve TCP connections, and of all others.

    The first are the workers'; the watcher's own connection comes by a Unix socket.
    """
    clients, others = 0.0, cpu_s(pid)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # it has ended meanwhile
            title, taken = Path(f"/proc/{child}/cmdline").read_text(), cpu_s(int(child))
            if "127.0.0.1(" in title:
                clients += taken
            elif "[local]" not in title:
                others += taken
    return clients, others


class Web:
    """Pages on hosts of which every shard has as many."""

    def __init__(self, workers: int, pages: int, port: int, pace: Pace) -> None:
        """Take so many pages a worker."""
        self.hosts, self.port, self.pace = hosts_of(workers), port, pace
        self.pages = workers * pages // SHARDS // workers * len(self.hosts)

    @property
    def starts(self) -> list[str]:
        """The first page of every host."""
        return [f"http://{host}:{self.port}/0" for host in self.hosts]


def hosts_of(count: int) -> list[str]:
    """Addresses of loopback: ``count`` for each shard."""
    found: dict[int, list[str]] = {shard: [] for shard in range(SHARDS)}
    for number in range(256, 65_536):
        host = f"127.0.{number // 256}.{number % 256}"
        if len(found[shard_of(host, SHARDS)]) < count:
            found[shard_of(host, SHARDS)].append(host)
        if sum(map(len, found.values())) == count * SHARDS:
            break
    return [host for hosts in found.values() for host in hosts]


def measure(web: Web, crawls: Sequence[dict[str, Any]], folder: Path, postgres: Server | None) -> Measured:
    """Crawl a cycle by these processes; raises RuntimeError where one fails."""
    context = multiprocessing.get_context("spawn")
    web.pace.served.value, web.pace.delay_s.value = 0, DELAY_S
    begun = perf_counter()
    processes: list[tuple[BaseProcess, Connection]] = []
    for number, given in enumerate(crawls):
        ours, theirs = context.Pipe(duplex=False)
        log = str(folder / f"crawl-{number}.log")
        process = context.Process(target=crawl, args=(given, web.starts, log, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append((process, ours))
    readings = []
    for part in WINDOW:
        while web.pace.served.value < part * web.pages:
            if not any(process.is_alive() for process, _ in processes):
                raise RuntimeError(f"the crawl has ended before its end; its logs: {folder}")
            time.sleep(0.02)
        readings.append(_reading(web, [process for process, _ in processes], postgres))
    turns = []
    for process, ours in processes:
        turns += ours.recv()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a crawl failed; its logs: {folder}")
    whole_s = perf_counter() - begun
    if not web.pages <= web.pace.served.value <= 1.02 * web.pages:
        raise RuntimeError(f"expected {web.pages} pages to be fetched; found {web.pace.served.value:.0f}")
    first, last = readings
    within = [turn for turn in turns if first.at <= turn.ended <= last.at]
    longest = max(within, key=lambda turn: turn.cpu_s, default=Turn(0.0, 0.0, ""))
    return Measured(
        last.pages - first.pages,
        last.at - first.at,
        last.workers_s - first.workers_s,
        last.postgres_s - first.postgres_s,
        last.others_s - first.others_s,
        last.statements - first.statements,
        longest,
        whole_s,
    )


def _reading(web: Web, processes: Sequence[BaseProcess], postgres: Server | None) -> Reading:
    statements, postgres_s, others_s = 0, 0.0, 0.0
    if postgres is not None:
        assert postgres.process is not None
        counted = postgres.execute("SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements")
        statements, (postgres_s, others_s) = counted[0][0], cpu_of_server_s(postgres.process.pid)
    workers_s = sum(cpu_s(process.pid) for process in processes if process.pid is not None)
    return Reading(perf_counter(), int(web.pace.served.value), workers_s, postgres_s, others_s, statements)
