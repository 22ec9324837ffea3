"""How one crawl grows with its workers, where the web's servers set the pace: each worker fetches 10 pages/s.

    python -m benchmarks.workers_growth [--workers 1 2 4 8] [--pages 300] [--runs 3] [--policy top_k]

The web grows with the workers: ``--pages`` a worker, on hosts that are spread evenly over 8 shards; each
page is answered after 0.4 s, and a crawl sends 4 requests at a time. One process visits all pages without
delays first; what is measured is the next cycle, at a budget of 1.0, from 5% of its pages to 95%: by one
machine, with that store, and by workers, with shards made of it by ``create --from``, a PostgreSQL of the
benchmark's own (fsync on) and processes of their own. One machine and one worker crawl a
web each at the same time, a twentieth of a core each, since what a page takes of the processor differs by a
third from minute to minute on a machine that is shared: so both of a pair have the same minute. For the same
reason numbers of workers take turns, and of their crawls the medians count. Every fourth
page links to a page of another host, which is mail where another worker has it. In the seconds of a whole
cycle are also its opening, the processes' start and the copies at its end.

Statements are those that ``pg_stat_statements`` counts, BEGIN, SET and COMMIT among them; CPU time is that
of the processes' threads, by ``/proc/*/schedstat``; of PostgreSQL that of the processes that serve the
workers' connections, and with that of the server's own ones, such as the WAL writer and autovacuum, which
has nothing to do for what was there before the cycle: that is vacuumed first. A turn is one callback of the
event loop, by the CPU time of its thread, without Python's garbage collections: one of all objects takes 50
to 70 ms in a crawl by one machine as well.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median

from scrapy.settings import Settings as ScrapySettings

from benchmarks.common import machine, median_ratio, verdict
from benchmarks.server import Pace, server
from benchmarks.watched_crawls import (
    DELAY_S,
    REQUESTS,
    SHARDS,
    Measured,
    Turn,
    Web,
    crawl,
    hosts_of,
    measure,
    settings,
)
from scrapy_gp4c.distributed import administration
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL
from tests.support.postgres import DATABASE, Server

GROWTH, WITHIN, EFFICIENCY, TURN_S = 0.9, 1.2, 0.95, 0.05
"""Targets: pages/s, to those of one worker each; most to least per visit; of one machine's pages per CPU
second; longest turn."""


class Crawled:
    """A web, and the store of a crawl that has visited all of it."""

    def __init__(self, workers: int, pages: int, folder: Path, stack: ExitStack) -> None:
        """Take an empty folder; the web's server ends with the stack."""
        self.workers, pace = workers, Pace.at_once()
        port = stack.enter_context(server(pages // SHARDS, hosts_of(workers), pace))
        self.web, self.folder, self.store = Web(workers, pages, port, pace), folder, folder / "first"
        folder.mkdir()
        self._visit_all()

    def _visit_all(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.web.pace.delay_s.value = 0.0
        ours, theirs = context.Pipe(duplex=False)
        given = settings(self.store, CONCURRENT_REQUESTS=32)
        process = context.Process(target=crawl, args=(given, self.web.starts, f"{self.store}.log", theirs))
        process.start()
        ours.recv()
        process.join()
        if self.web.pace.served.value < self.web.pages:
            raise RuntimeError(f"expected {self.web.pages} pages; found {self.web.pace.served.value:.0f}")

    def alone(self, run: int, policy: str | None) -> Measured:
        """What one machine takes."""
        folder = self.folder / str(run)
        shutil.copytree(self.store, folder / "one")
        return measure(self.web, [settings(folder / "one", GP4C_POLICY=policy)], folder, None)

    def divided(self, run: int, policy: str | None, postgres: Server) -> Measured:
        """What workers take, with a ledger made of the store."""
        folder = self.folder / str(run)
        folder.mkdir()
        dsn = postgres.dsn(postgres.database())
        administration.create(Settings.load(ScrapySettings({"GP4C_LEDGER": dsn})), SHARDS, self.store, USUAL)
        crawls = [
            settings(folder / name, GP4C_LEDGER=dsn, GP4C_WORKER=name, GP4C_POLICY=policy)
            for name in (f"worker-{number + 1}" for number in range(len(self.web.hosts) // SHARDS))
        ]
        postgres.execute("VACUUM ANALYZE", DATABASE)
        return measure(self.web, crawls, folder, postgres)


class Series:
    """Crawls of one web: by workers, and of another such web by one machine."""

    def __init__(self, many: Crawled, one: Crawled | None, policy: str | None, postgres: Server) -> None:
        """Take what workers crawl, and what one machine crawls at the same time; None: none does."""
        self.workers = many.workers
        self._many, self._one, self._policy, self._postgres = many, one, policy, postgres

    def run(self, run: int) -> tuple[Measured | None, Measured]:
        """Return what one machine and the workers took."""
        if self._one is None:
            return None, self._many.divided(run, self._policy, self._postgres)
        with ThreadPoolExecutor(1) as thread:
            one = thread.submit(self._one.alone, run, self._policy)
            many = self._many.divided(run, self._policy, self._postgres)
            return one.result(), many


def show(name: str, one: Measured) -> None:
    """Print a row."""
    print(
        f"{name:12} {one.pages / one.seconds:8.1f} {one.pages / one.workers_s:12.1f}"
        f" {one.statements / one.pages:15.2f} {1000 * one.postgres_s / one.pages:13.3f}"
        f" {1000 * one.others_s / one.pages:10.3f}"
        f" {1000 * one.longest.cpu_s:12.1f} {one.whole_s:10.1f}",
        flush=True,
    )


def main() -> int:
    """Print the figures; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2, 4, 8], help="of a crawl (default: %(default)s)"
    )
    parser.add_argument("--pages", type=int, default=300, help="of a worker (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="crawls of each (default: %(default)s)")
    parser.add_argument("--policy", help="GP4C_POLICY of all crawls (default: the add-on's, four rounds)")
    arguments = parser.parse_args()
    print(machine((*("scrapy", "twisted", "lmdb", "numpy"), "psycopg")))
    print(f"\n{arguments.pages} pages a worker, {REQUESTS} requests at a time, {DELAY_S} s each")
    print(
        "crawl         pages/s  pages/CPU s  statements/page  PostgreSQL ms  its own ms  longest turn"
        "   whole, s"
    )
    pairs: list[tuple[float, float]] = []
    found: dict[int, list[Measured]] = {}
    longest = Turn(0.0, 0.0, "")
    postgres = Server(shared_preload_libraries="pg_stat_statements")
    try:
        postgres.execute("CREATE EXTENSION pg_stat_statements")
        with tempfile.TemporaryDirectory(prefix="gp4c-growth-") as folder, ExitStack() as stack:
            all_series = []
            for workers in sorted(arguments.workers):
                many_crawl = Crawled(workers, arguments.pages, Path(folder, f"many-{workers}"), stack)
                beside = None if all_series else Crawled(workers, arguments.pages, Path(folder, "one"), stack)
                all_series.append(Series(many_crawl, beside, arguments.policy, postgres))
            for run, series in product(range(arguments.runs), all_series):
                one, many = series.run(run)
                if one is not None:
                    show("one machine", one)
                    pairs.append((many.pages / many.workers_s, one.pages / one.workers_s))
                show(f"{series.workers} worker{'s' * (series.workers > 1)}", many)
                found.setdefault(series.workers, []).append(many)
                longest = max(longest, many.longest, key=lambda turn: turn.cpu_s)
    finally:
        postgres.stop()
    return 0 if judge(found, pairs, longest) else 1


def judge(found: dict[int, list[Measured]], pairs: list[tuple[float, float]], longest: Turn) -> bool:
    """Print what was to hold, of several crawls by the median; tell whether it does."""
    fewest, most = min(found), max(found)
    speed = {workers: median(one.pages / one.seconds for one in ones) for workers, ones in found.items()}
    ratio = speed[most] / speed[fewest]
    holds = verdict(f"pages/s, {most} workers / {fewest}", ratio, GROWTH * most / fewest, at_least=True)
    for name, per_page in {
        "statements": [median(one.statements / one.pages for one in ones) for ones in found.values()],
        "CPU of PostgreSQL": [median(one.postgres_s / one.pages for one in ones) for ones in found.values()],
        "CPU of PostgreSQL with its own processes": [
            median((one.postgres_s + one.others_s) / one.pages for one in ones) for ones in found.values()
        ],
    }.items():
        holds &= verdict(
            f"{name} per visit, most / least", max(per_page) / min(per_page), WITHIN, at_least=False
        )
    spread = ", ".join(
        f"{worker / one:.3f}" for worker, one in sorted(pairs, key=lambda pair: pair[0] / pair[1])
    )
    print(f"pages per CPU second, one worker / one machine, pair by pair: {spread}")
    holds &= verdict(
        "pages per CPU second, one worker / one machine", median_ratio(pairs), EFFICIENCY, at_least=True
    )
    holds &= verdict("longest turn while crawling, seconds", longest.cpu_s, TURN_S, at_least=False)
    if longest.cpu_s > TURN_S:
        print(f"  that of {longest.name}")
    return holds


if __name__ == "__main__":
    sys.exit(main())
