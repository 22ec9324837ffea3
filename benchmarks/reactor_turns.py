"""Longest turn of the reactor in a crawl of hostile pages: the time that one page holds up all others.

    python -m benchmarks.reactor_turns [--bytes 1048576]

Every hostile text, as an HTML page of its own, is crawled twice: with stock Scrapy and with scrapy-gp4c. A
turn is one callback of the event loop. Its processor time counts: other processes are in the wall clock.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from time import perf_counter, thread_time
from typing import Any, NamedTuple

from benchmarks.common import exit_code, in_fresh_process, machine, printed, verdict
from benchmarks.hostile_texts import HOSTILE
from benchmarks.server import server

TARGET_S = 0.25


class Turns(NamedTuple):
    """Reactor turns of a crawl."""

    pages: int
    longest_cpu_s: float
    longest_wall_s: float
    crawl_s: float


def crawl(port: int, pages: int, store: str | None) -> Turns:
    """Crawl all pages once, with the add-on where a store is given; for a fresh process."""
    from scrapy import Request, Spider
    from scrapy.crawler import AsyncCrawlerProcess

    longest = [0.0, 0.0]
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        cpu_s, wall_s = thread_time(), perf_counter()
        run(self)
        longest[0] = max(longest[0], thread_time() - cpu_s)
        longest[1] = max(longest[1], perf_counter() - wall_s)

    class Hostile(Spider):
        name = "hostile"
        read = 0

        async def start(self) -> AsyncIterator[Any]:
            asyncio.Handle._run = timed  # type: ignore[method-assign] # what comes before is no page's doing
            for number in range(pages):
                yield Request(f"http://127.0.0.1:{port}/{number}")

        def parse(self, response: Any) -> None:
            self.read += 1

    settings: dict[str, Any] = {"LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False}
    if store is not None:
        settings |= {"ADDONS": {"scrapy_gp4c.Addon": 500}, "GP4C_STORE": store}
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(Hostile)
    begin = perf_counter()
    process.crawl(crawler)
    process.start()
    return Turns(crawler.spider.read, longest[0], longest[1], perf_counter() - begin)  # type: ignore[union-attr]


def main() -> int:
    """Print the longest turns; return 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bytes", type=int, default=2**20, help="size of each page (default: %(default)s)")
    arguments = parser.parse_args()
    print(machine())
    bodies = [
        f"<html><body><p>{text.text(arguments.bytes)}</p></body></html>".encode("utf-8", "surrogatepass")
        for text in HOSTILE.values()
    ]
    print(f"\n{len(bodies)} hostile pages of {arguments.bytes:,} bytes")
    print("crawl     longest turn, CPU s   wall s   whole crawl, s")
    with server(bodies) as port:
        for name in ("stock", "add-on"):
            with tempfile.TemporaryDirectory() as store:
                folder = f"{store}/store" if name == "add-on" else None
                turns = in_fresh_process(crawl, port, len(bodies), folder)
            if turns.pages != len(bodies):
                raise RuntimeError(f"{name}: {turns.pages} of {len(bodies)} pages were read")
            print(f"{name:8} {turns.longest_cpu_s:20.3f} {turns.longest_wall_s:8.3f} {turns.crawl_s:17.1f}")
    return exit_code(
        verdict(
            "longest turn of the reactor, seconds",
            printed(turns.longest_cpu_s, ".3f"),
            TARGET_S,
            at_least=False,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
