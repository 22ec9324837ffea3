"""Growth of memory, descriptors, files, log and time over a year of daily cycles.

    python -m benchmarks.year [--cycles 365]

Real crawls of a loopback site, one after the other in one process, so that what a crawl leaves behind adds
up: 60 pages, of which a fifth changes a day, a sitemap that says which, and one page more a week. With an
archive of texts, hints, a control group, retention of 14 cycles, signals, a feed and a command.
Late is the mean of the last eighth of the cycles, early that of the second. Targets: at most 1.1 times.
Processor time and the archive count by page, because the site grows. The store keeps the record of every
cycle whatever its retention: at most 4 kB a cycle.
"""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.common import Answer, address_of, in_fresh_process, machine, printed, serve, verdict
from scrapy_gp4c.store.opening import verify

PAGES: Final = 60
KEPT_CYCLES: Final = 14
TARGETS: Final = {
    "memory, MB": 1.1,
    "descriptors": 1.0,
    "archive, kB a page": 1.1,
    "feed, kB": 1.1,
    "log, lines": 1.1,
    "time, ms a page": 1.1,
    "store, kB": inf,
}
MOST_STORE_KB: Final = 4.0
"""Growth of the store by a cycle, at most."""


class Site:
    """A site in a thread; ``cycle`` is set from outside."""

    def __init__(self) -> None:
        self.cycle = 1
        (server,) = serve(lambda host, path: Answer(self.page(path).encode()))
        self.address = address_of(server)

    def page(self, path: str) -> str:
        """Text of a page in this cycle."""
        numbers = range(PAGES + self.cycle // 7)
        if path == "/sitemap.xml":
            entries = "".join(
                f"<url><loc>{self.address}/{n}</loc><lastmod>{_day(self._version(n))}</lastmod></url>"
                for n in numbers
            )
            return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        if path == "/":
            return "<html><body><h1>Start</h1>" + "".join(f'<a href="/{n}">{n}</a> ' for n in numbers)
        number = int(path[1:])
        version = self._version(number)
        text = f"page {number} tells in version {version} what word{version} is new in it. " * 9
        return f"<html><body><p>{text}</p></body></html>"

    def _version(self, number: int) -> int:
        return (self.cycle + number) // 5


def _day(version: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(1.7e9 + 5 * 86_400 * version))


def crawl_all(cycles: int, folder: str) -> list[list[float]]:
    """Crawl so many times in one process; returns a row of `TARGETS` for each."""
    from scrapy import Spider
    from scrapy.crawler import AsyncCrawlerRunner
    from scrapy.utils.log import configure_logging
    from scrapy.utils.reactor import install_reactor

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    from scrapy_gp4c import signals

    site = Site()
    lines = [0]

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines[0] += 1

    configure_logging({"LOG_INSTALL_ROOT_HANDLER": False})
    logging.getLogger().handlers = [Lines()]
    logging.getLogger().setLevel(logging.INFO)

    class News(Spider):
        name = "news"
        start_urls = (f"{site.address}/", f"{site.address}/sitemap.xml")

        def parse(self, response: Any) -> Iterator[Any]:
            self.crawler.signals.connect(self.on_event, signals.page_changed)
            if not response.url.endswith(".xml"):
                yield from response.follow_all(css="a")

        def on_event(self, event: Any) -> None:
            """Ignore the event."""

    settings = {
        "ADDONS": {"scrapy_gp4c.Addon": 500},
        "GP4C_STORE": f"{folder}/store",
        "GP4C_ARCHIVE": True,
        "GP4C_BUDGET": 30,
        "GP4C_PANEL": 0.05,
        "GP4C_KEEP_CYCLES": KEPT_CYCLES,
        "GP4C_FEED": f"{folder}/feed.json",
        "GP4C_ON_CHANGE": "cat > /dev/null",
        "TELNETCONSOLE_ENABLED": False,
    }
    rows = []

    async def crawls() -> None:
        for cycle in range(1, cycles + 1):
            site.cycle = cycle
            lines[0] = 0
            start_s = time.process_time()
            await AsyncCrawlerRunner(settings).crawl(News)
            took_s = time.process_time() - start_s
            pages = PAGES + cycle // 7
            await asyncio.sleep(0.2)  # the site, in the same process, closes its ends of connections
            with Path("/proc/self/status").open() as status:
                memory_kb = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
            rows.append(
                [
                    memory_kb / 1024,
                    len(os.listdir("/proc/self/fd")),
                    _kb(f"{folder}/store/texts.sqlite") / pages,
                    _kb(f"{folder}/feed.json"),
                    lines[0],
                    1e3 * took_s / pages,
                    _kb(f"{folder}/store/data.mdb"),
                ]
            )

    done: Any = Deferred.fromFuture(asyncio.ensure_future(crawls()))
    failures: list[Any] = []
    done.addErrback(failures.append)
    done.addBoth(lambda _: reactor.stop())  # type: ignore[attr-defined]
    reactor.run()  # type: ignore[attr-defined]
    if failures:
        failures[0].raiseException()
    return rows


def _kb(path: str) -> float:
    return Path(path).stat().st_size / 1e3 if Path(path).exists() else 0.0


def main() -> int:
    """Print the table; return 1 where a target is missed or the store is not sound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=365)
    cycles = parser.parse_args().cycles
    print(machine())
    print(f"python -m benchmarks.year {' '.join(sys.argv[1:])}\n")
    with tempfile.TemporaryDirectory() as folder:
        rows = np.array(in_fresh_process(crawl_all, cycles, folder))
        problems = verify(Path(folder, "store"), deep=True).problems
    print(f"| {' | '.join(('', *TARGETS))} |\n|{'---|' * (1 + len(TARGETS))}")
    early, late = (
        rows[span].mean(axis=0) for span in (slice(cycles // 8, cycles // 4), slice(-cycles // 8, None))
    )
    early, late = ([printed(value, ",.2f") for value in means] for means in (early, late))
    for name, values in (("early", early), ("late", late)):
        print(f"| {name} | {' | '.join(f'{value:,.2f}' for value in values)} |")
    print(f"\nverify --deep: {problems or 'sound'}")
    held = [
        verdict(f"{name}, late by early", after / before, TARGETS[name], at_least=False)
        for name, before, after in zip(TARGETS, early, late, strict=True)
        if TARGETS[name] < inf
    ]
    growth_kb = (rows[-1, -1] - rows[cycles // 8, -1]) / (cycles - cycles // 8)
    held.append(verdict("store, kB more a cycle", growth_kb, MOST_STORE_KB, at_least=False))
    return 0 if all(held) and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
