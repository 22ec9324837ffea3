"""Cost of one host's endless calendar to other hosts: the delay of their new pages, and memory.

    python -m benchmarks.calendar_trap [--cycles 22]

Real crawls of loopback hosts by a spider that follows every link. Five hosts have 60 pages each and a start
page that gains a link in every cycle; a sixth is a calendar, whose pages link to ever more, without end.
Budget 50 visits, of which 5 are for hubs, and 100 first visits per cycle (``GP4C_NEW_PAGES``), the same with
the calendar, from the first cycle on, and without. The calendar is

- *deep*: a page shows the same links at every visit;
- *turning*: it shows others at every visit, so that its pages are the best hubs of all.

For each: links that became known, pages of the calendar that were fetched, the delay of the other hosts' new
pages from cycle 8 on (a page never fetched counts until the end), and the peaks of a crawl's resident and
anonymous memory. Anonymous memory is without mapped files such as the store, whose pages the system takes
back when it needs them. Targets: at most one cycle and 32 MB of anonymous memory more than without a
calendar. Every cycle's crawl is a process of its own.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import (
    Answer,
    address_of,
    exit_code,
    follow_links,
    in_fresh_process,
    machine,
    peak_mb,
    peak_memory,
    printed,
    serve,
    verdict,
)
from scrapy_gp4c.store.opening import open_store

SITES, PAGES = 5, 60
FIRST_COUNTED = 8
NONE, DEEP, TURNING = "none", "deep", "turning"
LINKS_OF_A_PAGE = {DEEP: 60, TURNING: 25}  # so that 22 cycles come to know 100,000
DELAY_CYCLES, MEMORY_MB = 1.0, 32.0
SETTINGS = {
    "ADDONS": {"scrapy_gp4c.Addon": 500},
    "GP4C_BUDGET": SITES * PAGES // 6,
    "GP4C_NEW_PAGES": 100,
    "LOG_LEVEL": "WARNING",
    "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 32,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
}


class Web:
    """Hosts in threads: 127.0.0.1 has the calendar, the others grow; ``cycle`` is set from outside."""

    def __init__(self, calendar: str) -> None:
        """``calendar``: its kind, `NONE`, `DEEP` or `TURNING`."""
        self.cycle, self.calendar = 1, calendar
        servers = serve(lambda host, path: Answer(self.page(path).encode()), SITES + 1)
        self.starts = [f"{address_of(server)}/" for server in servers]
        self.starts[0] += "calendar/0"
        if calendar == NONE:
            del self.starts[0]

    def page(self, path: str) -> str:
        """Text of a page in this cycle."""
        if path == "/":
            numbers = range(PAGES + self.cycle - 1)
            links = "".join(f'<a href="/page/{n}">page {n}</a> ' for n in reversed(numbers))
            return f"<html><body><h1>{len(numbers)} pages</h1>{links}</body></html>"
        number = int(path.partition("?")[0].rpartition("/")[2])
        if path.startswith("/calendar/"):
            size = LINKS_OF_A_PAGE[self.calendar]
            first = size * number + 1
            query = f"?seen={self.cycle}" if self.calendar == TURNING else ""
            shown = range(first, first + size)
            links = "".join(f'<a href="/calendar/{n}{query}">day {n}</a> ' for n in shown)
            return f"<html><body><h1>Day {number}</h1>{links}</body></html>"
        version = self.cycle if number % 7 == 0 else 1
        text = f"page {number} tells what is new in version {version}. " * 9
        return f"<html><body><p>{text}</p></body></html>"


def crawl(starts: Sequence[str], folder: str) -> tuple[float, float]:
    """Crawl once; for a fresh process. Returns its peaks of memory, all and its own, MB."""
    own_bytes = [0]
    with peak_memory(own_bytes):
        follow_links(starts, {**SETTINGS, "GP4C_STORE": folder})
    return peak_mb(), own_bytes[0] / 2**20


class Row(NamedTuple):
    """Results of the crawls of one kind of calendar: a row of the table."""

    known: int
    """Pages of the calendar that became known."""
    fetched: int
    """Pages of the calendar that were fetched."""
    delay_cycles: float
    """Mean delay of the other hosts' new pages."""
    worst_cycles: int
    peak_mb: float
    own_mb: float
    time_s: float


def row(calendar: str, cycles: int) -> Row:
    """Crawl ``cycles`` cycles with this kind of calendar, and read the results from the store."""
    with tempfile.TemporaryDirectory() as directory:
        folder = str(Path(directory, "store"))
        began_s = time.perf_counter()
        web, peaks_mb = Web(calendar), []
        for web.cycle in range(1, cycles + 1):
            peaks_mb.append(in_fresh_process(crawl, web.starts, folder))
        time_s = time.perf_counter() - began_s
        with open_store(folder, readonly=True) as store:
            urls = [request["url"] for request in store.requests(range(store.pages))]
            first: dict[int, int] = {}
            for cycle, visits in store.visits():
                for page in visits["page"].tolist():
                    first.setdefault(page, cycle)
    of_calendar = [page for page, url in enumerate(urls) if "/calendar/" in url]
    fetched = {url: first[page] for page, url in enumerate(urls) if page in first}
    delays = [
        fetched.get(f"{start}page/{PAGES + born - 2}", cycles + 1) - born
        for start in [url for url in urls if url.count("/") == 3 and url.endswith("/")]
        for born in range(FIRST_COUNTED, cycles + 1)
    ]
    visited = sum(page in first for page in of_calendar)
    whole_mb, own_mb = np.max(peaks_mb, axis=0).tolist()
    return Row(len(of_calendar), visited, float(np.mean(delays)), max(delays), whole_mb, own_mb, time_s)


def main() -> int:
    """Print the table; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=22, help="of a row (default: %(default)s)")
    options = parser.parse_args()
    if options.cycles < FIRST_COUNTED:
        parser.error(f"--cycles {options.cycles}: delays count from cycle {FIRST_COUNTED} on; give more")
    print(machine())
    print("| calendar | links known | fetched | mean delay, cycles | worst | peak, MB | its own | time, s |")
    print("|---|---|---|---|---|---|---|---|")
    rows = {}
    for calendar in (NONE, DEEP, TURNING):
        rows[calendar] = one = row(calendar, options.cycles)
        print(
            f"| {calendar} | {one.known:,} | {one.fetched:,} | {one.delay_cycles:.2f} | {one.worst_cycles} "
            f"| {one.peak_mb:.0f} | {one.own_mb:.0f} | {one.time_s:.0f} |",
            flush=True,
        )
    held = []
    for calendar in (DEEP, TURNING):
        delays, private_mb = (
            [printed(getattr(rows[one], name), form) for one in (calendar, NONE)]
            for name, form in (("delay_cycles", ".2f"), ("own_mb", ".0f"))
        )
        more, named = delays[0] - delays[1], f"{calendar}: more delay, cycles"
        held.append(verdict(named, more, DELAY_CYCLES, at_least=False))
        more, named = private_mb[0] - private_mb[1], f"{calendar}: more memory, MB"
        held.append(verdict(named, more, MEMORY_MB, at_least=False))
    return exit_code(*held)


if __name__ == "__main__":
    sys.exit(main())
