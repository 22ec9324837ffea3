"""Longest turn of the reactor, and memory, of crawls of hostile bodies: a row for every parser of answers.

    python -m benchmarks.hostile_parsers [--bytes 5242880] [--only NAME]

Every body of `benchmarks.hostile_bodies` is visited three times, with an archive and a callback that asks for
the difference: by stock Scrapy once, by scrapy-gp4c three times. A turn is one callback of the event loop, by
processor time. Targets: 0.25 s and 100 MB more than stock Scrapy.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.common import Answer, exit_code, in_fresh_process, machine, peak_mb, printed, serve, verdict
from benchmarks.hostile_bodies import BODIES, NO_RULES, SHORT

TARGET_S = 0.25
TARGET_MB = 100.0
VISITS = 3


class Cost(NamedTuple):
    """Cost of one visit to a body."""

    turn_s: float
    """Longest turn of the reactor, processor time."""
    peak_mb: float
    outcome: str


@contextmanager
def serving(names: list[str], size: int) -> Iterator[tuple[int, list[int]]]:
    """Serve each body on its own host; yields the port, and a list whose item is the visit's number."""
    visit = [1]

    def answer(host: int, path: str) -> Answer:
        body = BODIES[names[host - 1]]
        if body.is_robots_txt != (path == "/robots.txt"):
            body = SHORT if body.is_robots_txt else NO_RULES
        return Answer(body.make(size, visit[0]), headers=body.headers)

    servers = serve(answer, len(names))
    yield servers[0].server_port, visit
    for server in servers:
        server.shutdown()
        server.server_close()


def _name(names: list[str], url: str) -> str:
    """Name of the body that a host serves."""
    return names[int((urlsplit(url).hostname or "").rpartition(".")[2]) - 1]


def crawl(port: int, names: list[str], store: str | None) -> dict[str, Cost]:
    """Visit every body once, one after the other, with the add-on where a store is given."""
    from scrapy import Request, Spider, signals
    from scrapy.crawler import AsyncCrawlerProcess

    urls = {name: f"http://127.0.0.{host}:{port}/sitemap.xml" for host, name in enumerate(names, 1)}
    longest, costs, outcomes = [0.0], dict.fromkeys(names, (0.0, 0.0)), {}
    current: list[str] = []
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        start_s = thread_time()
        run(self)
        longest[0] = max(longest[0], thread_time() - start_s)

    def ended() -> None:
        if current:
            turn_s, mb = costs[name := current.pop()]
            costs[name] = max(turn_s, longest[0]), max(mb, peak_mb())
        longest[0] = 0.0
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak begins anew

    def leaves(request: Any, spider: Any) -> None:
        ended()
        current.append(_name(names, request.url))

    class Hostile(Spider):
        name = "hostile"

        async def start(self) -> AsyncIterator[Any]:
            self.crawler.signals.connect(leaves, signals.request_reached_downloader)
            asyncio.Handle._run = timed  # type: ignore[method-assign] # what comes before is no page's doing
            for url in urls.values():
                yield Request(url, errback=self.failed)

        def parse(self, response: Any) -> None:
            visit = response.meta.get("gp4c")
            if visit is not None:
                outcomes[_name(names, response.request.url)] = visit["outcome"]
                visit.diff()

        def failed(self, failure: Any) -> None:
            outcomes[_name(names, failure.request.url)] = failure.type.__name__

    settings: dict[str, Any] = {
        "LOG_LEVEL": "CRITICAL",
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS": 1,
        "RETRY_ENABLED": False,
        "ROBOTSTXT_OBEY": True,
    }
    if store is not None:
        settings |= {
            "ADDONS": {"scrapy_gp4c.Addon": 500},
            "GP4C_STORE": store,
            "GP4C_ARCHIVE": True,
            "GP4C_BUDGET": 1.0,
            "GP4C_SITE_SHARE": 1.0,
            "GP4C_WARMUP_VISITS": 0,
            "GP4C_RULES": [
                {"match": url, **BODIES[name].rule} for name, url in urls.items() if BODIES[name].rule
            ],
        }
    process = AsyncCrawlerProcess(settings)
    process.crawl(process.create_crawler(Hostile))
    process.start()
    ended()
    return {name: Cost(*cost, outcomes.get(name, "no visit")) for name, cost in costs.items()}


class Row(NamedTuple):
    """Costs of a body, the worst of all visits."""

    stock: Cost
    ours: Cost
    outcomes: list[str]

    @property
    def more_s(self) -> float:
        """Longest turn of the reactor beyond that of stock Scrapy, s."""
        return printed(self.ours.turn_s, ".2f") - printed(self.stock.turn_s, ".2f")

    @property
    def more_mb(self) -> float:
        return printed(self.ours.peak_mb - self.stock.peak_mb, ".0f")


def rows(names: list[str], size: int) -> dict[str, Row]:
    """Costs of bodies by their names."""
    by_body: dict[str, list[Cost]] = {name: [] for name in names}
    with serving(names, size) as (port, visit), tempfile.TemporaryDirectory() as store:
        stock = in_fresh_process(crawl, port, names, None)
        for number in range(1, VISITS + 1):
            visit[0] = number
            for name, cost in in_fresh_process(crawl, port, names, f"{store}/store").items():
                by_body[name].append(cost)
    return {
        name: Row(
            stock[name],
            Cost(max(one.turn_s for one in costs), max(one.peak_mb for one in costs), ""),
            [one.outcome for one in costs],
        )
        for name, costs in by_body.items()
    }


def main() -> int:
    """Print a row for each body; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bytes", type=int, default=5 * 2**20, help="size of each body (default: 5 MiB)")
    parser.add_argument("--only", default="", help="bodies whose name has this")
    arguments = parser.parse_args()
    print(machine())
    print(f"python -m benchmarks.hostile_parsers {' '.join(sys.argv[1:])}\n")
    print("| body | stock: turn, s | MB | add-on: turn, s | MB more | visits |\n|---|---|---|---|---|---|")
    names = [name for name in BODIES if arguments.only in name]
    measured = rows(names, arguments.bytes)
    for name, row in measured.items():
        print(
            f"| {name} | {row.stock.turn_s:.2f} | {row.stock.peak_mb:.0f} | {row.ours.turn_s:.2f} | "
            f"{row.more_mb:.0f} | {', '.join(row.outcomes)} |"
        )
    slow, large = (
        max(measured, key=key) for key in (lambda n: measured[n].more_s, lambda n: measured[n].more_mb)
    )
    holds = verdict(
        f"{slow}: longest turn, s more than stock", measured[slow].more_s, TARGET_S, at_least=False
    )
    holds &= verdict(f"{large}: peak, MB more than stock", measured[large].more_mb, TARGET_MB, at_least=False)
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
