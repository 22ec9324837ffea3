"""Crawls with fetchers: how they grow, what they cost, and whether they do what one process does.

    python -m benchmarks.fetchers [--fetchers 1 2 4 8] [--only growth|cpu|equality|chaos] [--faults 100]

- *growth*: pages per second of crawls of a web that answers late, so that a fetcher with 10 requests at a
  time has 10 pages/s, from the first page to the last; 8 fetchers against 1.
- *cpu*: the pages of `benchmarks.crawl_overhead`, with callbacks that work: pages per second of two fetchers
  against one process; pages per processor second of a fetcher against one process; the owner's processor
  time per visit, with 30 links each, beside that of Scrapy alone per request, whose handler answers at once
  and whose callback does nothing; the longest turn of the owner's reactor.
- *equality*: days of the demo's web by one process and by fetchers: visits, columns and items.
- *chaos*, only if asked for: cycles of a crawl whose fetchers, scheduler and owner are killed and stopped.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import psutil
from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.http import Response

from benchmarks.common import exit_code, machine, printed, verdict
from benchmarks.server import Pace, server
from benchmarks.trouble.fleet import BIN, LIMIT_S, ManyMachines, least_gap_s
from example_project.demo import serving, show
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES
from scrapy_gp4c.scoring.named import DEFAULT, NAMED
from scrapy_gp4c.store.opening import open_store

GROWTH, CPU_GROWTH, CPU_SHARE, OWNER_MS, TURN_MS = 7.2, 1.6, 0.9, 0.4, 50.0
LATENCY_S = 1.0
HOSTS = 32
PLANNED = NAMED[DEFAULT].expression.replace(" * size_lift ** 0.25", "").replace("hint_rate", "rate")
"""The default function without page sizes and ages, by which two crawls of the demo's web differ: it draws
sizes with every answer, and ages count in cycles, whose length differs. `equality` leaves out rounds too:
they begin before all visits of the last one end."""


TIMES: list[tuple[float, float]] = []
"""Wall-clock and processor time in s at each response of this process."""
TURNS_S: list[float] = []
"""Processor time of this process in s, between successive samples by its reactor."""


class Answering(BaseDownloadHandler):
    """Download handler that answers at once with an empty response."""

    async def download_request(self, request: Request) -> Response:
        return Response(request.url)


class Listed(Spider):
    """Spider that visits numbered pages, works a while for each, and records times."""

    name = "listed"

    def __init__(self, port: str, pages: str, work_ms: str = "0", links: str = "30", **kwargs: Any) -> None:
        """Arguments are texts, as on a command line; ``work_ms``: processor time of a callback."""
        super().__init__(**kwargs)
        self.port, self.pages, self.work_ms, self.links = port, pages, work_ms, links

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Self:
        """Connect the signals by which the owner notes and writes its times."""
        self = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(self._note, signals.response_received)
        crawler.signals.connect(self._write, signals.spider_closed)
        return self

    async def start(self) -> AsyncIterator[Any]:
        """Request all pages of all hosts in turn."""
        self._watch(time.thread_time())
        for number in range(int(self.pages)):
            yield Request(f"http://127.0.0.{1 + number % HOSTS}:{self.port}/{number // HOSTS}")

    def _watch(self, before_s: float) -> None:
        from twisted.internet import reactor

        now_s = time.thread_time()
        TURNS_S.append(now_s - before_s)
        reactor.callLater(0.02, self._watch, now_s)  # type: ignore[attr-defined]

    def _note(self) -> None:
        TIMES.append((time.perf_counter(), time.process_time()))

    def _write(self) -> None:
        if TURNS_S and TIMES:
            (first_s, first_cpu_s), (last_s, last_cpu_s) = TIMES[0], TIMES[-1]
            figures = [len(TIMES) - 1, last_s - first_s, last_cpu_s - first_cpu_s, 1000 * max(TURNS_S)]
            Path("figures.json").write_text(json.dumps(figures))

    def parse(self, response: Response) -> Iterator[Any]:
        """Work, then yield links that are known."""
        end_s = time.thread_time() + int(self.work_ms) / 1000
        while time.thread_time() < end_s:
            response.css("p").getall()
        for number in range(int(self.links)):
            yield response.follow(f"/{number % max(1, int(self.pages) // HOSTS)}")


def crawl(
    folder: Path, fetchers: int, port: int, settings: dict[str, Any], **arguments: Any
) -> tuple[list[float], float]:
    """Crawl once with so many fetchers, for 0 in one process.

    Returns a list of pages, seconds, the owner's processor seconds and its longest turn in ms; and the
    processor seconds of the fetchers.
    """
    machines = ManyMachines(folder, ["benchmarks.fetchers"])
    try:
        processes = []
        if fetchers:
            machines.scheduler()
            processes = [machines.fetcher(f"f{number}", "listed") for number in range(fetchers)]
            machines.wait(
                lambda: all("works for" in machines.log(f"f{number}") for number in range(fetchers))
            )
        else:
            settings = {**settings, "GP4C_FETCHERS": None}
        before_s = sum(sum(psutil.Process(one.pid).cpu_times()[:2]) for one in processes)
        owner = machines.owner("listed", settings, port=port, **arguments)
        if owner.wait(3 * LIMIT_S):
            raise RuntimeError(machines.log()[-3000:])
        cpu_s = sum(sum(psutil.Process(one.pid).cpu_times()[:2]) for one in processes) - before_s
        return json.loads((folder / "figures.json").read_text()), cpu_s
    finally:
        machines.stop()


SCRAPY_ALONE: dict[str, Any] = {
    "ADDONS": {}, "DOWNLOAD_HANDLERS": {"http": "benchmarks.fetchers.Answering"}, "CONCURRENT_ITEMS": 1,
    "DOWNLOADER_MIDDLEWARES_BASE": {}, "SPIDER_MIDDLEWARES_BASE": {}, "CONCURRENT_REQUESTS": 3_200,
}  # fmt: skip
"""Settings of a crawl by Scrapy alone that does the least work which an owner could do."""


def growth(counts: list[int], folder: Path) -> bool:
    """Print pages per second by number of fetchers; return whether the target holds."""
    hosts, pace = [f"127.0.0.{1 + number}" for number in range(HOSTS)], Pace.at_once()
    pace.delay_s.value = LATENCY_S
    speeds = {}
    with server(40, hosts, pace) as port:
        for count in counts:
            pages = min(40 * HOSTS, 150 * count)
            settings = {"CONCURRENT_REQUESTS": 10, "LOG_LEVEL": "WARNING"}
            (done, wall_s, *_), _ = crawl(folder / f"growth{count}", count, port, settings, pages=pages)
            speeds[count] = printed(done / wall_s, ".1f")
            print(f"{count} fetchers: {speeds[count]:.1f} pages/s", flush=True)
    first, last = min(counts), max(counts)
    target = GROWTH * last / (8 * first)
    return verdict(f"pages/s, {last} fetchers / {first}", speeds[last] / speeds[first], target, at_least=True)


def cpu(folder: Path, pages: int = 1_500) -> bool:
    """Print pages per second and processor time per visit; return whether the targets hold."""
    hosts = [f"127.0.0.{1 + number}" for number in range(HOSTS)]
    common = {"CONCURRENT_REQUESTS": 32, "LOG_LEVEL": "WARNING"}
    with server(pages // HOSTS, hosts) as port:
        pages = pages // HOSTS * HOSTS
        (_, alone_s, alone_cpu_s, _), _ = crawl(folder / "alone", 0, port, common, pages=pages, work_ms=5)
        (_, two_s, _, _), _ = crawl(folder / "two", 2, port, common, pages=pages, work_ms=5)
        (done, _, owner_s, turn_ms), cpu_s = crawl(folder / "one", 1, port, common, pages=pages, work_ms=5)
        (asked, _, least_s, _), _ = crawl(
            folder / "least", 0, port, {**common, **SCRAPY_ALONE}, pages=pages, links=0
        )
    print(f"Scrapy alone, ms per request: {1000 * least_s / asked:.2f}")
    holds = verdict("pages/s, two fetchers / one process", alone_s / two_s, CPU_GROWTH, at_least=True)
    share = alone_cpu_s / cpu_s
    holds &= verdict("pages per processor second, fetcher / process", share, CPU_SHARE, at_least=True)
    holds &= verdict("owner's ms per visit with 30 links", 1000 * owner_s / done, OWNER_MS, at_least=False)
    return holds & verdict("owner's longest turn, ms", turn_ms, TURN_MS, at_least=False)


def equality(counts: list[int], folder: Path, days: int) -> bool:
    """Crawl days of the demo's web by one process and by fetchers; return whether their results are equal."""
    states = {}
    options = argparse.Namespace(port=0, seed=1, hosts=3)
    for count in (0, *counts):
        machines = ManyMachines(folder / f"equal{count}", ["example_project.spiders"])
        day_file = machines.folder / "day"
        show(day_file, 1)
        with serving(day_file, options) as port:
            options.port = port  # URLs name it
            for day in range(1, days + 1):
                show(day_file, day)
                settings = {
                    "GP4C_FETCHERS": count or None, "ROBOTSTXT_OBEY": True, "CONCURRENT_ITEMS": 1,
                    "GP4C_SCORE_FUNCTION": PLANNED, "GP4C_POLICY": "top_k",
                    "GP4C_RULES": [{"match": "*/calendar/*", "never": True}], "LOG_LEVEL": "WARNING",
                    "FEEDS": {f"items{day}.jl": {"format": "jsonlines"}},
                }  # fmt: skip
                owner = machines.owner("monitor", settings, port=port)
                if owner.wait(3 * LIMIT_S):
                    raise RuntimeError(machines.log()[-3000:])
        states[count] = _state(machines, days)
        machines.stop()
    holds = True
    for count in counts:
        for name, value in states[count].items():
            same = value == states[0][name]
            holds &= same
            label = f"{days} days, {name} by {count} fetchers as by one process (1: equal)"
            verdict(label, float(same), 1.0, at_least=True)
            if not same:
                print(f"  {_difference(states[0][name], value)}"[:300])
    return holds


FAULTS = ("kill",) * 3 + ("stop",) * 3 + ("scheduler", "owner", "owner", "version")
DELAY_S = 0.8


def chaos(folder: Path, faults: int, seed: int) -> bool:
    """Crawl as many cycles as it takes to make ``faults`` faults; return whether all targets hold."""
    rng = random.Random(seed)
    machines = ManyMachines(folder / "chaos", ["tests.support.fetched_crawl", "benchmarks.fetchers"])
    module, pages = "tests.support.fetched_crawl", 15 * HOSTS
    settings = {
        "ITEMS": "items", "DOWNLOAD_DELAY": DELAY_S,
        "DOWNLOAD_HANDLERS": {"http": f"{module}.Noting"}, "RETRY_ENABLED": False, "GP4C_REVISION": "new",
        "GP4C_BUDGET": 1.0,
    }  # fmt: skip
    scheduler = machines.scheduler()
    fetchers = [machines.fetcher(f"f{number}", "listed", REVISION="new") for number in range(3)]
    hosts = [f"127.0.0.{1 + number}" for number in range(HOSTS)]
    with server(pages // HOSTS, hosts) as port, ExitStack() as stack:
        stack.callback(machines.stop)

        def owner() -> Any:
            return machines.owner("listed", settings, port=port, pages=pages)

        running, done = owner(), 0
        while faults or running.poll() != 0:
            time.sleep(rng.uniform(1, 4))
            if running.poll() is not None and (faults or running.returncode):
                running = owner()
            if not faults or len(machines.sent()) < done + 2 * HOSTS:
                continue
            faults, done = faults - 1, len(machines.sent())
            number, fault = rng.randrange(len(fetchers)), rng.choice(FAULTS)
            print(f"{fault}, {faults} to go", flush=True)
            if fault == "kill":
                fetchers[number].kill()
                fetchers[number] = machines.fetcher(f"f{number}", "listed", REVISION="new")
            elif fault == "stop":
                fetchers[number].send_signal(signal.SIGSTOP)
                time.sleep(rng.uniform(1, 15))
                fetchers[number].send_signal(signal.SIGCONT)
            elif fault == "scheduler":
                scheduler.kill()
                time.sleep(rng.uniform(0, 8))
                scheduler = machines.scheduler()
            elif fault == "owner":
                running.kill()
            else:
                machines.fetcher(f"old{faults}", "listed", REVISION="old")
    sent = machines.sent()
    with open_store(machines.store, readonly=True) as store:
        assert store.pages == pages
        visits = [[OUTCOMES[row["outcome"]] for row in rows] for _, rows in store.visits()]
        wrong = [*store.verify(), *(outcome for rows in visits for outcome in rows if outcome == "error")]
    print(f"{len(visits)} cycles, {len(sent)} requests, {wrong[:5]}")
    least = min(map(len, visits)) if visits else 0
    holds = verdict("pages with one outcome, in the worst cycle", float(least), float(pages), at_least=True)
    recorded = float(sum(map(len, visits)))
    holds &= verdict("requests / recorded visits", len(sent) / max(1.0, recorded), 1.0, at_least=True)
    holds &= verdict("errors and wrong records", float(len(wrong)), 0.0, at_least=False)
    gap_s = least_gap_s(sent)
    holds &= verdict("least time of two fetchers at a host, s", gap_s, 0.8 * DELAY_S, at_least=True)
    stands_s = max(later.time_s - one.time_s for one, later in pairwise(sent))
    return holds & verdict("longest standstill, s", stands_s, 30.0, at_least=False)


def _difference(one: Any, other: Any) -> str:
    for number, (ours, others) in enumerate(zip(one, other, strict=False), 1):
        if ours != others:
            only = [dict(ours.items() - others.items()), dict(others.items() - ours.items())]
            return f"day {number}: {len(only[0])} and {len(only[1])} differ: {str(only)[:240]}"
    return ""


def _state(machines: ManyMachines, days: int) -> dict[str, Any]:
    """Visits, page columns and items, without times and finders, which differ between equal crawls."""
    with open_store(machines.store, readonly=True) as store:
        urls = [request["url"] for request in store.requests(range(store.pages))]
        visits = []
        for _, rows in store.visits():
            visits.append(
                {
                    urls[row["page"]]: (OUTCOMES[row["outcome"]], KINDS[row["kind"]], int(row["distance"]))
                    for row in rows
                }
            )
        columns = {}
        for first, block in store.blocks():
            names = ("n", "X", "last_cycle", "found_cycle", "fingerprint", "has_copy", "gone", "failures")
            rows = zip(*(block[name].tolist() for name in names), strict=True)
            columns.update({urls[first + number]: row for number, row in enumerate(rows)})
    items = []
    for day in range(1, days + 1):
        file = machines.folder / f"items{day}.jl"
        items.append(Counter(file.read_text().splitlines()) if file.exists() else Counter())
    return {"visits": visits, "columns": [columns], "items": items}


def main() -> int:
    """Print all figures; 1 where one is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fetchers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--only", choices=("growth", "cpu", "equality", "chaos"))
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    assert BIN.exists()
    print(machine())
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if options.only in (None, "growth"):
            holds &= growth(options.fetchers, scratch)
        if options.only in (None, "cpu"):
            holds &= cpu(scratch)
        if options.only in (None, "equality"):
            holds &= equality(options.fetchers, scratch, options.days)
        if options.only == "chaos":
            holds = chaos(scratch, options.faults, options.seed)
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
