"""Longest turn of the reactor, and memory, of crawls of hostile bodies: a row for every parser of answers.

    python -m benchmarks.hostile_parsers [--bytes 5242880] [--only NAME]

Each body of `benchmarks.hostile_bodies` is visited three times by stock Scrapy and three times by the add-on,
which has an archive and a callback that asks for differences. Each visit is a crawl in a process of its own:
the allocator keeps memory of earlier bodies. A turn is one callback of the event loop, by processor time.
Targets: 0.25 s and 100 MB more than stock Scrapy.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any, NamedTuple

from benchmarks.common import Answer, exit_code, in_fresh_process, machine, peak_mb, printed, serve, verdict
from benchmarks.hostile_bodies import BODIES, NO_RULES, SHORT, HostileBody

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
def serving(body: HostileBody, size: int) -> Iterator[tuple[int, list[int]]]:
    """Serve a body; yields the port, and a list whose item is the visit's number."""
    visit = [1]

    def answer(host: int, path: str) -> Answer:
        one = body
        if body.is_robots_txt != (path == "/robots.txt"):
            one = SHORT if body.is_robots_txt else NO_RULES
        return Answer(one.make(size, visit[0]), headers=one.headers)

    (server,) = serve(answer, 1)
    yield server.server_port, visit
    server.shutdown()
    server.server_close()


def crawl(port: int, name: str, store: str | None) -> Cost:
    """Visit a body once, with the add-on where a store is given."""
    from scrapy import Request, Spider
    from scrapy.crawler import AsyncCrawlerProcess

    url = f"http://127.0.0.1:{port}/sitemap.xml"
    longest_s, outcome = 0.0, "no visit"
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        nonlocal longest_s
        start_s = thread_time()
        run(self)
        longest_s = max(longest_s, thread_time() - start_s)

    class Hostile(Spider):
        name = "hostile"

        async def start(self) -> AsyncIterator[Any]:
            asyncio.Handle._run = timed  # type: ignore[method-assign] # what comes before is no page's doing
            yield Request(url, errback=self.failed)

        def parse(self, response: Any) -> None:
            nonlocal outcome
            visit = response.meta.get("gp4c")
            if visit is not None:
                outcome = visit["outcome"]
                visit.diff()

        def failed(self, failure: Any) -> None:
            nonlocal outcome
            outcome = failure.type.__name__

    settings: dict[str, Any] = {
        "LOG_LEVEL": "CRITICAL",
        "TELNETCONSOLE_ENABLED": False,
        "RETRY_ENABLED": False,
        "ROBOTSTXT_OBEY": True,
    }
    if store is not None:
        rule = BODIES[name].rule
        settings |= {
            "ADDONS": {"scrapy_gp4c.Addon": 500},
            "GP4C_STORE": store,
            "GP4C_ARCHIVE": True,
            "GP4C_BUDGET": 1.0,
            "GP4C_SITE_SHARE": 1.0,
            "GP4C_WARMUP_VISITS": 0,
            "GP4C_RULES": [{"match": url, **rule}] if rule else [],
        }
    process = AsyncCrawlerProcess(settings)
    process.crawl(process.create_crawler(Hostile))
    process.start()
    return Cost(longest_s, peak_mb(), outcome)


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


def row(name: str, size: int) -> Row:
    """Costs of a body by its name."""
    stock, ours = [], []
    with serving(BODIES[name], size) as (port, visit), tempfile.TemporaryDirectory() as store:
        for visit[0] in range(1, VISITS + 1):
            stock.append(in_fresh_process(crawl, port, name, None))
            ours.append(in_fresh_process(crawl, port, name, f"{store}/store"))
    return Row(_worst(stock), _worst(ours), [cost.outcome for cost in ours])


def _worst(costs: list[Cost]) -> Cost:
    return Cost(max(cost.turn_s for cost in costs), max(cost.peak_mb for cost in costs), "")


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
    measured = {}
    for name in names:
        measured[name] = one = row(name, arguments.bytes)
        print(
            f"| {name} | {one.stock.turn_s:.2f} | {one.stock.peak_mb:.0f} | {one.ours.turn_s:.2f} | "
            f"{one.more_mb:.0f} | {', '.join(one.outcomes)} |",
            flush=True,
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
