"""Whether workers leave behind what one process does: the demo's web, crawled by one and by several of them.

    python -m benchmarks.workers_equal [--days 10] [--workers 1 2 4 8] [--again 2] [--hosts 12] [--redirects]

Every way of crawling has a web of its own with the same pages, at the same port, as what is drawn of a
page's URL is to repeat. Further runs of one process show what differs without any other worker: which of
several pages led to another first, and with it the Referer and depth of its request. In all but the first of
them the web answers late for new pages, as their links are late where another worker finds them: so it
differs too how many of their visits a round has *seen*. In all runs a round waits for all outcomes of the
one before, and no page redirects (of those, one process too visits some on another day: docs/demo.md). What
the workers' `collect` gives is exported, and compared page by page with the export of one process, and so
are the records of all cycles, but for their times, and for rounds that have no pages: nobody waits for such
a round, so it is planned at any time.

The web notes who asks which host when, by the address that each worker has of its own (a User-Agent travels
with a visit that is redirected): no host may be asked by two workers within its delay.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

from scrapy.settings import Settings as ScrapySettings

from benchmarks.common import machine, verdict
from benchmarks.left_behind import Found, Left, compare, in_records, left_in, told
from example_project import model
from example_project.demo import show
from scrapy_gp4c.crawling import run
from scrapy_gp4c.distributed import administration
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL
from tests.support.postgres import Server, free_port

SHARDS: Final = 8
LEASE_S: Final = 30.0
PRELOADED: Final = ("scrapy.crawler", "scrapy_gp4c.distributed.opening", "scrapy_gp4c.scheduler", "numpy")
DELAY_S: Final = 0.02
"""Of a host."""
WORKERS_NET: Final = "127.1.0."
"""First part of the workers' addresses."""
LATE_S: Final = 2.0
"""So late a worker may hear of a link that another one finds: flush and look come once a second each."""


class Asked(NamedTuple):
    """A request, as the web has seen it."""

    at: float
    host: str
    asker: str


def serve(day_file: Path, hosts: int, port: int, log: Path, redirects: bool, late_s: float) -> None:
    """Serve the demo's web in a process of its own; notes who asks, and is so late with new pages."""
    from example_project import web  # imports a reactor, which a crawl has to choose for itself

    if not redirects:
        model.ALIAS_SHARE = 0.0
    asked = log.open("a", buffering=1)

    class Noting(web.Site):
        def answer(self, request: Any, address: str, host: int, port: int) -> bytes:
            asked.write(json.dumps([time.monotonic(), address, request.getClientAddress().host]) + "\n")
            return super().answer(request, address, host, port)

        def render(self, request: Any) -> bytes | int:
            body = super().render(request)
            if late_s == 0 or isinstance(body, int):
                return body
            page = self.web.find(request.getHost().host, request.path.decode("ascii", "replace"))
            if page is None or not 1 < self.web.born[page] == web.read_day(day_file):
                return body
            web.reactor.callLater(late_s, self.finish, request, body)
            return int(web.server.NOT_DONE_YET)

    web.Site = Noting  # type: ignore[misc] # in this process, which serves and no more
    web.serve(model.Web(1, hosts), day_file, port)
    web.reactor.run()


def crawl(given: dict[str, Any], port: int, log: Path) -> None:
    """Crawl once, in a process of its own; ends it."""
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from scrapy.crawler import AsyncCrawlerProcess

    from example_project.spiders.monitor import MonitorSpider

    run.PATIENCE_S = 3600.0  # type: ignore[misc] # rounds see all outcomes, so that they are comparable
    settings = ScrapySettings()
    settings.setmodule("example_project.settings")
    settings.setdict(given)
    process = AsyncCrawlerProcess(settings)
    process.crawl(MonitorSpider, port=str(port))
    process.start()
    os._exit(int(process.bootstrap_failed or any(one.spider is None for one in process.crawlers)))


class Crawls:
    """Crawls of all ways, one after the other, each day by day."""

    def __init__(self, folder: Path, days: int, hosts: int, redirects: bool) -> None:
        """Take an empty folder."""
        self._folder, self._days, self._port = folder, days, free_port()
        self._hosts, self._redirects = hosts, redirects
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))

    def alone(self, name: str, late_s: float = 0.0) -> Left:
        """Crawl by one process; the web is so late with new pages."""
        store = self._folder / name
        with self._served(name, late_s):
            for day in self._shown(name):
                self._all_end([self._started(name, day, {"GP4C_STORE": str(store)})])
        return left_in(store)

    def shared(self, workers: int, server: Server) -> tuple[Left, int]:
        """Crawl by workers; returns what they left, and how often two asked a host within its delay."""
        name, database = f"{workers}-workers", server.database()
        dsn = server.dsn(database)
        settings = Settings.load(ScrapySettings({"GP4C_LEDGER": dsn}))
        administration.create(settings, SHARDS, None, USUAL)
        with self._served(name):
            for day in self._shown(name):
                server.execute("UPDATE gp4c.cycle SET opened = opened - interval '1 hour'", database)
                self._all_end(
                    [
                        self._started(
                            f"{name}-{worker}",
                            day,
                            {
                                "GP4C_LEDGER": dsn,
                                "GP4C_WORKER": f"worker-{worker}",
                                "GP4C_LEASE_S": LEASE_S,
                                "GP4C_STORE": str(self._folder / f"{name}-{worker}"),
                                "DOWNLOAD_BIND_ADDRESS": f"{WORKERS_NET}{worker}",
                            },
                        )
                        for worker in range(1, workers + 1)
                    ]
                )
        ledger = administration.ledger_of(settings)
        try:
            administration.collect(ledger, settings, self._folder / name, USUAL)
        finally:
            ledger.close()
        return left_in(self._folder / name), crowded(self._folder / f"{name}.asked")

    @contextmanager
    def _served(self, name: str, late_s: float = 0.0) -> Iterator[None]:
        day_file = self._folder / "day"
        show(day_file, 1)
        served = self._context.Process(
            target=serve,
            args=(day_file, self._hosts, self._port, self._folder / f"{name}.asked", self._redirects, late_s),
        )
        served.start()
        try:
            yield
        finally:
            assert served.pid is not None
            os.kill(served.pid, signal.SIGTERM)
            served.join()

    def _shown(self, name: str) -> Iterator[int]:
        for day in range(1, self._days + 1):
            show(self._folder / "day", day)
            begun = time.monotonic()
            yield day
            print(f"\r{name}: day {day} in {time.monotonic() - begun:.1f} s", end=" ", flush=True)
        print()

    def _started(self, name: str, day: int, given: dict[str, Any]) -> BaseProcess:
        settings = {"DOWNLOAD_DELAY": DELAY_S, "GP4C_PANEL": 0.1, "GP4C_BUDGET": 0.2, **given}
        settings |= {"LOG_LEVEL": "INFO", "EXTENSIONS_BASE": {}}
        process = self._context.Process(
            target=crawl, args=(settings, self._port, self._folder / f"{name}.log"), name=f"{name}, day {day}"
        )
        process.start()
        return process

    def _all_end(self, crawls: Sequence[BaseProcess]) -> None:
        for one in crawls:
            one.join()
        for one in crawls:
            if one.exitcode:
                raise RuntimeError(f"the crawl of {one.name} failed; its log is in {self._folder}")


def crowded(log: Path) -> int:
    """Count the requests of a host that came within its delay after one of another worker.

    Raises RuntimeError for a request from no worker's address: then none can be told from another.
    """
    last: dict[str, Asked] = {}
    found = 0
    for line in log.read_text().splitlines():
        asked = Asked(*json.loads(line))
        if not asked.asker.startswith(WORKERS_NET):
            raise RuntimeError(
                f"expected requests from workers' addresses, {WORKERS_NET}1 and on; found {asked.asker}: "
                "this Scrapy does not know DOWNLOAD_BIND_ADDRESS. Use 2.19 or newer."
            )
        before = last.get(asked.host, asked)
        found += before.asker != asked.asker and asked.at - before.at < DELAY_S
        last[asked.host] = asked
    return found


def told_of(name: str, one: Left, other: Left) -> Found:
    """Print what a way of crawling left that one process did not, and return it."""
    found = compare(one, other)
    print(f"{name}: pages in {told(found.pages)}; records in {told(found.records)}")
    for line in in_records(one, other):
        print(f"  {line}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what differs; return 1 where workers differ in more than the runs of one process do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=int, default=10, help="days to crawl (default: %(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8], help="of a crawl (1 2 4 8)")
    parser.add_argument(
        "--again", type=int, default=2, help="further runs of one process (default: %(default)s)"
    )
    parser.add_argument("--hosts", type=int, default=12, help="of the web (default: %(default)s)")
    parser.add_argument("--redirects", action="store_true", help="leave the web's redirects in")
    options = parser.parse_args(arguments)
    print(machine())
    beyond: dict[int, list[str]] = {}
    asked_twice = 0
    with tempfile.TemporaryDirectory(prefix="gp4c-equal-") as folder:
        crawls = Crawls(Path(folder), options.days, options.hosts, options.redirects)
        one = crawls.alone("one")
        shown = sum(record["visited"] for record in one.records)
        print(f"{len(one.pages)} pages, {len(one.records)} cycles, {shown} visits; what differs:")
        usual = Found(Counter(), Counter())
        for number in range(1, options.again + 1):
            late_s = LATE_S if number > 1 else 0.0
            name = "one process again" + (f", new pages answered {late_s:g} s late" if late_s else "")
            usual = usual.and_also(told_of(name, one, crawls.alone(f"again-{number}", late_s)))
        server = Server()
        try:
            for workers in options.workers:
                left, crowd = crawls.shared(workers, server)
                beyond[workers] = told_of(f"{workers} workers", one, left).beyond(usual)
                asked_twice += crowd
        finally:
            server.stop()
    different = sum(map(bool, beyond.values()))
    holds = verdict("ways in which workers differ from one process", different, 0, at_least=False)
    for workers, names in beyond.items():
        if names:
            print(f"  {workers} workers: {', '.join(names)}")
    holds &= verdict("requests of a host within its delay by two workers", asked_twice, 0, at_least=False)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
