"""Longest turn of the reactor, and memory, of crawls of hostile bodies: a row for every parser of answers.

    python -m benchmarks.hostile_parsers [--bytes 5242880] [--only NAME]

Every body of `benchmarks.hostile_bodies` is visited three times, with an archive and a callback that asks for
the difference: by stock Scrapy once, by scrapy-gp4c three times. A turn is one callback of the event loop, by
processor time. Targets: 0.25 s and 100 MB more than stock Scrapy.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any, NamedTuple

from benchmarks.common import Answer, address_of, in_fresh_process, machine, peak_mb, printed, serve, verdict
from benchmarks.hostile_bodies import BODIES, NO_RULES

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
def serving(names: list[str], size: int) -> Iterator[tuple[str, list[int]]]:
    """Serve bodies by their number; yields the address, and the number of the visit, which decides them."""
    visit = [1]

    def answer(host: int, path: str) -> Answer:
        number = path.partition("sitemap")[2].partition(".xml")[0]
        body = BODIES[names[int(number)]] if number else NO_RULES
        return Answer(body.make(size, visit[0]), headers=body.headers)

    (server,) = serve(answer)
    with server:
        yield address_of(server), visit
        server.shutdown()


def crawl(address: str, names: list[str], store: str | None) -> dict[str, Cost]:
    """Visit every body once, one after the other, with the add-on where a store is given."""
    from scrapy import Request, Spider, signals
    from scrapy.crawler import AsyncCrawlerProcess

    longest, costs, outcomes = [0.0], {}, {}
    current: list[str] = []
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        start_s = thread_time()
        run(self)
        longest[0] = max(longest[0], thread_time() - start_s)

    def name_of(url: str) -> str:
        return names[int(url.rpartition("sitemap")[2].partition(".")[0])] if "sitemap" in url else ""

    def ended() -> None:
        if current:
            costs[current.pop()] = longest[0], peak_mb()
        longest[0] = 0.0
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak begins anew

    def leaves(request: Any, spider: Any) -> None:
        ended()
        current.append(name_of(request.url))

    class Hostile(Spider):
        name = "hostile"

        async def start(self) -> AsyncIterator[Any]:
            self.crawler.signals.connect(leaves, signals.request_reached_downloader)
            asyncio.Handle._run = timed  # type: ignore[method-assign] # what comes before is no page's doing
            for number in range(len(names)):
                yield Request(f"{address}/sitemap{number}.xml", errback=self.failed)

        def parse(self, response: Any) -> None:
            visit = response.meta.get("gp4c")
            if visit is not None:
                outcomes[name_of(response.request.url)] = visit["outcome"]
                visit.diff()

        def failed(self, failure: Any) -> None:
            outcomes[name_of(failure.request.url)] = failure.type.__name__

    settings: dict[str, Any] = {
        "LOG_LEVEL": "CRITICAL",
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS": 1,
        "RETRY_ENABLED": False,
    }
    if store is not None:
        settings |= {
            "ADDONS": {"scrapy_gp4c.Addon": 500},
            "GP4C_STORE": store,
            "GP4C_ARCHIVE": True,
            "GP4C_BUDGET": 1.0,
            "GP4C_SITE_SHARE": 1.0,
            "GP4C_WARMUP_VISITS": 0,
        }
    process = AsyncCrawlerProcess(settings)
    process.crawl(process.create_crawler(Hostile))
    process.start()
    ended()
    return {name: Cost(*cost, outcomes.get(name, "no visit")) for name, cost in costs.items() if name}


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
    with serving(names, size) as (address, visit), tempfile.TemporaryDirectory() as store:
        stock = in_fresh_process(crawl, address, names, None)
        for number in range(1, VISITS + 1):
            visit[0] = number
            for name, cost in in_fresh_process(crawl, address, names, f"{store}/store").items():
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
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
